/* muon.c - the passes of Muon over single elements; its products are gemm's. */
#include "device/cpu/kernels.h"
#include "device/cpu/simd.h"

enum { CHUNK = 8192 };

static int threads(struct device *d, int64_t elems)
{
    return cpu_threads(d, elems * 12);
}

/* A mean of gradients that are 0 decays into denormals, which mean nothing and become 0. */
void CPU(momentum)(struct device *d, const struct momentum *rule, const double *factor, float *m,
                   float *g, int64_t elems)
{
    const float scale = (float)*factor, new = rule->one_minus_momentum;
    const float ahead = rule->nesterov ? new : 0;
    if (isnan(*factor))
        return;
#pragma omp parallel num_threads(threads(d, elems))
    {
        unsigned saved = simd_no_denormals();
#pragma omp for simd schedule(static)
        for (int64_t i = 0; i < elems; i++) {
            float grad = g[i] * scale;
            float mean = m[i] + (grad - m[i]) * new;
            m[i] = mean;
            g[i] = mean - (mean - grad) * ahead;
        }
        simd_denormals(saved);
    }
}

void CPU(muon)(struct device *d, const struct muon *rule, const double *factor, float *p,
               const float *u, enum dtype dt_copy, void *copy, int64_t elems)
{
    const float keep = 1.0f - rule->lr * rule->weight_decay, step = rule->adjusted_lr;
    if (isnan(*factor))
        return;
#pragma omp parallel for num_threads(threads(d, elems)) schedule(static)
    for (int64_t begin = 0; begin < elems; begin += CHUNK) {
        int64_t end = min_i64(begin + CHUNK, elems);
#pragma omp simd
        for (int64_t i = begin; i < end; i++)
            p[i] = p[i] * keep - step * u[i];
        if (copy)
            CPU(cast)(d, dt_copy, (uint16_t *)copy + begin, DTYPE_F32, p + begin, end - begin);
    }
}

void CPU(normalize)(struct device *d, float *y, const float *x, const double *squares, float eps,
                    int64_t elems)
{
    const float by = 1.0f / fmaxf((float)sqrt(*squares), eps);
#pragma omp parallel for simd num_threads(threads(d, elems)) schedule(static)
    for (int64_t i = 0; i < elems; i++)
        y[i] = x[i] * by;
}

void CPU(polynomial)(struct device *d, const struct polynomial *p, float *y, const float *x,
                     int64_t rows)
{
    const float a = p->a, b = p->b, c = p->c;
#pragma omp parallel for num_threads(threads(d, rows *rows)) schedule(static)
    for (int64_t r = 0; r < rows; r++) {
        float *restrict to = y + r * rows;
        const float *restrict from = x + r * rows;
#pragma omp simd
        for (int64_t i = 0; i < rows; i++)
            to[i] = b * from[i] + c * to[i];
        to[r] += a;
    }
}
