/* sdpa.h - attention by cuDNN: scratch sizes, and functions that are not in state.h. */
#ifndef TRIREME_DEVICE_CUDA_SDPA_H
#define TRIREME_DEVICE_CUDA_SDPA_H

#include "device/ops.h"

/* For tests: have backward, where it is reproducible, run from now on in tiles of `tokens` tokens,
 * a divisor of the sequence, of one key/value head at a time; 0: as planned. */
void cuda_sdpa_set_tile_tokens(struct device *d, int64_t tokens);

/* Return why cuDNN of this version (91900 is 9.19.0) is not to be asked for a shape and pass, or
 * NULL where it may be asked.  Only in builds with cuDNN. */
const char *cuda_sdpa_refusal(const struct attention *a, enum device_pass pass, size_t version);

/* ---- sizes: functions of the shape, for plans in any build; 0 in one with CUDA, without cuDNN */

/* Return the scratch bytes that cuDNN is given for this shape; 0 where cuDNN is not used. */
size_t cuda_sdpa_scratch(const struct attention *a, enum device_pass pass);

/* The slice of attention that one run of a plan computes: `batch` sequences with all their heads,
 * or `kv_heads` key/value heads of one sequence with the query heads that read them.  Where
 * `tokens` is less than the sequence, the run is one tile of one sequence: `tokens` queries by as
 * many keys (sdpa_tiles.h). */
struct sdpa_slice {
    int64_t batch, kv_heads, tokens;
};

/* Return 1 where the queries, keys and values of one sequence, which cuDNN is given as one tensor,
 * have no more elements than were ever tried. */
int sdpa_is_small(const struct attention *a);

/* Return 1 where cuDNN can be asked for this type and shape, else 0. */
int sdpa_suits(const struct attention *a);

/* Return the largest slice whose scratch stays within a->scratch_bytes: at least one head of one
 * sequence, or, where backward is reproducible and that takes too much, a tile.  Each number of the
 * slice divides that of the whole. */
struct sdpa_slice sdpa_slice_of(const struct attention *a, enum device_pass pass);

/* Return the scratch bytes of backward in such slices. */
size_t sdpa_slice_bytes(const struct attention *a, struct sdpa_slice slice);

/* Round bytes up to SDPA_ALIGN, the alignment of all that lies in scratch. */
enum { SDPA_ALIGN = 256 };
size_t sdpa_align(size_t bytes);

/* The layout of backward's scratch for a slice: offsets in bytes from its first aligned address.  A
 * tensor that the slice does not need takes no bytes. */
struct sdpa_places {
    size_t rows;           /* fp32: sums of do * o */
    size_t dq_sum;         /* fp32: dq, summed in any order, or over tiles */
    size_t dk_sum, dv_sum; /* fp32: dk and dv of a whole sequence, summed over tiles */
    size_t dq, dk, dv;     /* 16 bits: the gradients of one tile, to be added to the sums */
    size_t lse;            /* fp32: of a tile's queries */
    size_t workspace;      /* cuDNN's; equals the bytes of all before it */
    size_t dq_sum_bytes;   /* the size of dq_sum */
};
struct sdpa_places sdpa_places_of(const struct attention *a, struct sdpa_slice slice);

#endif
