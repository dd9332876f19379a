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
    int64_t seq_len; /* rows of a sequence */
    int64_t vocab;   /* of the model; the file's may not be larger */
    uint64_t seed;
    enum loader_order order;
    enum config_packing packing;
    int64_t samples; /* use the first `samples` sequences only (packed: documents); 0: all */
};

struct loader {
    struct tokens *tokens; /* the caller's */
    struct loader_options options;
    int64_t windows;         /* sequences in the file: samples in an epoch */
    struct packing *packing; /* NULL: stream */
    int64_t chunk, first[2]; /* set by loader_set_part() */
};

/* Make a loader for an open token file, which must stay open as long.  Not collective.  Returns 0
 * and a loader for loader_close(), or -1 with err set: the file is shorter than one window, its
 * vocabulary is larger than vocab, its documents cannot be packed, or samples is too large. */
int loader_open(struct loader *loader, struct tokens *tokens, const struct loader_options *options,
                struct error *err);
void loader_close(struct loader *loader); /* all zero is allowed */

/* From now on read only a part of each sequence: two chunks of `chunk` rows each, which begin at
 * rows first[0] and first[1] (context parallelism).  chunk 0: read whole sequences, as after
 * loader_open(). */
void loader_set_part(struct loader *loader, int64_t chunk, const int64_t first[2]);

/* Returns the number of rows that are read of each sequence. */
static inline int64_t loader_rows(const struct loader *loader)
{
    return loader->chunk ? 2 * loader->chunk : loader->options.seq_len;
}

/* Returns the number of the sequence that sample number `sample`, counted from the start of
 * training over all epochs, reads; -1 for LOADER_SEQUENTIAL at or past `windows`.  With
 * LOADER_SEQUENTIAL packed documents come in a random order, the same for every seed: as they are
 * packed by length, the first sequences would otherwise hold the longest documents only. */
int64_t loader_window(const struct loader *loader, int64_t sample);

/* Set `count` rows to masked ones: inputs 0, targets -1.  Either may be NULL. */
void loader_fill(int32_t *inputs, int32_t *targets, int64_t count);

/* Read inputs and targets of a sample: int32 [loader_rows()] each; either may be NULL.  A target is
 * -1 where the file's loss mask leaves it out, and in rows after the last document, whose input is
 * 0.  A sample at or past `windows` of LOADER_SEQUENTIAL is all masked, so that a last batch which
 * is not full needs no special case.  Returns 0, or -1 with err set as by tokens_read(). */
int loader_read(const struct loader *loader, int64_t sample, int32_t *inputs, int32_t *targets,
                struct error *err);

/* Find, for each row that loader_read() reads of a sample, its position in its document, and the
 * row of the sequence at which that document begins: int32 [loader_rows()] each; either may be
 * NULL.  Each row after the last document is a document of one row: attention then does nothing
 * for it.  Without packing a sequence is one document.  Returns as loader_read(). */
int loader_positions(const struct loader *loader, int64_t sample, int32_t *positions,
                     int32_t *documents, struct error *err);

/* Set positions and documents as for a sample without documents: each row is one by itself. */
void loader_fill_positions(const struct loader *loader, int32_t *positions, int32_t *documents);

#endif
