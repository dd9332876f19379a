/* gemm_pack.h - operands of large products of bf16, packed into tiles (gemm_packed.c).
 *
 * A tile has 1 KiB: 16 x 16 units, pairs of neighbours along k (unit.h).  In memory an operand's
 * elements along k are side by side ("along") or a row apart ("across"), and a tile's rows are
 * pairs of k, with i along its lanes, or rows of i, with k along its lanes:
 *
 *                     along k                  across k
 *   i along rows      copy                     interleave two rows, transpose
 *   i along lanes     transpose                interleave two rows
 *
 * 32 of i are a panel: for each 16 pairs of k a tile of its first 16 of i and one of the others.
 */
#ifndef TRIREME_DEVICE_CPU_GEMM_PACK_H
#define TRIREME_DEVICE_CPU_GEMM_PACK_H

#include "base/round.h"
#include "device/cpu/gemm_operand.h"
#include "device/cpu/tile.h"

enum {
    SIDE = 32,            /* of i in a panel: rows and columns of a block of sums */
    TILE_ELEMS = 16 * 32, /* bf16 of a tile */
};

SIMD_INLINE uint32_t element_of(const struct gemm_source *s, int64_t i, int64_t k)
{
    if (i >= s->count || k >= s->k)
        return 0;
    return ((const bf16 *)s->base)[s->is_along ? i * s->ld + k : k * s->ld + i];
}

/* Read a tile over the edge of its operand, zeros outside, with i along rows or lanes. */
SIMD_INLINE void edge_tile(vu v[16], const struct gemm_source *s, int64_t i, int64_t k,
                           int i_is_lane)
{
    for (int64_t row = 0; row < 16; row++)
        for (int64_t lane = 0; lane < 16; lane++) {
            int64_t at = i + (i_is_lane ? lane : row), pair = k + 2 * (i_is_lane ? row : lane);
            v[row][lane] = element_of(s, at, pair) | element_of(s, at, pair + 1) << 16;
        }
}

/* Make units of two neighbouring rows. */
SIMD_INLINE vu interleave(const bf16 *even, const bf16 *odd)
{
    vh low, high;
    memcpy(&low, even, sizeof low);
    memcpy(&high, odd, sizeof high);
    return simd_widen(low) | simd_widen(high) << 16;
}

/* Pack the tile from (i, k) on. */
SIMD_INLINE void pack_tile(bf16 *to, const struct gemm_source *s, int64_t i, int64_t k,
                           const int i_is_lane)
{
    const bf16 *from = (const bf16 *)s->base + (s->is_along ? i * s->ld + k : k * s->ld + i);
    vu v[16];
    if (i + 16 > s->count || k + 32 > s->k) {
        edge_tile(v, s, i, k, i_is_lane);
    } else if (s->is_along) {
#pragma GCC unroll 16
        for (int r = 0; r < 16; r++)
            v[r] = unit_load((const unit *)(from + r * s->ld));
        if (i_is_lane)
            unit_transpose(v);
    } else {
#pragma GCC unroll 16
        for (int r = 0; r < 16; r++)
            v[r] = interleave(from + 2 * r * s->ld, from + (2 * r + 1) * s->ld);
        if (!i_is_lane)
            unit_transpose(v);
    }
#pragma GCC unroll 16
    for (int r = 0; r < 16; r++)
        unit_store((unit *)to + r * 16, v[r]);
}

/* 32 neighbouring bf16. */
typedef uint16_t two_vh __attribute__((vector_size(4 * CPU_LANES)));

/* Pack both tiles of a panel, inside an operand across k, with i along lanes: two rows of 32
 * elements are interleaved at a time. */
SIMD_INLINE void pack_two_across(bf16 *to, const struct gemm_source *s, int64_t i, int64_t k)
{
    const bf16 *from = (const bf16 *)s->base + k * s->ld + i;
    two_vh first, second;
    for (int l = 0; l < 2 * CPU_LANES; l++) {
        first[l] = (uint16_t)(l / 2 + l % 2 * 2 * CPU_LANES);
        second[l] = (uint16_t)(first[l] + CPU_LANES);
    }
#pragma GCC unroll 16
    for (int r = 0; r < 16; r++) {
        two_vh even, odd;
        memcpy(&even, from + 2 * r * s->ld, sizeof even);
        memcpy(&odd, from + (2 * r + 1) * s->ld, sizeof odd);
        unit_store((unit *)to + r * 16, (vu)simd_shuffle_two(even, odd, first));
        unit_store((unit *)(to + TILE_ELEMS) + r * 16, (vu)simd_shuffle_two(even, odd, second));
    }
}

/* Prefetch what the next SIDE rows of memory have in the columns of the two tiles from (i, k) on:
 * along k the same k of the next panel, across k the panel's next step.  Rows are too far apart for
 * the processor to load them early itself.  Not with AMX: its products were slower with it. */
SIMD_INLINE void prefetch_next_two(const struct gemm_source *s, int64_t i, int64_t k)
{
    const int64_t row = s->is_along ? i : k, column = s->is_along ? k : i;
    if (HAS_TILES)
        return;
    for (int64_t r = row + SIDE; r < row + 2 * SIDE; r++)
        __builtin_prefetch((const bf16 *)s->base + r * s->ld + column);
}

/* Pack the panel's two tiles from (i, k) on. */
SIMD_INLINE void pack_two(bf16 *to, const struct gemm_source *s, int64_t i, int64_t k,
                          const int i_is_lane)
{
    prefetch_next_two(s, i, k);
    if (i_is_lane && !s->is_along && i + SIDE <= s->count && k + 32 <= s->k) {
        pack_two_across(to, s, i, k);
        return;
    }
    pack_tile(to, s, i, k, i_is_lane);
    pack_tile(to + TILE_ELEMS, s, i + 16, k, i_is_lane);
}

/* Pack the tiles of a range, in the order of memory; stride: elements from one panel of 32 of i to
 * the next. */
SIMD_INLINE void pack(bf16 *to, int64_t stride, const struct gemm_source *s,
                      const struct gemm_range *r, const int i_is_lane)
{
    int64_t panels = ceil_div(r->last - r->first, SIDE), steps = ceil_div(r->end - r->begin, 32);
    for (int64_t t = 0; t < panels * steps; t++) {
        int64_t panel = s->is_along ? t / steps : t % panels;
        int64_t step = s->is_along ? t % steps : t / panels;
        pack_two(to + panel * stride + step * 2 * TILE_ELEMS, s, r->first + panel * SIDE,
                 r->begin + step * 32, i_is_lane);
    }
}

#endif
