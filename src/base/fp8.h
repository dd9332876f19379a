/* fp8.h - numbers of 8 bits in blocks: what bf16 is rounded to for products with precision=fp8.
 *
 * A number is E4M3 (Micikevicius et al. 2022, arXiv 2209.05433): a sign, 4 bits of exponent, 3 of
 * mantissa; 448 is the largest, 2^-6 the least normal one, below it are steps of 2^-9, and there is
 * no infinity.  The numbers of a block share a scale, and stand for code * scale, as in DeepSeek-V3
 * (2024, arXiv 2412.19437, 3.3.2) and Transformer Engine's Float8BlockScaling.  Blocks are
 * FP8_BLOCK neighbours in the direction that a product sums over, or squares of FP8_BLOCK by
 * FP8_BLOCK.
 *
 * The scale is the least power of two with which no number of the block is above 448.  So
 * code * scale is a bf16, exactly, or beyond the largest one infinite: a product of such numbers is
 * that of bf16 rounded in place.
 *
 *   block in bf16    3.0   0.4   -0.01      largest 3.0: scale 2^-7, as 3.0 = 384 * 2^-7
 *   in E4M3          384   52    -1.25      0.4 * 2^7 = 51.2, where steps are 4
 *   stands for       3.0   0.40625 -0.009765625
 *
 * A block with an infinity or a NaN becomes NaN, all of it: an overflow is to be seen, not cut off.
 * Made of C that C++ and CUDA read too.
 */
#ifndef TRIREME_BASE_FP8_H
#define TRIREME_BASE_FP8_H

#include <stdint.h>
#include <string.h>

#ifdef __CUDACC__
#define FP8_INLINE static inline __host__ __device__
#else
#define FP8_INLINE static inline
#endif

enum { FP8_BLOCK = 128 };

/* The exponent of a scale is at least this, so that a step times it is a normal number. */
enum { FP8_LEAST_EXPONENT = -117 };

FP8_INLINE float fp8_of_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

FP8_INLINE uint32_t fp8_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* 2^exponent, of a normal number. */
FP8_INLINE float fp8_power(int exponent)
{
    return fp8_of_bits((uint32_t)(exponent + 127) << 23);
}

/* The exponent of a block's scale; largest: the bits of its largest magnitude in bf16, which is
 * finite.  448 is 1.75 * 2^8.  A block of zeros has scale 1. */
FP8_INLINE int fp8_exponent(uint32_t largest)
{
    int exponent = (int)(largest >> 7) - 127 - 8 + ((largest & 0x7f) > 0x60);
    if (largest == 0)
        return 0;
    return exponent < FP8_LEAST_EXPONENT ? FP8_LEAST_EXPONENT : exponent;
}

/* A block's scale: a NaN where it has an infinity or a NaN, which are the largest bits. */
FP8_INLINE float fp8_scale(uint32_t largest)
{
    return largest >= 0x7f80 ? fp8_of_bits(0x7fc00000) : fp8_power(fp8_exponent(largest));
}

/* What numbers are multiplied by before they are rounded; exact, as the scale is a power of two. */
FP8_INLINE float fp8_inverse(uint32_t largest)
{
    return largest >= 0x7f80 ? fp8_of_bits(0x7fc00000) : fp8_power(-fp8_exponent(largest));
}

/* The number of E4M3 nearest to x, ties to even, for magnitudes up to 448; a NaN stays one.  A
 * large number is added and subtracted again: its last bit is a step of E4M3 at x, so the sum is
 * rounded to these steps. */
FP8_INLINE float fp8_round(float x)
{
    const uint32_t least = (uint32_t)(127 - 6) << 23; /* steps become no smaller below 2^-6 */
    uint32_t exponent = fp8_bits(x) & 0x7f800000u;
    float large = fp8_of_bits(((exponent < least ? least : exponent) + (20u << 23)) | 0x400000u);
    return (x + large) - large;
}

/* The 8 bits of that number; 0x7f of a NaN.  Divided by 2^120 it is an fp32 with the exponent bits
 * of E4M3, subnormal where that is; of its mantissa the last 20 bits are rounded away. */
FP8_INLINE uint32_t fp8_code(float x)
{
    uint32_t bits = fp8_bits(x * fp8_power(-120));
    if (x != x)
        return 0x7f;
    bits += 0x7ffff + (bits >> 20 & 1);
    return (bits >> 20 & 0x7f) | (bits >> 24 & 0x80);
}

/* The larger of the lower halves and of the upper halves of two words, as unsigned integers. */
FP8_INLINE uint32_t fp8_larger_halves(uint32_t a, uint32_t b)
{
    const uint32_t low = (a & 0xffff) > (b & 0xffff) ? a : b, high = a > b ? a : b;
    return (low & 0xffff) | (high & 0xffff0000);
}

/* The number that 8 bits stand for. */
FP8_INLINE float fp8_value(uint8_t code)
{
    uint32_t sign = (uint32_t)(code & 0x80u) << 24, magnitude = code & 0x7fu;
    if (magnitude == 0x7f)
        return fp8_of_bits(0x7fc00000u);
    if (magnitude < 8)
        return fp8_of_bits(fp8_bits((float)magnitude / 512.0f) | sign);
    return fp8_of_bits(sign | ((magnitude << 20) + ((127u - 7u) << 23)));
}

#endif
