/* shard.c - writing one rank's file of a checkpoint, and verifying such files; see shard.h.
 *
 * shard_make() lets HDF5 lay the file out, which fixes the offset of every piece; shard_write()
 * then writes the pieces there by pwrite(), hashing each block before it leaves the caches.  Bytes
 * that belong to no piece (HDF5's headers) have a checksum of their own, "rest":
 *
 * | headers | piece | headers | piece | piece | headers |
 *
 * Verifying divides a file among ranks: a rank takes the pieces whose middle lies in its part, and
 * the rest if the file's last byte does.
 */
#include "io/shard.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alive.h"
#include "base/array.h"
#include "base/hash.h"
#include "base/round.h"
#include "io/checkpoint_private.h"
#include "io/disk.h"
#include "io/h5.h"

/* Bytes hashed and then written while they are still in the caches. */
enum { BLOCK_BYTES = 4 << 20, FLUSH_BYTES = 64 << 20 };

int shard_make(const char *path, const struct checkpoint_piece *pieces, int count,
               struct shard_place *places, struct error *err)
{
    struct h5 *file;
    if (h5_create(&file, path, err))
        return -1;
    int rc = 0;
    for (int i = 0; i < count && !rc; i++) {
        struct h5_dataset dataset;
        places[i] = (struct shard_place){0};
        if (!pieces[i].count)
            continue;
        struct box box = checkpoint_box(&pieces[i]);
        char *name = catalog_dataset_name(pieces[i].name, &box, pieces[i].start);
        rc = h5_reserve(file, name, pieces[i].dtype, 1, &pieces[i].count, &dataset, err);
        places[i].offset = rc ? 0 : dataset.offset;
        free(name);
        alive_note();
    }
    rc = h5_close(file, rc ? NULL : err) || rc ? -1 : 0;
    alive_note();
    return rc;
}

static int write_piece(int fd, const char *path, const struct checkpoint_piece *piece, char *buffer,
                       struct shard_place *place, struct error *err)
{
    int64_t bytes = piece->count * (int64_t)dtype_bytes(piece->dtype);
    struct hash *sum = hash_create();
    int rc = 0;
    for (int64_t at = 0; at < bytes && !rc; at += BLOCK_BYTES) {
        const char *block = piece->fetch ? buffer : (const char *)piece->data + at;
        size_t part = (size_t)min_i64(BLOCK_BYTES, bytes - at);
        rc = piece->fetch ? piece->fetch(piece, buffer, at, part, err) : 0;
        if (rc)
            break;
        hash_add(sum, block, part);
        rc = disk_write(fd, block, part, place->offset + at, path, err);
        if (!rc && (at + BLOCK_BYTES) % FLUSH_BYTES == 0)
            rc = disk_flush(fd, place->offset + at + BLOCK_BYTES - FLUSH_BYTES, FLUSH_BYTES, path,
                            err);
    }
    place->checksum = hash_finish(sum);
    return rc;
}

/* Walking a file: the pieces by offset, and what lies between them. */

struct span {
    int64_t offset, bytes;
    int64_t piece; /* in the catalog, or in the caller's list */
};

static int by_offset(const void *a, const void *b)
{
    const struct span *x = a, *y = b;
    return (x->offset > y->offset) - (x->offset < y->offset);
}

static int hash_range(int fd, const char *path, struct hash *sum, int64_t from, int64_t to,
                      char *buffer, struct error *err)
{
    while (from < to) {
        size_t part = (size_t)min_i64(BLOCK_BYTES, to - from);
        if (disk_read(fd, buffer, part, from, path, err))
            return -1;
        hash_add(sum, buffer, part);
        from += (int64_t)part;
    }
    return 0;
}

/* Checksum of all bytes of the file outside the spans, which are sorted here. */
static int hash_rest(int fd, const char *path, struct span *spans, int64_t count, int64_t size,
                     uint64_t *rest, struct error *err)
{
    char *buffer = malloc(BLOCK_BYTES);
    struct hash *sum = hash_create();
    int rc = buffer ? 0 : error_set(err, "%s: out of memory", path);
    int64_t at = 0;
    qsort(spans, (size_t)count, sizeof *spans, by_offset);
    for (int64_t i = 0; i <= count && !rc; i++) {
        rc = hash_range(fd, path, sum, at, i < count ? spans[i].offset : size, buffer, err);
        at = i < count ? spans[i].offset + spans[i].bytes : at;
    }
    *rest = hash_finish(sum);
    free(buffer);
    return rc;
}

static int describe(int fd, const char *path, const struct checkpoint_piece *pieces, int count,
                    const struct shard_place *places, struct catalog_file *file, struct error *err)
{
    struct stat info;
    struct span *spans = array_make((size_t)count, sizeof *spans);
    int64_t used = 0;
    int rc = 0;
    for (int i = 0; i < count; i++)
        if (pieces[i].count)
            spans[used++] = (struct span){
                places[i].offset, pieces[i].count * (int64_t)dtype_bytes(pieces[i].dtype), i};
    if (fstat(fd, &info))
        rc = error_errno(err, "cannot look at %s", path);
    file->bytes = rc ? 0 : info.st_size;
    if (!rc)
        rc = hash_rest(fd, path, spans, used, file->bytes, &file->rest, err);
    free(spans);
    return rc;
}

int shard_write(const char *path, const struct checkpoint_piece *pieces, int count,
                struct shard_place *places, struct catalog_file *file, struct error *err)
{
    int fd = disk_open(path, O_RDWR, err);
    if (fd < 0)
        return -1;
    char *buffer = malloc(BLOCK_BYTES); /* used only for pieces that are fetched */
    int rc = buffer ? 0 : error_set(err, "%s: out of memory", path);
    for (int i = 0; i < count && !rc; i++)
        if (pieces[i].count)
            rc = write_piece(fd, path, &pieces[i], buffer, &places[i], err);
    free(buffer);
    if (!rc)
        rc = describe(fd, path, pieces, count, places, file, err);
    return disk_finish(fd, path, rc ? NULL : err) || rc ? -1 : 0;
}

/* Verifying */

static int64_t find_spans(const struct catalog *catalog, int64_t shard, struct span *spans)
{
    int64_t used = 0;
    for (int64_t i = 0; i < catalog->piece_count; i++) {
        const struct catalog_piece *piece = &catalog->pieces[i];
        int dtype = dtype_find(catalog->tensors[piece->tensor].dtype);
        if (piece->shard == shard)
            spans[used++] = (struct span){
                piece->offset, piece->count * (int64_t)dtype_bytes((enum dtype)dtype), i};
    }
    return used;
}

static int verify_piece(int fd, const char *path, const struct catalog *catalog,
                        const struct span *span, char *buffer, struct error *err)
{
    const struct catalog_piece *piece = &catalog->pieces[span->piece];
    const struct box *box = &catalog->boxes[piece->box].box;
    char text[BOX_TEXT];
    struct hash *sum = hash_create();
    int rc = hash_range(fd, path, sum, span->offset, span->offset + span->bytes, buffer, err);
    if (hash_finish(sum) != piece->checksum && !rc)
        rc = error_set(err,
                       "%s: the checksum does not match: tensor %s%s, elements %lld to %lld, "
                       "at byte %lld",
                       path, catalog->tensors[piece->tensor].name, catalog_name_box(box, text),
                       (long long)piece->start, (long long)(piece->start + piece->count - 1),
                       (long long)piece->offset);
    return rc;
}

static int lies_in(int64_t offset, int64_t bytes, int64_t from, int64_t to)
{
    int64_t middle = offset + bytes / 2;
    return middle >= from && middle < to;
}

/* The pieces whose middle lies in [from, to), and the rest if the file's end does. */
static int verify_spans(int fd, const char *path, const struct catalog *catalog, int64_t shard,
                        int64_t from, int64_t to, struct span *spans, int64_t count,
                        struct error *err)
{
    int64_t bytes = catalog->files[shard].bytes;
    uint64_t rest = catalog->files[shard].rest;
    char *buffer = malloc(BLOCK_BYTES);
    int rc = buffer ? 0 : error_set(err, "%s: out of memory", path);
    for (int64_t i = 0; i < count && !rc; i++)
        if (lies_in(spans[i].offset, spans[i].bytes, from, to))
            rc = verify_piece(fd, path, catalog, &spans[i], buffer, err);
    free(buffer);
    if (!rc && lies_in(bytes - 1, 0, from, to))
        rc = hash_rest(fd, path, spans, count, bytes, &rest, err);
    if (!rc && rest != catalog->files[shard].rest)
        rc = error_set(err, "%s: the checksum of its HDF5 headers does not match", path);
    return rc;
}

int shard_verify(const char *path, const struct catalog *catalog, int64_t shard, int64_t from,
                 int64_t to, struct error *err)
{
    struct stat info;
    int fd = disk_open(path, O_RDONLY, err);
    if (fd < 0)
        return -1;
    struct span *spans = array_make((size_t)catalog->piece_count, sizeof *spans);
    int rc = 0;
    if (fstat(fd, &info))
        rc = error_errno(err, "cannot look at %s", path);
    else if (info.st_size != catalog->files[shard].bytes)
        rc = error_set(err, "%s has %lld bytes, %lld were written", path, (long long)info.st_size,
                       (long long)catalog->files[shard].bytes);
    else
        rc = verify_spans(fd, path, catalog, shard, from, to, spans,
                          find_spans(catalog, shard, spans), err);
    free(spans);
    close(fd);
    return rc;
}
