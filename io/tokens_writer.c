/* tokens_writer.c - writing token files of unknown length in constant memory; see tokens.h.
 *
 * A contiguous dataset cannot grow, and tokens are to be written only once:
 *  1. Make an HDF5 file without data, with every object aligned.  It shows the offset at which the
 *     dataset `tokens` will lie, whatever its length; so attributes that are not known yet have a
 *     size that does not change.
 *  2. Append tokens to a file PATH.partial-... (partial.h) from that offset on, starts of documents
 *     and mask to two files without a name.
 *  3. Make the HDF5 file again with the true lengths, still without data.  Copy its headers into
 *     the file of tokens, and the starts and the mask to the places that HDF5 gave to them.
 *  4. Seal the file (seal.h): put the checksums of all blocks at its end, the front at its start.
 *  5. fsync it and rename it.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/array.h"
#include "base/hash.h"
#include "base/round.h"
#include "io/disk.h"
#include "io/partial.h"
#include "io/seal.h"
#include "io/tokens.h"
#include "io/tokens_format.h"

enum { BUFFER_BYTES = 1 << 20 };

/* A file to which bytes are appended through a buffer. */
struct spool {
    int fd;
    char *path;
    size_t used;       /* bytes in the buffer */
    int64_t offset;    /* byte of the file to which the buffer will be written */
    struct hash *hash; /* of all bytes that were written; NULL: none */
    char buffer[BUFFER_BYTES];
};

struct tokens_writer {
    char *path;     /* of the finished file */
    char *skeleton; /* path of the HDF5 file without data */
    char tokenizer[64], source[TOKENS_SOURCE], chat[TOKENS_CHAT];
    int64_t vocab;
    int64_t largest;                  /* token so far; -1: none */
    int64_t count, documents, masked; /* so far; masked: tokens that have a mask */
    int64_t origin;                   /* offset of the tokens in the file */
    enum dtype dtype;                 /* of the stored tokens */
    struct spool tokens, starts, mask;
};

/* Spools */

/* Create the spool's file and remove its name, so that the file goes when it is closed.  Returns 0,
 * or -1 with err set. */
static int spool_open_hidden(struct spool *spool, struct error *err)
{
    spool->fd = disk_open(spool->path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, err);
    if (spool->fd < 0)
        return -1;
    return unlink(spool->path) ? error_errno(err, "cannot remove %s", spool->path) : 0;
}

/* Write the buffer out.  Returns 0, or -1 with err set. */
static int spool_flush(struct spool *spool, struct error *err)
{
    int rc = disk_write(spool->fd, spool->buffer, spool->used, spool->offset, spool->path, err);
    if (spool->hash)
        hash_add(spool->hash, spool->buffer, spool->used);
    spool->offset += (int64_t)spool->used;
    spool->used = 0;
    return rc;
}

/* Append bytes, at most BUFFER_BYTES.  Returns 0, or -1 with err set. */
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
    if (spool->hash)
        hash_finish(spool->hash);
    free(spool->path);
}

/* Creating */

/* Make the HDF5 file without data at writer->skeleton, and set places.  Returns 0, or -1 with err
 * set.
 */
static int make_skeleton(const struct tokens_writer *writer, uint64_t hash,
                         struct tokens_parts *places, struct error *err)
{
    struct h5 *file;
    int64_t format = TOKENS_SEALED, starts = writer->documents + 1;
    if (h5_create_after(&file, writer->skeleton, SEAL_FRONT, err))
        return -1;
    int rc =
        h5_set_value(file, "/", "format", H5_TYPE_I64, &format, err) ||
        h5_set_text(file, "/", "tokenizer", writer->tokenizer, err) ||
        h5_set_value(file, "/", "vocab", H5_TYPE_I64, &writer->vocab, err) ||
        h5_set_text(file, "/", "source", writer->source, err) ||
        h5_set_text_of(file, "/", TOKENS_CHAT_TEMPLATE, writer->chat, sizeof writer->chat, err) ||
        h5_set_value(file, "/", "hash", H5_TYPE_U64, &hash, err) ||
        h5_set_value(file, "/", "maximum", H5_TYPE_I64, &writer->largest, err) ||
        h5_reserve(file, TOKENS_DATASET, writer->dtype, 1, &writer->count, &places->tokens, err) ||
        h5_reserve(file, TOKENS_DOCUMENTS, H5_TYPE_U64, 1, &starts, &places->documents, err) ||
        (writer->masked &&
         h5_reserve(file, TOKENS_MASK, DTYPE_U8, 1, &writer->masked, &places->mask, err));
    return h5_close(file, rc ? NULL : err) || rc ? -1 : 0;
}

/* Do step 1, and create the files of step 2.  Returns 0, or -1 with err set. */
static int begin(struct tokens_writer *writer, struct error *err)
{
    struct tokens_parts places;
    writer->tokens.hash = hash_create();
    writer->tokens.fd = partial_create(&writer->tokens.path, writer->path, err);
    if (writer->tokens.fd < 0)
        return -1;
    writer->skeleton = array_format("%s.head", writer->tokens.path);
    writer->starts.path = array_format("%s.documents", writer->tokens.path);
    writer->mask.path = array_format("%s.mask", writer->tokens.path);
    if (spool_open_hidden(&writer->starts, err) || spool_open_hidden(&writer->mask, err))
        return -1;
    writer->count = 1; /* HDF5 gives no offset to an empty dataset */
    int rc = make_skeleton(writer, 0, &places, err);
    writer->count = 0;
    if (rc)
        return -1;
    if (unlink(writer->skeleton))
        return error_errno(err, "cannot remove %s", writer->skeleton);
    writer->origin = writer->tokens.offset = places.tokens.offset;
    return 0;
}

int tokens_create(struct tokens_writer **out, const char *path, const char *tokenizer,
                  int64_t vocab, const char *source, struct error *err)
{
    struct tokens_writer *writer = calloc(1, sizeof *writer);
    *out = NULL;
    if (!writer)
        return error_set(err, "%s: out of memory", path);
    writer->tokens.fd = writer->starts.fd = writer->mask.fd = -1;
    writer->vocab = vocab;
    writer->largest = -1;
    writer->dtype = vocab <= 65536 ? DTYPE_U16 : DTYPE_U32;
    snprintf(writer->tokenizer, sizeof writer->tokenizer, "%s", tokenizer);
    snprintf(writer->source, sizeof writer->source, "%s", source);
    writer->path = array_text(path);
    if (begin(writer, err)) {
        tokens_abandon(writer);
        return -1;
    }
    *out = writer;
    return 0;
}

void tokens_set_chat(struct tokens_writer *writer, const char *name)
{
    snprintf(writer->chat, sizeof writer->chat, "%s", name);
}

/* Appending */

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

int tokens_extend_mask(struct tokens_writer *writer, const uint8_t *mask, int64_t count,
                       struct error *err)
{
    for (int64_t i = 0; i < count; i++) {
        if (mask[i] > 1)
            return error_set(err, "%s: a mask of %u; it may be 0 or 1", writer->path, mask[i]);
        if (spool_add(&writer->mask, &mask[i], 1, err))
            return -1;
    }
    writer->masked += count;
    return 0;
}

/* Finishing */

/* Copy bytes [from, to) of the file in to byte `at` of the file out.  Blocks of zeros are left out:
 * the target reads as zeros there, because it is new.  Returns 0, or -1 with err set. */
static int copy(int in, int64_t from, int64_t to, int out, int64_t at, const char *path,
                struct error *err)
{
    static const char zeros[H5_ALIGN];
    char block[H5_ALIGN];
    while (from < to) {
        size_t bytes = (size_t)min_i64(to - from, H5_ALIGN);
        if (disk_read(in, block, bytes, from, path, err) ||
            (memcmp(block, zeros, bytes) && disk_write(out, block, bytes, at, path, err)))
            return -1;
        from += (int64_t)bytes;
        at += (int64_t)bytes;
    }
    return 0;
}

/* Copy the skeleton around the tokens, and the starts and the mask into it.  *size becomes the
 * bytes of the file so far.  Returns 0, or -1 with err set. */
static int assemble(struct tokens_writer *writer, const struct tokens_parts *places, int64_t *size,
                    struct error *err)
{
    int out = writer->tokens.fd;
    const char *path = writer->tokens.path;
    int64_t end = writer->origin + writer->count * (int64_t)dtype_bytes(writer->dtype);
    if (writer->count && places->tokens.offset != writer->origin)
        return error_set(err, "%s: HDF5 put the tokens elsewhere than before", writer->path);
    int fd = disk_open(writer->skeleton, O_RDONLY, err);
    if (fd < 0)
        return -1;
    int rc = 0;
    *size = lseek(fd, 0, SEEK_END);
    if (*size < end || ftruncate(out, *size))
        rc = error_errno(err, "cannot write %s", path);
    else if (copy(fd, 0, writer->count ? writer->origin : *size, out, 0, path, err) ||
             (writer->count && copy(fd, end, *size, out, end, path, err)) ||
             copy(writer->starts.fd, 0, writer->starts.offset, out, places->documents.offset, path,
                  err) ||
             copy(writer->mask.fd, 0, writer->mask.offset, out, places->mask.offset, path, err))
        rc = -1;
    close(fd);
    return rc;
}

/* Seal the file; tokens, starts and mask are its large ranges.  Returns 0, or -1 with err set. */
static int add_checksums(struct tokens_writer *writer, const struct tokens_parts *places,
                         int64_t size, struct error *err)
{
    struct seal_range large[] = {
        {places->tokens.offset, writer->tokens.offset - writer->origin},
        {places->documents.offset, writer->starts.offset},
        {places->mask.offset, writer->mask.offset},
    };
    for (int i = 0; i < 3; i++)
        if (!large[i].bytes)
            large[i].offset = 0;
    return seal_write(writer->tokens.fd, writer->tokens.path, size, large, 3, err);
}

/* Give the file its final name, on the disk.  Returns 0, or -1 with err set. */
static int publish(struct tokens_writer *writer, struct error *err)
{
    struct stat replaced;
    /* the new file keeps the permissions of the one it replaces */
    if (!stat(writer->path, &replaced))
        fchmod(writer->tokens.fd, replaced.st_mode & 0777);
    if (fsync(writer->tokens.fd))
        return error_errno(err, "cannot write %s", writer->tokens.path);
    if (rename(writer->tokens.path, writer->path))
        return error_errno(err, "cannot rename %s to %s", writer->tokens.path, writer->path);
    free(writer->tokens.path);
    writer->tokens.path = NULL;
    return disk_sync_parent(writer->path, err);
}

/* Check that all tokens have a mask, or none has.  Returns 0, or -1 with err set. */
static int check_mask(const struct tokens_writer *writer, struct error *err)
{
    if (!writer->masked || writer->masked == writer->count)
        return 0;
    return error_set(err, "%s: a mask of %lld elements for %lld tokens", writer->path,
                     (long long)writer->masked, (long long)writer->count);
}

int tokens_finish(struct tokens_writer *writer, struct error *err)
{
    uint64_t total = (uint64_t)writer->count;
    struct tokens_parts places = {0};
    int64_t size = 0;
    int rc = check_mask(writer, err) || spool_add(&writer->starts, &total, sizeof total, err) ||
             spool_flush(&writer->starts, err) || spool_flush(&writer->mask, err) ||
             spool_flush(&writer->tokens, err);
    uint64_t hash = hash_finish(writer->tokens.hash);
    writer->tokens.hash = NULL;
    rc = rc || make_skeleton(writer, hash, &places, err) || assemble(writer, &places, &size, err) ||
         add_checksums(writer, &places, size, err) || publish(writer, err);
    tokens_abandon(writer);
    return rc ? -1 : 0;
}

void tokens_abandon(struct tokens_writer *writer)
{
    if (!writer)
        return;
    if (writer->tokens.path)
        unlink(writer->tokens.path);
    if (writer->skeleton)
        unlink(writer->skeleton);
    spool_close(&writer->tokens);
    spool_close(&writer->starts);
    spool_close(&writer->mask);
    free(writer->skeleton);
    free(writer->path);
    free(writer);
}
