/* layernorm.c - LayerNorm (Ba, Kiros and Hinton 2016, arXiv 1607.06450) and its gradient. */
#include "device/cpu/pieces.h"

/* Three passes over a row, two of them in cache: the variance is taken around the mean. */
SIMD_INLINE void layernorm_row(enum dtype dt, void *y, float *stats, const void *x, const void *w,
                               const void *b, int64_t row, int64_t hidden, float eps)
{
    int64_t first = row * hidden;
    vf total = {0}, squares = {0};
    for (int64_t i = 0; i < hidden; i += CPU_LANES)
        total += vf_get_some(dt, x, first + i, hidden - i);
    float mean = vf_sum(total) / (float)hidden;
    const vi lanes = vi_lanes();
    for (int64_t i = 0; i < hidden; i += CPU_LANES) {
        vf off = vf_get_some(dt, x, first + i, hidden - i) - mean;
        if (hidden - i < CPU_LANES)
            off = vf_select(lanes < (int32_t)(hidden - i), off, (vf){0});
        squares += off * off;
    }
    float rstd = 1.0f / sqrtf(vf_sum(squares) / (float)hidden + eps);
    stats[2 * row] = mean;
    stats[2 * row + 1] = rstd;
    for (int64_t i = 0; i < hidden; i += CPU_LANES) {
        int64_t left = hidden - i;
        vf v = (vf_get_some(dt, x, first + i, left) - mean) * rstd;
        v = v * vf_get_some(dt, w, i, left) + vf_get_some(dt, b, i, left);
        vf_put_some(dt, y, first + i, left, v);
    }
}

void CPU(layernorm)(struct device *d, enum dtype dt, void *y, float *stats, const void *x,
                    const void *w, const void *b, int64_t rows, int64_t hidden, float eps)
{
#pragma omp parallel for num_threads(cpu_threads(d, rows *hidden * 4))
    for (int64_t row = 0; row < rows; row++) {
        WITH_DTYPE(layernorm_row, dt, y, stats, x, w, b, row, hidden, eps);
    }
}

/* Tensors of a backward pass, as layernorm_backward takes them. */
struct backward {
    void *dx;
    const void *dy, *dsum, *x, *w;
    const float *stats;
    int64_t hidden;
};

/* With n = (x - mean) rstd:  dx = dsum + rstd (dy w - mean(dy w) - n mean(dy w n)),
 * dw += dy n,  db += dy;  db follows dw. */
SIMD_INLINE void backward_row(enum dtype dt, const struct backward *b, float *dw, int64_t row)
{
    int64_t hidden = b->hidden, first = row * hidden;
    float mean = b->stats[2 * row], rstd = b->stats[2 * row + 1];
    vf sums = {0}, products = {0};
    for (int64_t i = 0; i < hidden; i += CPU_LANES) {
        int64_t left = hidden - i;
        vf dyw = vf_get_some(dt, b->dy, first + i, left) * vf_get_some(dt, b->w, i, left);
        sums += dyw;
        products += dyw * (vf_get_some(dt, b->x, first + i, left) - mean);
    }
    float mean_dyw = vf_sum(sums) / (float)hidden;
    float mean_product = vf_sum(products) * rstd / (float)hidden;
    for (int64_t i = 0; i < hidden; i += CPU_LANES) {
        int64_t left = hidden - i;
        vf dy = vf_get_some(dt, b->dy, first + i, left);
        vf n = (vf_get_some(dt, b->x, first + i, left) - mean) * rstd;
        vf dx = rstd * (dy * vf_get_some(dt, b->w, i, left) - mean_dyw - n * mean_product);
        if (b->dsum)
            dx += vf_get_some(dt, b->dsum, first + i, left);
        vf weight = vf_get_some(DTYPE_F32, dw, i, left) + dy * n;
        vf bias = vf_get_some(DTYPE_F32, dw, hidden + i, left) + dy;
        vf_put_some(dt, b->dx, first + i, left, dx);
        vf_put_some(DTYPE_F32, dw, i, left, weight);
        vf_put_some(DTYPE_F32, dw, hidden + i, left, bias);
    }
}

size_t CPU(layernorm_backward_scratch)(struct device *d, int64_t rows, int64_t hidden)
{
    return (size_t)(pieces_of(rows) * 2 * hidden) * sizeof(float);
}

void CPU(layernorm_backward)(struct device *d, enum dtype dt, void *dx, float *dw, float *db,
                             const void *dy, const void *dsum, const void *x, const void *w,
                             const float *stats, int64_t rows, int64_t hidden, int accumulate,
                             void *scratch)
{
    const struct backward b = {dx, dy, dsum, x, w, stats, hidden};
    int64_t per_piece = rows_per_piece(rows), pieces = pieces_of(rows), width = 2 * hidden;
    float *parts = scratch;
#pragma omp parallel for num_threads(cpu_threads(d, rows *hidden * 4))
    for (int64_t piece = 0; piece < pieces; piece++) {
        float *part = parts + piece * width;
        int64_t end = min_i64((piece + 1) * per_piece, rows);
        memset(part, 0, (size_t)width * sizeof *part);
        for (int64_t row = piece * per_piece; row < end; row++) {
            WITH_DTYPE(backward_row, dt, &b, part, row);
        }
    }
    add_pieces(d, dw, parts, pieces, width, hidden, accumulate);
    add_pieces(d, db, parts + hidden, pieces, width, hidden, accumulate);
}
