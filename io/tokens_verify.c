/* tokens_verify.c - reading a token file from end to end, to verify it or to write it anew with
 * checksums; see tokens.h. */
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/round.h"
#include "io/tokens.h"

enum { PIECE = 64 << 10 }; /* elements read at a time */

/* One reading of a file. */
struct pass {
    struct tokens *tokens;
    struct tokens_writer *writer; /* of the new file; NULL: the file is only verified */
    int32_t ids[PIECE];
    uint64_t starts[PIECE];
    uint16_t narrow[PIECE];
    uint8_t mask[PIECE];
};

/* Read tokens [first, last), add their bytes to hash, and append them to the last document of the
 * writer, if there is one. */
static int pass_tokens(struct pass *pass, int64_t first, int64_t last, struct hash *hash,
                       struct error *err)
{
    int is_narrow = pass->tokens->dtype == DTYPE_U16;
    for (int64_t n; first < last; first += n) {
        n = min_i64(last - first, PIECE);
        if (tokens_read(pass->tokens, first, n, pass->ids, err))
            return -1;
        for (int64_t i = 0; is_narrow && i < n; i++)
            pass->narrow[i] = (uint16_t)pass->ids[i];
        hash_add(hash, is_narrow ? (void *)pass->narrow : pass->ids,
                 (size_t)n * (is_narrow ? 2 : 4));
        if (pass->writer && tokens_extend(pass->writer, (const uint32_t *)pass->ids, n, err))
            return -1;
    }
    return 0;
}

/* Read all documents, and append them to the writer.  The last start is the end of the last
 * document. Returns 0, or -1 with err set. */
static int pass_documents(struct pass *pass, struct hash *hash, struct error *err)
{
    int64_t documents = pass->tokens->documents;
    uint64_t before = 0;
    for (int64_t first = 0, n; first <= documents; first += n) {
        n = min_i64(documents + 1 - first, PIECE);
        if (tokens_starts(pass->tokens, first, n, pass->starts, err))
            return -1;
        if (pass->starts[0] < before)
            return error_set(err, "%s: document %lld begins before the one before it",
                             pass->tokens->path, (long long)first);
        for (int64_t i = 0; i < n; i++) {
            if (pass_tokens(pass, (int64_t)before, (int64_t)pass->starts[i], hash, err) ||
                (pass->writer && first + i < documents &&
                 tokens_append(pass->writer, NULL, 0, err)))
                return -1;
            before = pass->starts[i];
        }
    }
    return 0;
}

/* Read the mask, if there is one, and append it to the writer.  Returns 0, or -1 with err set. */
static int pass_mask(struct pass *pass, struct error *err)
{
    struct tokens *tokens = pass->tokens;
    for (int64_t first = 0, n; tokens->has_mask && first < tokens->count; first += n) {
        n = min_i64(tokens->count - first, PIECE);
        memset(pass->ids, 0, (size_t)n * sizeof pass->ids[0]);
        if (tokens_mask(tokens, first, n, pass->ids, err))
            return -1;
        for (int64_t i = 0; i < n; i++)
            pass->mask[i] = pass->ids[i] == 0;
        if (pass->writer && tokens_extend_mask(pass->writer, pass->mask, n, err))
            return -1;
    }
    return 0;
}

/* Read the whole file, append it to the writer, and compare the tokens with the attribute hash.
 * Returns 0, or -1 with err set. */
static int pass_all(struct tokens *tokens, struct tokens_writer *writer, struct error *err)
{
    struct pass *pass = malloc(sizeof *pass);
    struct hash *hash = hash_create();
    int rc = pass ? 0 : error_set(err, "%s: out of memory", tokens->path);
    if (!rc) {
        pass->tokens = tokens;
        pass->writer = writer;
        rc = pass_documents(pass, hash, err) || pass_mask(pass, err) ? -1 : 0;
    }
    uint64_t found = hash_finish(hash);
    free(pass);
    /* programs without XXH3 write 0 */
    if (!rc && tokens->has_hash && tokens->hash && found != tokens->hash)
        rc = error_set(err, "%s is damaged: the tokens do not match the attribute hash",
                       tokens->path);
    return rc;
}

int tokens_verify(struct tokens *tokens, struct error *err)
{
    if (tokens->has_checksums && seal_verify(&tokens->seal, err))
        return -1;
    return pass_all(tokens, NULL, err);
}

/* Sealing */

/* Replace the file by one with checksums.  Returns 0, or -1 with err set. */
static int rewrite(struct tokens *tokens, struct error *err)
{
    struct tokens_writer *writer;
    if (tokens->has_other_source)
        return error_set(err,
                         "%s: attribute source is not one text of at most %d bytes, and would be "
                         "lost; make it one, or delete it",
                         tokens->path, TOKENS_SOURCE - 1);
    if (tokens_create(&writer, tokens->path, tokens->tokenizer, tokens->vocab, tokens->source, err))
        return -1;
    tokens_set_chat(writer, tokens->chat);
    if (pass_all(tokens, writer, err)) {
        tokens_abandon(writer);
        return -1;
    }
    return tokens_finish(writer, err);
}

int tokens_seal(const char *path, struct error *err)
{
    struct tokens tokens;
    char *target = realpath(path, NULL); /* a link stays one */
    if (!target)
        return error_errno(err, "cannot open token file %s", path);
    int rc = tokens_open(&tokens, target, err);
    if (!rc)
        rc = tokens.has_checksums ? tokens_verify(&tokens, err) : rewrite(&tokens, err);
    tokens_close(&tokens);
    free(target);
    return rc;
}
