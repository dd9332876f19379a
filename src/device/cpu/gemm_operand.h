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

/* Cache lines of a piece: what most_m_across rows of op(a) (gemm_format.h) have of one k. */
enum { AHEAD_LINES = 8 };

/* Memory that is needed soon, prefetched while a block is multiplied.  The format "vectors"
 * prefetches a piece of AHEAD_LINES cache lines for each 16 units of k.  Strips read only `at`, and
 * decide themselves how much they prefetch from there. */
struct gemm_ahead {
    const char *at;          /* the next piece; NULL: nothing */
    int64_t stride;          /* bytes from one piece to the next */
    int64_t pieces;          /* pieces that are left */
    struct tile_ahead tiles; /* all that tiles prefetch */
};

/* Where a block's sums are stored.  AMX stores fp32 only, without an addend. */
struct gemm_block_target {
    void *first;
    int64_t ld;         /* elements from row to row */
    enum dtype dt;      /* of the stored elements */
    const void *addend; /* laid out as the target, added before rounding; NULL: none */
};

#endif
