/* magnitude.c - products whose columns are scaled to trained lengths, as DoRA has them (Liu et al.
 * 2024, arXiv 2402.09353): the squares of a matrix's rows, the scaling, and its gradient.
 */
#include "device/cpu/pieces.h"

/* ---- squares ---- */

/* The sum of the squares of a row of w; those of 1024 elements are added to the total together. */
SIMD_INLINE float squares_of(enum dtype dt, const void *w, int64_t first, int64_t cols)
{
    enum { BLOCK = 1024 };
    vf total = {0};
    for (int64_t block = 0; block < cols; block += BLOCK) {
        int64_t end = min_i64(block + BLOCK, cols);
        vf sum = {0};
        for (int64_t i = block; i < end; i += CPU_LANES) {
            vf v = vf_get_some(dt, w, first + i, end - i);
            sum += v * v;
        }
        total += sum;
    }
    return vf_sum(total);
}

SIMD_INLINE float dot(enum dtype dt, const float *a, const void *b, int64_t first, int64_t elems)
{
    vf sum = {0};
    for (int64_t i = 0; i < elems; i += CPU_LANES)
        sum += vf_get_some(DTYPE_F32, a, i, elems - i) * vf_get_some(dt, b, first + i, elems - i);
    return vf_sum(sum);
}

/* squares[row] = w w + factor b (2 wa + factor aa b) */
SIMD_INLINE void row_of_squares(enum dtype dt, const struct row_squares *s, float *squares,
                                const void *w, const void *b, const float *wa, const float *aa,
                                int64_t row)
{
    float added = 0;
    for (int64_t k = 0; k < s->rank; k++) {
        float both = 2 * wa[row * s->rank + k] +
                     s->factor * dot(dt, aa + k * s->rank, b, row * s->rank, s->rank);
        added += value_get(dt, b, row * s->rank + k) * both;
    }
    float sum = squares_of(dt, w, row * s->cols, s->cols) + s->factor * added;
    squares[row] = sum < 0 ? 0 : sum; /* NaN stays */
}

void CPU(row_squares)(struct device *d, const struct row_squares *s, float *squares, const void *w,
                      const void *b, const float *wa, const float *aa)
{
#pragma omp parallel for num_threads(cpu_threads(d, s->rows * s->cols * 4))
    for (int64_t row = 0; row < s->rows; row++)
        WITH_DTYPE(row_of_squares, s->dt, s, squares, w, b, wa, aa, row);
}

/* ---- scaling ---- */

/* 1 / sqrt(squares) of up to CPU_LANES columns; 0 where there is nothing to divide by. */
SIMD_INLINE vf inverse_norms(const float *squares, int64_t column, int64_t left)
{
    vf q = vf_get_some(DTYPE_F32, squares, column, left), root = q;
    for (int i = 0; i < CPU_LANES; i++)
        root[i] = sqrtf(q[i]);
    return vf_select(q == 0, (vf){0}, 1.0f / root);
}

/* A tile is some rows of some columns, whose factors are found once for it. */
enum { TILE_ROWS = 32, TILE_COLUMNS = 256 };

SIMD_INLINE void scale_tile(enum dtype dt, const struct column_scale *s, void *y, const void *x,
                            const void *m, const float *squares, int64_t row, int64_t column)
{
    int64_t end_row = min_i64(row + TILE_ROWS, s->rows);
    int64_t end = min_i64(column + TILE_COLUMNS, s->cols);
    for (int64_t i = column; i < end; i += CPU_LANES) {
        vf factor = vf_set(1.0f);
        if (m)
            factor = vf_get_some(dt, m, i, end - i) * inverse_norms(squares, i, end - i);
        for (int64_t r = row; r < end_row; r++)
            vf_put_some(dt, y, r * s->ld + i, end - i,
                        factor * vf_get_some(dt, x, r * s->ld + i, end - i));
    }
}

void CPU(scale_columns)(struct device *d, const struct column_scale *s, void *y, const void *x,
                        const void *m, const float *squares)
{
    int64_t across = ceil_div(s->cols, TILE_COLUMNS), tiles = across * ceil_div(s->rows, TILE_ROWS);
#pragma omp parallel for num_threads(cpu_threads(d, s->rows * s->cols * 4))
    for (int64_t tile = 0; tile < tiles; tile++) {
        int64_t row = tile / across * TILE_ROWS, column = tile % across * TILE_COLUMNS;
        WITH_DTYPE(scale_tile, s->dt, s, y, x, m, squares, row, column);
    }
}

/* Sum dy x of all rows of a group of columns into dm, over sqrt(squares); 64 rows are summed first,
 * as in bias.c. */
SIMD_INLINE void sum_products(enum dtype dt, const struct column_scale *s, float *dm,
                              const void *dy, const void *x, const float *squares, int64_t begin,
                              int accumulate)
{
    enum { BLOCK = 64 };
    int64_t end = min_i64(begin + TILE_COLUMNS, s->cols);
    for (int64_t i = begin; i < end; i += CPU_LANES) {
        vf total = {0};
        for (int64_t block = 0; block < s->rows; block += BLOCK) {
            vf sum = {0};
            for (int64_t row = block; row < min_i64(block + BLOCK, s->rows); row++)
                sum += vf_get_some(dt, dy, row * s->ld + i, end - i) *
                       vf_get_some(dt, x, row * s->ld + i, end - i);
            total += sum;
        }
        total *= inverse_norms(squares, i, end - i);
        if (accumulate)
            total += vf_get_some(DTYPE_F32, dm, i, end - i);
        vf_put_some(DTYPE_F32, dm, i, end - i, total);
    }
}

void CPU(scale_columns_backward)(struct device *d, const struct column_scale *s, float *dm,
                                 const void *dy, const void *x, const float *squares,
                                 int accumulate, void *scratch)
{
#pragma omp parallel for num_threads(cpu_threads(d, s->rows * s->cols * 8))
    for (int64_t begin = 0; begin < s->cols; begin += TILE_COLUMNS)
        WITH_DTYPE(sum_products, s->dt, s, dm, dy, x, squares, begin, accumulate);
}
