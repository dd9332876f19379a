/* sum.h - the sums and maxima of reduce-scatter and all-reduce: a fixed order, in fp32 or fp64. */
#ifndef TRIREME_COMM_SUM_H
#define TRIREME_COMM_SUM_H

#include <stdint.h>

#include "base/dtype.h"
#include "comm/group.h"

/* Where the terms of a sum lie: term `own` at own_data, the others one slot apart. */
struct sum_terms {
    const char *own_data, *slots;
    int64_t slot_bytes;
    int own, count;
};

/* out[i] = (old ? old[i] : 0) + (((t0[i] + t1[i]) + t2[i]) + ...), old last.
 * terms are fp32, bf16 or fp16, sums fp32.  out may be old or own_data. */
void sum_to_f32(float *out, const float *old, const struct sum_terms *terms, int64_t elems,
                enum dtype dtype);

/* out[i] = the sum or maximum of the terms', of one dtype: fp32, bf16 or fp16 (rounded once) or
 * fp64.  The maximum of terms of which one is NaN is NaN. */
void sum_same(void *out, const struct sum_terms *terms, int64_t elems, enum dtype dtype,
              enum group_reduction reduction);

#endif
