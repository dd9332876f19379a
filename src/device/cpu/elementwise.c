/* elementwise.c - ops that touch each element once: bound by memory, not arithmetic. */
#include "device/cpu/kernels.h"
#include "device/cpu/simd.h"

/* Elements a thread takes at a time; fixed, so that bits do not depend on threads. */
enum { CHUNK = 8192 };

SIMD_INLINE void add_chunk(enum dtype dt, void *y, const void *a, const void *b, int64_t begin,
                           int64_t end)
{
    for (int64_t i = begin; i < end; i += CPU_LANES) {
        vf sum = vf_get_some(dt, a, i, end - i) + vf_get_some(dt, b, i, end - i);
        vf_put_some(dt, y, i, end - i, sum);
    }
}

void CPU(add)(struct device *d, enum dtype dt, void *y, const void *a, const void *b, int64_t elems)
{
#pragma omp parallel for num_threads(cpu_threads(d, elems * 4))
    for (int64_t begin = 0; begin < elems; begin += CHUNK) {
        int64_t end = min_i64(begin + CHUNK, elems);
        WITH_DTYPE(add_chunk, dt, y, a, b, begin, end);
    }
}

SIMD_INLINE void scale_chunk(enum dtype dt, void *y, const void *x, float factor, int64_t begin,
                             int64_t end)
{
    for (int64_t i = begin; i < end; i += CPU_LANES)
        vf_put_some(dt, y, i, end - i, vf_get_some(dt, x, i, end - i) * vf_set(factor));
}

void CPU(scale)(struct device *d, enum dtype dt, void *y, const void *x, float factor,
                int64_t elems)
{
#pragma omp parallel for num_threads(cpu_threads(d, elems * 4))
    for (int64_t begin = 0; begin < elems; begin += CHUNK) {
        int64_t end = min_i64(begin + CHUNK, elems);
        WITH_DTYPE(scale_chunk, dt, y, x, factor, begin, end);
    }
}

/* Casts keep bf16 denormals, unlike other ops, because they are not only of activations. */
SIMD_INLINE void to_bf16(enum dtype from, bf16 *y, const void *x, int64_t begin, int64_t end)
{
    int64_t i = begin;
    for (; i + CPU_LANES <= end; i += CPU_LANES)
        vf_store_bf16(y + i, vf_get(from, x, i));
    for (; i < end; i++)
        y[i] = f32_to_bf16(value_get(from, x, i));
}

SIMD_INLINE void cast_chunk(enum dtype from, enum dtype to, void *y, const void *x, int64_t begin,
                            int64_t end)
{
    for (int64_t i = begin; i < end; i += CPU_LANES)
        vf_put_some(to, y, i, end - i, vf_get_some(from, x, i, end - i));
}

static void cast_any(enum dtype to, void *y, enum dtype from, const void *x, int64_t begin,
                     int64_t end)
{
    if (to == DTYPE_BF16)
        WITH_DTYPE(to_bf16, from, y, x, begin, end);
    else if (to == DTYPE_F16)
        WITH_DTYPE(cast_chunk, from, DTYPE_F16, y, x, begin, end);
    else
        WITH_DTYPE(cast_chunk, from, DTYPE_F32, y, x, begin, end);
}

/* Few elements, as of one row, are cast in less time than it takes to open a parallel region. */
void CPU(cast)(struct device *d, enum dtype to, void *y, enum dtype from, const void *x,
               int64_t elems)
{
    if (to == from) {
        CPU(copy)(d, y, x, (size_t)elems * dtype_bytes(to));
        return;
    }
    if (elems <= CHUNK) {
        cast_any(to, y, from, x, 0, elems);
        return;
    }
#pragma omp parallel for num_threads(cpu_threads(d, elems * 4))
    for (int64_t begin = 0; begin < elems; begin += CHUNK)
        cast_any(to, y, from, x, begin, min_i64(begin + CHUNK, elems));
}

void CPU(fill_zero)(struct device *d, void *y, size_t bytes)
{
    int threads = cpu_threads(d, (int64_t)bytes);
    size_t piece = (bytes / (size_t)threads + 64) & ~(size_t)63;
#pragma omp parallel for num_threads(threads)
    for (size_t begin = 0; begin < bytes; begin += piece)
        memset((char *)y + begin, 0, min_bytes(bytes - begin, piece));
}

void CPU(copy)(struct device *d, void *y, const void *x, size_t bytes)
{
    int threads = cpu_threads(d, (int64_t)bytes);
    size_t piece = (bytes / (size_t)threads + 64) & ~(size_t)63;
    if (threads == 1 && bytes > 0) {
        memcpy(y, x, bytes);
        return;
    }
#pragma omp parallel for num_threads(threads)
    for (size_t begin = 0; begin < bytes; begin += piece)
        memcpy((char *)y + begin, (const char *)x + begin, min_bytes(bytes - begin, piece));
}
