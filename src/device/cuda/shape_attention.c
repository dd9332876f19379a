/* shape_attention.c - compare an attention by cuDNN with trireme's own kernels; contracts in
 * shape_check_private.h. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/philox.h"
#include "device/cuda/shape_check_private.h"

enum { ATTENTION_ROWS = 128, PATTERN_ROWS = 509 };
static const double most_operations = 2e13;
static const double attention_bounds[DTYPE_COUNT] = {[DTYPE_BF16] = 5e-2, [DTYPE_F16] = 1e-2};

/* Elements of a row: of the packed projections, and of the output. */
static int64_t packed_row(const struct attention *a)
{
    return (a->heads + 2 * a->kv_heads) * a->head_dim;
}

static int64_t output_row(const struct attention *a)
{
    return a->heads * a->head_dim;
}

/* Fill rows with random numbers of deviation 1, the same PATTERN_ROWS over and over.  low: in the
 * first head all scores are lowered by 120: element 0 of its keys is 1, of its queries -120 /
 * scale. */
static int fill_rows(struct device *d, const struct attention *a, const void *to, int64_t row,
                     int low, struct error *err)
{
    const int64_t rows = a->batch * a->seq < PATTERN_ROWS ? a->batch * a->seq : PATTERN_ROWS;
    const size_t size = dtype_bytes(a->dt);
    float *values = array_make((size_t)(rows * row), sizeof *values);
    void *pattern = array_make((size_t)(rows * row), size);
    philox_fill_uniform(values, philox_key(1, low ? "packed" : "gradient"), 0, rows * row, 1.732f);
    for (int64_t r = 0; r < rows && low; r++) {
        values[r * row] = -120 / a->scale;
        values[r * row + a->heads * a->head_dim] = 1;
    }
    dtype_narrow(pattern, a->dt, values, rows * row);
    int rc = gemm_fill(d, (void *)to, (size_t)(a->batch * a->seq * row) * size, pattern,
                       (size_t)(rows * row) * size, err);
    free(values);
    free(pattern);
    return rc;
}

/* One sequence of an attention, and its memory. */
static struct shape_attention sequence_of(const struct shape_attention *n, int64_t b)
{
    struct shape_attention one = *n;
    const size_t size = dtype_bytes(n->a.dt),
                 in = (size_t)(b * n->a.seq * packed_row(&n->a)) * size;
    const size_t out = (size_t)(b * n->a.seq * output_row(&n->a)) * size;
    one.a.batch = 1;
    one.at.qkv = (const char *)n->at.qkv + in;
    one.at.o = (char *)n->at.o + out;
    one.at.lse = n->at.lse + b * n->a.heads * n->a.seq;
    if (n->pass == DEVICE_BACKWARD) {
        one.at.dqkv = (char *)n->at.dqkv + in;
        one.at.dout = (const char *)n->at.dout + out;
    }
    return one;
}

static void own_forward(struct device *d, const struct shape_attention *n)
{
    cuda_own_attention(d, &n->a, n->at.o, n->at.lse, n->at.qkv, n->at.scratch);
}

static void own_backward(struct device *d, const struct shape_attention *n)
{
    cuda_own_attention_backward(d, &n->a, n->at.dqkv, n->at.dout, n->at.o, n->at.lse, n->at.qkv,
                                n->at.scratch);
}

static int by_library(struct device *d, const struct shape_attention *n)
{
    const size_t bytes = cuda_attention_scratch(d, &n->a, n->pass);
    return n->pass == DEVICE_FORWARD
               ? cuda_sdpa_forward(d, &n->a, n->at.o, n->at.lse, n->at.qkv, n->at.scratch, bytes)
               : cuda_sdpa_backward(d, &n->a, n->at.dqkv, n->at.dout, n->at.o, n->at.lse, n->at.qkv,
                                    n->at.scratch, bytes);
}

/* What is compared of a sequence: blocks of the output or the gradient; of forward also lse. */
struct taken {
    void *rows;
    float *lse; /* NULL: not compared */
};

static struct taken taken_make(const struct shape_attention *n, int64_t rows, int64_t row)
{
    return (struct taken){array_make((size_t)(SHAPE_BLOCKS * rows * row), dtype_bytes(n->a.dt)),
                          n->pass == DEVICE_FORWARD
                              ? array_make((size_t)(n->a.heads * n->a.seq), sizeof(float))
                              : NULL};
}

static void taken_free(struct taken *t)
{
    free(t->rows);
    free(t->lse);
}

static int take(struct device *d, const struct taken *t, const struct shape_attention *one,
                int64_t rows, int64_t row, struct error *err)
{
    const void *from = one->pass == DEVICE_FORWARD ? one->at.o : one->at.dqkv;
    if (t->lse && device_download(d, t->lse, one->at.lse,
                                  (size_t)(one->a.heads * one->a.seq) * sizeof(float), err))
        return -1;
    return shape_compare_blocks_down(d, t->rows, from, one->a.dt, rows, one->a.seq, row, row, err);
}

/* Element 0 of the gradients of queries and keys is left out, but for NaN: where scores are low it
 * is a sum that cancels in queries, and large enough in keys to hide the others. */
static double difference_of(const struct shape_attention *n, const struct taken *got,
                            const struct taken *want, int64_t at, int64_t rows, int64_t row,
                            int left_out)
{
    struct shape_compare sum = {0}, rest = {0};
    for (int64_t r = 0; r < rows; r++) {
        shape_compare_add(&rest, n->a.dt, got->rows, want->rows, at + r * row, left_out);
        shape_compare_add(&sum, n->a.dt, got->rows, want->rows, at + r * row + left_out,
                          n->a.head_dim - left_out);
    }
    return isfinite(rest.wrong) ? shape_compare_share(&sum) : NAN;
}

/* The largest difference of a head in a block: of keys and values the first gradients are many
 * times the last ones.  lse is compared as it is, and a hundredth allowed, by which weights are 1 %
 * off. */
static double compare(const struct shape_attention *n, const struct taken *got,
                      const struct taken *want, int64_t rows, int64_t row, double bound)
{
    const int64_t dim = n->a.head_dim;
    double off = 0;
    for (int block = 0; block < SHAPE_BLOCKS; block++)
        for (int64_t head = 0; head < row / dim; head++) {
            int is_of_scores = n->pass == DEVICE_BACKWARD && head < n->a.heads + n->a.kv_heads;
            off = shape_compare_larger(difference_of(n, got, want, block * rows * row + head * dim,
                                                     rows, row, is_of_scores),
                                       off);
        }
    for (int64_t i = 0; got->lse && i < n->a.heads * n->a.seq; i++)
        off = shape_compare_larger(fabs((double)got->lse[i] - want->lse[i]) * bound * 1e2, off);
    return off;
}

/* The first sequence, or the last one. */
static int check_sequence(struct device *d, const struct shape_attention *n, int is_last,
                          struct shape_check *check, struct error *err)
{
    const struct shape_attention one = sequence_of(n, is_last ? n->a.batch - 1 : 0);
    const int64_t rows = n->a.seq < ATTENTION_ROWS ? n->a.seq : ATTENTION_ROWS;
    const int64_t row = n->pass == DEVICE_FORWARD ? output_row(&n->a) : packed_row(&n->a);
    struct taken got = taken_make(n, rows, row), want = taken_make(n, rows, row);
    int rc = 0;
    if (n->pass == DEVICE_BACKWARD)
        own_forward(d, &one);
    if (!by_library(d, n))
        rc = 1;
    rc = rc ? rc : take(d, &got, &one, rows, row, err);
    if (!rc) {
        if (n->pass == DEVICE_FORWARD)
            own_forward(d, &one);
        else
            own_backward(d, &one);
        rc = take(d, &want, &one, rows, row, err);
    }
    if (!rc)
        check->off =
            shape_compare_larger(compare(n, &got, &want, rows, row, check->bound), check->off);
    taken_free(&got);
    taken_free(&want);
    return rc;
}

int shape_attention_check(struct device *d, const struct shape_attention *n,
                          struct shape_check *check, struct error *err)
{
    const struct attention *a = &n->a;
    const int is_backward = n->pass == DEVICE_BACKWARD;
    const double each = 4 * attention_causal_pairs(a) * (double)output_row(a);
    if (is_backward && a->seq == 1) /* gradients of a single score are 0 */
        return 1;
    if (a->head_dim > CUDA_HEAD_DIM_MOST || each * (is_backward ? 7 : 2) > most_operations)
        return 1;
    snprintf(check->name, sizeof check->name,
             "attention %s, %s, %lld x %lld tokens, heads %lld/%lld of %lld", dtype_name(a->dt),
             is_backward ? "backward" : "forward", (long long)a->batch, (long long)a->seq,
             (long long)a->heads, (long long)a->kv_heads, (long long)a->head_dim);
    check->bound = attention_bounds[a->dt];
    if (fill_rows(d, a, n->at.qkv, packed_row(a), 1, err) ||
        (is_backward && fill_rows(d, a, n->at.dout, output_row(a), 0, err)))
        return -1;
    int rc = check_sequence(d, n, 0, check, err);
    return !rc && a->batch > 1 ? check_sequence(d, n, 1, check, err) : rc;
}
