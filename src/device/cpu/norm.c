/* norm.c - RMSNorm (Zhang and Sennrich 2019), with the residual addition before it. */
#include "device/cpu/pieces.h"

/* Two passes over a row, the second one in cache. */
SIMD_INLINE void rmsnorm_row(enum dtype dt, void *y, void *sum, float *rstd, const void *x,
                             const void *delta, const void *w, int64_t row, int64_t hidden,
                             float eps)
{
    int64_t first = row * hidden;
    vf squares = {0};
    for (int64_t i = 0; i < hidden; i += CPU_LANES) {
        int64_t left = hidden - i;
        vf v = vf_get_some(dt, x, first + i, left);
        if (delta) {
            vf_put_some(dt, sum, first + i, left, v + vf_get_some(dt, delta, first + i, left));
            v = vf_get_some(dt, sum, first + i, left);
        }
        squares += v * v;
    }
    float scale = 1.0f / sqrtf(vf_sum(squares) / (float)hidden + eps);
    rstd[row] = scale;
    const void *rounded = delta ? sum : x;
    for (int64_t i = 0; i < hidden; i += CPU_LANES) {
        int64_t left = hidden - i;
        vf v = vf_get_some(dt, rounded, first + i, left) * scale;
        vf_put_some(dt, y, first + i, left, v * vf_get_some(dt, w, i, left));
    }
}

void CPU(rmsnorm)(struct device *d, enum dtype dt, void *y, void *sum, float *rstd, const void *x,
                  const void *delta, const void *w, int64_t rows, int64_t hidden, float eps)
{
#pragma omp parallel for num_threads(cpu_threads(d, rows *hidden * 4))
    for (int64_t row = 0; row < rows; row++) {
        WITH_DTYPE(rmsnorm_row, dt, y, sum, rstd, x, delta, w, row, hidden, eps);
    }
}

/* Tensors of a backward pass, as rmsnorm_backward takes them. */
struct backward {
    void *dx;
    const void *dy, *dsum, *x, *w;
    const float *rstd;
    int64_t hidden;
};

/* dx = dsum + rstd (dy w - x rstd^2 mean(dy w x));  dw += dy x rstd */
SIMD_INLINE void backward_row(enum dtype dt, const struct backward *b, float *dw, int64_t row)
{
    int64_t first = row * b->hidden;
    float rstd = b->rstd[row];
    vf products = {0};
    for (int64_t i = 0; i < b->hidden; i += CPU_LANES) {
        int64_t left = b->hidden - i;
        vf dyw = vf_get_some(dt, b->dy, first + i, left) * vf_get_some(dt, b->w, i, left);
        products += dyw * vf_get_some(dt, b->x, first + i, left);
    }
    float mean = vf_sum(products) / (float)b->hidden * rstd * rstd;
    for (int64_t i = 0; i < b->hidden; i += CPU_LANES) {
        int64_t left = b->hidden - i;
        vf dy = vf_get_some(dt, b->dy, first + i, left);
        vf x = vf_get_some(dt, b->x, first + i, left);
        vf dx = rstd * (dy * vf_get_some(dt, b->w, i, left) - x * mean);
        if (b->dsum)
            dx += vf_get_some(dt, b->dsum, first + i, left);
        vf sum = vf_get_some(DTYPE_F32, dw, i, left) + dy * x * rstd;
        vf_put_some(dt, b->dx, first + i, left, dx);
        vf_put_some(DTYPE_F32, dw, i, left, sum);
    }
}

size_t CPU(rmsnorm_backward_scratch)(struct device *d, int64_t rows, int64_t hidden)
{
    return (size_t)(pieces_of(rows) * hidden) * sizeof(float);
}

void CPU(rmsnorm_backward)(struct device *d, enum dtype dt, void *dx, float *dw, const void *dy,
                           const void *dsum, const void *x, const void *w, const float *rstd,
                           int64_t rows, int64_t hidden, int accumulate, void *scratch)
{
    const struct backward b = {dx, dy, dsum, x, w, rstd, hidden};
    int64_t per_piece = rows_per_piece(rows), pieces = pieces_of(rows);
    float *parts = scratch;
#pragma omp parallel for num_threads(cpu_threads(d, rows *hidden * 4))
    for (int64_t piece = 0; piece < pieces; piece++) {
        float *part = parts + piece * hidden;
        int64_t end = min_i64((piece + 1) * per_piece, rows);
        memset(part, 0, (size_t)hidden * sizeof *part);
        for (int64_t row = piece * per_piece; row < end; row++) {
            WITH_DTYPE(backward_row, dt, &b, part, row);
        }
    }
    add_pieces(d, dw, parts, pieces, hidden, hidden, accumulate);
}
