/* pieces.h - sums over rows: the rows are cut into pieces whose number depends on rows only; each
 * piece has its own sums, and those of the pieces are added in order. */
#ifndef TRIREME_DEVICE_CPU_PIECES_H
#define TRIREME_DEVICE_CPU_PIECES_H

#include "device/cpu/kernels.h"
#include "device/cpu/simd.h"

/* Rows of each piece but the last. */
SIMD_INLINE int64_t rows_per_piece(int64_t rows)
{
    enum { MOST_PIECES = 64, LEAST_ROWS = 8 };
    int64_t piece = ceil_div(rows, MOST_PIECES);
    return piece > LEAST_ROWS ? piece : LEAST_ROWS;
}

/* Number of pieces that `rows` rows are cut into. */
SIMD_INLINE int64_t pieces_of(int64_t rows)
{
    return ceil_div(rows, rows_per_piece(rows));
}

/* sum (+)= parts[0] + parts[1] + ..., each of `columns` floats, `stride` apart. */
SIMD_INLINE void add_pieces(struct device *d, float *sum, const float *parts, int64_t pieces,
                            int64_t stride, int64_t columns, int accumulate)
{
    enum { COLUMNS = 256 };
#pragma omp parallel for num_threads(cpu_threads(d, pieces *columns * 4))
    for (int64_t begin = 0; begin < columns; begin += COLUMNS) {
        int64_t end = min_i64(begin + COLUMNS, columns);
        for (int64_t i = begin; i < end; i += CPU_LANES) {
            vf total = {0};
            for (int64_t piece = 0; piece < pieces; piece++)
                total += vf_get_some(DTYPE_F32, parts, piece * stride + i, end - i);
            if (accumulate)
                total += vf_get_some(DTYPE_F32, sum, i, end - i);
            vf_put_some(DTYPE_F32, sum, i, end - i, total);
        }
    }
}

#endif
