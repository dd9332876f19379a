/* dtype.c - see dtype.h. */
#include "base/dtype.h"

static const struct {
    const char *name;
    size_t bytes;
} rows[DTYPE_COUNT] = {
    [DTYPE_F32] = {"fp32", 4}, [DTYPE_BF16] = {"bf16", 2}, [DTYPE_F64] = {"fp64", 8},
    [DTYPE_I32] = {"i32", 4},  [DTYPE_U16] = {"u16", 2},   [DTYPE_U32] = {"u32", 4},
    [DTYPE_U8] = {"u8", 1},    [DTYPE_F16] = {"fp16", 2},
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
