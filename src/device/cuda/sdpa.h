/* sdpa.h - attention by a library (cuDNN): what is asked besides state.h, and its sizes. */
#ifndef TRIREME_DEVICE_CUDA_SDPA_H
#define TRIREME_DEVICE_CUDA_SDPA_H

#include "device/ops.h"

/* To test: backward that is reproducible runs in tiles of so many tokens from now on, which divide
 * the sequence, of one key/value head at a time; 0: as planned. */
void cuda_sdpa_set_tile_tokens(struct device *d, int64_t tokens);

/* Why cuDNN of a version (91900 is 9.19.0) is not to be asked for a shape and direction; NULL: it
 * may be asked.  Only in builds with cuDNN. */
const char *cuda_sdpa_refusal(const struct attention *a, enum device_pass pass, size_t version);

/* ---- sizes: functions of the shape, for plans in any build; 0 in one with CUDA, without cuDNN */

/* Scratch that suits cuDNN for this shape; 0 where it is nothing for cuDNN. */
size_t cuda_sdpa_scratch(const struct attention *a, enum device_pass pass);

/* What one run of a plan does: some sequences, or of one sequence some key/value heads with the
 * query heads that read them.  Where tokens are fewer than the sequence, a run is one tile: of one
 * sequence so many queries, and as many keys that they see, all of them or those up to their own
 * (sdpa_tiles.h). */
struct sdpa_part {
    int64_t batch, kv_heads, tokens;
};

/* 1 where type and shape are for cuDNN at all. */
int sdpa_suits(const struct attention *a);

/* The largest part whose scratch stays within a->scratch_bytes, at least one head of one sequence;
 * of a sequence so long that this takes too much, where backward is reproducible, tiles.  All
 * numbers are divisors of what there is. */
struct sdpa_part sdpa_part_of(const struct attention *a, enum device_pass pass);

/* What backward by such parts takes. */
size_t sdpa_part_bytes(const struct attention *a, struct sdpa_part part);

/* Up to the alignment of what lies in scratch. */
enum { SDPA_ALIGN = 256 };
size_t sdpa_align(size_t bytes);

/* Where in backward's scratch, after its alignment, a part has what.  What it has not takes no
 * bytes. */
struct sdpa_places {
    size_t rows;           /* fp32: sums of do * o */
    size_t dq_sum;         /* fp32: dq, added up in any order, or over tiles */
    size_t dk_sum, dv_sum; /* fp32: of a whole sequence, over tiles */
    size_t dq, dk, dv;     /* 16 bits: what a tile adds to them */
    size_t lse;            /* fp32: of a tile's queries */
    size_t workspace;      /* cuDNN's; all that comes before it */
    size_t dq_sum_bytes;
};
struct sdpa_places sdpa_places_of(const struct attention *a, struct sdpa_part part);

#endif
