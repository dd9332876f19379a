/* shape_check.c - compare the products and attentions of a run by libraries with trireme's own
 * kernels; contracts in device/shape_check.h.
 *
 *   fill      the inputs, in the memory that the shape was met with
 *   library   computes all of it
 *   blocks    of its result go to the host: rows at the beginning, in the middle and at the end
 *   own       kernels compute the same: of a product these rows alone, of an attention the first
 *             and the last sequence
 *   compare   the blocks: the norm of the difference, of a product of all, of an attention of each
 *             head of queries, keys and values by itself
 *
 * Bounds are some times what roundings make.  Of two results in 16 bits few numbers differ, by one
 * place: the sums are those of fp32.  Tensor cores cut these off after each 8 (A100) or 16 terms
 * instead of rounding them, always towards 0 (Fasi et al. 2021, Numerical behavior of NVIDIA tensor
 * cores), which is est. 3.5e-4 or 1.9e-4 of a sum of 131072 terms, as a weight's gradient is of as
 * many tokens, and grows with their number.  Of inputs in fp32 the bound is below what tf32 would
 * make of them, 3e-4.  Products in fp8 are added up in about 14 bits (compute capability 9.0), and
 * own kernels multiply the same rounded numbers in bf16.  Attention rounds weights and the
 * gradients of scores before it sums them.  A product of 4096 terms that leaves out one of them is
 * about 1.6 % off, one of 131072 terms 0.28 %, which in fp8 is within the bound.
 */
#include "device/shape_check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/philox.h"
#include "device/cuda/gemm.h"
#include "device/cuda/sdpa.h"

enum { ROW_BLOCKS = 3, PRODUCT_ROWS = 16, ATTENTION_ROWS = 128, PATTERN_ROWS = 509 };
static const double most_operations = 2e13;
static const double fp32_bound = 1e-4, tensor_core_bound = 5e-4,
                    bound_of_term = 4e-9; /* of results in fp32 */
static const double fp8_bound = 4e-3;
static const double product_bounds[DTYPE_COUNT] = {[DTYPE_BF16] = 2e-3, [DTYPE_F16] = 1e-3};
static const double attention_bounds[DTYPE_COUNT] = {[DTYPE_BF16] = 5e-2, [DTYPE_F16] = 1e-2};

/* An attention that a library computed while shapes were noted, with its memory. */
struct noted {
    struct attention a;
    enum device_pass pass;
    struct cuda_attention_memory at;
};

struct cuda_shapes {
    struct noted *noted;
    int count, capacity;
};

/* ---- noting ---- */

enum { SLICE_WORD = 9, SLICE_WORDS = 3 };

/* The slices that a rank divides an attention into depend on its own free memory, and the library's
 * kernel on the slices. */
static void attention_shape(const struct attention *a, enum device_pass pass, int64_t *shape)
{
    const struct sdpa_slice slice = sdpa_slice_of(a, pass);
    const int64_t words[] = {
        1,           pass,        a->dt,        a->batch,    a->seq,         a->heads,
        a->kv_heads, a->head_dim, a->any_order, slice.batch, slice.kv_heads, slice.tokens};
    memset(shape, 0, SHAPE_WORDS * sizeof *shape);
    memcpy(shape, words, sizeof words);
}

/* On this rank. */
static struct attention attention_of(const struct device *d, const int64_t *shape)
{
    return (struct attention){.dt = (enum dtype)shape[2],
                              .batch = shape[3],
                              .seq = shape[4],
                              .heads = shape[5],
                              .kv_heads = shape[6],
                              .head_dim = shape[7],
                              .any_order = (int)shape[8],
                              .scratch_bytes =
                                  shape[1] == DEVICE_BACKWARD ? d->attention_bytes : 0};
}

void cuda_shape_note(struct device *d, const struct attention *a, enum device_pass pass,
                     const struct cuda_attention_memory *at)
{
    struct cuda_shapes *s = cuda_state(d)->shapes;
    int64_t shape[SHAPE_WORDS], other[SHAPE_WORDS];
    if (!cuda_state(d)->gemms->noting)
        return;
    if (!s)
        s = cuda_state(d)->shapes = array_make(1, sizeof *s);
    attention_shape(a, pass, shape);
    for (int i = 0; i < s->count; i++) {
        attention_shape(&s->noted[i].a, s->noted[i].pass, other);
        if (!memcmp(other, shape, sizeof other))
            return;
    }
    s->noted = array_grow(s->noted, s->count, &s->capacity, sizeof *s->noted);
    s->noted[s->count++] = (struct noted){*a, pass, *at};
}

void cuda_shapes_forget(struct device *d)
{
    struct cuda_shapes *s = cuda_state(d)->shapes;
    if (s)
        free(s->noted);
    free(s);
    cuda_state(d)->shapes = NULL;
}

void cuda_shapes_note(struct device *d, int on)
{
    if (on)
        cuda_shapes_forget(d);
    cuda_products_note(d, on);
}

int cuda_shapes_noted(const struct device *d)
{
    const struct cuda_shapes *s = cuda_state(d)->shapes;
    return cuda_products_noted(d) + (s ? s->count : 0);
}

void cuda_shape(const struct device *d, int i, int64_t *shape)
{
    const int products = cuda_products_noted(d);
    shape[0] = 0;
    if (i < products) {
        cuda_product_shape(d, i, shape + 1);
    } else {
        const struct noted *n = &cuda_state(d)->shapes->noted[i - products];
        attention_shape(&n->a, n->pass, shape);
    }
}

/* ---- comparing ---- */

/* Sums of squares of what is right and of the difference. */
struct difference {
    double right, wrong;
};

static void add_difference(struct difference *sum, enum dtype dt, const void *got, const void *want,
                           int64_t first, int64_t elems)
{
    enum { BATCH = 256 };
    const size_t size = dtype_bytes(dt);
    for (int64_t i = first, n; i < first + elems; i += n) {
        float x[BATCH], y[BATCH];
        n = first + elems - i < BATCH ? first + elems - i : BATCH;
        dtype_widen(x, (const char *)got + (size_t)i * size, dt, n);
        dtype_widen(y, (const char *)want + (size_t)i * size, dt, n);
        for (int64_t j = 0; j < n; j++) {
            const double by = (double)x[j] - y[j];
            sum->right += (double)y[j] * y[j];
            sum->wrong += by * by;
        }
    }
}

/* NaN where one of the numbers was, or both were infinite. */
static double share_of(const struct difference *sum)
{
    return sum->wrong == 0 ? 0 : sqrt(sum->wrong / sum->right);
}

static double larger(double a, double b)
{
    return a > b || isnan(a) ? a : b;
}

/* The first row of a block of `rows` rows of `all`. */
static int64_t block_start(int block, int64_t rows, int64_t all)
{
    return (all - rows) * block / (ROW_BLOCKS - 1);
}

/* Download each block of `rows` rows of `width` elements, whose rows lie `stride` apart, of a
 * matrix of `all` rows, to `to`, one after the other. */
static int take_blocks(struct device *d, void *to, const void *from, enum dtype dt, int64_t rows,
                       int64_t all, int64_t width, int64_t stride, struct error *err)
{
    const size_t size = dtype_bytes(dt);
    const int64_t at_once = width == stride ? rows : 1;
    for (int64_t r = 0; r < ROW_BLOCKS * rows; r += at_once) {
        const int64_t row = block_start((int)(r / rows), rows, all) + r % rows;
        if (device_download(d, (char *)to + (size_t)(r * width) * size,
                            (const char *)from + (size_t)(row * stride) * size,
                            (size_t)(at_once * width) * size, err))
            return -1;
    }
    return 0;
}

/* ---- products ---- */

/* The rows of g from `first` on. */
static struct gemm rows_of(const struct gemm *g, int64_t first, int64_t rows)
{
    struct gemm part = *g;
    const size_t in = dtype_bytes(g->dt), out = dtype_bytes(g->dt_c);
    part.m = rows;
    part.a = (const char *)g->a + (size_t)(first * (g->trans_a ? 1 : g->lda)) * in;
    part.c = (char *)g->c + (size_t)(first * g->ldc) * out;
    if (g->addend)
        part.addend = (const char *)g->addend + (size_t)(first * g->ldc) * out;
    return part;
}

/* Zero c, and what is added to it. */
static void clear_result(struct device *d, const struct gemm *g)
{
    const size_t bytes = (size_t)((g->m - 1) * g->ldc + g->n) * dtype_bytes(g->dt_c);
    d->ops->fill_zero(d, g->c, bytes);
    if (g->addend && g->addend != g->c)
        d->ops->fill_zero(d, (void *)g->addend, bytes);
}

/* A gemm_function. */
static int by_own_kernels(struct device *d, const struct gemm *g, void *scratch, struct error *err)
{
    cuda_gemm_plain(d, g);
    return 0;
}

static void multiply_blocks(struct device *d, const struct gemm_noted *n, int64_t rows)
{
    for (int block = 0; block < ROW_BLOCKS; block++) {
        const int64_t first = block_start(block, rows, n->g.m);
        const struct gemm part = rows_of(&n->g, first, rows);
        clear_result(d, &part); /* blocks of few rows overlap */
        if (n->g.fp8)
            gemm_multiply_widened(d, &n->g, n->scratch, first, rows, by_own_kernels, NULL);
        else
            cuda_gemm_plain(d, &part);
    }
}

static int is_plain(const struct cuda_gemms *s, const struct gemm_key *key)
{
    const struct gemm_product *p = gemm_find(s, key);
    return p && p->plain;
}

static double product_bound(const struct gemm *g)
{
    if (g->fp8)
        return fp8_bound;
    if (g->dt_c != DTYPE_F32)
        return product_bounds[g->dt_c];
    return g->dt == DTYPE_F32 ? fp32_bound : fmax(tensor_core_bound, bound_of_term * (double)g->k);
}

static int check_product(struct device *d, const struct gemm_noted *n, struct shape_check *check,
                         struct error *err)
{
    const struct gemm *g = &n->g;
    const struct gemm_key key = gemm_key_of(g);
    const int64_t rows = g->m < PRODUCT_ROWS ? g->m : PRODUCT_ROWS,
                  elems = ROW_BLOCKS * rows * g->n;
    struct difference sum = {0};
    snprintf(check->name, sizeof check->name, "product %s [%lld,%lld] x [%lld,%lld] to %s",
             g->fp8 ? "fp8" : dtype_name(g->dt), (long long)g->m, (long long)g->k, (long long)g->k,
             (long long)g->n, dtype_name(g->dt_c));
    check->bound = product_bound(g);
    void *got = array_make((size_t)elems, dtype_bytes(g->dt_c));
    void *want = array_make((size_t)elems, dtype_bytes(g->dt_c));
    int rc = gemm_fill_operands(d, g, err);
    if (!rc) {
        clear_result(d, g);
        rc = cuda_gemm(d, g, n->scratch, err);
    }
    if (!rc && is_plain(cuda_state(d)->gemms, &key))
        rc = 1;
    if (!rc)
        rc = take_blocks(d, got, g->c, g->dt_c, rows, g->m, g->n, g->ldc, err);
    if (!rc) {
        multiply_blocks(d, n, rows);
        rc = take_blocks(d, want, g->c, g->dt_c, rows, g->m, g->n, g->ldc, err);
    }
    if (!rc)
        add_difference(&sum, g->dt_c, got, want, 0, elems);
    check->off = share_of(&sum);
    free(got);
    free(want);
    return rc;
}

static int replace_product(struct device *d, const int64_t *shape, struct error *err)
{
    struct gemm_key key;
    memcpy(&key, shape, sizeof key);
    struct gemm_product *p = gemm_product_describe(cuda_state(d)->gemms, &key, err);
    if (!p)
        return -1;
    p->plain = 1;
    gemm_put(cuda_state(d)->gemms, p);
    return 0;
}

/* ---- attention ---- */

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
static struct noted sequence_of(const struct noted *n, int64_t b)
{
    struct noted one = *n;
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

static void own_forward(struct device *d, const struct noted *n)
{
    cuda_own_attention(d, &n->a, n->at.o, n->at.lse, n->at.qkv, n->at.scratch);
}

static void own_backward(struct device *d, const struct noted *n)
{
    cuda_own_attention_backward(d, &n->a, n->at.dqkv, n->at.dout, n->at.o, n->at.lse, n->at.qkv,
                                n->at.scratch);
}

static int by_library(struct device *d, const struct noted *n)
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

static struct taken taken_make(const struct noted *n, int64_t rows, int64_t row)
{
    return (struct taken){array_make((size_t)(ROW_BLOCKS * rows * row), dtype_bytes(n->a.dt)),
                          n->pass == DEVICE_FORWARD
                              ? array_make((size_t)(n->a.heads * n->a.seq), sizeof(float))
                              : NULL};
}

static void taken_free(struct taken *t)
{
    free(t->rows);
    free(t->lse);
}

static int take(struct device *d, const struct taken *t, const struct noted *one, int64_t rows,
                int64_t row, struct error *err)
{
    const void *from = one->pass == DEVICE_FORWARD ? one->at.o : one->at.dqkv;
    if (t->lse && device_download(d, t->lse, one->at.lse,
                                  (size_t)(one->a.heads * one->a.seq) * sizeof(float), err))
        return -1;
    return take_blocks(d, t->rows, from, one->a.dt, rows, one->a.seq, row, row, err);
}

/* The largest difference of a head.  lse is compared as it is, and a hundredth allowed, by which
 * weights are 1 % off. */
static double compare(const struct noted *n, const struct taken *got, const struct taken *want,
                      int64_t rows, int64_t row, double bound)
{
    const int64_t dim = n->a.head_dim;
    double off = 0;
    for (int64_t head = 0; head < row / dim; head++) {
        struct difference sum = {0};
        for (int64_t r = 0; r < ROW_BLOCKS * rows; r++)
            add_difference(&sum, n->a.dt, got->rows, want->rows, r * row + head * dim, dim);
        off = larger(share_of(&sum), off);
    }
    for (int64_t i = 0; got->lse && i < n->a.heads * n->a.seq; i++)
        off = larger(fabs((double)got->lse[i] - want->lse[i]) * bound * 1e2, off);
    return off;
}

/* The first sequence, or the last one. */
static int check_sequence(struct device *d, const struct noted *n, int is_last,
                          struct shape_check *check, struct error *err)
{
    const struct noted one = sequence_of(n, is_last ? n->a.batch - 1 : 0);
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
        check->off = larger(compare(n, &got, &want, rows, row, check->bound), check->off);
    taken_free(&got);
    taken_free(&want);
    return rc;
}

static int check_attention(struct device *d, const struct noted *n, struct shape_check *check,
                           struct error *err)
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

/* ---- both ---- */

int cuda_shape_check(struct device *d, int i, struct shape_check *check, struct error *err)
{
    const int products = cuda_products_noted(d);
    memset(check, 0, sizeof *check);
    cuda_shape(d, i, check->shape);
    if (i >= products)
        memset(check->shape + SLICE_WORD, 0, SLICE_WORDS * sizeof *check->shape);
    int rc = i < products
                 ? check_product(d, &cuda_state(d)->gemms->noted[i], check, err)
                 : check_attention(d, &cuda_state(d)->shapes->noted[i - products], check, err);
    if (!rc && device_check(d, err))
        rc = -1;
    check->is_wrong = !rc && !(check->off <= check->bound);
    return rc;
}

int cuda_shape_replace(struct device *d, const int64_t *shape, struct error *err)
{
    if (!shape[0])
        return replace_product(d, shape + 1, err);
    const struct attention a = attention_of(d, shape);
    cuda_sdpa_refuse(d, &a, (enum device_pass)shape[1],
                     "it was wrong when this run's shapes were checked");
    return 0;
}
