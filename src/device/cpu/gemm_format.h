/* gemm_format.h - how a level packs the operands of large products, and multiplies their blocks.
 *
 *   tiles     bf16, with AMX: blocks of 32 x 32 sums (gemm_block.h)
 *   vectors   bf16, where AVX-512 multiplies it: the same blocks
 *   strips    all types as fp32, with AVX2, or AVX-512 alone: blocks of all rows of a task by 16 or
 *             32 columns (gemm_strip.h)
 *
 * Packed operands are made of units, fp32 or pairs of bf16 (unit.h); op(b) lies in panels as wide
 * as a block.  M, N and K are the sizes of gemm_packed.c.
 */
#ifndef TRIREME_DEVICE_CPU_GEMM_FORMAT_H
#define TRIREME_DEVICE_CPU_GEMM_FORMAT_H

#include "device/cpu/gemm_block.h"
#include "device/cpu/gemm_strip.h"

enum { TILES, VECTORS, STRIPS, FORMAT = HAS_TILES ? TILES : HAS_DOT_BF16 ? VECTORS : STRIPS };

_Static_assert(FORMAT != STRIPS || CPU_LANES <= 2 * STRIP_ROWS,
               "pack_strip_step() would write past the next row of a strip");

/* What the formats differ in. */
static const struct format {
    int64_t unit_elems;            /* elements of k in a unit */
    int64_t step_k, step_m;        /* k, and rows of op(a), are packed up to a multiple of these */
    int64_t block_m, block_n;      /* rows and columns of a block of sums, at most */
    int64_t most_m, most_m_across; /* M at most, so that M x K elements fit a part of the second
                                      cache; and M at most where op(a) lies across k */
    int64_t most_k, most_k_across; /* K at most; and where op(a) lies across k */
    int64_t group;                 /* panels of op(b) that stay in the second cache */
    int64_t piece_k;               /* k of a piece at most: ENOUGH_N columns of it are MOST_BYTES */
    int64_t least_m; /* m of a product at least, so that packing op(b) pays; the library makes
                        smaller products */
} formats[] = {
    [TILES] =
        {
            .unit_elems = 2,
            .step_k = 32,
            .step_m = SIDE,
            .block_m = SIDE,
            .block_n = SIDE,
            .most_m = 256,
            .most_m_across = 512,
            .most_k = 512, /* 32 rows of it fit the first cache */
            .most_k_across = 512,
            .group = 16,
            .piece_k = 4096,
            .least_m = 64,
        },
    [VECTORS] =
        {
            .unit_elems = 2,
            .step_k = 32,
            .step_m = SIDE,
            .block_m = SIDE,
            .block_n = SIDE,
            .most_m = 128,
            .most_m_across = 256,
            .most_k = 1024,
            .most_k_across = 512,
            .group = 8,
            .piece_k = 4096,
            .least_m = 384,
        },
    [STRIPS] =
        {
            .unit_elems = 1,
            .step_k = STRIP_STEP,
            .step_m = STRIP_ROWS,
            .block_m = 12 * STRIP_ROWS, /* M: all rows of a task by one panel, then by the next */
            .block_n = STRIP_COLUMNS,
            .most_m = 12 * STRIP_ROWS,
            .most_m_across = 12 * STRIP_ROWS,
            .most_k = 512,
            .most_k_across = 512,
            .group = INT64_MAX / 2, /* all: a panel is read once */
            .piece_k = 2048,
            .least_m = 64,
        },
};

static const struct format *const level_format = &formats[FORMAT];

/* Does this level pack operands of this type? */
static int format_takes(enum dtype dt)
{
    return dt == DTYPE_BF16 || FORMAT == STRIPS;
}

/* Units that so many rows or columns over k elements take when they are packed. */
static int64_t packed_units(int64_t count, int64_t k)
{
    return count * (k / level_format->unit_elems);
}

/* Pack a range of an operand: rows of op(a) or columns of op(b), `width` at a time, with `stride`
 * units from one width to the next.  i_is_lane is pack()'s (gemm_pack.h); strips do not use it. */
static void pack_operand(unit *to, int64_t stride, enum dtype dt, const struct gemm_source *s,
                         const struct gemm_range *r, const int64_t width, const int i_is_lane)
{
    if (FORMAT == STRIPS)
        WITH_DTYPE(pack_steps, dt, (float *)to, stride, s, r, width);
    else
        pack((bf16 *)to, 2 * stride, s, r, i_is_lane);
}

/* Multiply a block, of which `rows` rows at least: to = from + a b over k elements.  For strips
 * `ahead` is the next panel. */
static void multiply_packed(const struct gemm_block_rows *a, const unit *b,
                            const struct tile_sums *from, const struct gemm_block_target *to,
                            int64_t rows, int64_t k, struct gemm_ahead *ahead)
{
    if (FORMAT == STRIPS)
        WITH_DTYPE(multiply_strips, to->dt, (const float *)a->first, (const float *)b, from, to,
                   round_up(rows, STRIP_ROWS), k, (const float *)ahead->at);
    else
        multiply_block(a, b, from, to, rows, k / 2, ahead);
}

#endif
