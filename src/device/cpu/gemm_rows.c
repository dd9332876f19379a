/* gemm_rows.c - products of a few rows with a matrix, as generation has them: y = x w^T.
 *
 * What they take is the time to read w once.  A thread has some of w's rows; for R rows of x and C
 * of w, R C = 8, sums are vectors in registers along k, added up across lanes at the end:
 *
 *   sum[r][c] += x[r][k..] w[c][k..]          y[r][c] = sum of sum[r][c] (+ addend)
 *
 * An element of y is computed by the same steps whatever the number of rows, so that a text does
 * not depend on what is generated beside it.
 */
#include "device/cpu/gemm_own.h"
#include "device/cpu/simd.h"

enum { MOST_ROWS = 16, SUMS = 8, WORTH_ELEMS = 1 << 14 };

int CPU(gemm_has_few_rows)(const struct gemm *g)
{
    return g->m <= MOST_ROWS && !g->trans_a && g->trans_b && g->n * g->k >= WORTH_ELEMS;
}

/* Elements that a vector takes of a row: of bf16 pairs, whose products are added at once. */
SIMD_INLINE int64_t step_of(const enum dtype dt)
{
    return dt == DTYPE_BF16 ? 2 * CPU_LANES : CPU_LANES;
}

/* A vector of at most `left` elements from index on, zeros behind them. */
SIMD_INLINE vf get_vector(const enum dtype dt, const void *base, int64_t index, int64_t left)
{
    vf v = {0};
    if (dt != DTYPE_BF16)
        return vf_get_some(dt, base, index, left);
    if (left >= 2 * CPU_LANES)
        memcpy(&v, (const bf16 *)base + index, sizeof v);
    else
        memcpy(&v, (const bf16 *)base + index, (size_t)left * sizeof(bf16));
    return v;
}

SIMD_INLINE vf add_product(const enum dtype dt, vf sum, vf a, vf b)
{
    return dt == DTYPE_BF16 ? vf_dot_bf16(sum, (vb)a, (vb)b) : a * b + sum;
}

/* Rows from `row` on of x, of which there are `rows` <= R, by C rows of w from `col` on. */
SIMD_INLINE void block(const enum dtype dt, const int R, const struct gemm *g, int64_t row,
                       int64_t rows, int64_t col, int64_t cols, float out[SUMS])
{
    const int C = SUMS / R;
    int64_t x[SUMS], w[SUMS];
    vf sum[SUMS];
#pragma GCC unroll 8
    for (int i = 0; i < SUMS; i++) {
        x[i] = (row + min_i64(i / C, rows - 1)) * g->lda;
        w[i] = (col + min_i64(i % C, cols - 1)) * g->ldb;
        sum[i] = (vf){0};
    }
    for (int64_t k = 0; k < g->k; k += step_of(dt)) {
        vf a[SUMS], b[SUMS];
#pragma GCC unroll 8
        for (int r = 0; r < R; r++)
            a[r] = get_vector(dt, g->a, x[r * C] + k, g->k - k);
#pragma GCC unroll 8
        for (int c = 0; c < C; c++)
            b[c] = get_vector(dt, g->b, w[c] + k, g->k - k);
#pragma GCC unroll 8
        for (int i = 0; i < SUMS; i++)
            sum[i] = add_product(dt, sum[i], a[i / C], b[i % C]);
    }
#pragma GCC unroll 8
    for (int i = 0; i < SUMS; i++)
        out[i] = vf_sum(sum[i]);
}

static void put(const struct gemm *g, int64_t row, int64_t col, float value)
{
    int64_t at = row * g->ldc + col;
    if (g->addend)
        value += value_get(g->dt_c, g->addend, at);
    value_put(g->dt_c, g->c, at, value);
}

/* R rows of x at a time by columns [col, end) of y, C at a time. */
SIMD_INLINE void columns(const enum dtype dt, const int R, const struct gemm *g, int64_t col,
                         int64_t end)
{
    const int C = SUMS / R;
    for (; col < end; col += C)
        for (int64_t row = 0; row < g->m; row += R) {
            int64_t rows = min_i64(R, g->m - row), cols = min_i64(C, end - col);
            float out[SUMS];
            block(dt, R, g, row, rows, col, cols, out);
            for (int64_t i = 0; i < rows * cols; i++)
                put(g, row + i / cols, col + i % cols, out[i / cols * C + i % cols]);
        }
}

SIMD_INLINE void columns_of(const enum dtype dt, const struct gemm *g, int64_t col, int64_t end)
{
    if (g->m == 1)
        columns(dt, 1, g, col, end);
    else if (g->m == 2)
        columns(dt, 2, g, col, end);
    else if (g->m <= 4)
        columns(dt, 4, g, col, end);
    else
        columns(dt, 8, g, col, end);
}

void CPU(gemm_of_few_rows)(struct device *d, const struct gemm *g)
{
    enum { COLUMNS = 64 };
    int64_t bytes = g->n * g->k * (int64_t)dtype_bytes(g->dt);
#pragma omp parallel for num_threads(cpu_threads(d, bytes)) schedule(static)
    for (int64_t col = 0; col < g->n; col += COLUMNS)
        WITH_DTYPE(columns_of, g->dt, g, col, min_i64(col + COLUMNS, g->n));
}
