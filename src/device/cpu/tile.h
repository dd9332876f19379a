/* tile.h - blocks of sums of products c[m,n] (+)= a b of 32-bit units (unit.h), in AMX tiles.
 *
 * A block has TILE_ROWS x TILE_COLS sums.  AMX has eight tiles of 16 rows of 64 bytes, and one
 * instruction that adds to a tile of 16 x 16 sums the product of 16 rows of 16 units and 16 units
 * of 16 columns.  A block is 2 x 2 tiles of sums; for each 16 units two tiles of a and two of b are
 * loaded, so that four products hide four loads:
 *
 *             b 6   b 7        tile 0..3: sums
 *      a 4     0     1         tile 4, 5: rows of a
 *      a 5     2     3         tile 6, 7: units of b, a row each
 *
 * Tiles have their sizes from a configuration, which each thread loads by tiles_open(); with
 * tiles_close() it gives them up, or the operating system would save their 8 KiB at each switch.
 *
 * Sums of bf16 are not those of vectors to the bit: for each 16 units AMX adds the even products
 * and the odd ones by themselves, and then both to the sum (Intel, Instruction Set Reference,
 * TDPBF16PS).
 */
#ifndef TRIREME_DEVICE_CPU_TILE_H
#define TRIREME_DEVICE_CPU_TILE_H

#include "device/cpu/unit.h"

/* Levels without tiles keep REGISTER_ROWS rows of a block in vector registers. */
enum { REGISTER_ROWS = CPU_LANES == 16 ? 8 : 4, TILE_COLS = 2 * CPU_LANES };

/* Pairs of tiles of an operand, two for each TILE_UNITS units of the sum: the first of the first
 * pair, units from row to row of a tile, to the second of a pair, and to the next pair. */
struct tile_pairs {
    const unit *first;
    int64_t ld, second, step;
};

#ifdef __AMX_BF16__
#include <immintrin.h>

enum { HAS_TILES = 1, TILE_ROWS = 32, TILE_UNITS = 16 };

SIMD_INLINE void tiles_open(void)
{
    enum { TILES = 8, ROWS = 16, ROW_BYTES = 64 };
    struct {
        uint8_t palette, start_row, reserved[14];
        uint16_t row_bytes[16];
        uint8_t rows[16];
    } config = {.palette = 1};
    for (int i = 0; i < TILES; i++) {
        config.row_bytes[i] = ROW_BYTES;
        config.rows[i] = ROWS;
    }
    /* _tile_loadconfig() of GCC 12 claims to read 8 bytes: stores of the others were dropped */
    __asm__ volatile("ldtilecfg\t%0" : : "m"(config));
}

SIMD_INLINE void tiles_close(void)
{
    _tile_release();
}

/* A block of sums of products of bf16, over a multiple of TILE_UNITS units. */
SIMD_INLINE void tile_block(const struct tile_pairs *a, const struct tile_pairs *b, float *c,
                            int64_t ldc, int64_t units, const int accumulate)
{
    const int64_t bytes_a = a->ld * 4, bytes_b = b->ld * 4, bytes_c = ldc * 4;
    const unit *at_a = a->first, *at_b = b->first;
    float *below = c + 16 * ldc;
    if (accumulate) {
        _tile_loadd(0, c, bytes_c);
        _tile_loadd(1, c + 16, bytes_c);
        _tile_loadd(2, below, bytes_c);
        _tile_loadd(3, below + 16, bytes_c);
    } else {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    }
    for (int64_t k = 0; k < units; k += TILE_UNITS, at_a += a->step, at_b += b->step) {
        _tile_loadd(6, at_b, bytes_b);
        _tile_loadd(4, at_a, bytes_a);
        _tile_loadd(7, at_b + b->second, bytes_b);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(5, at_a + a->second, bytes_a);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, c, bytes_c);
    _tile_stored(1, c + 16, bytes_c);
    _tile_stored(2, below, bytes_c);
    _tile_stored(3, below + 16, bytes_c);
}
#else
enum { HAS_TILES = 0, TILE_ROWS = REGISTER_ROWS, TILE_UNITS = 1 };

SIMD_INLINE void tiles_open(void)
{
}

SIMD_INLINE void tiles_close(void)
{
}

SIMD_INLINE void tile_block(const struct tile_pairs *a, const struct tile_pairs *b, float *c,
                            int64_t ldc, int64_t units, const int accumulate)
{
}
#endif

#endif
