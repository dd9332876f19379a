/* optimizer.c - AdamW and SGD, each in one pass over its tensors, and the norm that clips.
 *
 * AdamW's parameters or moments may be kept in bf16.  A bf16 number has 8 bits: a step below 1/512
 * of it would be rounded away, and a second moment would not decay.  Rounded stochastically both
 * move as they should on average.  The 16 bits that are dropped are compared with 16 random ones:
 * Philox of (pair of elements, step) gives 64 bits to each of the two, of which p, m and v take 16
 * each.
 */
#include "device/cpu/optimizer.h"

/* Four sums are made side by side, because in each an addition waits for the one before it. */
SIMD_INLINE double squares(enum dtype dt, const void *x, int64_t begin, int64_t end)
{
    enum { STEP = 2 * CPU_LANES, FURTHER_ON = 1024 }; /* what is prefetched */
    vd sum0 = {0}, sum1 = {0}, sum2 = {0}, sum3 = {0};
    double total = 0;
    int64_t i = begin;
    for (; i + STEP <= end; i += STEP) {
        vf_prefetch_some(dt, x, i + FURTHER_ON, STEP);
        vf v = vf_get(dt, x, i), w = vf_get(dt, x, i + CPU_LANES);
        sum0 += vf_half(v, 0) * vf_half(v, 0);
        sum1 += vf_half(v, 1) * vf_half(v, 1);
        sum2 += vf_half(w, 0) * vf_half(w, 0);
        sum3 += vf_half(w, 1) * vf_half(w, 1);
    }
    sum0 = (sum0 + sum1) + (sum2 + sum3);
    for (int lane = 0; lane < CPU_LANES / 2; lane++)
        total += sum0[lane];
    for (; i < end; i++)
        total += (double)optimizer_get(dt, x, i) * (double)optimizer_get(dt, x, i);
    return total;
}

/* Sums are made for pieces whose number is fixed, so that bits do not depend on threads. */
void CPU(sumsq)(struct device *d, double *result, enum dtype dt, const void *x, int64_t elems)
{
    enum { PIECES = 256, ALIGN = 64 };
    int64_t piece = round_up(ceil_div(elems, PIECES), ALIGN);
    double sums[PIECES] = {0}, total = 0;
#pragma omp parallel for num_threads(cpu_threads(d, elems * 4))
    for (int p = 0; p < PIECES; p++) {
        int64_t begin = p * piece, end = min_i64(begin + piece, elems);
        sums[p] = dt == DTYPE_BF16 ? squares(DTYPE_BF16, x, begin, end)
                                   : squares(DTYPE_F32, x, begin, end);
    }
    for (int p = 0; p < PIECES; p++)
        total += sums[p];
    *result += total;
}

void CPU(sum_from_last)(struct device *d, double *sum, const double *x, int count)
{
    double total = 0;
    for (int i = count - 1; i >= 0; i--)
        total += x[i];
    *sum = total;
}

void CPU(set)(struct device *d, double *y, const double *values, int count)
{
    for (int i = 0; i < count; i++)
        y[i] = values[i];
}

/* Added to the norm before it divides, as PyTorch's clip_grad_norm_() does. */
static const double CLIP_EPSILON = 1e-6;

void CPU(update_factor)(struct device *d, double *factor, const double *targets,
                        const double *squares, const double *loss_scale, double nominal,
                        double clip)
{
    double mean = *targets > 0 ? nominal / *targets / *loss_scale : 0, norm = sqrt(*squares) * mean;
    *factor = isfinite(*squares) ? mean : NAN;
    if (clip > 0 && norm + CLIP_EPSILON > clip)
        *factor *= clip / (norm + CLIP_EPSILON);
}

/* Write the copy in fp16, if there is one, of a chunk that is still in the caches. */
static void copy_half(struct device *d, const struct adamw_state *s, int64_t begin, int64_t n)
{
    if (!s->copy || s->dt_copy != DTYPE_F16)
        return;
    CPU(cast)(d, DTYPE_F16, (f16 *)s->copy + begin, DTYPE_F32, (const float *)s->p + begin, n);
}

/* Moments of parameters without gradients decay into denormals, which are slow on some machines
 * and mean nothing: they become 0. */
static void update(struct device *d, const struct optimizer_work *rule, const double *factor,
                   int64_t elems)
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
            rule->chunk(rule, grad_scale, begin, end);
            copy_half(d, &rule->s, begin, end - begin);
        }
        simd_denormals(saved);
    }
}

/* The numbers of AdamW's rule. */
struct adamw_factors {
    float grad, keep, step_size, root_bias2, eps, beta2, new1, new2;
};

SIMD_INLINE struct adamw_factors adamw_factors_of(const struct adamw *a, float grad_scale)
{
    return (struct adamw_factors){.grad = grad_scale,
                                  .keep = 1.0f - a->lr * a->weight_decay,
                                  .step_size = a->lr / a->bias1,
                                  .root_bias2 = sqrtf(a->bias2),
                                  .eps = a->eps,
                                  .beta2 = a->beta2,
                                  .new1 = a->one_minus_beta1,
                                  .new2 = a->one_minus_beta2};
}

/* Update n elements from number `first` on, in these formats.  words: two for each element, for
 * what is rounded to bf16. */
SIMD_INLINE void adamw_some(const struct adamw_state *s, enum dtype dt_p, enum dtype dt_m,
                            enum dtype dt_g, const int copies, const struct adamw_factors k,
                            const uint32_t *restrict words, const int64_t first, const int64_t n)
{
    void *restrict p = s->p, *restrict m = s->m, *restrict v = s->v;
    const void *restrict g = s->g;
    bf16 *restrict copy = s->copy;
    const int rounds = adamw_rounds(dt_p, dt_m);
#pragma omp simd
    for (int64_t j = 0; j < n; j++) {
        const int64_t i = first + j;
        uint32_t one = rounds ? words[2 * j] : 0, other = rounds ? words[2 * j + 1] : 0;
        float grad = optimizer_get(dt_g, g, i) * k.grad, old = optimizer_get(dt_m, m, i);
        float mean = old + (grad - old) * k.new1;
        float square = optimizer_get(dt_m, v, i) * k.beta2 + grad * grad * k.new2;
        float next = optimizer_get(dt_p, p, i) * k.keep -
                     k.step_size * (mean / (sqrtf(square) / k.root_bias2 + k.eps));
        optimizer_put(dt_p, p, i, next, one & 0xffffu);
        optimizer_put(dt_m, m, i, mean, one >> 16);
        optimizer_put(dt_m, v, i, square, other & 0xffffu);
        if (copies)
            copy[i] = f32_to_bf16(next);
    }
}

/* An update goes through its tensors in blocks of a few cache lines.  At each block it prefetches
 * the elements that come AHEAD further on: with so many tensors a core does not load early enough
 * by itself. */
enum { BLOCK = 32, AHEAD = 512 };

SIMD_INLINE void adamw_in_formats(const struct optimizer_work *rule, enum dtype dt_p,
                                  enum dtype dt_m, enum dtype dt_g, const int copies,
                                  float grad_scale, const uint32_t *words, int64_t begin,
                                  int64_t end)
{
    const struct adamw_state *s = &rule->s;
    const struct adamw_factors k = adamw_factors_of(rule->adamw, grad_scale);
    int64_t i = begin;
    for (; i + BLOCK <= end; i += BLOCK, words += words ? 2 * BLOCK : 0) {
        vf_prefetch_some(dt_p, s->p, i + AHEAD, BLOCK);
        vf_prefetch_some(dt_m, s->m, i + AHEAD, BLOCK);
        vf_prefetch_some(dt_m, s->v, i + AHEAD, BLOCK);
        vf_prefetch_some(dt_g, s->g, i + AHEAD, BLOCK);
        if (copies)
            vf_prefetch_some(DTYPE_BF16, s->copy, i + AHEAD, BLOCK);
        adamw_some(s, dt_p, dt_m, dt_g, copies, k, words, i, BLOCK);
    }
    adamw_some(s, dt_p, dt_m, dt_g, copies, k, words, i, end - i);
}

SIMD_INLINE void adamw_elements(const struct optimizer_work *rule, enum dtype dt_p, enum dtype dt_m,
                                const int copies, float grad_scale, const uint32_t *words,
                                int64_t begin, int64_t end)
{
    if (rule->s.dt_g == DTYPE_BF16)
        adamw_in_formats(rule, dt_p, dt_m, DTYPE_BF16, copies, grad_scale, words, begin, end);
    else
        adamw_in_formats(rule, dt_p, dt_m, DTYPE_F32, copies, grad_scale, words, begin, end);
}

static void adamw_chunk(const struct optimizer_work *rule, float grad_scale, int64_t begin,
                        int64_t end)
{
    if (optimizer_bf16_copy(&rule->s))
        adamw_elements(rule, DTYPE_F32, DTYPE_F32, 1, grad_scale, NULL, begin, end);
    else
        adamw_elements(rule, DTYPE_F32, DTYPE_F32, 0, grad_scale, NULL, begin, end);
}

/* ---- AdamW on bf16 ---- */

static void adamw_bf16_chunk(const struct optimizer_work *rule, float grad_scale, int64_t begin,
                             int64_t end)
{
    uint32_t words[OPTIMIZER_WORDS];
    for (int64_t n; begin < end; begin += n) {
        const uint32_t *mine = optimizer_draw(words, rule->rounding, begin, end, &n);
        int64_t stop = begin + n;
        if (rule->s.dt_p == DTYPE_F32 && optimizer_bf16_copy(&rule->s))
            adamw_elements(rule, DTYPE_F32, DTYPE_BF16, 1, grad_scale, mine, begin, stop);
        else if (rule->s.dt_p == DTYPE_F32)
            adamw_elements(rule, DTYPE_F32, DTYPE_BF16, 0, grad_scale, mine, begin, stop);
        else if (rule->s.dt_m == DTYPE_F32)
            adamw_elements(rule, DTYPE_BF16, DTYPE_F32, 0, grad_scale, mine, begin, stop);
        else
            adamw_elements(rule, DTYPE_BF16, DTYPE_BF16, 0, grad_scale, mine, begin, stop);
    }
}

void CPU(adamw)(struct device *d, const struct adamw *a, const double *factor,
                const struct adamw_state *s, const struct rounding *r, int64_t elems)
{
    const struct optimizer_work rule = {
        .chunk = s->dt_m == DTYPE_U8              ? CPU(optimizer_8bit_chunk)
                 : adamw_rounds(s->dt_p, s->dt_m) ? adamw_bf16_chunk
                                                  : adamw_chunk,
        .s = *s,
        .adamw = a,
        .rounding = r,
    };
    update(d, &rule, factor, elems);
}

/* ---- SGD ---- */

SIMD_INLINE void sgd_some(const struct optimizer_work *rule, enum dtype dt_g, const int copies,
                          float grad_scale, const int64_t first, const int64_t n)
{
    float *restrict p = rule->s.p, *restrict v = rule->s.m;
    const void *restrict g = rule->s.g;
    bf16 *restrict copy = rule->s.copy;
    const float lr = rule->sgd->lr, momentum = rule->sgd->momentum;
    const float decay = rule->sgd->weight_decay;
#pragma omp simd
    for (int64_t i = first; i < first + n; i++) {
        float velocity = v[i] * momentum + (optimizer_get(dt_g, g, i) * grad_scale + p[i] * decay);
        float next = p[i] - lr * velocity;
        v[i] = velocity;
        p[i] = next;
        if (copies)
            copy[i] = f32_to_bf16(next);
    }
}

SIMD_INLINE void sgd_in_formats(const struct optimizer_work *rule, enum dtype dt_g,
                                const int copies, float grad_scale, int64_t begin, int64_t end)
{
    const struct adamw_state *s = &rule->s;
    int64_t i = begin;
    for (; i + BLOCK <= end; i += BLOCK) {
        vf_prefetch_some(DTYPE_F32, s->p, i + AHEAD, BLOCK);
        vf_prefetch_some(DTYPE_F32, s->m, i + AHEAD, BLOCK);
        vf_prefetch_some(dt_g, s->g, i + AHEAD, BLOCK);
        if (copies)
            vf_prefetch_some(DTYPE_BF16, s->copy, i + AHEAD, BLOCK);
        sgd_some(rule, dt_g, copies, grad_scale, i, BLOCK);
    }
    sgd_some(rule, dt_g, copies, grad_scale, i, end - i);
}

SIMD_INLINE void sgd_elements(const struct optimizer_work *rule, const int copies, float grad_scale,
                              int64_t begin, int64_t end)
{
    if (rule->s.dt_g == DTYPE_BF16)
        sgd_in_formats(rule, DTYPE_BF16, copies, grad_scale, begin, end);
    else
        sgd_in_formats(rule, DTYPE_F32, copies, grad_scale, begin, end);
}

static void sgd_chunk(const struct optimizer_work *rule, float grad_scale, int64_t begin,
                      int64_t end)
{
    if (optimizer_bf16_copy(&rule->s))
        sgd_elements(rule, 1, grad_scale, begin, end);
    else
        sgd_elements(rule, 0, grad_scale, begin, end);
}

void CPU(sgd)(struct device *d, const struct sgd *s, const double *factor, float *p, float *v,
              enum dtype dt_g, const void *g, enum dtype dt_copy, void *copy, int64_t elems)
{
    const struct optimizer_work rule = {.chunk = sgd_chunk,
                                        .s = {.dt_p = DTYPE_F32,
                                              .dt_m = DTYPE_F32,
                                              .p = p,
                                              .m = v,
                                              .g = g,
                                              .dt_copy = dt_copy,
                                              .copy = copy,
                                              .dt_g = dt_g},
                                        .sgd = s};
    update(d, &rule, factor, elems);
}
