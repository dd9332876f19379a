/* bias.c - a row added to every row, alone or on the way into GELU, and its gradient. */
#include "device/cpu/pieces.h"

SIMD_INLINE void bias_row(enum dtype dt, void *y, const void *x, const void *b, int64_t row,
                          int64_t begin, int64_t end, int64_t cols)
{
    int64_t first = row * cols;
    for (int64_t i = begin; i < end; i += CPU_LANES) {
        vf v = vf_get_some(dt, x, first + i, end - i) + vf_get_some(dt, b, i, end - i);
        vf_put_some(dt, y, first + i, end - i, v);
    }
}

/* Rows may be few and long: a tile is a part of a row. */
enum { TILE = 4096 };

void CPU(bias)(struct device *d, enum dtype dt, void *y, const void *x, const void *b, int64_t rows,
               int64_t cols)
{
    int64_t tiles = ceil_div(cols, TILE);
#pragma omp parallel for num_threads(cpu_threads(d, rows *cols * 4))
    for (int64_t tile = 0; tile < rows * tiles; tile++) {
        int64_t row = tile / tiles, begin = tile % tiles * TILE;
        int64_t end = min_i64(begin + TILE, cols);
        WITH_DTYPE(bias_row, dt, y, x, b, row, begin, end, cols);
    }
}

/* Columns are summed in groups: memory is not prefetched where less of a row is read at a time. */
enum {
    GROUP_ROWS = 64,
    VECTORS = 8,
    COLUMNS = VECTORS * CPU_LANES,
};

/* Sum some rows, of n columns from element first on, into sum[]. */
SIMD_INLINE void sum_rows(enum dtype dt, vf sum[VECTORS], const void *dy, int64_t first,
                          int64_t rows, int64_t cols, int64_t n)
{
    for (int v = 0; v < VECTORS; v++)
        sum[v] = (vf){0};
    for (int64_t row = 0; row < rows; row++, first += cols)
        for (int64_t v = 0; v < VECTORS; v++)
            if (v * CPU_LANES < n)
                sum[v] += vf_get_some(dt, dy, first + v * CPU_LANES, n - v * CPU_LANES);
}

/* Sum all rows of a group of columns, from `begin` on, into db.  GROUP_ROWS rows are summed first,
 * and their sum is added to the total: adding single rows to a large total would lose more bits. */
SIMD_INLINE void sum_columns(enum dtype dt, float *db, const void *dy, int64_t rows, int64_t cols,
                             int64_t begin, int accumulate)
{
    int64_t n = min_i64(COLUMNS, cols - begin);
    vf total[VECTORS] = {0}, sum[VECTORS];
    for (int64_t row = 0; row < rows; row += GROUP_ROWS) {
        sum_rows(dt, sum, dy, row * cols + begin, min_i64(GROUP_ROWS, rows - row), cols, n);
        for (int v = 0; v < VECTORS; v++)
            total[v] += sum[v];
    }
    for (int64_t v = 0; v * CPU_LANES < n; v++) {
        int64_t at = begin + v * CPU_LANES, left = n - v * CPU_LANES;
        if (accumulate)
            total[v] += vf_get_some(DTYPE_F32, db, at, left);
        vf_put_some(DTYPE_F32, db, at, left, total[v]);
    }
}

size_t CPU(bias_backward_scratch)(struct device *d, int64_t rows, int64_t cols)
{
    return 0;
}

void CPU(bias_backward)(struct device *d, enum dtype dt, float *db, const void *dy, int64_t rows,
                        int64_t cols, int accumulate, void *scratch)
{
#pragma omp parallel for num_threads(cpu_threads(d, rows *cols * 4))
    for (int64_t begin = 0; begin < cols; begin += COLUMNS)
        WITH_DTYPE(sum_columns, dt, db, dy, rows, cols, begin, accumulate);
}

/* gelu(v) = v s,  s = (1 + tanh(u)) / 2 = sigmoid(2u),  u = sqrt(2/pi) (v + 0.044715 v^3) */
SIMD_INLINE vf gate_of(vf v)
{
    const float twice_root = 1.5957691216f, cubic = 0.044715f; /* 2 sqrt(2/pi) */
    return vf_sigmoid(twice_root * (v + cubic * v * v * v));
}

SIMD_INLINE void gelu_row(enum dtype dt, void *y, const void *x, const void *b, int64_t row,
                          int64_t cols)
{
    int64_t first = row * cols;
    for (int64_t i = 0; i < cols; i += CPU_LANES) {
        vf v = vf_get_some(dt, x, first + i, cols - i) + vf_get_some(dt, b, i, cols - i);
        vf_put_some(dt, y, first + i, cols - i, v * gate_of(v));
    }
}

void CPU(gelu)(struct device *d, enum dtype dt, void *y, const void *x, const void *b, int64_t rows,
               int64_t cols)
{
#pragma omp parallel for num_threads(cpu_threads(d, rows *cols * 4))
    for (int64_t row = 0; row < rows; row++) {
        WITH_DTYPE(gelu_row, dt, y, x, b, row, cols);
    }
}

/* dx = dy (s + v s (1 - s) 2u'),  2u' = 2 sqrt(2/pi) (1 + 3 0.044715 v^2) */
SIMD_INLINE void gelu_backward_row(enum dtype dt, void *dx, const void *dy, const void *x,
                                   const void *b, int64_t row, int64_t cols)
{
    const float twice_root = 1.5957691216f, cubic3 = 3 * 0.044715f;
    int64_t first = row * cols;
    for (int64_t i = 0; i < cols; i += CPU_LANES) {
        int64_t left = cols - i;
        vf v = vf_get_some(dt, x, first + i, left) + vf_get_some(dt, b, i, left);
        vf s = gate_of(v), slope = twice_root * (1.0f + cubic3 * v * v);
        vf dv = s + v * s * (1.0f - s) * slope;
        vf_put_some(dt, dx, first + i, left, dv * vf_get_some(dt, dy, first + i, left));
    }
}

void CPU(gelu_backward)(struct device *d, enum dtype dt, void *dx, const void *dy, const void *x,
                        const void *b, int64_t rows, int64_t cols)
{
#pragma omp parallel for num_threads(cpu_threads(d, rows *cols * 4))
    for (int64_t row = 0; row < rows; row++) {
        WITH_DTYPE(gelu_backward_row, dt, dx, dy, x, b, row, cols);
    }
}
