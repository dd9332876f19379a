/* sum.c - see sum.h.
 *
 * Blocks small enough for the first-level cache: every term is read once, the running sum
 * stays near, and a result may replace one of its terms.
 */
#include "comm/sum.h"

#include <math.h>
#include <string.h>

#include "base/levels.h"
#include "base/round.h"

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

EVERY_LEVEL static void max_f32(float *restrict max, const float *restrict term, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        max[i] = term[i] > max[i] || isnan(term[i]) ? term[i] : max[i];
}

EVERY_LEVEL static void max_f64(double *restrict max, const double *restrict term, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        max[i] = term[i] > max[i] || isnan(term[i]) ? term[i] : max[i];
}

EVERY_LEVEL static void widen_bf16(float *restrict out, const bf16 *restrict in, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = bf16_to_f32(in[i]);
}

EVERY_LEVEL static void narrow_bf16(bf16 *restrict out, const float *restrict in, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = f32_to_bf16(in[i]);
}

EVERY_LEVEL static void widen_f16(float *restrict out, const f16 *restrict in, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = f16_to_f32(in[i]);
}

EVERY_LEVEL static void narrow_f16(f16 *restrict out, const float *restrict in, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = f32_to_f16(in[i]);
}

static const char *term_at(const struct sum_terms *terms, int m)
{
    if (m == terms->own)
        return terms->own_data;
    return terms->slots + (m - (m > terms->own)) * terms->slot_bytes;
}

static void widen(float *out, const char *in, int64_t n, enum dtype dtype)
{
    if (dtype == DTYPE_BF16)
        widen_bf16(out, (const bf16 *)in, n);
    else if (dtype == DTYPE_F16)
        widen_f16(out, (const f16 *)in, n);
    else
        memcpy(out, in, (size_t)n * sizeof *out);
}

static void narrow(char *out, const float *in, int64_t n, enum dtype dtype)
{
    if (dtype == DTYPE_BF16)
        narrow_bf16((bf16 *)out, in, n);
    else if (dtype == DTYPE_F16)
        narrow_f16((f16 *)out, in, n);
    else
        memcpy(out, in, (size_t)n * sizeof *in);
}

static void (*const f32_of[])(float *restrict, const float *restrict,
                              int64_t) = {[GROUP_SUM] = add_f32, [GROUP_MAX] = max_f32};
static void (*const f64_of[])(double *restrict, const double *restrict,
                              int64_t) = {[GROUP_SUM] = add_f64, [GROUP_MAX] = max_f64};

/* The sum of one block of terms, from element first on, in fp32; or their maximum. */
static void block_f32(float *sum, const struct sum_terms *terms, int64_t first, int64_t n,
                      enum dtype dtype, enum group_reduction reduction)
{
    float wide[BLOCK];
    for (int m = 0; m < terms->count; m++) {
        const char *term = term_at(terms, m) + first * (int64_t)dtype_bytes(dtype);
        const float *add = dtype == DTYPE_F32 ? (const float *)term : wide;
        if (!m || dtype != DTYPE_F32)
            widen(m ? wide : sum, term, n, dtype);
        if (m)
            f32_of[reduction](sum, add, n);
    }
}

/* out = the sum or maximum of the terms, in their order, as out_dtype; where old is not NULL it is
 * the last term. */
static void reduce_f32(char *out, enum dtype out_dtype, const float *old,
                       const struct sum_terms *terms, int64_t elems, enum dtype dtype,
                       enum group_reduction reduction)
{
    float sum[BLOCK];
    for (int64_t i = 0; i < elems; i += BLOCK) {
        int64_t n = min_i64(elems - i, BLOCK);
        block_f32(sum, terms, i, n, dtype, reduction);
        if (old)
            add_f32(sum, old + i, n);
        narrow(out + i * (int64_t)dtype_bytes(out_dtype), sum, n, out_dtype);
    }
}

static void reduce_f64(double *out, const struct sum_terms *terms, int64_t elems,
                       enum group_reduction reduction)
{
    double sum[BLOCK];
    for (int64_t i = 0; i < elems; i += BLOCK) {
        int64_t n = min_i64(elems - i, BLOCK);
        memcpy(sum, (const double *)term_at(terms, 0) + i, (size_t)n * sizeof *sum);
        for (int m = 1; m < terms->count; m++)
            f64_of[reduction](sum, (const double *)term_at(terms, m) + i, n);
        memcpy(out + i, sum, (size_t)n * sizeof *sum);
    }
}

void sum_to_f32(float *out, const float *old, const struct sum_terms *terms, int64_t elems,
                enum dtype dtype)
{
    reduce_f32((char *)out, DTYPE_F32, old, terms, elems, dtype, GROUP_SUM);
}

void sum_same(void *out, const struct sum_terms *terms, int64_t elems, enum dtype dtype,
              enum group_reduction reduction)
{
    if (dtype == DTYPE_F64)
        reduce_f64(out, terms, elems, reduction);
    else
        reduce_f32(out, dtype, NULL, terms, elems, dtype, reduction);
}
