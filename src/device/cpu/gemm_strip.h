/* gemm_strip.h - packed products in fp32, also of bf16 where no instruction multiplies it: packing,
 * and the inner loop.  Operands of 16 bits become fp32 while they are packed, which costs nothing
 * beside the reading of them.
 *
 * op(a) is packed in strips of STRIP_ROWS rows, op(b) in panels of STRIP_COLUMNS columns; k is the
 * outer index of both, so that the inner loop reads either from its first element to its last:
 *
 *   strip  [k][STRIP_ROWS]
 *   panel  [k][STRIP_COLUMNS]
 *   sums   [STRIP_ROWS][STRIP_COLUMNS]
 *
 * Of AVX2's 16 registers sums take 12, a row of the panel takes 2, and an element of the strip 1;
 * of AVX-512's 32 sums take 28.
 *
 * Two multiplications a cycle, each of which is done four cycles later, need eight sums at least;
 * for 12 of them there are 8 loads, for 28 there are 16, of which a processor makes two or three a
 * cycle.  A panel of one K stays in the first cache for all strips of a task, and those in the
 * second (BLIS: Van Zee and van de Geijn 2015); with 16 lanes it has 64 KiB, more than most first
 * caches, but shorter ones (K of 256 and 384) are no faster.
 *
 * An operand's elements along k are neighbours in memory ("along"), or a row apart ("across").
 * Those along are transposed, a square of CPU_LANES at a time.
 */
#ifndef TRIREME_DEVICE_CPU_GEMM_STRIP_H
#define TRIREME_DEVICE_CPU_GEMM_STRIP_H

#include "device/cpu/gemm_pack.h"
#include "device/cpu/tile.h"

/* Strips are for vectors of 8 and 16 lanes; with 4 they are compiled, but not used. */
enum {
    STRIP_ROWS = CPU_LANES == 16  ? 14
                 : CPU_LANES == 8 ? 6
                                  : CPU_LANES,
    STRIP_COLUMNS = 2 * CPU_LANES,
    STRIP_STEP = CPU_LANES, /* of k: what is packed at a time */
    LINE = 16,              /* floats */
};

/* Read a square of an operand over its edge: row r of v gets step r of k, with i along lanes, zeros
 * outside. */
SIMD_INLINE void edge_square(const enum dtype dt, vf v[CPU_LANES], const struct gemm_source *s,
                             int64_t i, int64_t k)
{
    for (int64_t r = 0; r < STRIP_STEP; r++)
        for (int64_t lane = 0; lane < CPU_LANES; lane++) {
            int64_t at = s->is_along ? (i + lane) * s->ld + k + r : (k + r) * s->ld + i + lane;
            int is_inside = i + lane < s->count && k + r < s->k;
            v[r][lane] = is_inside ? value_get(dt, s->base, at) : 0;
        }
}

/* Read the square from (i, k) on: row r of v gets step r of k, with i along lanes. */
SIMD_INLINE void get_square(const enum dtype dt, vf v[CPU_LANES], const struct gemm_source *s,
                            int64_t i, int64_t k)
{
    if (i + CPU_LANES > s->count || k + STRIP_STEP > s->k) {
        edge_square(dt, v, s, i, k);
    } else if (s->is_along) {
        vu u[CPU_LANES];
#pragma GCC unroll 16
        for (int64_t r = 0; r < CPU_LANES; r++)
            u[r] = (vu)vf_get(dt, s->base, (i + r) * s->ld + k);
        unit_transpose(u);
#pragma GCC unroll 16
        for (int r = 0; r < CPU_LANES; r++)
            v[r] = (vf)u[r];
    } else {
#pragma GCC unroll 16
        for (int64_t r = 0; r < CPU_LANES; r++)
            v[r] = vf_get(dt, s->base, (k + r) * s->ld + i);
    }
}

/* Pack one step of a panel. */
SIMD_INLINE void pack_panel_step(const enum dtype dt, float *to, const struct gemm_source *s,
                                 int64_t i, int64_t k)
{
    for (int64_t half = 0; half < 2; half++) {
        vf v[CPU_LANES];
        get_square(dt, v, s, i + half * CPU_LANES, k);
#pragma GCC unroll 16
        for (int r = 0; r < STRIP_STEP; r++)
            vf_store(to + r * STRIP_COLUMNS + half * CPU_LANES, v[r]);
    }
}

/* Pack one step of a strip.  A row is stored as a whole vector, and the next row overwrites the
 * lanes that are too many; of the last row only STRIP_ROWS lanes are stored. */
SIMD_INLINE void pack_strip_step(const enum dtype dt, float *to, const struct gemm_source *s,
                                 int64_t i, int64_t k)
{
    vf v[CPU_LANES];
    get_square(dt, v, s, i, k);
#pragma GCC unroll 16
    for (int r = 0; r < STRIP_STEP - 1; r++)
        vf_store(to + r * STRIP_ROWS, v[r]);
    memcpy(to + (STRIP_STEP - 1) * STRIP_ROWS, &v[STRIP_STEP - 1], STRIP_ROWS * sizeof *to);
}

/* Pack a range in strips or panels, `width` of i each and `stride` elements apart, in the order of
 * memory. */
SIMD_INLINE void pack_steps(const enum dtype dt, float *to, int64_t stride,
                            const struct gemm_source *s, const struct gemm_range *r,
                            const int64_t width)
{
    int64_t all = ceil_div(r->last - r->first, width);
    int64_t steps = ceil_div(r->end - r->begin, (int64_t)STRIP_STEP);
    for (int64_t t = 0; t < all * steps; t++) {
        int64_t n = s->is_along ? t / steps : t % all, step = s->is_along ? t % steps : t / all;
        int64_t i = r->first + n * width, k = r->begin + step * STRIP_STEP;
        float *at = to + n * stride + step * STRIP_STEP * width;
        if (width == STRIP_ROWS)
            pack_strip_step(dt, at, s, i, k);
        else
            pack_panel_step(dt, at, s, i, k);
    }
}

/* Make the rows of a block that belong to one strip: to = from (or zeros) + products over k
 * elements, a multiple of STRIP_STEP.  Prefetches the sums that follow in `from`, the rows of c
 * that it will write and, to the second cache, the memory from `next` on, a line for each
 * STRIP_STEP of k. */
SIMD_INLINE void multiply_strip(const float *strip, const float *panel,
                                const struct tile_sums *from, const enum dtype dt,
                                const struct gemm_block_target *to, int64_t k, const float *next)
{
    const int64_t bytes = value_bytes(dt);
    vf sum[STRIP_ROWS][2];
#pragma GCC unroll 16
    for (int r = 0; r < STRIP_ROWS; r++) {
        __builtin_prefetch((char *)to->first + r * to->ld * bytes, 1);
        if (from->first)
            __builtin_prefetch(from->first + (STRIP_ROWS + r) * from->ld, 1);
#pragma GCC unroll 2
        for (int c = 0; c < 2; c++)
            sum[r][c] = from->first ? vf_load(from->first + r * from->ld + CPU_LANES * c) : (vf){0};
    }
    for (int64_t step = 0; step < k; step += STRIP_STEP, next += LINE) {
        __builtin_prefetch(next, 0, 2);
#pragma GCC unroll 1
        for (int s = 0; s < STRIP_STEP; s++, strip += STRIP_ROWS, panel += STRIP_COLUMNS) {
            vf left = vf_load(panel), right = vf_load(panel + CPU_LANES);
#pragma GCC unroll 16
            for (int r = 0; r < STRIP_ROWS; r++) {
                vf x = vf_set(strip[r]);
                sum[r][0] += x * left;
                sum[r][1] += x * right;
            }
        }
    }
#pragma GCC unroll 16
    for (int r = 0; r < STRIP_ROWS; r++)
#pragma GCC unroll 2
        for (int64_t c = 0; c < 2; c++) {
            if (to->addend)
                sum[r][c] += vf_get(dt, to->addend, r * to->ld + CPU_LANES * c);
            vf_put(dt, to->first, r * to->ld + CPU_LANES * c, sum[r][c]);
        }
}

/* Make `rows` rows of a block, a multiple of STRIP_ROWS, with one panel: to = from + products over
 * k. next: the panel of the next call, which is prefetched, a part of it during each strip. */
SIMD_INLINE void multiply_strips(const enum dtype dt, const float *strip, const float *panel,
                                 const struct tile_sums *from, const struct gemm_block_target *to,
                                 int64_t rows, int64_t k, const float *next)
{
    struct tile_sums f = *from;
    struct gemm_block_target t = *to;
    const int64_t bytes = STRIP_ROWS * t.ld * value_bytes(dt);
    const int64_t part = k / STRIP_STEP * LINE;
    const float *last = next + k * STRIP_COLUMNS - part;
    for (; rows > 0; rows -= STRIP_ROWS, strip += STRIP_ROWS * k) {
        multiply_strip(strip, panel, &f, dt, &t, k, next);
        next = next < last ? next + part : next;
        f.first = f.first ? f.first + STRIP_ROWS * f.ld : NULL;
        t.first = (char *)t.first + bytes;
        t.addend = t.addend ? (const char *)t.addend + bytes : NULL;
    }
}

#endif
