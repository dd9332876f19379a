/* optimizer.c - AdamW and SGD, each in one pass over its tensors, and the norm that clips. */
#include "device/cpu/kernels.h"
#include "device/cpu/simd.h"

/* Sums are per piece, and the number of pieces is fixed: bits do not depend on threads. */
void CPU(sumsq)(struct device *d, double *result, const float *x, int64_t elems)
{
    enum { PIECES = 256, ALIGN = 64 };
    int64_t piece = round_up(ceil_div(elems, PIECES), ALIGN);
    double sums[PIECES] = {0}, total = 0;
#pragma omp parallel for num_threads(cpu_threads(d, elems * 4))
    for (int p = 0; p < PIECES; p++) {
        int64_t begin = p * piece, end = min_i64(begin + piece, elems);
        double sum = 0;
#pragma omp simd reduction(+ : sum)
        for (int64_t i = begin; i < end; i++)
            sum += (double)x[i] * (double)x[i];
        sums[p] = sum;
    }
    for (int p = 0; p < PIECES; p++)
        total += sums[p];
    *result += total;
}

void CPU(set)(struct device *d, double *y, const double *values, int count)
{
    for (int i = 0; i < count; i++)
        y[i] = values[i];
}

void CPU(update_factor)(struct device *d, double *factor, const double *targets,
                        const double *squares, const double *loss_scale, double nominal,
                        double clip)
{
    double mean = *targets > 0 ? nominal / *targets / *loss_scale : 0, norm = sqrt(*squares) * mean;
    *factor = isfinite(*squares) ? mean : NAN;
    if (clip > 0 && norm + 1e-6 > clip)
        *factor *= clip / (norm + 1e-6);
}

/* The tensors of one step; sgd has no v, and its velocity in m. */
struct step {
    float *p, *m, *v;
    const float *g;
    bf16 *copy; /* NULL: none in bf16 */
    f16 *half;  /* the same in fp16 */
};

static struct step step_of(float *p, float *m, float *v, const float *g, enum dtype dt_copy,
                           void *copy)
{
    struct step t = {.p = p, .m = m, .v = v, .g = g};
    t.copy = dt_copy == DTYPE_BF16 ? copy : NULL;
    t.half = dt_copy == DTYPE_F16 ? copy : NULL;
    return t;
}

/* A rule on the elements from begin to end. */
struct rule {
    void (*chunk)(const struct rule *rule, const struct step *t, float grad_scale, int64_t begin,
                  int64_t end);
    const struct adamw *adamw;
    const struct sgd *sgd;
};

/* Moments of parameters without gradients decay into denormals, which are slow on some machines
 * and mean nothing: they become 0.  Copies in fp16 are made of chunks still in the caches. */
static void update(struct device *d, const struct rule *rule, const struct step *t,
                   const double *factor, int64_t elems)
{
    enum { CHUNK = 8192 };
    const float grad_scale = (float)*factor;
    if (isnan(*factor))
        return;
#pragma omp parallel num_threads(cpu_threads(d, elems * 16))
    {
        unsigned saved = simd_no_denormals();
#pragma omp for schedule(static)
        for (int64_t begin = 0; begin < elems; begin += CHUNK) {
            int64_t end = min_i64(begin + CHUNK, elems);
            rule->chunk(rule, t, grad_scale, begin, end);
            if (t->half)
                CPU(cast)(d, DTYPE_F16, t->half + begin, DTYPE_F32, t->p + begin, end - begin);
        }
        simd_denormals(saved);
    }
}

SIMD_INLINE void adamw_chunk(const struct adamw *a, const struct step *t, float grad_scale,
                             int64_t begin, int64_t end, int copies)
{
    float *restrict p = t->p, *restrict m = t->m, *restrict v = t->v;
    const float *restrict g = t->g;
    bf16 *restrict copy = t->copy;
    const float keep = 1.0f - a->lr * a->weight_decay, step_size = a->lr / a->bias1;
    const float root_bias2 = sqrtf(a->bias2), eps = a->eps;
    const float beta2 = a->beta2, new1 = a->one_minus_beta1, new2 = a->one_minus_beta2;
#pragma omp simd
    for (int64_t i = begin; i < end; i++) {
        float grad = g[i] * grad_scale;
        float mean = m[i] + (grad - m[i]) * new1;
        float square = v[i] * beta2 + grad * grad * new2;
        float next = p[i] * keep - step_size * (mean / (sqrtf(square) / root_bias2 + eps));
        m[i] = mean;
        v[i] = square;
        p[i] = next;
        if (copies)
            copy[i] = f32_to_bf16(next);
    }
}

static void adamw_rule(const struct rule *rule, const struct step *t, float grad_scale,
                       int64_t begin, int64_t end)
{
    if (t->copy)
        adamw_chunk(rule->adamw, t, grad_scale, begin, end, 1);
    else
        adamw_chunk(rule->adamw, t, grad_scale, begin, end, 0);
}

void CPU(adamw)(struct device *d, const struct adamw *a, const double *factor, float *p, float *m,
                float *v, const float *g, enum dtype dt_copy, void *copy, int64_t elems)
{
    const struct step t = step_of(p, m, v, g, dt_copy, copy);
    const struct rule rule = {.chunk = adamw_rule, .adamw = a};
    update(d, &rule, &t, factor, elems);
}

SIMD_INLINE void sgd_chunk(const struct sgd *s, const struct step *t, float grad_scale,
                           int64_t begin, int64_t end, int copies)
{
    float *restrict p = t->p, *restrict v = t->m;
    const float *restrict g = t->g;
    bf16 *restrict copy = t->copy;
    const float lr = s->lr, momentum = s->momentum, decay = s->weight_decay;
#pragma omp simd
    for (int64_t i = begin; i < end; i++) {
        float velocity = v[i] * momentum + (g[i] * grad_scale + p[i] * decay);
        float next = p[i] - lr * velocity;
        v[i] = velocity;
        p[i] = next;
        if (copies)
            copy[i] = f32_to_bf16(next);
    }
}

static void sgd_rule(const struct rule *rule, const struct step *t, float grad_scale, int64_t begin,
                     int64_t end)
{
    if (t->copy)
        sgd_chunk(rule->sgd, t, grad_scale, begin, end, 1);
    else
        sgd_chunk(rule->sgd, t, grad_scale, begin, end, 0);
}

void CPU(sgd)(struct device *d, const struct sgd *s, const double *factor, float *p, float *v,
              const float *g, enum dtype dt_copy, void *copy, int64_t elems)
{
    const struct step t = step_of(p, v, NULL, g, dt_copy, copy);
    const struct rule rule = {.chunk = sgd_rule, .sgd = s};
    update(d, &rule, &t, factor, elems);
}
