/* optimizer.h - what the files of optimizers on CPUs share: an update's tensors, single elements in
 * their formats, and the random numbers of stochastic rounding. */
#ifndef TRIREME_DEVICE_CPU_OPTIMIZER_H
#define TRIREME_DEVICE_CPU_OPTIMIZER_H

#include "base/philox.h"
#include "device/cpu/kernels.h"
#include "device/cpu/simd.h"

/* A rule, its tensors, and the function that applies it to elements [begin, end).  SGD has its
 * velocity in s.m, and no s.v. */
struct optimizer_work {
    void (*chunk)(const struct optimizer_work *rule, float grad_scale, int64_t begin, int64_t end);
    struct adamw_state s;
    const struct adamw *adamw;
    const struct rounding *rounding;
    const struct sgd *sgd;
};

/* The copy of the parameters in bf16; NULL: there is none. */
SIMD_INLINE bf16 *optimizer_bf16_copy(const struct adamw_state *s)
{
    return s->dt_copy == DTYPE_BF16 ? s->copy : NULL;
}

SIMD_INLINE float optimizer_get(enum dtype dt, const void *base, int64_t i)
{
    return dt == DTYPE_BF16 ? bf16_to_f32(((const bf16 *)base)[i]) : ((const float *)base)[i];
}

/* Store a value; to bf16 it is rounded by noise, in [0, 2^16). */
SIMD_INLINE void optimizer_put(enum dtype dt, void *base, int64_t i, float value, uint32_t noise)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint32_t quiet = (bits >> 16) | 0x40u, rounded = (bits + noise) >> 16;
    if (dt == DTYPE_BF16)
        ((bf16 *)base)[i] = (bf16)((bits & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
    else
        ((float *)base)[i] = value;
}

/* Draw the words of `pairs` pairs of elements: words[2i] and words[2i + 1] are those of element
 * 2 * pair + i. */
SIMD_INLINE void optimizer_draw_pairs(uint32_t *restrict words, const struct rounding *r,
                                      uint64_t pair, int64_t pairs)
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

/* The number by which the random words of element i are drawn (struct rounding); *count: how many
 * elements from i on have consecutive numbers. */
SIMD_INLINE uint64_t optimizer_number(const struct rounding *r, int64_t i, int64_t *count)
{
    if (!r->run) {
        *count = INT64_MAX;
        return r->first + (uint64_t)i;
    }
    *count = r->run - i % r->run;
    return r->first + (uint64_t)(i / r->run * r->stride + i % r->run);
}

/* OPTIMIZER_PIECE: elements whose words are drawn at once, at most. */
enum { OPTIMIZER_PIECE = 256, OPTIMIZER_WORDS = 2 * (OPTIMIZER_PIECE + 2) };

/* Draw the words of elements [begin, begin + *n), the most at once before end.  Returns the first
 * one's two, in words. */
SIMD_INLINE const uint32_t *optimizer_draw(uint32_t *words, const struct rounding *r, int64_t begin,
                                           int64_t end, int64_t *n)
{
    uint64_t index = optimizer_number(r, begin, n), odd = index % 2;
    *n = min_i64(*n, min_i64(end - begin, OPTIMIZER_PIECE));
    optimizer_draw_pairs(words, r, index / 2, (*n + (int64_t)odd + 1) / 2);
    return words + 2 * odd;
}

/* A chunk() of AdamW with moments of 8 bits; begin is the first of a block. */
void CPU(optimizer_8bit_chunk)(const struct optimizer_work *rule, float grad_scale, int64_t begin,
                               int64_t end);

#endif
