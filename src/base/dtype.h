/* dtype.h - element types of tensors, and bfloat16 arithmetic on single values. */
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
    DTYPE_COUNT
};

typedef uint16_t bf16; /* the upper half of an IEEE binary32 */

/* Bytes of one element. */
size_t dtype_bytes(enum dtype dtype);

/* Short name: "fp32", "bf16", ... */
const char *dtype_name(enum dtype dtype);

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

#endif
