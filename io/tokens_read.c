/* tokens_read.c - reading parts of token files, and checking every value that is read; see
 * tokens.h.
 */

#include <string.h>

#include "base/hash.h"
#include "base/round.h"
#include "io/tokens.h"
#include "io/tokens_format.h"

enum { RUNS = 64 }; /* intervals of tokens in a sample (tokens_sample_hash()) */

/* Check that elements [first, first + count) are among elems.  Returns 0, or -1 with err set. */
static int check_range(const struct tokens *tokens, int64_t first, int64_t count, int64_t elems,
                       struct error *err)
{
    if (first >= 0 && count >= 0 && first <= elems && count <= elems - first)
        return 0;
    return error_set(err, "%s: elements %lld to %lld are asked for, and there are %lld",
                     tokens->path, (long long)first, (long long)first + count, (long long)elems);
}

/* Returns the address of elements first, first + 1, ... of a dataset that begins at byte `at` of
 * the file; NULL with err set.  *count: how many are wanted; it becomes how many are there, 1 at
 * least. Files of other programs may have datasets at any byte: the address is not aligned, and an
 * element may lie across the end of the seal's buffer. */
static const void *view(struct tokens *tokens, int64_t at, int64_t width, int64_t first,
                        int64_t *count, struct error *err)
{
    int64_t got;
    const char *from = seal_view(&tokens->seal, at + first * width, *count * width, &got, err);
    *count = from ? got / width : 0;
    if (!from || *count)
        return from;
    *count = 1;
    return seal_read(&tokens->seal, tokens->across, width, at + first * width, err)
               ? NULL
               : tokens->across;
}

/* Tokens */

/* Copy stored tokens to ids.  Returns the largest.  Every token of a training passes through these
 * loops. */
static uint32_t widen_u16(int32_t *ids, const char *stored, int64_t count)
{
    uint16_t largest = 0, one;
    for (int64_t i = 0; i < count; i++) {
        memcpy(&one, stored + i * (int64_t)sizeof one, sizeof one);
        ids[i] = one;
        largest = one > largest ? one : largest;
    }
    return largest;
}

static uint32_t widen_u32(int32_t *ids, const char *stored, int64_t count)
{
    uint32_t largest = 0, one;
    for (int64_t i = 0; i < count; i++) {
        memcpy(&one, stored + i * (int64_t)sizeof one, sizeof one);
        ids[i] = (int32_t)one;
        largest = one > largest ? one : largest;
    }
    return largest;
}

/* Set err: a token is outside the vocabulary, and with it the model would read and write outside
 * its tables.  Returns -1. */
static int refuse_token(const struct tokens *tokens, int64_t first, const int32_t *ids,
                        struct error *err)
{
    int64_t i = 0;
    while ((uint32_t)ids[i] < tokens->vocab)
        i++;
    return error_set(err,
                     "%s: token %lld is %u, outside the vocabulary of %lld (tokenizer \"%s\"): the "
                     "file is damaged, or was made wrongly",
                     tokens->path, (long long)(first + i), (uint32_t)ids[i],
                     (long long)tokens->vocab, tokens->tokenizer);
}

int tokens_read(struct tokens *tokens, int64_t first, int64_t count, int32_t *ids,
                struct error *err)
{
    int64_t width = (int64_t)dtype_bytes(tokens->dtype);
    if (check_range(tokens, first, count, tokens->count, err))
        return -1;
    for (int64_t n; count; first += n, ids += n, count -= n) {
        n = count;
        const void *stored = view(tokens, tokens->tokens_at, width, first, &n, err);
        if (!stored)
            return -1;
        uint32_t largest = width == 2 ? widen_u16(ids, stored, n) : widen_u32(ids, stored, n);
        if (largest >= tokens->vocab)
            return refuse_token(tokens, first, ids, err);
    }
    return 0;
}

uint64_t tokens_sample_hash(struct tokens *tokens)
{
    int32_t ids[TOKENS_RUN];
    int64_t count = tokens->count, most = min_i64(count, TOKENS_RUN);
    int64_t runs = min_i64(ceil_div(count, TOKENS_RUN), RUNS);
    struct hash *hash = hash_create();
    int rc = 0;
    hash_add(hash, &count, sizeof count);
    for (int64_t i = 0; i < runs && !rc; i++) {
        int64_t first =
            runs > 1 ? (int64_t)((double)(count - most) * (double)i / (double)(runs - 1)) : 0;
        rc = tokens_read(tokens, first, most, ids, NULL);
        hash_add(hash, ids, (size_t)most * sizeof *ids);
    }
    uint64_t found = hash_finish(hash);
    return rc ? 0 : found;
}

/* Masks */

/* Set err: a mask is neither 0 nor 1.  Returns -1. */
static int refuse_mask(const struct tokens *tokens, int64_t first, const uint8_t *mask,
                       struct error *err)
{
    int64_t i = 0;
    while (mask[i] <= 1)
        i++;
    return error_set(err, "%s: %s is %u at token %lld; it may be 0 or 1", tokens->path, TOKENS_MASK,
                     mask[i], (long long)(first + i));
}

int tokens_mask(struct tokens *tokens, int64_t first, int64_t count, int32_t *targets,
                struct error *err)
{
    if (!tokens->has_mask)
        return 0;
    if (check_range(tokens, first, count, tokens->count, err))
        return -1;
    for (int64_t n; count; first += n, targets += n, count -= n) {
        uint8_t largest = 0;
        n = count;
        const uint8_t *mask = view(tokens, tokens->mask_at, 1, first, &n, err);
        if (!mask)
            return -1;
        for (int64_t i = 0; i < n; i++) {
            largest = mask[i] > largest ? mask[i] : largest;
            targets[i] = mask[i] ? targets[i] : -1;
        }
        if (largest > 1)
            return refuse_mask(tokens, first, mask, err);
    }
    return 0;
}

/* Documents */

int tokens_starts(struct tokens *tokens, int64_t first, int64_t count, uint64_t *starts,
                  struct error *err)
{
    if (check_range(tokens, first, count, tokens->documents + 1, err) ||
        seal_read(&tokens->seal, starts, count * 8, tokens->documents_at + first * 8, err))
        return -1;
    for (int64_t i = 0; i < count; i++)
        if (starts[i] > (uint64_t)tokens->count || (i && starts[i] < starts[i - 1]))
            return error_set(err, "%s: document %lld begins at token %llu", tokens->path,
                             (long long)(first + i), (unsigned long long)starts[i]);
    return 0;
}
