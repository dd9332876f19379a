/* tokens.c - opening token files; see tokens.h.  They are written by tokens_writer.c. */
#include "io/tokens.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/disk.h"
#include "io/h5.h"
#include "io/tokens_format.h"

/* Where the parts lie in the file. */
struct parts {
    struct h5_dataset tokens, documents, mask;
    int has_mask;
};

/* A part must be a flat, contiguous dataset of the expected type. */
static int check_part(const struct h5_dataset *part, const char *name, int64_t elems, int type_ok,
                      struct error *err)
{
    if (part->rank != 1 || !type_ok)
        return error_set(err, "dataset %s has another shape or type than a token file's", name);
    if (elems >= 0 && part->elems != elems)
        return error_set(err, "dataset %s has %lld elements, %lld were expected", name,
                         (long long)part->elems, (long long)elems);
    if (part->elems && part->offset < 0)
        return error_set(err, "dataset %s is chunked or compressed; it must be contiguous", name);
    return 0;
}

static int is_aligned(const struct h5_dataset *part)
{
    return !part->elems || part->offset % (int64_t)h5_type_bytes(part->type) == 0;
}

static int read_parts(struct h5 *file, struct parts *parts, struct error *err)
{
    if (h5_locate(file, TOKENS_DATASET, &parts->tokens, NULL) ||
        h5_locate(file, TOKENS_DOCUMENTS, &parts->documents, NULL))
        return error_set(err,
                         "not a token file (no datasets %s and %s); "
                         "trireme tokenize makes one",
                         TOKENS_DATASET, TOKENS_DOCUMENTS);
    parts->has_mask = h5_has(file, TOKENS_MASK);
    if (parts->has_mask && h5_locate(file, TOKENS_MASK, &parts->mask, err))
        return -1;
    int type = parts->tokens.type;
    if (check_part(&parts->tokens, TOKENS_DATASET, -1, type == DTYPE_U16 || type == DTYPE_U32,
                   err) ||
        check_part(&parts->documents, TOKENS_DOCUMENTS, -1, parts->documents.type == H5_TYPE_U64,
                   err))
        return -1;
    if (parts->has_mask && check_part(&parts->mask, TOKENS_MASK, parts->tokens.elems,
                                      parts->mask.type == DTYPE_U8, err))
        return -1;
    if (!is_aligned(&parts->tokens))
        return error_set(err, "dataset %s begins at the odd offset %lld", TOKENS_DATASET,
                         (long long)parts->tokens.offset);
    return parts->documents.elems ? 0 : error_set(err, "dataset %s is empty", TOKENS_DOCUMENTS);
}

static int read_attributes(struct h5 *file, struct tokens *tokens, struct error *err)
{
    int64_t format, largest;
    if (h5_get_value(file, "/", "format", H5_TYPE_I64, &format, err) ||
        h5_get_value(file, "/", "vocab", H5_TYPE_I64, &tokens->vocab, err) ||
        h5_get_value(file, "/", "maximum", H5_TYPE_I64, &largest, err) ||
        h5_get_value(file, "/", "hash", H5_TYPE_U64, &tokens->hash, err) ||
        h5_get_text(file, "/", "tokenizer", tokens->tokenizer, sizeof tokens->tokenizer, err))
        return -1;
    if (format != TOKENS_FORMAT)
        return error_set(err, "token file format %lld; this version reads %d", (long long)format,
                         TOKENS_FORMAT);
    if (largest >= tokens->vocab)
        return error_set(err, "token %lld is outside the vocabulary of %lld", (long long)largest,
                         (long long)tokens->vocab);
    return 0;
}

static int ends_inside(const struct h5_dataset *part, size_t bytes)
{
    size_t width = h5_type_bytes(part->type);
    return !part->elems || ((size_t)part->offset <= bytes &&
                            (size_t)part->elems <= (bytes - (size_t)part->offset) / width);
}

static const void *at(const struct tokens *tokens, const struct h5_dataset *part)
{
    return part->elems ? (const char *)tokens->map + part->offset : NULL;
}

static int map_file(struct tokens *tokens, const char *path, const struct parts *parts,
                    struct error *err)
{
    struct stat info;
    int fd = disk_open(path, O_RDONLY, err);
    if (fd < 0)
        return -1;
    int rc = fstat(fd, &info) ? error_errno(err, "cannot look at the file") : 0;
    tokens->map_bytes = rc ? 0 : (size_t)info.st_size;
    if (!rc && (!ends_inside(&parts->tokens, tokens->map_bytes) ||
                !ends_inside(&parts->documents, tokens->map_bytes) ||
                (parts->has_mask && !ends_inside(&parts->mask, tokens->map_bytes))))
        rc = error_set(err, "the file is truncated");
    if (!rc) {
        tokens->map = mmap(NULL, tokens->map_bytes, PROT_READ, MAP_SHARED, fd, 0);
        if (tokens->map == MAP_FAILED) {
            tokens->map = NULL;
            rc = error_errno(err, "cannot map the file");
        }
    }
    close(fd);
    return rc;
}

/* Files that other programs wrote may have the starts anywhere: those are copied. */
static int find_starts(struct tokens *tokens, const struct h5_dataset *documents, struct error *err)
{
    size_t bytes = (size_t)documents->elems * sizeof *tokens->starts;
    tokens->starts = at(tokens, documents);
    tokens->documents = documents->elems - 1;
    if (!is_aligned(documents)) {
        tokens->copy = malloc(bytes);
        if (!tokens->copy)
            return error_set(err, "out of memory: %zu bytes", bytes);
        tokens->starts = memcpy(tokens->copy, tokens->starts, bytes);
    }
    if (tokens->starts[tokens->documents] != (uint64_t)tokens->count)
        return error_set(err, "the documents end at token %llu of %lld",
                         (unsigned long long)tokens->starts[tokens->documents],
                         (long long)tokens->count);
    return 0;
}

static int map_parts(struct tokens *tokens, const char *path, const struct parts *parts,
                     struct error *err)
{
    if (map_file(tokens, path, parts, err))
        return -1;
    tokens->data = at(tokens, &parts->tokens);
    tokens->dtype = (enum dtype)parts->tokens.type;
    tokens->count = parts->tokens.elems;
    tokens->mask = parts->has_mask ? at(tokens, &parts->mask) : NULL;
    return find_starts(tokens, &parts->documents, err);
}

int tokens_open(struct tokens *tokens, const char *path, struct error *err)
{
    struct h5 *file;
    struct parts parts;
    *tokens = (struct tokens){0};
    if (access(path, R_OK))
        return error_errno(err, "cannot open token file %s", path);
    if (h5_open(&file, path, err))
        return -1;
    tokens->path = disk_path(err, "%s", path);
    int rc = !tokens->path || read_parts(file, &parts, err) || read_attributes(file, tokens, err)
                 ? -1
                 : 0;
    h5_close(file, NULL);
    if (!rc)
        rc = map_parts(tokens, path, &parts, err);
    if (rc) {
        tokens_close(tokens);
        if (err && strncmp(err->text, path, strlen(path)))
            error_prefix(err, "%s", path);
    }
    return rc;
}

void tokens_close(struct tokens *tokens)
{
    if (tokens->map)
        munmap(tokens->map, tokens->map_bytes);
    free(tokens->path);
    free(tokens->copy);
    *tokens = (struct tokens){0};
}
