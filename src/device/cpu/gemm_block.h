/* gemm_block.h - the inner loops of packed products in bf16: one block of SIDE x SIDE sums.
 *
 * b is a packed panel of op(b): for each 16 units of k one tile of its first 16 columns and one of
 * the other 16 (gemm_pack.h).  How a block is made depends on the level.
 *
 * With AMX, a is packed in tiles too, and the block is 2 x 2 tiles of sums (tile.h).
 *
 * With vectors, 8 rows of the block are made at a time; their sums are in 16 registers, two for a
 * row.  For each unit of k, the 2 vectors of b are loaded, and for each row its unit of a into all
 * lanes: 10 loads for 16 products, so that a Zen 4 or Zen 5 multiplies in every cycle.  Rows of a
 * whose elements along k are neighbours are read where they are; others are packed as b is.  After
 * the last part of k sums are rounded in registers and stored in c.
 */
#ifndef TRIREME_DEVICE_CPU_GEMM_BLOCK_H
#define TRIREME_DEVICE_CPU_GEMM_BLOCK_H

#include "device/cpu/gemm_pack.h"
#include "device/cpu/tile.h"

/* Prefetch REGISTER_ROWS rows of 32 elements, to be written. */
SIMD_INLINE void prefetch_rows(const enum dtype dt, const void *first, int64_t ld)
{
    enum { LINE = 64 };
#pragma GCC unroll 8
    for (int r = 0; r < REGISTER_ROWS; r++) {
        const char *row = (const char *)first + r * ld * value_bytes(dt);
        __builtin_prefetch(row, 1);
        if (dt == DTYPE_F32)
            __builtin_prefetch(row + LINE, 1);
    }
}

/* Prefetch the next piece to the second cache. */
SIMD_INLINE void prefetch_piece(struct gemm_ahead *ahead)
{
    enum { LINE = 64 };
    if (ahead->pieces <= 0)
        return;
#pragma GCC unroll 8
    for (int i = 0; i < AHEAD_LINES; i++)
        __builtin_prefetch(ahead->at + i * LINE, 0, 2);
    ahead->at += ahead->stride;
    ahead->pieces--;
}

/* Make REGISTER_ROWS rows of sums: to = from (or zeros) + a b over `units` units of k.  Distances
 * in a, in units: `row` between neighbouring rows, `pair` between neighbours along k, `step`
 * between groups of 16 of these.  Prefetches the sums that follow in `from`, which are probably
 * needed next, and the rows of c that it will write (but not sums in scratch, which lie SIDE apart
 * and are in the cache already), and pieces of ahead unless that is NULL. */
SIMD_INLINE void multiply_rows(const unit *a, const int64_t row, const int64_t pair,
                               const int64_t step, const unit *b, const struct tile_sums *from,
                               const enum dtype dt, const struct gemm_block_target *to,
                               int64_t units, struct gemm_ahead *ahead)
{
    enum { UNITS = 16, TILE = TILE_ELEMS / 2 };
    vf sum[REGISTER_ROWS][2];
#pragma GCC unroll 8
    for (int r = 0; r < REGISTER_ROWS; r++)
#pragma GCC unroll 2
        for (int c = 0; c < 2; c++)
            sum[r][c] = from->first ? vf_load(from->first + r * from->ld + 16 * c) : (vf){0};
    if (from->first)
        prefetch_rows(DTYPE_F32, from->first + REGISTER_ROWS * from->ld, from->ld);
    if (to->ld != SIDE)
        prefetch_rows(dt, to->first, to->ld);
    for (int64_t k = 0; k < units; k += UNITS, a += step, b += 2 * TILE) {
        if (ahead)
            prefetch_piece(ahead);
#pragma GCC unroll 4
        for (int p = 0; p < UNITS; p++) {
            vu left = unit_load(b + p * 16), right = unit_load(b + TILE + p * 16);
#pragma GCC unroll 8
            for (int r = 0; r < REGISTER_ROWS; r++) {
                vu x = unit_broadcast(a + r * row + p * pair);
                sum[r][0] = unit_dot(DTYPE_BF16, sum[r][0], x, left);
                sum[r][1] = unit_dot(DTYPE_BF16, sum[r][1], x, right);
            }
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < REGISTER_ROWS; r++)
#pragma GCC unroll 2
        for (int c = 0; c < 2; c++) {
            if (dt == DTYPE_BF16 && to->addend)
                sum[r][c] += vf_get(DTYPE_BF16, to->addend, r * to->ld + 16 * c);
            vf_put(dt, to->first, r * to->ld + 16 * c, sum[r][c]);
        }
}

/* Make the first `rows` rows of a block, rounded up to whole REGISTER_ROWS.  Where a is read in
 * place, no more of it is packed later, so that there is nothing to prefetch. */
SIMD_INLINE void multiply_rows_of(const enum dtype dt, const struct gemm_block_rows *a,
                                  const unit *b, const struct tile_sums *from,
                                  const struct gemm_block_target *to, int64_t rows, int64_t units,
                                  struct gemm_ahead *ahead)
{
    enum { TILE = TILE_ELEMS / 2 };
    struct tile_sums f = *from;
    struct gemm_block_target t = *to;
    for (int64_t r = 0; r < rows; r += REGISTER_ROWS) {
        if (a->ld)
            multiply_rows(a->first + r * a->ld, a->ld, 1, 16, b, &f, dt, &t, units, NULL);
        else
            multiply_rows(a->first + r / 16 * TILE + r % 16, 1, 16, 2 * TILE, b, &f, dt, &t, units,
                          ahead);
        f.first = f.first ? f.first + REGISTER_ROWS * f.ld : NULL;
        t.first = (char *)t.first + REGISTER_ROWS * t.ld * value_bytes(dt);
        t.addend = t.addend ? (const bf16 *)t.addend + REGISTER_ROWS * t.ld : NULL;
    }
}

/* Multiply a block, of which `rows` rows at least: to = from + a b over `units` units, a multiple
 * of 16. */
SIMD_INLINE void multiply_block(const struct gemm_block_rows *a, const unit *b,
                                const struct tile_sums *from, const struct gemm_block_target *to,
                                int64_t rows, int64_t units, struct gemm_ahead *ahead)
{
    if (HAS_TILES) {
        const struct tile_sums sums = {to->first, to->ld};
        tile_block_packed(a->first, b, from, &sums, units, &ahead->tiles);
    } else if (to->dt == DTYPE_F32) {
        multiply_rows_of(DTYPE_F32, a, b, from, to, rows, units, ahead);
    } else {
        multiply_rows_of(DTYPE_BF16, a, b, from, to, rows, units, ahead);
    }
}

#endif
