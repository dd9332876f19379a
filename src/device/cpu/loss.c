/* loss.c - softmax cross-entropy of logits that are never kept for the whole batch.
 *
 * Of a row of logits x with target t, and with top its largest logit:
 *
 *   sum   = e^(x[0] - top) + e^(x[1] - top) + ...
 *   loss  = log(sum) + top - x[t]
 *   dx[i] = (e^(x[i] - top) / sum - (1 if i is t, else 0)) * scale
 *
 * cross_entropy() does this where a rank has whole rows.  Where tensor ranks each have a part of
 * the vocabulary, columns from `first` on, softmax_part() finds a part's top, sum and x[t] (0 if t
 * is not in it), softmax_term() relates a part's sum to the top of all parts, and after these were
 * summed over the ranks softmax_loss() and softmax_gradient() give the same for the whole row.  A
 * negative target masks its row: loss and gradient are 0.
 */
#include "device/cpu/kernels.h"
#include "device/cpu/simd.h"

/* Read the last n < CPU_LANES elements of a row, from i on; lanes after them are -inf. */
SIMD_INLINE vf get_tail(enum dtype dt, const void *x, int64_t i, int64_t n)
{
    vf v = vf_get_part(dt, x, i, n);
    return vf_select(vi_lanes() < (int32_t)n, v, vf_set(-INFINITY));
}

/* Set *result to the largest element of a row. */
SIMD_INLINE void find_max(enum dtype dt, const void *x, int64_t n, float *result)
{
    vf top = vf_set(-INFINITY);
    int64_t i = 0;
    for (; i + CPU_LANES <= n; i += CPU_LANES)
        top = vf_max(top, vf_get(dt, x, i));
    if (i < n)
        top = vf_max(top, get_tail(dt, x, i, n - i));
    *result = vf_top(top);
}

static float row_max(enum dtype dt, const void *x, int64_t n)
{
    float top;
    WITH_DTYPE(find_max, dt, x, n, &top);
    return top;
}

/* Set *result to the sum of e^(x - top), in fp32 within short blocks and in fp64 over the blocks.
 * As many elements after the row are prefetched: most of the next row. */
SIMD_INLINE void find_sum(enum dtype dt, const void *x, int64_t n, float top, double *result)
{
    enum { BLOCK = 1024 };
    double sum = 0;
    for (int64_t begin = 0; begin < n; begin += BLOCK) {
        int64_t i = begin, end = min_i64(begin + BLOCK, n);
        vf part = {0};
        for (; i + CPU_LANES <= end; i += CPU_LANES) {
            vf_prefetch(dt, x, n + i);
            part += vf_exp(vf_get(dt, x, i) - top);
        }
        if (i < end)
            part += vf_exp(get_tail(dt, x, i, end - i) - top);
        sum += vf_sum(part);
    }
    *result = sum;
}

static double row_sum(enum dtype dt, const void *x, int64_t n, float top)
{
    double sum;
    WITH_DTYPE(find_sum, dt, x, n, top, &sum);
    return sum;
}

/* dlogits[i] = e^(x[i] - top) * factor.  It never reads memory that it has written, so that dlogits
 * may be the memory of the logits. */
SIMD_INLINE void row_gradient(enum dtype dt, void *dlogits, enum dtype dt_x, const void *x,
                              int64_t n, float top, float factor)
{
    for (int64_t i = 0; i < n; i += CPU_LANES) {
        vf v = vf_get_some(dt_x, x, i, n - i);
        vf_put_some(dt, dlogits, i, n - i, vf_exp(v - top) * factor);
    }
}

SIMD_INLINE void gradient_of_fp32(enum dtype dt, void *dlogits, const void *x, int64_t n, float top,
                                  float factor)
{
    row_gradient(dt, dlogits, DTYPE_F32, x, n, top, factor);
}

/* Compute the gradient of a row whose logits have the gradient's format. */
SIMD_INLINE void gradient_of_same(enum dtype dt, void *dlogits, const void *x, int64_t n, float top,
                                  float factor)
{
    row_gradient(dt, dlogits, dt, x, n, top, factor);
}

/* Compute the gradient of a row whose e^(x - top) sum up to `sum`.  column: the target's; -1: the
 * row does not have it. */
SIMD_INLINE void put_gradient(enum dtype dt, void *dlogits, enum dtype dt_x, const void *x,
                              int64_t column, int64_t n, float top, double sum, float scale)
{
    float p = column < 0 ? 0 : expf(value_get(dt_x, x, column) - top);
    if (dt_x == DTYPE_F32)
        WITH_DTYPE(gradient_of_fp32, dt, dlogits, x, n, top, (float)(scale / sum));
    else
        WITH_DTYPE(gradient_of_same, dt, dlogits, x, n, top, (float)(scale / sum));
    if (column >= 0)
        value_put(dt, dlogits, column, (float)((p / sum - 1) * scale));
}

/* The loss of a row, and its gradient unless dlogits is NULL. */
static float loss_row(enum dtype dt, void *dlogits, enum dtype dt_x, const void *x, int32_t target,
                      int64_t n, float scale)
{
    if (target < 0) {
        if (dlogits)
            memset(dlogits, 0, (size_t)n * dtype_bytes(dt));
        return 0;
    }
    float top = row_max(dt_x, x, n), at_target = value_get(dt_x, x, target);
    double sum = row_sum(dt_x, x, n, top);
    if (dlogits)
        put_gradient(dt, dlogits, dt_x, x, target, n, top, sum, scale);
    return (float)(log(sum) + (double)top - (double)at_target);
}

static const void *row_of(enum dtype dt_x, const void *logits, int64_t row, int64_t ld)
{
    return (const char *)logits + (size_t)(row * ld) * dtype_bytes(dt_x);
}

void CPU(cross_entropy)(struct device *d, enum dtype dt, float *row_loss, void *dlogits,
                        int64_t ld_d, enum dtype dt_x, const void *logits, int64_t ld,
                        const int32_t *targets, int64_t rows, int64_t vocab, float scale,
                        const double *loss_scale)
{
    float factor = loss_scale ? (float)(scale * *loss_scale) : scale;
    size_t stride_bytes = (size_t)ld_d * dtype_bytes(dt);
#pragma omp parallel for num_threads(cpu_threads(d, rows *vocab * 4))
    for (int64_t row = 0; row < rows; row++) {
        void *gradient = dlogits ? (char *)dlogits + (size_t)row * stride_bytes : NULL;
        row_loss[row] = loss_row(dt, gradient, dt_x, row_of(dt_x, logits, row, ld), targets[row],
                                 vocab, factor);
    }
}

/* The column of a part that is a row's target, or -1: masked, or of another part. */
static int64_t target_column(int32_t target, int64_t vocab, int64_t first)
{
    return target >= first && target - first < vocab ? target - first : -1;
}

void CPU(softmax_part)(struct device *d, float *top, float *sums, enum dtype dt_x,
                       const void *logits, int64_t ld, const int32_t *targets, int64_t rows,
                       int64_t vocab, int64_t first)
{
#pragma omp parallel for num_threads(cpu_threads(d, rows *vocab * 4))
    for (int64_t row = 0; row < rows; row++) {
        const void *x = row_of(dt_x, logits, row, ld);
        int64_t column = target_column(targets[row], vocab, first);
        top[row] = sums[2 * row] = sums[2 * row + 1] = 0;
        if (targets[row] < 0)
            continue;
        top[row] = vocab ? row_max(dt_x, x, vocab) : -INFINITY;
        sums[2 * row] = (float)row_sum(dt_x, x, vocab, top[row]);
        sums[2 * row + 1] = column < 0 ? 0 : value_get(dt_x, x, column);
    }
}

void CPU(softmax_term)(struct device *d, float *terms, const float *sums, const float *top,
                       const float *all_top, int64_t rows)
{
    for (int64_t row = 0; row < rows; row++) {
        float sum = sums[2 * row];
        terms[2 * row] = sum == 0 ? 0 : sum * expf(top[row] - all_top[row]);
        terms[2 * row + 1] = sums[2 * row + 1];
    }
}

void CPU(softmax_loss)(struct device *d, float *row_loss, const float *all_top,
                       const float *all_sums, const int32_t *targets, int64_t rows)
{
    for (int64_t row = 0; row < rows; row++) {
        double sum = all_sums[2 * row], at_target = all_sums[2 * row + 1];
        row_loss[row] = targets[row] < 0 ? 0 : (float)(log(sum) + all_top[row] - at_target);
    }
}

void CPU(softmax_gradient)(struct device *d, enum dtype dt, void *dlogits, int64_t ld_d,
                           enum dtype dt_x, const void *logits, int64_t ld, const int32_t *targets,
                           const float *all_top, const float *all_sums, int64_t rows, int64_t vocab,
                           int64_t first, float scale, const double *loss_scale)
{
    float factor = loss_scale ? (float)(scale * *loss_scale) : scale;
    size_t stride_bytes = (size_t)ld_d * dtype_bytes(dt);
#pragma omp parallel for num_threads(cpu_threads(d, rows *vocab * 4))
    for (int64_t row = 0; row < rows; row++) {
        void *to = (char *)dlogits + (size_t)row * stride_bytes;
        const void *x = row_of(dt_x, logits, row, ld);
        if (targets[row] < 0)
            memset(to, 0, (size_t)vocab * dtype_bytes(dt));
        else
            put_gradient(dt, to, dt_x, x, target_column(targets[row], vocab, first), vocab,
                         all_top[row], all_sums[2 * row], factor);
    }
}

void CPU(loss_sum)(struct device *d, double out[2], const float *row_loss, const int32_t *targets,
                   int64_t rows)
{
    double sum = 0;
    int64_t count = 0;
    for (int64_t row = 0; row < rows; row++) {
        sum += row_loss[row];
        count += targets[row] >= 0;
    }
    out[0] += sum;
    out[1] += (double)count;
}
