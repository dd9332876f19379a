/* dtype.h - element types of tensors, and single values of the 16-bit ones. */
#ifndef TRIREME_BASE_DTYPE_H
#define TRIREME_BASE_DTYPE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum dtype {
    DTYPE_F32,
    DTYPE_BF16,
    DTYPE_F64,
    DTYPE_I32,
    DTYPE_U16,
    DTYPE_U32,
    DTYPE_U8,
    DTYPE_F16,
    DTYPE_F8, /* of products whose operands are rounded to it (base/fp8.h); no tensor has it */
    DTYPE_COUNT
};

typedef uint16_t bf16; /* the upper half of an IEEE binary32 */
typedef uint16_t f16;  /* an IEEE binary16: up to 65504, normal from 2^-14, steps of 2^-24 below */

/* Bytes of one element. */
size_t dtype_bytes(enum dtype dtype);

/* Short name: "fp32", "bf16", ... */
const char *dtype_name(enum dtype dtype);

/* Values of a format that dtype_is_narrow_float(), as fp32. */
void dtype_widen(float *to, const void *from, enum dtype dtype, int64_t elems);
/* And fp32 rounded to one, in memory of their own. */
void dtype_narrow(void *to, enum dtype dtype, const float *from, int64_t elems);

/* Is each of these values finite?  Of a format that dtype_is_narrow_float(). */
int dtype_are_finite(const void *values, enum dtype dtype, int64_t elems);

/* A format of numbers that are not whole and at most 32 bits: fp32, bf16 or fp16? */
int dtype_is_narrow_float(enum dtype dtype);

/* The dtype of a name as dtype_name() gives it, or -1. */
int dtype_find(const char *name);

static inline float bf16_to_f32(bf16 x)
{
    uint32_t bits = (uint32_t)x << 16;
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

/* Round to nearest, ties to even; NaN stays a (quiet) NaN. */
static inline bf16 f32_to_bf16(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return (bf16)((bits >> 16) | 0x40u);
    return (bf16)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

/* Exact; NaN becomes quiet, as it does in hardware. */
static inline float f16_to_f32(f16 x)
{
    uint32_t sign = (uint32_t)(x & 0x8000u) << 16, magnitude = x & 0x7fffu;
    uint32_t bits = sign | ((magnitude << 13) + (112u << 23)); /* exponents are 112 apart */
    float f;
    if (magnitude >= 0x7c00u)
        bits = sign | 0x7f800000u | magnitude << 13 | (magnitude > 0x7c00u ? 0x400000u : 0u);
    memcpy(&f, &bits, sizeof f);
    if (magnitude < 0x0400u) /* denormal: so many 2^-24 */
        f = (float)magnitude * (sign ? -0x1p-24f : 0x1p-24f);
    return f;
}

/* Round to nearest, ties to even; from 65520 on infinity; NaN stays a (quiet) NaN. */
static inline f16 f32_to_f16(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    uint32_t sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u)
        return (f16)(sign | 0x7e00u | (magnitude >> 13 & 0x1ffu));
    if (magnitude >= 0x477ff000u)
        return (f16)(sign | 0x7c00u);
    if (magnitude < 0x38800000u) { /* below 2^-14: in steps of 2^-24, which is 1/2's last place */
        float shifted;
        memcpy(&shifted, &magnitude, sizeof shifted);
        shifted += 0.5f;
        memcpy(&bits, &shifted, sizeof bits);
        return (f16)(sign | (bits - 0x3f000000u));
    }
    magnitude += 0xfffu + (magnitude >> 13 & 1u);
    return (f16)(sign | (magnitude - (112u << 23)) >> 13);
}

#endif
