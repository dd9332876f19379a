/* loader.c - samples of one token file; see loader.h.
 *
 * A sequence is a list of parts, each an interval of the token file (struct packing_part); in a
 * stream it has one part.  The wanted rows are all of the sequence, or its two chunks
 * (loader_set_part()).  Each part is read where it overlaps a chunk:
 *
 *     sequence     |--- part 0 ---|-------- part 1 --------|  masked  |
 *     wanted            [ chunk 0 ]          [ chunk 1 ]
 */
#include "io/loader.h"

#include <stdio.h>
#include <string.h>

#include "base/philox.h"
#include "base/round.h"
#include "io/shuffle.h"

/* Refuse options.samples above `most`: it is a mistake, such as a number that was right for another
 * data.seq_len. */
static int check_samples(const struct loader *loader, int64_t most, const char *what,
                         struct error *err)
{
    if (loader->options.samples <= most)
        return 0;
    return error_set(err, "samples=%lld: %s has %lld %s; ask for no more, or leave samples out",
                     (long long)loader->options.samples, loader->tokens->path, (long long)most,
                     what);
}

static int open_stream(struct loader *loader, struct error *err)
{
    const struct tokens *tokens = loader->tokens;
    int64_t seq_len = loader->options.seq_len;
    if (tokens->count <= seq_len)
        return error_set(err,
                         "%s has %lld tokens, and one sequence of %lld needs %lld; lower "
                         "data.seq_len, take a longer text, or set data.packing=documents, whose "
                         "sequences need not be full",
                         tokens->path, (long long)tokens->count, (long long)seq_len,
                         (long long)seq_len + 1);
    loader->windows = (tokens->count - 1) / seq_len;
    if (check_samples(loader, loader->windows, "sequences", err))
        return -1;
    if (loader->options.samples)
        loader->windows = loader->options.samples;
    return 0;
}

/* Returns the key of the packing's random order.  Validation (LOADER_SEQUENTIAL) is packed in the
 * same way with every seed. */
static uint64_t packing_key(const struct loader *loader)
{
    const struct loader_options *o = &loader->options;
    return philox_key(o->order == LOADER_SEQUENTIAL ? 0 : o->seed, "packing");
}

int loader_open(struct loader *loader, struct tokens *tokens, const struct loader_options *options,
                struct error *err)
{
    *loader = (struct loader){.tokens = tokens, .options = *options};
    if (options->seq_len < 1)
        return error_set(err, "a sequence of %lld tokens", (long long)options->seq_len);
    if (tokens->vocab > options->vocab)
        return error_set(
            err,
            "the vocabulary of %s (tokenizer \"%s\") is %lld, the model's is %lld; take a "
            "trained model's own tokenizer or, where that was given tokens since, "
            "model.vocab=%lld",
            tokens->path, tokens->tokenizer, (long long)tokens->vocab, (long long)options->vocab,
            (long long)tokens->vocab);
    if (options->packing == PACKING_STREAM)
        return open_stream(loader, err);
    if (check_samples(loader, tokens->documents, "documents", err) ||
        packing_create(&loader->packing, tokens,
                       options->packing == PACKING_PADDED ? PACK_SINGLY : PACK_TOGETHER,
                       options->seq_len, options->samples, packing_key(loader), err))
        return -1;
    loader->windows = packing_sequences(loader->packing);
    return 0;
}

void loader_close(struct loader *loader)
{
    packing_destroy(loader->packing);
    *loader = (struct loader){0};
}

void loader_set_part(struct loader *loader, int64_t chunk, const int64_t first[2])
{
    loader->chunk = chunk;
    memcpy(loader->first, first, sizeof loader->first);
}

int64_t loader_window(const struct loader *loader, int64_t sample)
{
    const struct loader_options *o = &loader->options;
    int64_t windows = loader->windows;
    if (o->order == LOADER_SEQUENTIAL && sample >= windows)
        return -1;
    if (o->order == LOADER_SEQUENTIAL)
        return o->packing == PACKING_DOCUMENTS ? shuffle_index(sample, windows, packing_key(loader))
                                               : sample;
    char stream[32];
    snprintf(stream, sizeof stream, "epoch %lld", (long long)(sample / windows));
    return shuffle_index(sample % windows, windows, philox_key(o->seed, stream));
}

/* Find part k of a sequence.  Returns 1 with *part; 0: there is none; -1 with err set. */
static int find_part(const struct loader *loader, int64_t window, int64_t k,
                     struct packing_part *part, struct error *err)
{
    int64_t seq_len = loader->options.seq_len;
    if (loader->packing)
        return packing_part(loader->packing, loader->tokens, window, k, part, err);
    *part = (struct packing_part){window * seq_len, seq_len};
    return k == 0;
}

/* Read rows whose tokens are [at, at + count) of the file: the tokens into inputs, and the tokens
 * after each of them, masked, into targets; either may be NULL.  Returns 0, or -1 with err set. */
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

/* Wanted rows [begin, end) of a sequence; row `begin` goes to element `at` of the caller's arrays.
 */
struct wanted {
    int64_t begin, end, at;
};

/* Returns the wanted rows of chunk c: 0 or 1; without chunks (loader_set_part()) all, as chunk 0.
 */
static struct wanted wanted_rows(const struct loader *loader, int c)
{
    int64_t chunk = loader->chunk;
    if (!chunk)
        return (struct wanted){0, loader->options.seq_len, 0};
    return (struct wanted){loader->first[c], loader->first[c] + chunk, c * chunk};
}

/* Returns the number of chunks. */
static int chunks(const struct loader *loader)
{
    return loader->chunk ? 2 : 1;
}

/* Read the wanted rows of a part that begins at row `row` of the sequence. */
static int read_part(const struct loader *loader, const struct packing_part *part, int64_t row,
                     int32_t *inputs, int32_t *targets, struct error *err)
{
    for (int c = 0; c < chunks(loader); c++) {
        const struct wanted w = wanted_rows(loader, c);
        int64_t from = max_i64(row, w.begin), to = min_i64(row + part->rows, w.end);
        int64_t at = w.at + from - w.begin;
        if (from < to && read_rows(loader, part->first + from - row, to - from,
                                   inputs ? inputs + at : NULL, targets ? targets + at : NULL, err))
            return -1;
    }
    return 0;
}

void loader_fill(int32_t *inputs, int32_t *targets, int64_t count)
{
    for (int64_t k = 0; inputs && k < count; k++)
        inputs[k] = 0;
    for (int64_t k = 0; targets && k < count; k++)
        targets[k] = -1;
}

/* Check that a part which begins at row `row` ends within the sequence: it does not where the file
 * is no longer the one that was packed. */
static int check_fits(const struct loader *loader, int64_t row, const struct packing_part *part,
                      struct error *err)
{
    if (part->rows <= loader->options.seq_len - row)
        return 0;
    return error_set(err, "%s: its documents have changed since they were packed",
                     loader->tokens->path);
}

int loader_read(const struct loader *loader, int64_t sample, int32_t *inputs, int32_t *targets,
                struct error *err)
{
    int64_t window = loader_window(loader, sample), row = 0;
    struct packing_part part;
    int found = 0;
    if (window < 0 || loader->packing)
        loader_fill(inputs, targets, loader_rows(loader));
    for (int64_t k = 0; window >= 0; k++, row += part.rows) {
        found = find_part(loader, window, k, &part, err);
        if (found <= 0)
            break;
        if (check_fits(loader, row, &part, err) ||
            read_part(loader, &part, row, inputs, targets, err))
            return -1;
    }
    return found < 0 ? -1 : 0;
}

/* Set positions and documents of the wanted rows among [row, row + rows), which are one document.
 */
static void put_places(const struct loader *loader, int64_t row, int64_t rows, int32_t *positions,
                       int32_t *documents)
{
    for (int c = 0; c < chunks(loader); c++) {
        const struct wanted w = wanted_rows(loader, c);
        int64_t from = max_i64(row, w.begin), to = min_i64(row + rows, w.end);
        for (int64_t r = from; r < to; r++) {
            if (positions)
                positions[w.at + r - w.begin] = (int32_t)(r - row);
            if (documents)
                documents[w.at + r - w.begin] = (int32_t)row;
        }
    }
}

/* Set positions and documents of the rows from row on, each a document of its own. */
static void put_padding(const struct loader *loader, int64_t row, int32_t *positions,
                        int32_t *documents)
{
    for (; row < loader->options.seq_len; row++)
        put_places(loader, row, 1, positions, documents);
}

void loader_fill_positions(const struct loader *loader, int32_t *positions, int32_t *documents)
{
    put_padding(loader, 0, positions, documents);
}

int loader_positions(const struct loader *loader, int64_t sample, int32_t *positions,
                     int32_t *documents, struct error *err)
{
    int64_t window = loader_window(loader, sample), row = 0;
    struct packing_part part;
    int found = 0;
    for (int64_t k = 0; window >= 0; k++, row += part.rows) {
        found = find_part(loader, window, k, &part, err);
        if (found <= 0)
            break;
        if (check_fits(loader, row, &part, err))
            return -1;
        put_places(loader, row, part.rows, positions, documents);
    }
    put_padding(loader, row, positions, documents);
    return found < 0 ? -1 : 0;
}
