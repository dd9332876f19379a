/* sum.h - the sums and maxima of reduce-scatter and all-reduce: a fixed order, in fp32 or fp64. */
#ifndef TRIREME_COMM_SUM_H
#define TRIREME_COMM_SUM_H

#include <stdint.h>

#include "base/dtype.h"
#include "comm/group.h"

enum sum_store {
    SUM_STORED,  /* into the caches */
    SUM_STREAMED /* past them: out is large, and not read soon */
};

/* Set out[i] to the sum or maximum of the `count` terms in their order,
 * (((t0[i] + t1[i]) + t2[i]) + ...), where term[m] is the address of term m.
 * If old is not NULL, old[i] is added last; only to sums in fp32.  Terms of fp32, bf16 or fp16 are
 * summed in fp32; out_dtype, the format of out, is fp32 or dtype, to which the sum is rounded once.
 * Terms of fp64 are summed in fp64, and out is fp64; such sums, and those in 16 bits, are stored.
 * If a term is NaN, the maximum is NaN.  out may be old or a term. */
void sum_reduce(void *out, enum dtype out_dtype, const float *old, const char *const *term,
                int count, int64_t elems, enum dtype dtype, enum group_reduction reduction,
                enum sum_store store);

#endif
