/* adamw_bf16.c - AdamW on parameters or moments that are kept in bf16.
 *
 * A bf16 number has 8 bits: a step below 1/512 of it would be rounded away, and a second moment
 * would not decay.  Rounded stochastically both move as they should on average.  The 16 bits that
 * are dropped are compared with 16 random ones: Philox of (pair of elements, step) gives 64 bits to
 * each of the two, of which p, m and v take 16 each.
 */
#include "base/philox.h"
#include "device/cpu/kernels.h"
#include "device/cpu/simd.h"

enum { CHUNK = 8192, PIECE = 256, WORDS = 2 * (PIECE + 2) };

/* words[2i], words[2i + 1] are those of element 2 * pair + i. */
SIMD_INLINE void draw(uint32_t *restrict words, const struct rounding *r, uint64_t pair,
                      int64_t pairs)
{
    const uint32_t key0 = (uint32_t)r->key, key1 = (uint32_t)(r->key >> 32);
    const uint32_t step0 = (uint32_t)r->step, step1 = (uint32_t)(r->step >> 32);
#pragma omp simd
    for (int64_t i = 0; i < pairs; i++) {
        uint64_t at = pair + (uint64_t)i;
        struct philox4 drawn = {{(uint32_t)at, (uint32_t)(at >> 32), step0, step1}};
        drawn = philox(drawn, key0, key1);
        words[4 * i] = drawn.v[0];
        words[4 * i + 1] = drawn.v[1];
        words[4 * i + 2] = drawn.v[2];
        words[4 * i + 3] = drawn.v[3];
    }
}

SIMD_INLINE float get(enum dtype dt, const void *base, int64_t i)
{
    return dt == DTYPE_BF16 ? bf16_to_f32(((const bf16 *)base)[i]) : ((const float *)base)[i];
}

/* noise in [0, 2^16) */
SIMD_INLINE void put(enum dtype dt, void *base, int64_t i, float value, uint32_t noise)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint32_t quiet = (bits >> 16) | 0x40u, rounded = (bits + noise) >> 16;
    if (dt == DTYPE_BF16)
        ((bf16 *)base)[i] = (bf16)((bits & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
    else
        ((float *)base)[i] = value;
}

/* The operations and their order are those of optimizer.c. */
SIMD_INLINE void piece(const struct adamw *a, const struct adamw_state *s, enum dtype dt_p,
                       enum dtype dt_m, float grad_scale, const uint32_t *restrict words,
                       int64_t begin, int64_t end)
{
    void *restrict p = s->p, *restrict m = s->m, *restrict v = s->v;
    const float *restrict g = s->g;
    bf16 *restrict copy = s->dt_copy == DTYPE_BF16 ? s->copy : NULL;
    const float keep = 1.0f - a->lr * a->weight_decay, step_size = a->lr / a->bias1;
    const float root_bias2 = sqrtf(a->bias2), eps = a->eps;
    const float beta2 = a->beta2, new1 = a->one_minus_beta1, new2 = a->one_minus_beta2;
#pragma omp simd
    for (int64_t i = begin; i < end; i++) {
        uint32_t first = words[2 * (i - begin)], second = words[2 * (i - begin) + 1];
        float grad = g[i] * grad_scale, old = get(dt_m, m, i);
        float mean = old + (grad - old) * new1;
        float square = get(dt_m, v, i) * beta2 + grad * grad * new2;
        float next =
            get(dt_p, p, i) * keep - step_size * (mean / (sqrtf(square) / root_bias2 + eps));
        put(dt_p, p, i, next, first & 0xffffu);
        put(dt_m, m, i, mean, first >> 16);
        put(dt_m, v, i, square, second & 0xffffu);
    }
    for (int64_t i = begin; copy && i < end; i++)
        copy[i] = f32_to_bf16(get(dt_p, p, i));
}

SIMD_INLINE void chunk(const struct adamw *a, const struct adamw_state *s, enum dtype dt_p,
                       enum dtype dt_m, float grad_scale, const struct rounding *r, int64_t begin,
                       int64_t end)
{
    uint32_t words[WORDS];
    for (; begin < end; begin += PIECE) {
        int64_t n = min_i64(end - begin, PIECE);
        uint64_t index = r->first + (uint64_t)begin, odd = index % 2;
        draw(words, r, index / 2, (n + (int64_t)odd + 1) / 2);
        piece(a, s, dt_p, dt_m, grad_scale, words + 2 * odd, begin, begin + n);
    }
}

/* A copy in fp16, of a chunk that is still in the caches. */
static void copy_half(struct device *d, const struct adamw_state *s, int64_t begin, int64_t n)
{
    if (!s->copy || s->dt_copy != DTYPE_F16)
        return;
    CPU(cast)(d, DTYPE_F16, (f16 *)s->copy + begin, DTYPE_F32, (const float *)s->p + begin, n);
}

void CPU(adamw_bf16)(struct device *d, const struct adamw *a, const double *factor,
                     const struct adamw_state *s, const struct rounding *r, int64_t elems)
{
    const float grad_scale = (float)*factor;
    if (isnan(*factor))
        return;
#pragma omp parallel num_threads(cpu_threads(d, elems * 16))
    {
        unsigned saved = simd_no_denormals();
#pragma omp for schedule(static)
        for (int64_t begin = 0; begin < elems; begin += CHUNK) {
            int64_t end = min_i64(begin + CHUNK, elems);
            if (s->dt_p == DTYPE_F32)
                chunk(a, s, DTYPE_F32, DTYPE_BF16, grad_scale, r, begin, end);
            else if (s->dt_m == DTYPE_F32)
                chunk(a, s, DTYPE_BF16, DTYPE_F32, grad_scale, r, begin, end);
            else
                chunk(a, s, DTYPE_BF16, DTYPE_BF16, grad_scale, r, begin, end);
            copy_half(d, s, begin, end - begin);
        }
        simd_denormals(saved);
    }
}
