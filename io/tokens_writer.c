/* tokens_writer.c - writing token files of unknown length in constant memory.
 *
 * A contiguous dataset cannot grow, yet tokens should be written once.  So:
 *  1. make an empty HDF5 file with every object aligned, which tells the offset at which
 *     `tokens` will lie, whatever its length;
 *  2. append tokens to PATH.partial from that offset on, document starts to a second file;
 *  3. make the HDF5 file again, sparse, with the true lengths; copy what surrounds `tokens`
 *     (headers in front, `documents` behind) into PATH.partial, fsync, rename.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"
#include "io/disk.h"
#include "io/h5.h"
#include "io/tokens.h"
#include "io/tokens_format.h"

enum { BUFFER_BYTES = 1 << 20, SOURCE_TEXT = 1024 };

/* Bytes appended to a file through a buffer. */
struct spool {
    int fd;
    char *path, *buffer;
    size_t used;
    int64_t offset;    /* of the next flush */
    struct hash *hash; /* of all bytes, or NULL */
};

struct tokens_writer {
    char *path, *skeleton;
    char tokenizer[64], source[SOURCE_TEXT];
    int64_t vocab, largest;
    int64_t count, documents;
    int64_t origin; /* offset of the tokens in the file */
    enum dtype dtype;
    struct spool tokens, starts;
};

static int spool_open(struct spool *spool, struct error *err)
{
    spool->buffer = malloc(BUFFER_BYTES);
    if (!spool->buffer)
        return error_set(err, "%s: out of memory", spool->path);
    spool->fd = disk_open(spool->path, O_RDWR | O_CREAT | O_TRUNC, err);
    return spool->fd < 0 ? -1 : 0;
}

static int spool_flush(struct spool *spool, struct error *err)
{
    int rc = disk_write(spool->fd, spool->buffer, spool->used, spool->offset, spool->path, err);
    if (spool->hash)
        hash_add(spool->hash, spool->buffer, spool->used);
    spool->offset += (int64_t)spool->used;
    spool->used = 0;
    return rc;
}

static int spool_add(struct spool *spool, const void *data, size_t bytes, struct error *err)
{
    if (spool->used + bytes > BUFFER_BYTES && spool_flush(spool, err))
        return -1;
    memcpy(spool->buffer + spool->used, data, bytes);
    spool->used += bytes;
    return 0;
}

static void spool_close(struct spool *spool)
{
    if (spool->fd >= 0)
        close(spool->fd);
    if (spool->path)
        unlink(spool->path);
    if (spool->hash)
        hash_finish(spool->hash);
    free(spool->buffer);
    free(spool->path);
}

/* The HDF5 file without its data, at writer->skeleton. */
static int make_skeleton(const struct tokens_writer *writer, uint64_t hash,
                         struct h5_dataset *tokens, struct h5_dataset *documents, struct error *err)
{
    struct h5 *file;
    int64_t format = TOKENS_FORMAT, starts = writer->documents + 1;
    if (h5_create(&file, writer->skeleton, H5_ALIGN_ALL, err))
        return -1;
    int rc = h5_set_value(file, "/", "format", H5_TYPE_I64, &format, err) ||
             h5_set_text(file, "/", "tokenizer", writer->tokenizer, err) ||
             h5_set_value(file, "/", "vocab", H5_TYPE_I64, &writer->vocab, err) ||
             h5_set_text(file, "/", "source", writer->source, err) ||
             h5_set_value(file, "/", "hash", H5_TYPE_U64, &hash, err) ||
             h5_set_value(file, "/", "maximum", H5_TYPE_I64, &writer->largest, err) ||
             h5_reserve(file, TOKENS_DATASET, writer->dtype, 1, &writer->count, tokens, err) ||
             h5_reserve(file, TOKENS_DOCUMENTS, H5_TYPE_U64, 1, &starts, documents, err);
    return h5_close(file, rc ? NULL : err) || rc ? -1 : 0;
}

static int begin(struct tokens_writer *writer, struct error *err)
{
    struct h5_dataset tokens, documents;
    if (spool_open(&writer->tokens, err) || spool_open(&writer->starts, err))
        return -1;
    writer->count = 1; /* an empty dataset has no place */
    int rc = make_skeleton(writer, 0, &tokens, &documents, err);
    writer->count = 0;
    if (rc)
        return -1;
    writer->origin = writer->tokens.offset = tokens.offset;
    return 0;
}

int tokens_create(struct tokens_writer **out, const char *path, const char *tokenizer,
                  int64_t vocab, const char *source, struct error *err)
{
    struct tokens_writer *writer = calloc(1, sizeof *writer);
    *out = NULL;
    if (!writer)
        return error_set(err, "%s: out of memory", path);
    writer->tokens.fd = writer->starts.fd = -1;
    writer->vocab = vocab;
    writer->largest = -1;
    writer->dtype = vocab <= 65536 ? DTYPE_U16 : DTYPE_U32;
    snprintf(writer->tokenizer, sizeof writer->tokenizer, "%s", tokenizer);
    snprintf(writer->source, sizeof writer->source, "%s", source);
    writer->path = disk_path(err, "%s", path);
    writer->skeleton = disk_path(err, "%s.partial.head", path);
    writer->tokens.path = disk_path(err, "%s.partial", path);
    writer->starts.path = disk_path(err, "%s.partial.documents", path);
    writer->tokens.hash = hash_create();
    if (!writer->path || !writer->skeleton || !writer->tokens.path || !writer->starts.path ||
        !writer->tokens.hash) {
        error_set(err, "%s: out of memory", path);
        goto fail;
    }
    if (begin(writer, err))
        goto fail;
    *out = writer;
    return 0;
fail:
    tokens_abandon(writer);
    return -1;
}

int tokens_extend(struct tokens_writer *writer, const uint32_t *ids, int64_t count,
                  struct error *err)
{
    int is_narrow = writer->dtype == DTYPE_U16;
    for (int64_t i = 0; i < count; i++) {
        uint16_t narrow = (uint16_t)ids[i];
        if (ids[i] >= writer->vocab)
            return error_set(err, "%s: token %u is outside the vocabulary of %lld", writer->path,
                             ids[i], (long long)writer->vocab);
        if (ids[i] > writer->largest)
            writer->largest = ids[i];
        const void *stored = is_narrow ? (const void *)&narrow : &ids[i];
        if (spool_add(&writer->tokens, stored, is_narrow ? 2 : 4, err))
            return -1;
    }
    writer->count += count;
    return 0;
}

int tokens_append(struct tokens_writer *writer, const uint32_t *document, int64_t count,
                  struct error *err)
{
    uint64_t start = (uint64_t)writer->count;
    writer->documents++;
    if (spool_add(&writer->starts, &start, sizeof start, err))
        return -1;
    return tokens_extend(writer, document, count, err);
}

/* Copy bytes [from, to) of one file to `at` in another.  Blocks of zeros are left out: both
 * files are new, so they read as zeros anyway. */
static int copy(int in, int64_t from, int64_t to, int out, int64_t at, const char *path,
                struct error *err)
{
    static const char zeros[H5_ALIGN];
    char block[H5_ALIGN];
    while (from < to) {
        size_t bytes = to - from < H5_ALIGN ? (size_t)(to - from) : H5_ALIGN;
        if (disk_read(in, block, bytes, from, path, err) ||
            (memcmp(block, zeros, bytes) && disk_write(out, block, bytes, at, path, err)))
            return -1;
        from += (int64_t)bytes;
        at += (int64_t)bytes;
    }
    return 0;
}

/* Put the skeleton around the tokens, and the document starts into it. */
static int assemble(struct tokens_writer *writer, uint64_t hash, struct error *err)
{
    struct h5_dataset tokens, documents;
    if (make_skeleton(writer, hash, &tokens, &documents, err))
        return -1;
    int fd = disk_open(writer->skeleton, O_RDONLY, err);
    if (fd < 0)
        return -1;
    int64_t end = writer->origin + writer->count * (int64_t)dtype_bytes(writer->dtype);
    int64_t size = lseek(fd, 0, SEEK_END);
    int rc = 0;
    if (writer->count && tokens.offset != writer->origin)
        rc = error_set(err, "%s: HDF5 put the tokens elsewhere than before", writer->path);
    else if (ftruncate(writer->tokens.fd, size))
        rc = error_errno(err, "cannot write %s", writer->tokens.path);
    else if (copy(fd, 0, writer->count ? writer->origin : size, writer->tokens.fd, 0,
                  writer->tokens.path, err) ||
             (writer->count &&
              copy(fd, end, size, writer->tokens.fd, end, writer->tokens.path, err)) ||
             copy(writer->starts.fd, 0, writer->starts.offset, writer->tokens.fd, documents.offset,
                  writer->tokens.path, err))
        rc = -1;
    close(fd);
    return rc;
}

static int publish(struct tokens_writer *writer, struct error *err)
{
    if (fsync(writer->tokens.fd))
        return error_errno(err, "cannot write %s", writer->tokens.path);
    if (rename(writer->tokens.path, writer->path))
        return error_errno(err, "cannot rename %s to %s", writer->tokens.path, writer->path);
    return disk_sync_parent(writer->path, err);
}

int tokens_finish(struct tokens_writer *writer, struct error *err)
{
    uint64_t total = (uint64_t)writer->count;
    int rc = spool_add(&writer->starts, &total, sizeof total, err) ||
             spool_flush(&writer->starts, err) || spool_flush(&writer->tokens, err);
    uint64_t hash = hash_finish(writer->tokens.hash);
    writer->tokens.hash = NULL;
    rc = rc || assemble(writer, hash, err) || publish(writer, err);
    tokens_abandon(writer);
    return rc ? -1 : 0;
}

void tokens_abandon(struct tokens_writer *writer)
{
    if (!writer)
        return;
    spool_close(&writer->tokens);
    spool_close(&writer->starts);
    if (writer->skeleton)
        unlink(writer->skeleton);
    free(writer->skeleton);
    free(writer->path);
    free(writer);
}
