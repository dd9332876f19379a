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

/* Each element of all becomes its sum with that of term, or the larger one of the two. */
EVERY_LEVEL static void join_f32(float *restrict all, const float *restrict term, int64_t n,
                                 enum group_reduction reduction)
{
    if (reduction == GROUP_SUM)
        for (int64_t i = 0; i < n; i++)
            all[i] += term[i];
    else
        for (int64_t i = 0; i < n; i++)
            all[i] = term[i] > all[i] || isnan(term[i]) ? term[i] : all[i];
}

EVERY_LEVEL static void join_f64(double *restrict all, const double *restrict term, int64_t n,
                                 enum group_reduction reduction)
{
    if (reduction == GROUP_SUM)
        for (int64_t i = 0; i < n; i++)
            all[i] += term[i];
    else
        for (int64_t i = 0; i < n; i++)
            all[i] = term[i] > all[i] || isnan(term[i]) ? term[i] : all[i];
}

EVERY_LEVEL static void widen(float *restrict out, const void *restrict in, int64_t n,
                              enum dtype dtype)
{
    if (dtype == DTYPE_BF16)
        for (int64_t i = 0; i < n; i++)
            out[i] = bf16_to_f32(((const bf16 *)in)[i]);
    else if (dtype == DTYPE_F16)
        for (int64_t i = 0; i < n; i++)
            out[i] = f16_to_f32(((const f16 *)in)[i]);
    else
        memcpy(out, in, (size_t)n * sizeof *out);
}

EVERY_LEVEL static void narrow(void *restrict out, const float *restrict in, int64_t n,
                               enum dtype dtype)
{
    if (dtype == DTYPE_BF16)
        for (int64_t i = 0; i < n; i++)
            ((bf16 *)out)[i] = f32_to_bf16(in[i]);
    else if (dtype == DTYPE_F16)
        for (int64_t i = 0; i < n; i++)
            ((f16 *)out)[i] = f32_to_f16(in[i]);
    else
        memcpy(out, in, (size_t)n * sizeof *in);
}

static const char *term_at(const struct sum_terms *terms, int m)
{
    if (m == terms->own)
        return terms->own_data;
    return terms->slots + (m - (m > terms->own)) * terms->slot_bytes;
}

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
            join_f32(sum, add, n, reduction);
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
            join_f64(sum, (const double *)term_at(terms, m) + i, n, reduction);
        memcpy(out + i, sum, (size_t)n * sizeof *sum);
    }
}

void sum_reduce(void *out, enum dtype out_dtype, const float *old, const struct sum_terms *terms,
                int64_t elems, enum dtype dtype, enum group_reduction reduction)
{
    float sum[BLOCK];
    if (dtype == DTYPE_F64) {
        reduce_f64(out, terms, elems, reduction);
        return;
    }
    for (int64_t i = 0; i < elems; i += BLOCK) {
        int64_t n = min_i64(elems - i, BLOCK);
        block_f32(sum, terms, i, n, dtype, reduction);
        if (old)
            join_f32(sum, old + i, n, GROUP_SUM);
        narrow((char *)out + i * (int64_t)dtype_bytes(out_dtype), sum, n, out_dtype);
    }
}
