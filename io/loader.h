/* loader.h - which tokens a step trains on: a pure function of (seed, step).
 *
 * The token file is cut into windows of seq_len + 1 tokens, one every seq_len (the last
 * target of a window is the first input of the next).  Epoch e visits all windows once, in
 * the order of a keyed permutation of their indices (a Philox Feistel network with cycle
 * walking), so sample number i is found in O(1), on any rank, for any world size.
 */
#ifndef TRIREME_IO_LOADER_H
#define TRIREME_IO_LOADER_H

#include <stdint.h>

#include "base/error.h"
#include "io/tokens.h"

enum loader_order { LOADER_SHUFFLED, LOADER_SEQUENTIAL };

struct loader {
    struct tokens *tokens; /* the caller's */
    int64_t seq_len;
    int64_t windows; /* samples in an epoch */
    uint64_t seed;
    enum loader_order order;
    int64_t chunk, first[2]; /* by loader_set_part() */
};

/* Returns 0, or -1 with err set (file shorter than one window, vocabulary of the file larger
 * than vocab).  Nothing to free. */
int loader_init(struct loader *loader, struct tokens *tokens, int64_t seq_len, int64_t vocab,
                uint64_t seed, enum loader_order order, struct error *err);

/* Read of each sequence two chunks of so many tokens from now on, which begin at these; chunk 0:
 * all of it, as at first. */
void loader_set_part(struct loader *loader, int64_t chunk, const int64_t first[2]);

/* The tokens of each sequence that are read. */
static inline int64_t loader_rows(const struct loader *loader)
{
    return loader->chunk ? 2 * loader->chunk : loader->seq_len;
}

/* The index of the window that sample number i (counted from the start of training, over all
 * epochs) reads; -1 for LOADER_SEQUENTIAL at or past `windows`. */
int64_t loader_window(const struct loader *loader, int64_t sample);

/* Make `count` tokens masked ones: inputs 0, targets -1; either may be NULL. */
void loader_fill(int32_t *inputs, int32_t *targets, int64_t count);

/* Inputs and targets of samples [first, first + count): inputs, targets int32
 * [count, loader_rows()], either of which may be NULL; a masked target is -1.  For
 * LOADER_SEQUENTIAL a sample at or past `windows` is all masked (inputs 0), so that ragged ends
 * need no special case. Returns 0, or -1 with err as of tokens_read(): damaged, truncated since, a
 * disk that fails. */
int loader_read(const struct loader *loader, int64_t first, int64_t count, int32_t *inputs,
                int32_t *targets, struct error *err);

#endif
