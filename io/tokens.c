/* tokens.c - opening token files; see tokens.h.
 *
 *  1. Open the file, which must be a regular one; all later reads use this descriptor.
 *  2. Read its front.  If the file has checksums, verify all that HDF5 will read.
 *  3. Ask HDF5 where the datasets lie, and close the file in HDF5.
 *  4. Check that the datasets lie inside the file, and that the documents begin and end where the
 *     tokens do.
 */
#include "io/tokens.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alive.h"
#include "base/array.h"
#include "base/clock.h"
#include "io/tokens_format.h"

static const int64_t second_ns = 1000000000;

/* The file */

/* Returns 1 if path looks like a list of files or a pattern. */
static int names_several(const char *path)
{
    const char *first = strstr(path, ".h5");
    return strpbrk(path, ";*?") || (first && strstr(first + 1, ".h5"));
}

/* Open a regular file.  Returns its descriptor, or -1 with err set.  O_NONBLOCK: opening a pipe to
 * which no process writes would wait for ever. */
static int open_file(const char *path, struct error *err)
{
    struct stat info;
    int fd = ALIVE_CALL("opening", path, open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC));
    if (fd < 0 && errno == ENOENT && names_several(path))
        return error_set(err,
                         "no token file %s: patterns are not expanded here; name each file, with "
                         "commas between: a.h5,b.h5; or join them: trireme tokenize FILE.h5... -o "
                         "ALL.h5",
                         path);
    if (fd < 0 && errno == EMFILE)
        return error_set(
            err,
            "cannot open token file %s: each one stays open, and a process may have no more "
            "open files (ulimit -Hn); raise that limit, or join files: trireme tokenize "
            "FILE.h5... -o ALL.h5",
            path);
    if (fd < 0)
        return error_file(err, "cannot open token file", path);
    if (!fstat(fd, &info) && S_ISREG(info.st_mode))
        return fd;
    close(fd);
    return error_set(err, "%s is %s, not a token file", path,
                     S_ISDIR(info.st_mode)    ? "a folder (trireme tokenize FOLDER/*.h5 -o ALL.h5 "
                                                "joins what it holds)"
                     : S_ISFIFO(info.st_mode) ? "a pipe"
                                              : "a device");
}

/* Check that path still leads to the file open as fd, for HDF5 opens files by name.  Returns 0, or
 * -1 with err set. */
static int is_same_file(const char *path, int fd, struct error *err)
{
    struct stat named, opened;
    if (!stat(path, &named) && !fstat(fd, &opened) && named.st_dev == opened.st_dev &&
        named.st_ino == opened.st_ino)
        return 0;
    return error_set(err, "%s was replaced while it was opened; start again", path);
}

/* The datasets */

/* Check that a dataset has one dimension, is contiguous, lies in the file's body, and is of a right
 * type (type_ok).  Returns 0, or -1 with err set. */
static int check_part(const struct tokens *tokens, const struct h5_dataset *part, const char *name,
                      int type_ok, const char *types, struct error *err)
{
    int64_t width = type_ok ? (int64_t)h5_type_bytes(part->type) : 1;
    if (part->rank != 1 || !type_ok)
        return error_set(err, "%s: dataset %s must have one dimension and be of type %s",
                         tokens->path, name, types);
    if (part->elems && part->offset < 0)
        return error_set(err, "%s: dataset %s is chunked or compressed; it must be contiguous",
                         tokens->path, name);
    if (part->elems && (part->offset < tokens->seal.begin || part->offset > tokens->seal.end ||
                        part->elems > (tokens->seal.end - part->offset) / width))
        return error_set(err, "%s is truncated: it ends inside dataset %s", tokens->path, name);
    return 0;
}

/* Find the datasets.  Returns 0, or -1 with err set. */
static int find_parts(struct tokens *tokens, struct h5 *file, struct tokens_parts *parts,
                      struct error *err)
{
    tokens->has_mask = h5_has(file, TOKENS_MASK);
    if (!h5_has(file, TOKENS_DATASET) || !h5_has(file, TOKENS_DOCUMENTS))
        return error_set(err,
                         "%s is not a token file (no datasets %s and %s); trireme tokenize makes "
                         "one",
                         tokens->path, TOKENS_DATASET, TOKENS_DOCUMENTS);
    if (h5_locate(file, TOKENS_DATASET, &parts->tokens, err) ||
        h5_locate(file, TOKENS_DOCUMENTS, &parts->documents, err) ||
        (tokens->has_mask && h5_locate(file, TOKENS_MASK, &parts->mask, err)))
        return -1;
    int type = parts->tokens.type;
    if (check_part(tokens, &parts->tokens, TOKENS_DATASET, type == DTYPE_U16 || type == DTYPE_U32,
                   "uint16 or uint32", err) ||
        check_part(tokens, &parts->documents, TOKENS_DOCUMENTS,
                   parts->documents.type == H5_TYPE_U64, "uint64", err) ||
        (tokens->has_mask &&
         check_part(tokens, &parts->mask, TOKENS_MASK, parts->mask.type == DTYPE_U8, "uint8", err)))
        return -1;
    if (tokens->has_mask && parts->mask.elems != parts->tokens.elems)
        return error_set(err, "%s: dataset %s has %lld elements for %lld tokens", tokens->path,
                         TOKENS_MASK, (long long)parts->mask.elems, (long long)parts->tokens.elems);
    return 0;
}

/* Read the file's attributes.  Returns 0, or -1 with err set. */
static int read_attributes(struct tokens *tokens, struct h5 *file, struct error *err)
{
    int64_t format, largest = -1;
    if (h5_get_value(file, "/", "format", H5_TYPE_I64, &format, err))
        return -1;
    if (format == TOKENS_SEALED && !tokens->has_checksums)
        return error_set(err,
                         "%s is damaged: it was written with checksums, and they are not there; "
                         "copy it or make it again",
                         tokens->path);
    if (format != (tokens->has_checksums ? TOKENS_SEALED : TOKENS_PLAIN))
        return error_set(err, "%s: token file format %lld; this version reads %d and %d",
                         tokens->path, (long long)format, TOKENS_PLAIN, TOKENS_SEALED);
    if (h5_get_value(file, "/", "vocab", H5_TYPE_I64, &tokens->vocab, err) ||
        h5_get_text(file, "/", "tokenizer", tokens->tokenizer, sizeof tokens->tokenizer, err))
        return -1;
    if (h5_has_attribute(file, "/", TOKENS_CHAT_TEMPLATE) &&
        h5_get_text(file, "/", TOKENS_CHAT_TEMPLATE, tokens->chat, sizeof tokens->chat, err))
        return -1;
    if (tokens->vocab < 1 || tokens->vocab > INT32_MAX)
        return error_set(err, "%s: a vocabulary of %lld", tokens->path, (long long)tokens->vocab);
    if (!h5_get_value(file, "/", "maximum", H5_TYPE_I64, &largest, NULL) &&
        largest >= tokens->vocab)
        return error_set(err, "%s: token %lld is outside the vocabulary of %lld", tokens->path,
                         (long long)largest, (long long)tokens->vocab);
    if (h5_get_text(file, "/", "source", tokens->source, sizeof tokens->source, NULL)) {
        tokens->source[0] = 0;
        tokens->has_other_source = h5_has_attribute(file, "/", "source");
    }
    tokens->has_hash = !h5_get_value(file, "/", "hash", H5_TYPE_U64, &tokens->hash, NULL);
    return 0;
}

/* Check that HDF5's signature is at byte 0 of a file without checksums.  HDF5 looks for it in other
 * places too, and would find the body of a sealed file whose front is damaged, and read it
 * unverified. Returns 0, or -1 with err set. */
static int check_beginning(struct tokens *tokens, struct error *err)
{
    static const char signature[] = {'\211', 'H', 'D', 'F', '\r', '\n', '\032', '\n'};
    int64_t got;
    const void *bytes = seal_view(&tokens->seal, 0, sizeof signature, &got, err);
    if (!bytes)
        return -1;
    if (got == sizeof signature && !memcmp(bytes, signature, sizeof signature))
        return 0;
    return error_set(
        err,
        "%s is damaged at its beginning: copy it or make it again; or it has a user block "
        "of HDF5's, which is not allowed: h5unjam removes it",
        tokens->path);
}

/* HDF5 opens the file once more, and does not say why it cannot. */
static int check_opens_again(const char *path, struct error *err)
{
    int fd = open_file(path, err);
    if (fd >= 0)
        close(fd);
    return fd < 0 ? -1 : 0;
}

static int is_empty(const char *path)
{
    struct stat file;
    return !stat(path, &file) && !file.st_size;
}

/* Read attributes and the places of datasets through HDF5. */
static int read_contents(struct tokens *tokens, struct error *err)
{
    struct tokens_parts parts = {0};
    struct h5 *file;
    if (check_opens_again(tokens->path, err))
        return -1;
    if (!h5_is_file(tokens->path) && is_empty(tokens->path))
        return error_set(err, "%s is empty, and so no token file", tokens->path);
    if (!h5_is_file(tokens->path))
        return error_set(err,
                         "%s is not a token file; make one of a text: trireme tokenize %s -o "
                         "FILE.h5",
                         tokens->path, tokens->path);
    if (!tokens->has_checksums && check_beginning(tokens, err))
        return -1;
    if (h5_open(&file, tokens->path, err))
        return -1;
    int rc = find_parts(tokens, file, &parts, err) || read_attributes(tokens, file, err) ? -1 : 0;
    h5_close(file, NULL);
    tokens->dtype = (enum dtype)parts.tokens.type;
    tokens->count = parts.tokens.elems;
    tokens->documents = parts.documents.elems - 1;
    tokens->tokens_at = parts.tokens.offset;
    tokens->documents_at = parts.documents.offset;
    tokens->mask_at = parts.mask.offset;
    return rc;
}

/* Check the first and the last start of a document, which have to be 0 and the number of tokens.
 * Returns 0, or -1 with err set. */
static int check_ends(struct tokens *tokens, struct error *err)
{
    uint64_t first, last;
    if (tokens->documents < 0)
        return error_set(err, "%s: dataset %s is empty", tokens->path, TOKENS_DOCUMENTS);
    if (tokens_starts(tokens, 0, 1, &first, err) ||
        tokens_starts(tokens, tokens->documents, 1, &last, err))
        return -1;
    if (first || last != (uint64_t)tokens->count)
        return error_set(err, "%s: the documents begin at token %llu and end at %llu of %lld",
                         tokens->path, (unsigned long long)first, (unsigned long long)last,
                         (long long)tokens->count);
    return 0;
}

/* Set *stamp of an open file.  Returns 0, or -1 where the file system does not say. */
static int read_stamp(int fd, struct tokens_stamp *stamp)
{
    struct stat info;
    if (fstat(fd, &info))
        return -1;
    *stamp = (struct tokens_stamp){
        .bytes = info.st_size,
        .written_ns = info.st_mtim.tv_sec * second_ns + info.st_mtim.tv_nsec,
        .changed_ns = info.st_ctim.tv_sec * second_ns + info.st_ctim.tv_nsec,
    };
    return 0;
}

int tokens_open(struct tokens *tokens, const char *path, struct error *err)
{
    *tokens = (struct tokens){.seal.fd = -1};
    int fd = open_file(path, err);
    if (fd < 0)
        return -1;
    tokens->path = array_text(path);
    read_stamp(fd, &tokens->stamp);
    if (seal_open(&tokens->seal, fd, tokens->path, err)) {
        close(fd);
        tokens->seal.fd = -1;
        goto fail;
    }
    tokens->has_checksums = tokens->seal.is_sealed;
    if (read_contents(tokens, err) || is_same_file(path, fd, err) || check_ends(tokens, err))
        goto fail;
    return 0;
fail:
    tokens_close(tokens);
    return -1;
}

void tokens_close(struct tokens *tokens)
{
    if (tokens->path && tokens->seal.fd >= 0)
        close(tokens->seal.fd);
    seal_close(&tokens->seal);
    free(tokens->path);
    *tokens = (struct tokens){.seal.fd = -1};
}

enum held { HELD_SAME, HELD_OTHER, HELD_UNKNOWN };

/* Compare what the file says of its tokens now with what it said when it was opened.  It is read
 * anew by its descriptor, as its name may lead to another file by now; a deleted file cannot be. */
static enum held compare_held(const struct tokens *tokens)
{
    struct tokens now;
    char path[48];
    snprintf(path, sizeof path, "/proc/self/fd/%d", tokens->seal.fd);
    if (!tokens->has_checksums || !tokens->has_hash || tokens_open(&now, path, NULL))
        return HELD_UNKNOWN;
    int same = now.has_checksums && now.has_hash && now.hash == tokens->hash &&
               now.count == tokens->count && now.documents == tokens->documents;
    tokens_close(&now);
    return same ? HELD_SAME : HELD_OTHER;
}

int tokens_check_unchanged(struct tokens *tokens, struct error *err)
{
    struct tokens_stamp was = tokens->stamp, now;
    char when[CLOCK_TIME_OF_DAY];
    if (read_stamp(tokens->seal.fd, &now))
        return 0; /* reading will say why */
    tokens->stamp = now;
    int is_written = now.bytes != was.bytes || now.written_ns != was.written_ns;
    if (!is_written && now.changed_ns == was.changed_ns)
        return 0;
    enum held held = compare_held(tokens);
    if (held == HELD_SAME || (held == HELD_UNKNOWN && !is_written))
        return 0;
    return error_set(
        err,
        "%s was changed at %s, while it was in use: what was read from it since is "
        "not of the file that was opened",
        tokens->path,
        clock_iso8601(now.changed_ns / second_ns, (long)(now.changed_ns % second_ns), when));
}
