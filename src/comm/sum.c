/* sum.c - see sum.h.
 *
 * Blocks small enough for the first-level cache: every term is read once, the running sum
 * stays near, and a result may replace one of its terms.
 */
#include "comm/sum.h"

#include <string.h>

#include "base/levels.h"

enum { BLOCK = 1024 };

EVERY_LEVEL static void add_f32(float *restrict sum, const float *restrict term, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        sum[i] += term[i];
}

EVERY_LEVEL static void add_f64(double *restrict sum, const double *restrict term, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        sum[i] += term[i];
}

EVERY_LEVEL static void add_bf16(float *restrict sum, const bf16 *restrict term, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        sum[i] += bf16_to_f32(term[i]);
}

EVERY_LEVEL static void widen(float *restrict out, const bf16 *restrict in, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = bf16_to_f32(in[i]);
}

EVERY_LEVEL static void narrow(bf16 *restrict out, const float *restrict in, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = f32_to_bf16(in[i]);
}

static const char *term_at(const struct sum_terms *terms, int m)
{
    if (m == terms->own)
        return terms->own_data;
    return terms->slots + (m - (m > terms->own)) * terms->slot_bytes;
}

/* The sum of one block of terms, from element first on, in fp32. */
static void block_f32(float *sum, const struct sum_terms *terms, int64_t first, int64_t n,
                      enum dtype dtype)
{
    for (int m = 0; m < terms->count; m++) {
        const char *term = term_at(terms, m) + first * (int64_t)dtype_bytes(dtype);
        if (dtype == DTYPE_BF16 && !m)
            widen(sum, (const bf16 *)term, n);
        else if (dtype == DTYPE_BF16)
            add_bf16(sum, (const bf16 *)term, n);
        else if (!m)
            memcpy(sum, term, (size_t)n * sizeof *sum);
        else
            add_f32(sum, (const float *)term, n);
    }
}

static void block_f64(double *sum, const struct sum_terms *terms, int64_t first, int64_t n)
{
    for (int m = 0; m < terms->count; m++) {
        const double *term = (const double *)term_at(terms, m) + first;
        if (!m)
            memcpy(sum, term, (size_t)n * sizeof *sum);
        else
            add_f64(sum, term, n);
    }
}

void sum_to_f32(float *out, const float *old, const struct sum_terms *terms, int64_t elems,
                enum dtype dtype)
{
    float sum[BLOCK];
    for (int64_t i = 0; i < elems; i += BLOCK) {
        int64_t n = elems - i < BLOCK ? elems - i : BLOCK;
        block_f32(sum, terms, i, n, dtype);
        if (old)
            add_f32(sum, old + i, n);
        memcpy(out + i, sum, (size_t)n * sizeof *sum);
    }
}

static void sum_f64(double *out, const struct sum_terms *terms, int64_t elems)
{
    double sum[BLOCK];
    for (int64_t i = 0; i < elems; i += BLOCK) {
        int64_t n = elems - i < BLOCK ? elems - i : BLOCK;
        block_f64(sum, terms, i, n);
        memcpy(out + i, sum, (size_t)n * sizeof *sum);
    }
}

static void sum_bf16(bf16 *out, const struct sum_terms *terms, int64_t elems)
{
    float sum[BLOCK];
    for (int64_t i = 0; i < elems; i += BLOCK) {
        int64_t n = elems - i < BLOCK ? elems - i : BLOCK;
        block_f32(sum, terms, i, n, DTYPE_BF16);
        narrow(out + i, sum, n);
    }
}

void sum_same(void *out, const struct sum_terms *terms, int64_t elems, enum dtype dtype)
{
    if (dtype == DTYPE_F64)
        sum_f64(out, terms, elems);
    else if (dtype == DTYPE_BF16)
        sum_bf16(out, terms, elems);
    else
        sum_to_f32(out, NULL, terms, elems, DTYPE_F32);
}
