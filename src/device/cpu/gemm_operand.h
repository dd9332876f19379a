/* gemm_operand.h - what large products read and write (gemm_packed.c), whatever format their
 * operands are packed in. */
#ifndef TRIREME_DEVICE_CPU_GEMM_OPERAND_H
#define TRIREME_DEVICE_CPU_GEMM_OPERAND_H

#include <stdint.h>

#include "base/dtype.h"
#include "device/cpu/tile.h"
#include "device/cpu/unit.h"

/* An operand in memory: element (i, k), i being a row of op(a) or a column of op(b). */
struct gemm_source {
    const void *base;
    int64_t ld, count, k; /* i < count */
    int is_along;         /* 1: (i, k) is at i * ld + k; 0: at k * ld + i */
};

/* i in [first, last) and k in [begin, end) of an operand. */
struct gemm_range {
    int64_t first, last, begin, end;
};

/* Rows of op(a) for a block of sums: packed, or read in place, with units along k. */
struct gemm_block_rows {
    const unit *first;
    int64_t ld; /* units from row to row; 0: packed */
};

/* Memory that is needed soon, prefetched while a block is multiplied.  Vectors prefetch a piece for
 * each 16 units of k, strips one for each strip. */
struct gemm_ahead {
    const char *at;          /* the next piece of op(a); NULL: nothing */
    int64_t stride;          /* bytes from one piece to the next */
    int64_t pieces;          /* pieces that are left */
    const unit *panel;       /* the next panel of op(b); strips alone prefetch it */
    struct tile_ahead tiles; /* all that tiles prefetch */
};

/* Prefetch the next piece, of so many cache lines, to the second cache. */
SIMD_INLINE void prefetch_piece(struct gemm_ahead *ahead, const int lines)
{
    enum { LINE_BYTES = 64 };
    if (ahead->pieces <= 0)
        return;
#pragma GCC unroll 8
    for (int i = 0; i < lines; i++)
        __builtin_prefetch(ahead->at + i * LINE_BYTES, 0, 2);
    ahead->at += ahead->stride;
    ahead->pieces--;
}

/* Where a block's sums are stored.  AMX stores fp32 only, without an addend. */
struct gemm_block_target {
    void *first;
    int64_t ld;         /* elements from row to row */
    enum dtype dt;      /* of the stored elements */
    const void *addend; /* laid out as the target, added before rounding; NULL: none */
};

#endif
