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
    DTYPE_F8, /* what operands of matrix products are rounded to (base/fp8.h); no tensor has it */
    DTYPE_COUNT
};

typedef uint16_t bf16; /* the upper half of an IEEE binary32 */
typedef uint16_t f16;  /* an IEEE binary16: up to 65504, normal from 2^-14, steps of 2^-24 below */

/* Returns the bytes of one element. */
size_t dtype_bytes(enum dtype dtype);

/* Returns the short name: "fp32", "bf16", ... */
const char *dtype_name(enum dtype dtype);

/* Returns the dtype with a name of dtype_name(), or -1. */
int dtype_find(const char *name);

/* Returns 1 for fp32, bf16 and fp16: floating-point formats of at most 32 bits. */
int dtype_is_narrow_float(enum dtype dtype);

/* The next three functions take a dtype for which dtype_is_narrow_float() is 1. */

/* Convert elems values of dtype to fp32, exactly.  to and from must not overlap. */
void dtype_widen(float *to, const void *from, enum dtype dtype, int64_t elems);

/* Round elems fp32 values to dtype, to nearest.  to and from must not overlap. */
void dtype_narrow(void *to, enum dtype dtype, const float *from, int64_t elems);

/* Returns 1 if every one of elems values is finite. */
int dtype_are_finite(const void *values, enum dtype dtype, int64_t elems);

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
    if (magnitude < 0x0400u) /* subnormal: a multiple of 2^-24 */
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
    if (magnitude < 0x38800000u) {
        /* Below 2^-14 fp16 has steps of 2^-24, which is the last place of 1/2 in fp32: adding 1/2
         * rounds to these steps. */
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
