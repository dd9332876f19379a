/* dynamic8.h - numbers of 8 bits that an optimizer's moments are kept in: a share of the largest
 * magnitude of a block.
 *
 * The numbers of a block of DYNAMIC8_BLOCK share that magnitude in fp32; each is a code, an index
 * into 256 shares in ascending order (dynamic tree quantization: Dettmers et al. 2022, arXiv
 * 2110.02861; the table is that of bitsandbytes' create_dynamic_map()).  Shares lie in decades, of
 * which each has twice the levels of the one below, so that small shares keep digits as floating
 * point does and large ones have more of them:
 *
 *   decade        0.1 - 1   0.01 - 0.1   ...   1e-7 - 1e-6     beside these
 *   signed        64        32                 1               the same below 0; 0 and 1
 *   not negative  128       64                 2               0 and 1
 *
 * A level is the middle of its part of the decade.  Counted from the smallest, level number n of
 * 2^e <= n < 2^(e+1) is part n - 2^e of a decade, so that e and the part are the exponent and the
 * mantissa of n: neither direction needs a table.  A number becomes the nearest level, in its own
 * decade or at the edge of the next, to within rounding in fp32.  A number that is not 0 does not
 * become 0 where that matters: a negative one, as in bitsandbytes, so that it keeps its sign, and
 * any of the table without negative numbers, because AdamW divides by a root of these: with 0 in
 * the place of a small mean square a step would be as large as eps allows.  -1 becomes the level
 * above it.
 *
 * Made of C that C++ and CUDA read too, and of expressions without branches.
 */
#ifndef TRIREME_BASE_DYNAMIC8_H
#define TRIREME_BASE_DYNAMIC8_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#ifdef __CUDACC__
#define DYNAMIC8_INLINE static __host__ __device__ __forceinline__
#else
#define DYNAMIC8_INLINE static inline __attribute__((always_inline, unused))
#endif

/* a * b + c, rounded once where the machine does that by one instruction.  Codes at an edge between
 * two levels can differ by it. */
#ifdef DYNAMIC8_FMA /* who wants a GPU's codes has defined it as fmaf */
#elif defined __CUDACC__ || defined __FMA__ || defined __ARM_FEATURE_FMA
#define DYNAMIC8_FMA(a, b, c) fmaf(a, b, c)
#else
#define DYNAMIC8_FMA(a, b, c) ((a) * (b) + (c))
#endif

enum { DYNAMIC8_BLOCK = 256 };

/* The smallest magnitude of a block that is not taken for 0: its inverse is finite. */
#define DYNAMIC8_LEAST 1.17549435e-38f

/* The functions below take the levels of the lowest decade as `items`: 1 of a signed table, 2 of
 * one that has no negative numbers.  Level number n is 0 below items and 1 from 128 * items on; n
 * is a whole number.
 *
 * Of a decade with k levels that ends at `end`, the last level below it is end / 10 (1 - 0.9 / k)
 * and its first end / 10 (1 + 4.5 / k): what is above their middle belongs to it. */
#define DYNAMIC8_EDGE(end, k) (0.1f * (end) * (1.0f + 1.8f / (k)))

/* Share number n. */
DYNAMIC8_INLINE float dynamic8_level(float n, float items)
{
    float end = 0, k, part;
    uint32_t bits;
    end = n >= items ? 1e-6f : end;
    end = n >= 2 * items ? 1e-5f : end;
    end = n >= 4 * items ? 1e-4f : end;
    end = n >= 8 * items ? 1e-3f : end;
    end = n >= 16 * items ? 1e-2f : end;
    end = n >= 32 * items ? 1e-1f : end;
    end = n >= 64 * items ? 1.0f : end;
    memcpy(&bits, &n, sizeof bits);
    bits &= 0x7f800000u; /* k, the power of two at or below n, and 1 / k */
    memcpy(&k, &bits, sizeof k);
    bits = 0x7f000000u - bits;
    memcpy(&part, &bits, sizeof part);
    const float level = end * DYNAMIC8_FMA(0.9f * (n - k + 0.5f), part, 0.1f);
    return n >= 128 * items ? 1.0f : level;
}

/* A decade, which begins where shares become its first level and has k levels; scale is 1 / 0.9 of
 * its end.  What is below the lowest and above the highest decade has one level, number k. */
struct dynamic8_decade {
    float begin, k, scale;
};

/* The later of two decades if share belongs to it, else the one before. */
DYNAMIC8_INLINE struct dynamic8_decade dynamic8_later(struct dynamic8_decade before, float share,
                                                      float begin, float k, float scale)
{
    const int is_later = share >= begin;
    const struct dynamic8_decade decade = {is_later ? begin : before.begin, is_later ? k : before.k,
                                           is_later ? scale : before.scale};
    return decade;
}

/* The decade of a share from 0 to 1. */
DYNAMIC8_INLINE struct dynamic8_decade dynamic8_decade_of(float share, float items)
{
    struct dynamic8_decade d = {0, 0.5f * items, 0};
    const float lowest = 0.5f * 1e-6f * (0.1f + 0.45f / items);
    const float highest = 1.0f - 0.225f / (64 * items);
    d = dynamic8_later(d, share, lowest, items, 1e6f / 0.9f);
    d = dynamic8_later(d, share, DYNAMIC8_EDGE(1e-5f, 2 * items), 2 * items, 1e5f / 0.9f);
    d = dynamic8_later(d, share, DYNAMIC8_EDGE(1e-4f, 4 * items), 4 * items, 1e4f / 0.9f);
    d = dynamic8_later(d, share, DYNAMIC8_EDGE(1e-3f, 8 * items), 8 * items, 1e3f / 0.9f);
    d = dynamic8_later(d, share, DYNAMIC8_EDGE(1e-2f, 16 * items), 16 * items, 1e2f / 0.9f);
    d = dynamic8_later(d, share, DYNAMIC8_EDGE(1e-1f, 32 * items), 32 * items, 1e1f / 0.9f);
    d = dynamic8_later(d, share, DYNAMIC8_EDGE(1.0f, 64 * items), 64 * items, 1.0f / 0.9f);
    return dynamic8_later(d, share, highest, 128 * items, 0);
}

/* The number of the level nearest to a share of this decade. */
DYNAMIC8_INLINE float dynamic8_number(float share, struct dynamic8_decade decade)
{
    const float k = decade.k;
    float number = k * DYNAMIC8_FMA(share, decade.scale, 8.0f / 9.0f);
    number = number > k ? number : k;
    number = number < 2 * k - 1 ? number : 2 * k - 1;
    return (float)(int32_t)number;
}

/* What a code of the signed table stands for, and of the one without negative numbers. */
DYNAMIC8_INLINE float dynamic8_signed(uint8_t code)
{
    const float n = (float)((int)code - 127);
    return copysignf(dynamic8_level(fabsf(n), 1), n);
}

DYNAMIC8_INLINE float dynamic8_unsigned(uint8_t code)
{
    return dynamic8_level((float)(code + 1), 2);
}

/* The code of a share from -1 to 1 whose magnitude is of this decade of the signed table, and of
 * one from 0 to 1 of this decade of the other. */
DYNAMIC8_INLINE uint8_t dynamic8_signed_code_in(float share, struct dynamic8_decade decade)
{
    const float n = dynamic8_number(fabsf(share), decade);
    const float below = n < 1 ? 1.0f : n > 127 ? 127.0f : n;
    return (uint8_t)(127 + (int)(share < 0 ? -below : n));
}

DYNAMIC8_INLINE uint8_t dynamic8_unsigned_code_in(float share, struct dynamic8_decade decade)
{
    const float n = dynamic8_number(share, decade);
    return (uint8_t)((int)(share > 0 && n < 2 ? 2.0f : n) - 1);
}

/* The code of a share from -1 to 1, and of one from 0 to 1. */
DYNAMIC8_INLINE uint8_t dynamic8_signed_code(float share)
{
    return dynamic8_signed_code_in(share, dynamic8_decade_of(fabsf(share), 1));
}

DYNAMIC8_INLINE uint8_t dynamic8_unsigned_code(float share)
{
    return dynamic8_unsigned_code_in(share, dynamic8_decade_of(share, 2));
}

/* What the numbers of a block are multiplied by to be shares: the inverse of its largest magnitude,
 * or 0 where that is taken for 0. */
DYNAMIC8_INLINE float dynamic8_inverse(float largest)
{
    return largest >= DYNAMIC8_LEAST ? 1.0f / largest : 0.0f;
}

#endif
