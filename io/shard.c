/* shard.c - writing one rank's file of a checkpoint, and verifying such files; see shard.h.
 *
 * HDF5 lays the file out, which fixes the offset of every piece; then the pieces are written there
 * by pwrite(), each block hashed before it leaves the caches.  Bytes that belong to no piece
 * (HDF5's headers) have a checksum of their own, "rest":
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
enum { BLOCK_BYTES = 4 << 20 };

/* An open file, with memory for a block. */
struct file {
    const char *path;
    int fd;
    char *block;     /* [BLOCK_BYTES] */
    int64_t flushed; /* while it is written: all bytes before this offset were flushed */
};

/* Close a file that was read, or could not be written. */
static void close_file(struct file *file)
{
    free(file->block);
    close(file->fd);
}

/* Close a file that was written, after an fsync.  Returns 0, or -1 with err set. */
static int finish_file(struct file *file, struct error *err)
{
    free(file->block);
    return disk_finish(file->fd, file->path, err);
}

/* Open a file for close_file() or finish_file().  Returns 0, or -1 with err set and nothing open.
 */
static int open_file(struct file *file, const char *path, int flags, struct error *err)
{
    *file = (struct file){.path = path, .fd = disk_open(path, flags, err)};
    if (file->fd < 0)
        return -1;
    file->block = malloc(BLOCK_BYTES);
    if (file->block)
        return 0;
    error_errno(err, "%s: no memory to read it by", path);
    close_file(file);
    return -1;
}

int shard_make(const char *path, const struct catalog *catalog, int64_t shard,
               const struct checkpoint_piece *pieces, int count, struct shard_place *places,
               struct error *err)
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
    rc = rc || catalog_write_views(catalog, file, shard, err);
    rc = h5_close(file, rc ? NULL : err) || rc ? -1 : 0;
    alive_note();
    return rc;
}

/* Write the bytes of a piece, from its memory or its fetch(), at place->offset, block by block, and
 * set place->checksum.  Returns 0, or -1 with err set. */
static int write_piece(struct file *file, const struct checkpoint_piece *piece, int64_t bytes,
                       struct shard_place *place, struct error *err)
{
    struct hash *sum = hash_create();
    int rc = 0;
    for (int64_t at = 0; at < bytes && !rc; at += BLOCK_BYTES) {
        const char *block = piece->fetch ? file->block : (const char *)piece->data + at;
        size_t part = (size_t)min_i64(BLOCK_BYTES, bytes - at);
        rc = piece->fetch ? piece->fetch(piece, file->block, at, part, err) : 0;
        if (rc)
            break;
        hash_add(sum, block, part);
        rc = disk_write(file->fd, block, part, place->offset + at, file->path, err) ||
             disk_flush_behind(file->fd, &file->flushed, place->offset + at + (int64_t)part,
                               file->path, err);
    }
    place->checksum = hash_finish(sum);
    return rc ? -1 : 0;
}

/* Hashing a file: its pieces, and the bytes between them */

/* Where a piece lies in the file. */
struct span {
    int64_t offset, bytes;
    int64_t piece; /* index: of the pieces to write, or in the catalog */
};

static int by_offset(const void *a, const void *b)
{
    const struct span *x = a, *y = b;
    return (x->offset > y->offset) - (x->offset < y->offset);
}

/* Add bytes [from, to) of the file to sum.  Returns 0, or -1 with err set. */
static int hash_range(const struct file *file, struct hash *sum, int64_t from, int64_t to,
                      struct error *err)
{
    while (from < to) {
        size_t part = (size_t)min_i64(BLOCK_BYTES, to - from);
        if (disk_read(file->fd, file->block, part, from, file->path, err))
            return -1;
        hash_add(sum, file->block, part);
        from += (int64_t)part;
    }
    return 0;
}

/* Set *rest to the checksum of all bytes of the file, of `size` bytes, outside the spans, which are
 * sorted by this call.  Returns 0, or -1 with err set. */
static int hash_rest(const struct file *file, struct span *spans, int64_t count, int64_t size,
                     uint64_t *rest, struct error *err)
{
    struct hash *sum = hash_create();
    int64_t at = 0;
    int rc = 0;
    qsort(spans, (size_t)count, sizeof *spans, by_offset);
    for (int64_t i = 0; i <= count && !rc; i++) {
        rc = hash_range(file, sum, at, i < count ? spans[i].offset : size, err);
        at = i < count ? spans[i].offset + spans[i].bytes : at;
    }
    *rest = hash_finish(sum);
    return rc;
}

int shard_fill(const char *path, const struct checkpoint_piece *pieces, int count,
               struct shard_place *places, struct catalog_file *row, struct error *err)
{
    struct file file;
    struct stat info;
    int64_t used = 0;
    int rc = 0;
    if (open_file(&file, path, O_RDWR, err))
        return -1;
    struct span *spans = array_make((size_t)count, sizeof *spans);
    for (int i = 0; i < count && !rc; i++) {
        int64_t bytes = pieces[i].count * (int64_t)dtype_bytes(pieces[i].dtype);
        if (!bytes)
            continue;
        spans[used++] = (struct span){places[i].offset, bytes, i};
        rc = write_piece(&file, &pieces[i], bytes, &places[i], err);
    }
    if (!rc && fstat(file.fd, &info))
        rc = error_errno(err, "cannot look at %s", path);
    row->bytes = rc ? 0 : info.st_size;
    if (!rc)
        rc = hash_rest(&file, spans, used, row->bytes, &row->rest, err);
    free(spans);
    return finish_file(&file, rc ? NULL : err) || rc ? -1 : 0;
}

/* Verifying */

/* Set spans[i] to where the piece with index numbers[i] lies, for `count` pieces. */
static void fill_spans(struct span *spans, const struct catalog *catalog, const int64_t *numbers,
                       int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        const struct catalog_piece *piece = &catalog->pieces[numbers[i]];
        int dtype = dtype_find(catalog->tensors[piece->tensor].dtype);
        spans[i] = (struct span){
            piece->offset, piece->count * (int64_t)dtype_bytes((enum dtype)dtype), numbers[i]};
    }
}

/* Recompute the checksum of a piece.  Returns 0, or -1 with err set: it differs, or the file cannot
 * be read. */
static int verify_piece(const struct file *file, const struct catalog *catalog,
                        const struct span *span, struct error *err)
{
    const struct catalog_piece *piece = &catalog->pieces[span->piece];
    const struct box *box = &catalog->boxes[piece->box].box;
    char text[BOX_TEXT];
    struct hash *sum = hash_create();
    int rc = hash_range(file, sum, span->offset, span->offset + span->bytes, err);
    if (hash_finish(sum) != piece->checksum && !rc)
        rc = error_set(err,
                       "%s: the checksum does not match: tensor %s%s, elements %lld to %lld, "
                       "at byte %lld",
                       file->path, catalog->tensors[piece->tensor].name,
                       catalog_name_box(box, text), (long long)piece->start,
                       (long long)(piece->start + piece->count - 1), (long long)piece->offset);
    return rc;
}

/* Returns 1 if the middle byte of [offset, offset + bytes) is in [from, to). */
static int lies_in(int64_t offset, int64_t bytes, int64_t from, int64_t to)
{
    int64_t middle = offset + bytes / 2;
    return middle >= from && middle < to;
}

/* Verify the pieces whose middle byte is in [from, to), and the bytes outside all pieces if the
 * file's last byte is.  Returns 0, or -1 with err set. */
static int verify_spans(const struct file *file, const struct catalog *catalog,
                        const struct catalog_shards *shards, int64_t shard, int64_t from,
                        int64_t to, struct error *err)
{
    int64_t first = shards->first[shard], count = shards->first[shard + 1] - first;
    int64_t bytes = catalog->files[shard].bytes;
    uint64_t rest = catalog->files[shard].rest;
    struct span *spans = array_make((size_t)count, sizeof *spans);
    int rc = 0;
    fill_spans(spans, catalog, shards->numbers + first, count);
    for (int64_t i = 0; i < count && !rc; i++)
        if (lies_in(spans[i].offset, spans[i].bytes, from, to))
            rc = verify_piece(file, catalog, &spans[i], err);
    if (!rc && lies_in(bytes - 1, 0, from, to))
        rc = hash_rest(file, spans, count, bytes, &rest, err);
    if (!rc && rest != catalog->files[shard].rest)
        rc = error_set(err, "%s: the checksum of its HDF5 headers does not match", file->path);
    free(spans);
    return rc;
}

/* Compare a file's size with the catalog.  Returns 0, or -1 with err set. */
static int check_size(const char *path, const struct stat *info, const struct catalog *catalog,
                      int64_t shard, struct error *err)
{
    int64_t bytes = catalog->files[shard].bytes;
    if (info->st_size == bytes)
        return 0;
    return error_set(err, "%s has %lld bytes, %lld were written", path, (long long)info->st_size,
                     (long long)bytes);
}

int shard_check_size(const char *folder, const struct catalog *catalog, int64_t shard,
                     struct error *err)
{
    struct stat info;
    char *path = catalog_shard_path(folder, shard);
    int rc = stat(path, &info) ? error_errno(err, "cannot look at %s", path)
                               : check_size(path, &info, catalog, shard, err);
    free(path);
    return rc;
}

int shard_verify(const char *folder, const struct catalog *catalog,
                 const struct catalog_shards *shards, int64_t shard, int64_t from, int64_t to,
                 struct error *err)
{
    struct file file;
    struct stat info;
    char *path = catalog_shard_path(folder, shard);
    int rc = open_file(&file, path, O_RDONLY, err);
    if (!rc) {
        rc = fstat(file.fd, &info) ? error_errno(err, "cannot look at %s", path)
                                   : check_size(path, &info, catalog, shard, err);
        if (!rc)
            rc = verify_spans(&file, catalog, shards, shard, from, to, err);
        close_file(&file);
    }
    free(path);
    return rc;
}
