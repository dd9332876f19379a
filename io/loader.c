/* loader.c - sample order by a keyed permutation; see loader.h.
 *
 * Black, Rogaway: "Ciphers with arbitrary finite domains" (CT-RSA 2002): a Feistel network permutes
 * [0, 4^h), the smallest such range that holds all windows; an image outside [0, windows) is
 * permuted again until it falls inside.  The range is less than four times the windows, so that
 * takes fewer than four passes on average.
 */
#include "io/loader.h"

#include <stdio.h>
#include <string.h>

#include "base/philox.h"

enum { ROUNDS = 6 };

int loader_init(struct loader *loader, struct tokens *tokens, int64_t seq_len, int64_t vocab,
                uint64_t seed, enum loader_order order, struct error *err)
{
    if (seq_len < 1)
        return error_set(err, "a sequence of %lld tokens", (long long)seq_len);
    if (tokens->count <= seq_len)
        return error_set(err,
                         "the token file has %lld tokens, and one sequence of %lld needs %lld; "
                         "lower data.seq_len or take a longer text",
                         (long long)tokens->count, (long long)seq_len, (long long)seq_len + 1);
    if (tokens->vocab > vocab)
        return error_set(err,
                         "the token file's vocabulary (tokenizer \"%s\") is %lld, the model's "
                         "is %lld",
                         tokens->tokenizer, (long long)tokens->vocab, (long long)vocab);
    *loader = (struct loader){.tokens = tokens,
                              .seq_len = seq_len,
                              .windows = (tokens->count - 1) / seq_len,
                              .seed = seed,
                              .order = order};
    return 0;
}

void loader_set_part(struct loader *loader, int64_t chunk, const int64_t first[2])
{
    loader->chunk = chunk;
    memcpy(loader->first, first, sizeof loader->first);
}

/* One pass of the network over numbers of 2 * half bits. */
static uint64_t network(uint64_t x, int half, uint64_t key)
{
    uint64_t mask = ((uint64_t)1 << half) - 1;
    uint64_t left = x >> half, right = x & mask;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        struct philox4 in = {{(uint32_t)right, (uint32_t)(right >> 32), round, 0}};
        struct philox4 out = philox(in, (uint32_t)key, (uint32_t)(key >> 32));
        uint64_t mixed = left ^ (((uint64_t)out.v[1] << 32 | out.v[0]) & mask);
        left = right;
        right = mixed;
    }
    return left << half | right;
}

static int64_t permute(int64_t index, int64_t windows, uint64_t key)
{
    int half = 1;
    while (half < 31 && (int64_t)1 << (2 * half) < windows)
        half++;
    uint64_t x = (uint64_t)index;
    do
        x = network(x, half, key);
    while (x >= (uint64_t)windows);
    return (int64_t)x;
}

int64_t loader_window(const struct loader *loader, int64_t sample)
{
    if (loader->order == LOADER_SEQUENTIAL)
        return sample < loader->windows ? sample : -1;
    char stream[32];
    snprintf(stream, sizeof stream, "epoch %lld", (long long)(sample / loader->windows));
    return permute(sample % loader->windows, loader->windows, philox_key(loader->seed, stream));
}

/* Tokens of a window that follow one another, and their targets. */
static int read_rows(const struct loader *loader, int64_t at, int64_t count, int32_t *inputs,
                     int32_t *targets, struct error *err)
{
    if (inputs && tokens_read(loader->tokens, at, count, inputs, err))
        return -1;
    if (!targets)
        return 0;
    int64_t known = inputs ? count - 1 : 0;
    if (inputs)
        memcpy(targets, inputs + 1, (size_t)known * sizeof *targets);
    if (tokens_read(loader->tokens, at + 1 + known, count - known, targets + known, err))
        return -1;
    return tokens_mask(loader->tokens, at + 1, count, targets, err);
}

static int read_window(const struct loader *loader, int64_t at, int32_t *inputs, int32_t *targets,
                       struct error *err)
{
    int64_t chunk = loader->chunk;
    if (!chunk)
        return read_rows(loader, at, loader->seq_len, inputs, targets, err);
    for (int k = 0; k < 2; k++)
        if (read_rows(loader, at + loader->first[k], chunk, inputs ? inputs + k * chunk : NULL,
                      targets ? targets + k * chunk : NULL, err))
            return -1;
    return 0;
}

void loader_fill(int32_t *inputs, int32_t *targets, int64_t count)
{
    for (int64_t k = 0; inputs && k < count; k++)
        inputs[k] = 0;
    for (int64_t k = 0; targets && k < count; k++)
        targets[k] = -1;
}

int loader_read(const struct loader *loader, int64_t first, int64_t count, int32_t *inputs,
                int32_t *targets, struct error *err)
{
    int64_t rows = loader_rows(loader);
    for (int64_t i = 0; i < count; i++) {
        int64_t window = loader_window(loader, first + i);
        int32_t *in = inputs ? inputs + i * rows : NULL, *out = targets ? targets + i * rows : NULL;
        if (window >= 0 && read_window(loader, window * loader->seq_len, in, out, err))
            return -1;
        if (window < 0)
            loader_fill(in, out, rows);
    }
    return 0;
}
