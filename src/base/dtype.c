/* dtype.c - see dtype.h. */
#include "base/dtype.h"

static const struct {
    const char *name;
    size_t bytes;
} rows[DTYPE_COUNT] = {
    [DTYPE_F32] = {.name = "fp32", .bytes = 4}, [DTYPE_BF16] = {.name = "bf16", .bytes = 2},
    [DTYPE_F64] = {.name = "fp64", .bytes = 8}, [DTYPE_I32] = {.name = "i32", .bytes = 4},
    [DTYPE_U16] = {.name = "u16", .bytes = 2},  [DTYPE_U32] = {.name = "u32", .bytes = 4},
    [DTYPE_U8] = {.name = "u8", .bytes = 1},    [DTYPE_F16] = {.name = "fp16", .bytes = 2},
    [DTYPE_F8] = {.name = "fp8", .bytes = 1},
};

size_t dtype_bytes(enum dtype dtype)
{
    return rows[dtype].bytes;
}

const char *dtype_name(enum dtype dtype)
{
    return rows[dtype].name;
}

int dtype_is_narrow_float(enum dtype dtype)
{
    return dtype == DTYPE_F32 || dtype == DTYPE_BF16 || dtype == DTYPE_F16;
}

int dtype_find(const char *name)
{
    for (int i = 0; i < DTYPE_COUNT; i++)
        if (!strcmp(rows[i].name, name))
            return i;
    return -1;
}

void dtype_widen(float *to, const void *from, enum dtype dtype, int64_t elems)
{
    const uint16_t *narrow = from;
    if (dtype == DTYPE_F32) {
        memcpy(to, from, (size_t)elems * sizeof *to);
        return;
    }
    if (dtype == DTYPE_BF16) {
#pragma omp simd
        for (int64_t i = 0; i < elems; i++)
            to[i] = bf16_to_f32(narrow[i]);
        return;
    }
    for (int64_t i = 0; i < elems; i++)
        to[i] = f16_to_f32(narrow[i]);
}

void dtype_narrow(void *to, enum dtype dtype, const float *from, int64_t elems)
{
    uint16_t *narrow = to;
    if (dtype == DTYPE_F32) {
        memcpy(to, from, (size_t)elems * sizeof *from);
        return;
    }
    if (dtype == DTYPE_BF16) {
#pragma omp simd
        for (int64_t i = 0; i < elems; i++)
            narrow[i] = f32_to_bf16(from[i]);
        return;
    }
    for (int64_t i = 0; i < elems; i++)
        narrow[i] = f32_to_f16(from[i]);
}

/* An infinity or a NaN has all bits of its exponent set; other values have not. */
int dtype_are_finite(const void *values, enum dtype dtype, int64_t elems)
{
    const uint16_t half = dtype == DTYPE_F16 ? 0x7c00 : 0x7f80;
    const uint32_t word = 0x7f800000;
    int other = 0;
    if (dtype == DTYPE_F32) {
        const uint32_t *bits = values;
#pragma omp simd reduction(| : other)
        for (int64_t i = 0; i < elems; i++)
            other |= (bits[i] & word) == word;
    } else {
        const uint16_t *bits = values;
#pragma omp simd reduction(| : other)
        for (int64_t i = 0; i < elems; i++)
            other |= (bits[i] & half) == half;
    }
    return !other;
}
