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

/* Where the tiles of an operand lie: a pair of tiles for each TILE_UNITS units of the summed
 * dimension.  Distances are in units. */
struct tile_pairs {
    const unit *first; /* first tile of the first pair */
    int64_t ld;        /* from one row of a tile to the next */
    int64_t second;    /* from the first tile of a pair to the second */
    int64_t step;      /* from one pair to the next */
};

/* Where the sums of a block lie, in rows ld floats apart. */
struct tile_sums {
    float *first; /* NULL, where sums are read: they are zeros */
    int64_t ld;
};

/* to = from + a b: a block of sums, of products of bf16 over `units` units, a multiple of
 * TILE_UNITS. */
SIMD_INLINE void tile_block(const struct tile_pairs *a, const struct tile_pairs *b,
                            const struct tile_sums *from, const struct tile_sums *to,
                            int64_t units);

/* What is prefetched while a block is multiplied: the sums of the block that probably comes next,
 * and the memory of the product that this block is soon written to, a row for each TILE_UNITS. */
struct tile_ahead {
    const float *sums; /* NULL: none */
    const char *row;   /* the first row; NULL: none */
    int64_t row_bytes; /* from one row to the next */
    int row_lines;     /* cache lines of a row */
};

/* The same where the pairs of tiles of both operands lie one after another.  a, up to 32 KiB, stays
 * in the first cache for the next block; b is loaded without displacing it. */
SIMD_INLINE void tile_block_packed(const unit *a, const unit *b, const struct tile_sums *from,
                                   const struct tile_sums *to, int64_t units,
                                   const struct tile_ahead *ahead);

#ifdef CPU_TILES
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

/* Load or begin the sums of a block. */
SIMD_INLINE void tile_begin(const struct tile_sums *from)
{
    const float *above = from->first, *below = above + 16 * from->ld;
    if (above) {
        _tile_loadd(0, above, from->ld * 4);
        _tile_loadd(1, above + 16, from->ld * 4);
        _tile_loadd(2, below, from->ld * 4);
        _tile_loadd(3, below + 16, from->ld * 4);
    } else {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    }
}

SIMD_INLINE void tile_end(const struct tile_sums *to)
{
    float *above = to->first, *below = above + 16 * to->ld;
    _tile_stored(0, above, to->ld * 4);
    _tile_stored(1, above + 16, to->ld * 4);
    _tile_stored(2, below, to->ld * 4);
    _tile_stored(3, below + 16, to->ld * 4);
}

/* Add the products of TILE_UNITS units.  second_*: units from the first tile to the second;
 * bytes_*: bytes from row to row.  streams 1: b is loaded so that it leaves the first cache before
 * a does. */
SIMD_INLINE void tile_step(const unit *a, int64_t second_a, int64_t bytes_a, const unit *b,
                           int64_t second_b, int64_t bytes_b, const int streams)
{
    if (streams) {
        _tile_stream_loadd(6, b, bytes_b);
        _tile_loadd(4, a, bytes_a);
        _tile_stream_loadd(7, b + second_b, bytes_b);
    } else {
        _tile_loadd(6, b, bytes_b);
        _tile_loadd(4, a, bytes_a);
        _tile_loadd(7, b + second_b, bytes_b);
    }
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(5, a + second_a, bytes_a);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
}

SIMD_INLINE void tile_block(const struct tile_pairs *a, const struct tile_pairs *b,
                            const struct tile_sums *from, const struct tile_sums *to, int64_t units)
{
    const unit *at_a = a->first, *at_b = b->first;
    tile_begin(from);
    for (int64_t k = 0; k < units; k += TILE_UNITS, at_a += a->step, at_b += b->step)
        tile_step(at_a, a->second, a->ld * 4, at_b, b->second, b->ld * 4, 0);
    tile_end(to);
}

SIMD_INLINE void tile_block_packed(const unit *a, const unit *b, const struct tile_sums *from,
                                   const struct tile_sums *to, int64_t units,
                                   const struct tile_ahead *ahead)
{
    enum { TILE = TILE_UNITS * 16, LINE_BYTES = 64, LINE = LINE_BYTES / 4, ASKED = 8 };
    const float *next = ahead->sums;
    const char *row = ahead->row;
    tile_begin(from);
    for (int64_t k = 0; k < units; k += TILE_UNITS, a += 2 * TILE, b += 2 * TILE) {
        tile_step(a, TILE, 64, b, TILE, 64, 1);
        for (int i = 0; i < ASKED && next && k < 8 * TILE_UNITS; i++, next += LINE)
            __builtin_prefetch(next, 1);
        for (int i = 0; i < ahead->row_lines && row && k < TILE_ROWS * TILE_UNITS; i++)
            __builtin_prefetch(row + i * LINE_BYTES, 1);
        row = row ? row + ahead->row_bytes : NULL;
    }
    tile_end(to);
}
#else
enum { HAS_TILES = 0, TILE_ROWS = REGISTER_ROWS, TILE_UNITS = 1 };

SIMD_INLINE void tiles_open(void)
{
}

SIMD_INLINE void tiles_close(void)
{
}

SIMD_INLINE void tile_block(const struct tile_pairs *a, const struct tile_pairs *b,
                            const struct tile_sums *from, const struct tile_sums *to, int64_t units)
{
}

SIMD_INLINE void tile_block_packed(const unit *a, const unit *b, const struct tile_sums *from,
                                   const struct tile_sums *to, int64_t units,
                                   const struct tile_ahead *ahead)
{
}
#endif

#endif
