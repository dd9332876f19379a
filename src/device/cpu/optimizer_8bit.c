/* optimizer_8bit.c - AdamW with moments of 8 bits (base/dynamic8.h), a block at a time.
 *
 * The moments of a block are decoded, take the gradients and move the parameters in fp32; then
 * their largest magnitudes are known, and they are coded again.  The block's numbers lie in the
 * first cache meanwhile.
 */
#include "base/dynamic8.h"
#include "device/cpu/optimizer.h"

/* A block in fp32. */
struct block {
    float p[DYNAMIC8_BLOCK], m[DYNAMIC8_BLOCK], v[DYNAMIC8_BLOCK];
};

/* Decode a block of n moments and update it, and the parameters, in fp32. */
SIMD_INLINE void step(struct block *restrict b, const struct optimizer_work *rule, enum dtype dt_p,
                      enum dtype dt_g, float grad_scale, int64_t at, int64_t n)
{
    const struct adamw *a = rule->adamw;
    const struct adamw_state *s = &rule->s;
    const uint8_t *restrict m = (const uint8_t *)s->m + at, *restrict v =
                                                                (const uint8_t *)s->v + at;
    const float most_m = s->m_largest[at / DYNAMIC8_BLOCK];
    const float most_v = s->v_largest[at / DYNAMIC8_BLOCK];
    const float keep = 1.0f - a->lr * a->weight_decay, step_size = a->lr / a->bias1;
    const float root_bias2 = sqrtf(a->bias2), eps = a->eps;
    const float beta2 = a->beta2, new1 = a->one_minus_beta1, new2 = a->one_minus_beta2;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float grad = optimizer_get(dt_g, s->g, at + i) * grad_scale;
        float old = dynamic8_signed(m[i]) * most_m;
        float mean = old + (grad - old) * new1;
        float square = dynamic8_unsigned(v[i]) * most_v * beta2 + grad * grad * new2;
        b->p[i] = optimizer_get(dt_p, s->p, at + i) * keep -
                  step_size * (mean / (sqrtf(square) / root_bias2 + eps));
        b->m[i] = mean;
        b->v[i] = square;
    }
}

/* Code n moments, and their largest magnitude. */
SIMD_INLINE void code(const struct adamw_state *s, const struct block *restrict b, int64_t at,
                      int64_t n)
{
    uint8_t *restrict m = (uint8_t *)s->m + at, *restrict v = (uint8_t *)s->v + at;
    float most_m = 0, most_v = 0;
#pragma omp simd reduction(max : most_m, most_v)
    for (int64_t i = 0; i < n; i++) {
        float size = fabsf(b->m[i]);
        most_m = size > most_m ? size : most_m;
        most_v = b->v[i] > most_v ? b->v[i] : most_v;
    }
    const float inverse_m = dynamic8_inverse(most_m), inverse_v = dynamic8_inverse(most_v);
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        m[i] = dynamic8_signed_code(b->m[i] * inverse_m);
        v[i] = dynamic8_unsigned_code(b->v[i] * inverse_v);
    }
    s->m_largest[at / DYNAMIC8_BLOCK] = most_m;
    s->v_largest[at / DYNAMIC8_BLOCK] = most_v;
}

/* Store n parameters, and their copy. */
SIMD_INLINE void store(const struct optimizer_work *rule, const struct block *restrict b,
                       int64_t at, int64_t n)
{
    float *restrict p = (float *)rule->s.p + at;
    bf16 *restrict copy = optimizer_bf16_copy(&rule->s);
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        p[i] = b->p[i];
    if (!copy)
        return;
    copy += at;
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        copy[i] = f32_to_bf16(b->p[i]);
}

/* The same to bf16, rounded stochastically. */
SIMD_INLINE void store_bf16(const struct optimizer_work *rule, const struct block *restrict b,
                            int64_t at, int64_t n)
{
    uint32_t words[OPTIMIZER_WORDS];
    for (int64_t i = 0, count; i < n; i += count) {
        const uint32_t *mine = optimizer_draw(words, rule->rounding, at + i, at + n, &count);
        const float *p = b->p + i;
#pragma omp simd
        for (int64_t k = 0; k < count; k++)
            optimizer_put(DTYPE_BF16, rule->s.p, at + i + k, p[k], mine[2 * k] & 0xffffu);
    }
}

SIMD_INLINE void block_in_formats(const struct optimizer_work *rule, enum dtype dt_p,
                                  enum dtype dt_g, float grad_scale, int64_t at, int64_t n)
{
    struct block b;
    step(&b, rule, dt_p, dt_g, grad_scale, at, n);
    if (dt_p == DTYPE_BF16)
        store_bf16(rule, &b, at, n);
    else
        store(rule, &b, at, n);
    code(&rule->s, &b, at, n);
}

void CPU(optimizer_8bit_chunk)(const struct optimizer_work *rule, float grad_scale, int64_t begin,
                               int64_t end)
{
    const int is_wide = rule->s.dt_p == DTYPE_F32, has_wide = rule->s.dt_g == DTYPE_F32;
    for (int64_t at = begin; at < end; at += DYNAMIC8_BLOCK) {
        int64_t n = min_i64(DYNAMIC8_BLOCK, end - at);
        if (is_wide && has_wide)
            block_in_formats(rule, DTYPE_F32, DTYPE_F32, grad_scale, at, n);
        else if (is_wide)
            block_in_formats(rule, DTYPE_F32, DTYPE_BF16, grad_scale, at, n);
        else if (has_wide)
            block_in_formats(rule, DTYPE_BF16, DTYPE_F32, grad_scale, at, n);
        else
            block_in_formats(rule, DTYPE_BF16, DTYPE_BF16, grad_scale, at, n);
    }
}
