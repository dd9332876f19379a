/* gemm_operand.h - what large products read and write (gemm_packed.c), whatever format their
 * operands are packed in. */
#ifndef TRIREME_DEVICE_CPU_GEMM_OPERAND_H
#define TRIREME_DEVICE_CPU_GEMM_OPERAND_H

#include <stdint.h>

#include "base/dtype.h"
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

/* Rows of op(a): packed, or where they lie, their units along k, `ld` units from row to row. */
struct gemm_block_rows {
    const unit *first;
    int64_t ld; /* 0: packed */
};

/* Memory that is needed later, prefetched while a block is multiplied.  With vectors it is so many
 * pieces, `stride` bytes apart, and one of them is prefetched for each 16 units of k: AHEAD_LINES
 * cache lines, what the most rows of op(a) (most_m_across) have of one k.  Tiles and strips look at
 * `at` alone, and say how much they prefetch. */
enum { AHEAD_LINES = 8 };

struct gemm_ahead {
    const char *at; /* the next piece; NULL: nothing */
    int64_t stride, pieces;
};

/* Where a block's sums go, rows ld elements apart.  AMX stores fp32 only, without an addend. */
struct gemm_block_target {
    void *first;
    int64_t ld;
    enum dtype dt;
    const void *addend; /* laid out as the target, added before rounding; NULL: none */
};

#endif
