/* norm.c - RMSNorm (Zhang and Sennrich 2019), with the residual addition before it or over the
 * heads of packed projections, LayerNorm (Ba, Kiros and Hinton 2016, arXiv 1607.06450), and their
 * gradients.
 *
 * All are one walk over the rows; what LayerNorm (`centered`) has beside RMSNorm is the mean,
 * taken first and off each element, and the bias.
 */
#include "device/cpu/pieces.h"

/* The elements that come so many further on are prefetched; rows lie end to end. */
enum { AHEAD = 1024 };

/* Tensors of a forward pass, as rmsnorm and layernorm take them. */
struct forward {
    void *y, *sum;
    float *stats; /* a row's rstd; of LayerNorm mean and rstd */
    const void *x, *delta, *w, *b;
    int64_t hidden;
    float eps;
};

/* The sum of a row's elements. */
SIMD_INLINE float row_sum(enum dtype dt, const void *x, int64_t first, int64_t hidden)
{
    vf total = {0};
    for (int64_t i = 0; i < hidden; i += CPU_LANES)
        total += vf_get_some(dt, x, first + i, hidden - i);
    return vf_sum(total);
}

/* Norm the row whose statistics have number `row`, and whose elements begin with `first`.  Reads
 * the row twice, the second time from the cache; LayerNorm three times, as its variance is taken
 * around the mean. */
SIMD_INLINE void norm_row(enum dtype dt, const int centered, const struct forward *f, int64_t row,
                          const int64_t first)
{
    /* read once: a store could change *f */
    const int64_t hidden = f->hidden;
    void *const y = f->y, *const sum = f->sum;
    const void *const x = f->x, *const w = f->w, *const b = f->b;
    const void *const delta = centered ? NULL : f->delta, *const rounded = delta ? sum : x;
    float mean = centered ? row_sum(dt, x, first, hidden) / (float)hidden : 0;
    const vi lanes = vi_lanes();
    vf squares = {0};
    for (int64_t i = 0; i < hidden; i += CPU_LANES) {
        int64_t left = hidden - i;
        vf_prefetch(dt, x, first + i + AHEAD);
        vf v = vf_get_some(dt, x, first + i, left);
        if (delta) {
            vf_prefetch(dt, delta, first + i + AHEAD);
            vf_put_some(dt, sum, first + i, left, v + vf_get_some(dt, delta, first + i, left));
            v = vf_get_some(dt, sum, first + i, left);
        }
        if (centered)
            v -= mean;
        if (centered && left < CPU_LANES)
            v = vf_select(lanes < (int32_t)left, v, (vf){0});
        squares += v * v;
    }
    float rstd = 1.0f / sqrtf(vf_sum(squares) / (float)hidden + f->eps);
    if (centered)
        f->stats[2 * row] = mean;
    f->stats[centered ? 2 * row + 1 : row] = rstd;
    for (int64_t i = 0; i < hidden; i += CPU_LANES) {
        int64_t left = hidden - i;
        vf v = vf_get_some(dt, rounded, first + i, left);
        v = (centered ? v - mean : v) * rstd * vf_get_some(dt, w, i, left);
        if (centered)
            v += vf_get_some(dt, b, i, left);
        vf_put_some(dt, y, first + i, left, v);
    }
}

void CPU(rmsnorm)(struct device *d, enum dtype dt, void *y, void *sum, float *rstd, const void *x,
                  const void *delta, const void *w, int64_t rows, int64_t hidden, float eps)
{
    const struct forward f = {.y = y,
                              .sum = sum,
                              .stats = rstd,
                              .x = x,
                              .delta = delta,
                              .w = w,
                              .hidden = hidden,
                              .eps = eps};
#pragma omp parallel for num_threads(cpu_threads(d, rows *hidden * 4))
    for (int64_t row = 0; row < rows; row++) {
        WITH_DTYPE(norm_row, dt, 0, &f, row, row * hidden);
    }
}

void CPU(layernorm)(struct device *d, enum dtype dt, void *y, float *stats, const void *x,
                    const void *w, const void *b, int64_t rows, int64_t hidden, float eps)
{
    const struct forward f = {
        .y = y, .stats = stats, .x = x, .w = w, .b = b, .hidden = hidden, .eps = eps};
#pragma omp parallel for num_threads(cpu_threads(d, rows *hidden * 4))
    for (int64_t row = 0; row < rows; row++) {
        WITH_DTYPE(norm_row, dt, 1, &f, row, row * hidden);
    }
}

/* Tensors of a backward pass, as rmsnorm_backward and layernorm_backward take them. */
struct backward {
    void *dx;
    const void *dy, *dsum, *x, *w;
    const float *stats;
    int64_t hidden;
};

/* RMSNorm:    dx = dsum + rstd (dy w - x rstd^2 mean(dy w x));  dw += dy x rstd
 * LayerNorm:  with n = (x - mean) rstd, dx = dsum + rstd (dy w - mean(dy w) - n mean(dy w n)),
 *             dw += dy n,  db += dy;  db follows dw. */
SIMD_INLINE void backward_row(enum dtype dt, const int centered, const struct backward *b,
                              float *dw, int64_t row, int64_t first)
{
    int64_t hidden = b->hidden;
    float mean = centered ? b->stats[2 * row] : 0;
    float rstd = b->stats[centered ? 2 * row + 1 : row];
    vf sums = {0}, products = {0};
    for (int64_t i = 0; i < hidden; i += CPU_LANES) {
        int64_t left = hidden - i;
        vf_prefetch(dt, b->dy, first + i + AHEAD);
        vf_prefetch(dt, b->x, first + i + AHEAD);
        if (b->dsum)
            vf_prefetch(dt, b->dsum, first + i + AHEAD);
        vf dyw = vf_get_some(dt, b->dy, first + i, left) * vf_get_some(dt, b->w, i, left);
        vf x = vf_get_some(dt, b->x, first + i, left);
        if (centered)
            sums += dyw;
        products += dyw * (centered ? x - mean : x);
    }
    float mean_dyw = vf_sum(sums) / (float)hidden;
    float mean_product = centered ? vf_sum(products) * rstd / (float)hidden
                                  : vf_sum(products) / (float)hidden * rstd * rstd;
    for (int64_t i = 0; i < hidden; i += CPU_LANES) {
        int64_t left = hidden - i;
        vf dy = vf_get_some(dt, b->dy, first + i, left);
        vf x = vf_get_some(dt, b->x, first + i, left);
        vf n = centered ? (x - mean) * rstd : x;
        vf dyw = dy * vf_get_some(dt, b->w, i, left);
        vf dx = rstd * ((centered ? dyw - mean_dyw : dyw) - n * mean_product);
        if (b->dsum)
            dx += vf_get_some(dt, b->dsum, first + i, left);
        vf weight = vf_get_some(DTYPE_F32, dw, i, left) + (centered ? dy * n : dy * n * rstd);
        vf_put_some(dt, b->dx, first + i, left, dx);
        vf_put_some(DTYPE_F32, dw, i, left, weight);
        if (centered)
            vf_put_some(DTYPE_F32, dw, hidden + i, left,
                        vf_get_some(DTYPE_F32, dw, hidden + i, left) + dy);
    }
}

/* Compute dx, and for each piece of the rows its part of dw, and of db where the norm is centered.
 */
static void backward_pieces(struct device *d, enum dtype dt, int centered, const struct backward *b,
                            float *parts, int64_t rows)
{
    int64_t per_piece = rows_per_piece(rows), width = (centered ? 2 : 1) * b->hidden;
#pragma omp parallel for num_threads(cpu_threads(d, rows * b->hidden * 4))
    for (int64_t piece = 0; piece < pieces_of(rows); piece++) {
        float *part = parts + piece * width;
        int64_t end = min_i64((piece + 1) * per_piece, rows);
        memset(part, 0, (size_t)width * sizeof *part);
        for (int64_t row = piece * per_piece; row < end; row++) {
            if (centered)
                WITH_DTYPE(backward_row, dt, 1, b, part, row, row * b->hidden);
            else
                WITH_DTYPE(backward_row, dt, 0, b, part, row, row * b->hidden);
        }
    }
}

size_t CPU(norm_backward_scratch)(struct device *d, int64_t rows, int64_t hidden, int params)
{
    return (size_t)(pieces_of(rows) * hidden * params) * sizeof(float);
}

void CPU(rmsnorm_backward)(struct device *d, enum dtype dt, void *dx, float *dw, const void *dy,
                           const void *dsum, const void *x, const void *w, const float *rstd,
                           int64_t rows, int64_t hidden, int accumulate, void *scratch)
{
    const struct backward b = {
        .dx = dx, .dy = dy, .dsum = dsum, .x = x, .w = w, .stats = rstd, .hidden = hidden};
    backward_pieces(d, dt, 0, &b, scratch, rows);
    add_pieces(d, dw, scratch, pieces_of(rows), hidden, hidden, accumulate);
}

void CPU(layernorm_backward)(struct device *d, enum dtype dt, void *dx, float *dw, float *db,
                             const void *dy, const void *dsum, const void *x, const void *w,
                             const float *stats, int64_t rows, int64_t hidden, int accumulate,
                             void *scratch)
{
    const struct backward b = {
        .dx = dx, .dy = dy, .dsum = dsum, .x = x, .w = w, .stats = stats, .hidden = hidden};
    int64_t pieces = pieces_of(rows), width = 2 * hidden;
    const float *parts = scratch;
    backward_pieces(d, dt, 1, &b, scratch, rows);
    add_pieces(d, dw, parts, pieces, width, hidden, accumulate);
    add_pieces(d, db, parts + hidden, pieces, width, hidden, accumulate);
}

/* ---- over heads ---- */

/* Copy the values of a row of packed projections. */
static void copy_values(const struct qk_norm *n, void *y, const void *x, int64_t row)
{
    size_t size = dtype_bytes(n->dt), at = (size_t)((n->heads + n->kv_heads) * n->head_dim) * size;
    size_t width = (size_t)((n->heads + 2 * n->kv_heads) * n->head_dim) * size;
    at += (size_t)row * width;
    if (y != x)
        memcpy((char *)y + at, (const char *)x + at, (size_t)(n->kv_heads * n->head_dim) * size);
}

void CPU(qk_norm)(struct device *d, const struct qk_norm *n, void *y, float *rstd, const void *x,
                  const void *wq, const void *wk)
{
    const int64_t normed = n->heads + n->kv_heads, dim = n->head_dim;
    const struct forward f = {.y = y, .stats = rstd, .x = x, .hidden = dim, .eps = n->eps};
#pragma omp parallel for num_threads(cpu_threads(d, n->rows *normed *dim * 4))
    for (int64_t row = 0; row < n->rows; row++) {
        struct forward head = f;
        int64_t first = row * (normed + n->kv_heads) * dim;
        for (int64_t h = 0; h < normed; h++) {
            head.w = h < n->heads ? wq : wk;
            WITH_DTYPE(norm_row, n->dt, 0, &head, row * normed + h, first + h * dim);
        }
        copy_values(n, y, x, row);
    }
}

void CPU(qk_norm_backward)(struct device *d, const struct qk_norm *n, void *dx, float *dwq,
                           float *dwk, const void *dy, const void *x, const void *wq,
                           const void *wk, const float *rstd, int accumulate, void *scratch)
{
    const int64_t normed = n->heads + n->kv_heads, dim = n->head_dim, rows = n->rows;
    const int64_t per_piece = rows_per_piece(rows), pieces = pieces_of(rows);
    const struct backward b = {.dx = dx, .dy = dy, .x = x, .stats = rstd, .hidden = dim};
    float *parts = scratch; /* [pieces, 2, head_dim]: of wq, of wk */
#pragma omp parallel for num_threads(cpu_threads(d, rows *normed *dim * 4))
    for (int64_t piece = 0; piece < pieces; piece++) {
        struct backward head = b;
        int64_t end = min_i64((piece + 1) * per_piece, rows);
        memset(parts + piece * 2 * dim, 0, (size_t)(2 * dim) * sizeof *parts);
        for (int64_t row = piece * per_piece; row < end; row++) {
            int64_t first = row * (normed + n->kv_heads) * dim;
            for (int64_t h = 0; h < normed; h++) {
                float *part = parts + (piece * 2 + (h >= n->heads)) * dim;
                head.w = h < n->heads ? wq : wk;
                WITH_DTYPE(backward_row, n->dt, 0, &head, part, row * normed + h, first + h * dim);
            }
            copy_values(n, dx, dy, row);
        }
    }
    add_pieces(d, dwq, parts, pieces, 2 * dim, dim, accumulate);
    add_pieces(d, dwk, parts + dim, pieces, 2 * dim, dim, accumulate);
}
