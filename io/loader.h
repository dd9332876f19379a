/* loader.h - which tokens a step trains on: a pure function of (seed, step).
 *
 * A token file is cut into sequences in one of three ways (enum config_packing):
 *   stream      windows of seq_len + 1 tokens, one every seq_len (the last target of a window is
 *               the first input of the next), across the ends of documents
 *   documents   whole documents, as many as fit into a sequence (packing.h)
 *   padded      one document each
 * Epoch e visits all sequences once, in the order of a keyed permutation of their numbers
 * (shuffle.h), so sample number i is found in O(1), on any rank, for any world size.
 */
#ifndef TRIREME_IO_LOADER_H
#define TRIREME_IO_LOADER_H

#include <stdint.h>

#include "base/error.h"
#include "config/config.h"
#include "io/packing.h"
#include "io/tokens.h"

enum loader_order { LOADER_SHUFFLED, LOADER_SEQUENTIAL };

struct loader_options {
    int64_t seq_len, vocab; /* vocab: of the model; the file's may not be larger */
    uint64_t seed;
    enum loader_order order;
    enum config_packing packing;
    int64_t samples; /* use only so many of the first sequences, or documents; 0: all */
};

struct loader {
    struct tokens *tokens; /* the caller's */
    struct loader_options options;
    int64_t windows;         /* samples in an epoch */
    struct packing *packing; /* of documents; NULL: stream */
    int64_t chunk, first[2]; /* by loader_set_part() */
};

/* Returns 0 and a loader for loader_close(), or -1 with err set: a file shorter than one window,
 * a vocabulary of the file larger than vocab, documents that cannot be packed. */
int loader_open(struct loader *loader, struct tokens *tokens, const struct loader_options *options,
                struct error *err);
void loader_close(struct loader *loader); /* one of zeros allowed */

/* Read of each sequence two chunks of so many tokens from now on, which begin at these; chunk 0:
 * all of it, as at first. */
void loader_set_part(struct loader *loader, int64_t chunk, const int64_t first[2]);

/* The tokens of each sequence that are read. */
static inline int64_t loader_rows(const struct loader *loader)
{
    return loader->chunk ? 2 * loader->chunk : loader->options.seq_len;
}

/* The number of the sequence that sample number i (counted from the start of training, over all
 * epochs) reads; -1 for LOADER_SEQUENTIAL at or past `windows`.  Sequential packed documents come
 * in an order that is the same for every seed, but not that of the file: they are packed by length,
 * and the first ones are to be like all. */
int64_t loader_window(const struct loader *loader, int64_t sample);

/* Make `count` tokens masked ones: inputs 0, targets -1; either may be NULL. */
void loader_fill(int32_t *inputs, int32_t *targets, int64_t count);

/* Inputs and targets of a sample: int32 [loader_rows()], either of which may be NULL.  A target
 * that is masked is -1: by the file's loss mask, or of a row behind the last document, whose input
 * is 0.  A sample at or past `windows` of LOADER_SEQUENTIAL is all masked, so that ragged ends need
 * no special case.  Returns 0, or -1 with err as of tokens_read(): damaged, truncated since, a disk
 * that fails. */
int loader_read(const struct loader *loader, int64_t sample, int32_t *inputs, int32_t *targets,
                struct error *err);

/* Of the same rows the position of each in its document, and where that begins, counted from the
 * first row of the sequence; either may be NULL.  A row behind the last document is one by itself:
 * attention then does nothing for it.  Without packing a sequence is one document.  Returns as
 * loader_read(). */
int loader_positions(const struct loader *loader, int64_t sample, int32_t *positions,
                     int32_t *documents, struct error *err);

/* The same for rows that no sample has. */
void loader_fill_positions(const struct loader *loader, int32_t *positions, int32_t *documents);

#endif
