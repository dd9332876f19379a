/* sum.c - see sum.h.
 *
 * The sum of terms t0, t1, ... is one addition for each term after the first:
 *
 *   sum = t0 + t1;  sum = sum + t2;  ...  out = sum + the last one
 *
 * in blocks so small that `sum` stays in the first-level cache.  So every term is read once, and
 * out is written once, by the last addition.  16-bit terms are widened block by block before, and a
 * 16-bit result is narrowed after it.
 */
#include "comm/sum.h"

#include <math.h>
#include <string.h>

#include "base/levels.h"
#include "base/round.h"
#include "base/stream_copy.h"

enum { BLOCK = 1024 };

/* c[i] = a[i] + b[i], or the larger one of the two; c may be a or b. */
EVERY_LEVEL static void join_f32(float *c, const float *a, const float *b, int64_t n,
                                 enum group_reduction reduction)
{
    if (reduction == GROUP_SUM) {
        ITERATIONS_INDEPENDENT
        for (int64_t i = 0; i < n; i++)
            c[i] = a[i] + b[i];
    } else {
        ITERATIONS_INDEPENDENT
        for (int64_t i = 0; i < n; i++)
            c[i] = b[i] > a[i] || isnan(b[i]) ? b[i] : a[i];
    }
}

EVERY_LEVEL static void join_f64(double *c, const double *a, const double *b, int64_t n,
                                 enum group_reduction reduction)
{
    if (reduction == GROUP_SUM) {
        ITERATIONS_INDEPENDENT
        for (int64_t i = 0; i < n; i++)
            c[i] = a[i] + b[i];
    } else {
        ITERATIONS_INDEPENDENT
        for (int64_t i = 0; i < n; i++)
            c[i] = b[i] > a[i] || isnan(b[i]) ? b[i] : a[i];
    }
}

/* Returns in as fp32: in itself, or a copy in wide. */
EVERY_LEVEL static const float *widen(float *restrict wide, const void *restrict in, int64_t n,
                                      enum dtype dtype)
{
    if (dtype == DTYPE_F32)
        return in;
    if (dtype == DTYPE_BF16)
        for (int64_t i = 0; i < n; i++)
            wide[i] = bf16_to_f32(((const bf16 *)in)[i]);
    else
        for (int64_t i = 0; i < n; i++)
            wide[i] = f16_to_f32(((const f16 *)in)[i]);
    return wide;
}

/* out = in, rounded to 16 bits. */
EVERY_LEVEL static void narrow(void *restrict out, const float *restrict in, int64_t n,
                               enum dtype dtype)
{
    if (dtype == DTYPE_BF16)
        for (int64_t i = 0; i < n; i++)
            ((bf16 *)out)[i] = f32_to_bf16(in[i]);
    else
        for (int64_t i = 0; i < n; i++)
            ((f16 *)out)[i] = f32_to_f16(in[i]);
}

/* Set out[n] to the sum or maximum of the terms from element first on, and add old[n] unless old is
 * NULL; n <= BLOCK.  out may be old or a term: only the last join writes it. */
static void block_f32(float *out, const char *const *term, int count, const float *old,
                      int64_t first, int64_t n, enum dtype dtype, enum group_reduction reduction)
{
    const int64_t from = first * (int64_t)dtype_bytes(dtype);
    /* Number of the loop's addition that writes out: that of the last term; where old is added
     * after the loop, none. */
    const int last = count - !old;
    float sum[BLOCK], wide[BLOCK];
    const float *all = widen(sum, term[0] + from, n, dtype);
    if (!last)
        memmove(out, all, (size_t)n * sizeof *out);
    for (int m = 1; m < count; m++, all = sum)
        join_f32(m == last ? out : sum, all, widen(wide, term[m] + from, n, dtype), n, reduction);
    if (old)
        join_f32(out, all, old, n, GROUP_SUM);
}

/* sum_reduce() in fp64. */
static void reduce_f64(double *out, const char *const *term, int count, int64_t elems,
                       enum group_reduction reduction)
{
    double sum[BLOCK];
    for (int64_t i = 0; i < elems; i += BLOCK) {
        int64_t n = min_i64(elems - i, BLOCK);
        memcpy(sum, (const double *)term[0] + i, (size_t)n * sizeof *sum);
        for (int m = 1; m < count; m++)
            join_f64(sum, sum, (const double *)term[m] + i, n, reduction);
        memcpy(out + i, sum, (size_t)n * sizeof *sum);
    }
}

void sum_reduce(void *out, enum dtype out_dtype, const float *old, const char *const *term,
                int count, int64_t elems, enum dtype dtype, enum group_reduction reduction,
                enum sum_store store)
{
    float sum[BLOCK];
    int is_wide = out_dtype == DTYPE_F32, is_direct = is_wide && store == SUM_STORED;
    if (dtype == DTYPE_F64) {
        reduce_f64(out, term, count, elems, reduction);
        return;
    }
    for (int64_t i = 0; i < elems; i += BLOCK) {
        int64_t n = min_i64(elems - i, BLOCK);
        char *to = (char *)out + i * (int64_t)dtype_bytes(out_dtype);
        block_f32(is_direct ? (float *)to : sum, term, count, old ? old + i : NULL, i, n, dtype,
                  reduction);
        if (!is_wide)
            narrow(to, sum, n, out_dtype);
        else if (!is_direct)
            stream_copy(to, sum, (size_t)n * sizeof *sum);
    }
}
