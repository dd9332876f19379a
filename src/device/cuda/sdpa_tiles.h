/* sdpa_tiles.h - backward of a sequence so long that the gradients of a head's scores do not fit:
 * tile by tile of queries by keys, with sums in fp32 in an order that is always the same.
 *
 *            keys  0   1   2   3      A tile's queries see all of its keys, or, on the diagonal,
 *   queries 0     [\\]                 those up to their own.  With the row's lse, o and do, which
 *           1     [ ] [\\]             are of all its keys, a tile's ds needs no other tile, so
 *           2     [ ] [ ] [\\]           dq of a row of tiles     = the sum over its tiles of ds k
 *           3     [ ] [ ] [ ] [\\]       dk, dv of a column       = the sum over its tiles
 *
 * Rows run from the first to the last, and in a row tiles from the first keys to the diagonal.  A
 * tile's gradients have 16 bits, as those of a query head have where several share a key head;
 * their sums are rounded once.
 */
#ifndef TRIREME_DEVICE_CUDA_SDPA_TILES_H
#define TRIREME_DEVICE_CUDA_SDPA_TILES_H

#include "device/cuda/sdpa.h"

/* Where the tensors of attention begin, on the GPU; what a direction does not have is NULL. */
struct sdpa_tensors {
    const uint16_t *qkv, *o, *dout; /* bf16 or fp16 */
    uint16_t *dqkv;
    const float *lse;
};

/* The gradients of one tile: to be written, none is read. */
struct sdpa_tile {
    int64_t batch, kv_head; /* the first of the slice */
    int64_t query, key;     /* the first token of its queries and of its keys; equal: causal */
    uint16_t *dq;           /* [tokens, query heads of the slice, dim] */
    uint16_t *dk, *dv;      /* [tokens, key/value heads of the slice, dim] */
    const float *lse;       /* of its queries: [query heads of the slice, tokens] */
};

/* Enqueue the gradients of one tile on COMPUTE; 1, or 0 where that failed. */
typedef int sdpa_tile_run(void *context, const struct sdpa_tile *tile);

/* Backward in tiles, on COMPUTE; scratch is aligned to SDPA_ALIGN and laid out as sdpa_places_of()
 * says.  Returns 1, or 0 when something failed, with dqkv half written. */
int sdpa_tiles_run(struct device *d, const struct attention *a, struct sdpa_slice slice,
                   const struct sdpa_tensors *t, char *scratch, sdpa_tile_run *run, void *context);

#endif
