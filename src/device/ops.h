/* ops.h - the ops as typed functions over raw buffers and explicit sizes.
 *
 * Conventions for every function here:
 *  - dt is DTYPE_F32, DTYPE_BF16 or DTYPE_F16 and types the activations and the
 *    parameters the op reads.  Gradients of parameters, statistics and losses are fp32
 *    (fp64 where said), whatever dt.  Arithmetic inside is fp32 or wider; a 16-bit result
 *    is rounded once, to nearest even; in fp16, what is too large becomes infinity.
 *  - Tensors are dense and row-major, 64-byte aligned at their start unless a note
 *    says otherwise (parameter pointers may be aligned to their element only).
 *  - Outputs may be poisoned before the call: every element is written.  Outputs do
 *    not overlap inputs unless said ("in place allowed").
 *  - `accumulate` 0: write; 1: add to what is there.  Only gradients of parameters.
 *  - scratch is caller-provided, as many bytes as the matching *_scratch function
 *    says (NULL when 0).  No op allocates memory that grows with its shapes.
 *  - Results are bitwise reproducible: the same inputs give the same bits, for any
 *    number of threads.  Sums run over a fixed partition, never over "what each
 *    thread got"; matrix products are as reproducible as their library.  The one exception is
 *    attention_backward on a GPU where struct attention's any_order is 1.
 *  - Nothing fails but gemm (its library may); shapes are checked by the graph.  A device that
 *    only enqueues reports failures later, by device_check() and device_sync().
 *  - Ops run on the device's COMPUTE stream, on memory of device_alloc().
 */
#ifndef TRIREME_DEVICE_OPS_H
#define TRIREME_DEVICE_OPS_H

#include <stddef.h>
#include <stdint.h>

#include "base/dtype.h"
#include "base/error.h"
#include "device/device.h"
#include "device/ops_attention.h"
#include "device/ops_experts.h"
#include "device/ops_optimizer.h"

/* How a product of bf16 rounds its operands to fp8 (base/fp8.h) before it multiplies them.  A block
 * of numbers has one scale; blocks at the end of an operand are shorter. */
enum gemm_fp8 {
    GEMM_FP8_NONE,
    GEMM_FP8_VECTORS,     /* blocks of FP8_BLOCK along k, in each row of a' and column of b' */
    GEMM_FP8_SQUARES_OF_B /* the same of a'; b', a weight, in FP8_BLOCK by FP8_BLOCK squares */
};

/* A GPU multiplies in fp8 where m, n and k are multiples of this. */
enum { GEMM_FP8_SIZES = 16 };

/* c[m,n] = a'[m,k] b'[k,n] + addend, where a' is a or its transpose:
 *   trans_a 0: a is [m,k] (row stride lda);  1: a is [k,m]
 *   trans_b 0: b is [k,n] (row stride ldb);  1: b is [n,k]
 * addend: NULL for none; == c to accumulate into c; else another [m,n] tensor of type
 * dt_c and row stride ldc.  a and b are dt; c is dt_c (dt, or fp32 from 16-bit inputs).
 * An addend in 16 bits: cuBLASLt may round the product to them before it adds (seen on an H100).
 * fp8: only of bf16, and on a GPU only of sizes that are multiples of GEMM_FP8_SIZES. */
struct gemm {
    enum dtype dt, dt_c;
    int trans_a, trans_b;
    int64_t m, n, k;
    int64_t lda, ldb, ldc;
    const void *a, *b, *addend;
    void *c;
    enum gemm_fp8 fp8;
};

/* g, where each stride that is 0 is replaced by that of a dense matrix. */
static inline struct gemm gemm_dense(struct gemm g)
{
    g.lda = g.lda ? g.lda : g.trans_a ? g.m : g.k;
    g.ldb = g.ldb ? g.ldb : g.trans_b ? g.k : g.n;
    g.ldc = g.ldc ? g.ldc : g.n;
    return g;
}

/* Rotary embedding in the half-split convention of Hugging Face's Llama: in each head
 * element i pairs with i + head_dim/2.  Rotates the first `rotated` heads of each row of
 * x [rows, row_heads * head_dim] and copies the rest.  Row r has position positions[r], or
 * r % seq where there are none.  cos_sin is fp32 [positions, head_dim]: head_dim/2 cosines, then
 * head_dim/2 sines; it has a row for each position that occurs. */
struct rope {
    enum dtype dt;
    int64_t rows, seq;
    int64_t row_heads, rotated, head_dim;
    int inverse; /* 1: rotate back, which is the backward rule */
};

/* RMSNorm of each head of queries and keys in packed projections (struct attention) of `rows` rows;
 * values are copied. */
struct qk_norm {
    enum dtype dt;
    int64_t rows, heads, kv_heads, head_dim;
    float eps;
};

/* Rows of W + factor * B A, where W is [rows, cols] and B A a product of low rank. */
struct row_squares {
    enum dtype dt;
    int64_t rows, cols, rank;
    float factor;
};

/* Some columns of a tensor: `cols` of each of `rows` rows, which begin `ld` elements apart. */
struct column_scale {
    enum dtype dt;
    int64_t rows, cols, ld;
};

/* Packing of a rank's query heads with the key and value heads that they read, for attention.  Of a
 * rank with query heads 3 to 5 of 8, where 4 query heads read one key head:
 *
 *   q  3 4 5,  kv  k0 k1 v0 v1   ->   3 4 5 | k0 k1 k1 | v0 v1 v1      packed = 3
 *
 * `packed` is the smallest number of key heads of which each is read by heads / packed of the
 * rank's query heads.  Here that is one for each query head, as 3 reads k0, and 4 and 5 read k1. */
struct pack_heads {
    enum dtype dt;
    int64_t rows, heads, kv_heads, head_dim; /* kv_heads: of the whole model */
    int64_t first, group; /* query heads before the rank's; query heads that read one key head */
    int64_t packed;       /* key heads of a packed row */
};

/* Which of the model's key heads stands at place `slot` of a packed row, from 0. */
static inline int64_t pack_heads_source(const struct pack_heads *p, int64_t slot)
{
    return (p->first + slot * (p->heads / p->packed)) / p->group;
}

/* At how many places of a packed row stand key heads before number k of the model. */
static inline int64_t pack_heads_before(const struct pack_heads *p, int64_t k)
{
    int64_t each = p->heads / p->packed, heads = k * p->group - p->first;
    int64_t places = heads > 0 ? (heads + each - 1) / each : 0;
    return places < p->packed ? places : p->packed;
}

/* Reordering of rows of whole sequences that `ranks` ranks have gathered, from one of these orders
 * to the other:
 *
 *   as gathered    rank by rank, of each rank sequence by sequence, of each its two chunks
 *   in order       sequence by sequence, of each the 2 * ranks chunks as they follow one another
 *
 * Chunk k of a sequence is the first of rank k, or the second of rank 2 * ranks - 1 - k. */
struct order_chunks {
    int64_t batch, ranks;
    size_t chunk_bytes;
    int inverse; /* 1: from in order to as gathered */
};

/* The number, as gathered, of chunk i in order. */
static inline int64_t order_chunks_source(const struct order_chunks *o, int64_t i)
{
    int64_t all = 2 * o->ranks, k = i % all, second = k >= o->ranks;
    return 2 * ((second ? all - 1 - k : k) * o->batch + i / all) + second;
}

struct device_ops {
    const char *name; /* of the instruction set or chip */

    /* Matrix product; 0, or -1 with err set if the library fails.  A primitive per
     * distinct shape is cached for the life of the device. */
    int (*gemm)(struct device *d, const struct gemm *g, void *scratch, struct error *err);
    size_t (*gemm_scratch)(struct device *d, const struct gemm *g); /* pointers unused */

    /* y[r,:] = table[tokens[r] - first,:], or 0 for tokens outside [first, first + vocab).
     * y [rows, hidden];  table [vocab, hidden]: rows first to first + vocab of the whole table */
    void (*embedding)(struct device *d, enum dtype dt, void *y, const void *table,
                      const int32_t *tokens, int64_t rows, int64_t hidden, int64_t first,
                      int64_t vocab);
    /* dtable[tokens[r] - first,:] (+)= dy[r,:] for tokens inside [first, first + vocab), in the
     * order of rows;  dtable fp32 [vocab, hidden] */
    void (*embedding_backward)(struct device *d, enum dtype dt, float *dtable, const void *dy,
                               const int32_t *tokens, int64_t rows, int64_t hidden, int64_t first,
                               int64_t vocab, int accumulate);

    /* x' = x + delta, rounded to dt (delta NULL: x' = x);  sum = x' (not written without delta);
     * rstd[r] = 1/sqrt(mean(x'^2) + eps);  y = x' * rstd * w.
     * x, delta, sum, y [rows, hidden];  w [hidden];  rstd fp32 [rows] */
    void (*rmsnorm)(struct device *d, enum dtype dt, void *y, void *sum, float *rstd, const void *x,
                    const void *delta, const void *w, int64_t rows, int64_t hidden, float eps);
    /* dx = dsum + d(rmsnorm)(dy);  dw (+)= ...;  x is the x' of forward; dsum NULL allowed;
     * dx == dsum and dx == dy allowed (in place) */
    void (*rmsnorm_backward)(struct device *d, enum dtype dt, void *dx, float *dw, const void *dy,
                             const void *dsum, const void *x, const void *w, const float *rstd,
                             int64_t rows, int64_t hidden, int accumulate, void *scratch);

    /* Of each row of x: mean, and rstd = 1/sqrt(variance + eps), the variance being the mean of
     * (x - mean)^2;  y = (x - mean) * rstd * w + b.
     * x, y [rows, hidden];  w, b [hidden];  stats fp32 [rows, 2]: mean, rstd */
    void (*layernorm)(struct device *d, enum dtype dt, void *y, float *stats, const void *x,
                      const void *w, const void *b, int64_t rows, int64_t hidden, float eps);
    /* dx = dsum + d(layernorm)(dy);  dw, db (+)= ...;  dsum NULL allowed;  dx == dsum and
     * dx == dy allowed (in place) */
    void (*layernorm_backward)(struct device *d, enum dtype dt, void *dx, float *dw, float *db,
                               const void *dy, const void *dsum, const void *x, const void *w,
                               const float *stats, int64_t rows, int64_t hidden, int accumulate,
                               void *scratch);
    /* Bytes of scratch of rmsnorm_backward (params 1), of layernorm_backward (params 2), and of
     * qk_norm_backward (params 2, head_dim in place of hidden). */
    size_t (*norm_backward_scratch)(struct device *d, int64_t rows, int64_t hidden, int params);

    /* y[r,:] = x[r,:] + b;  y == x allowed.  x, y [rows, cols];  b [cols] */
    void (*bias)(struct device *d, enum dtype dt, void *y, const void *x, const void *b,
                 int64_t rows, int64_t cols);
    /* db (+)= sum over rows of dy, in fp32 */
    void (*bias_backward)(struct device *d, enum dtype dt, float *db, const void *dy, int64_t rows,
                          int64_t cols, int accumulate, void *scratch);
    size_t (*bias_backward_scratch)(struct device *d, int64_t rows, int64_t cols);

    /* y = gelu(x + b), b added to each row;  x, y [rows, cols];  b [cols];
     * gelu(v) = v/2 (1 + tanh(sqrt(2/pi) (v + 0.044715 v^3))) */
    void (*gelu)(struct device *d, enum dtype dt, void *y, const void *x, const void *b,
                 int64_t rows, int64_t cols);
    /* dx = dy * gelu'(x + b), whose sum over rows is b's gradient;  dx == dy and dx == x allowed */
    void (*gelu_backward)(struct device *d, enum dtype dt, void *dx, const void *dy, const void *x,
                          const void *b, int64_t rows, int64_t cols);

    /* The sum of squares of each row of W + factor * B A, from products, without making the matrix:
     * squares[i] = w_i . w_i + 2 factor b_i . wa_i + factor^2 b_i aa b_i^T, or 0 where rounding
     * makes that negative.  squares fp32 [rows];  w [rows, cols], b [rows, rank] of dt;
     * wa = W A^T fp32 [rows, rank], aa = A A^T fp32 [rank, rank] */
    void (*row_squares)(struct device *d, const struct row_squares *s, float *squares,
                        const void *w, const void *b, const float *wa, const float *aa);
    /* y[:,i] = x[:,i] * m[i] / sqrt(squares[i]), or 0 where squares[i] is 0;  m NULL: y = x.
     * y == x allowed;  m of dt and squares fp32 [cols], aligned to their elements only */
    void (*scale_columns)(struct device *d, const struct column_scale *s, void *y, const void *x,
                          const void *m, const float *squares);
    /* dm[i] (+)= (sum over rows of dy[:,i] x[:,i]) / sqrt(squares[i]), or 0 where squares[i] is 0.
     * Needs the scratch of bias_backward. */
    void (*scale_columns_backward)(struct device *d, const struct column_scale *s, float *dm,
                                   const void *dy, const void *x, const float *squares,
                                   int accumulate, void *scratch);

    /* For each head h of queries and of keys: rstd = 1/sqrt(mean(h^2) + eps);  y = h * rstd * w,
     * where w is wq for queries and wk for keys.  x, y packed;  wq, wk [head_dim];  rstd fp32
     * [rows, heads + kv_heads] */
    void (*qk_norm)(struct device *d, const struct qk_norm *n, void *y, float *rstd, const void *x,
                    const void *wq, const void *wk);
    /* dx, which is dy for values;  dwq, dwk (+)= ...;  dx == dy allowed (in place) */
    void (*qk_norm_backward)(struct device *d, const struct qk_norm *n, void *dx, float *dwq,
                             float *dwk, const void *dy, const void *x, const void *wq,
                             const void *wk, const float *rstd, int accumulate, void *scratch);

    /* See struct rope.  y == x allowed;  positions [rows], or NULL */
    void (*rope)(struct device *d, const struct rope *r, void *y, const void *x,
                 const float *cos_sin, const int32_t *positions);

    /* y [rows, (heads + 2 * packed) * head_dim];  q [rows, heads * head_dim];  kv [rows, 2 *
     * kv_heads * head_dim], key heads first */
    void (*pack_heads)(struct device *d, const struct pack_heads *p, void *y, const void *q,
                       const void *kv);
    /* dq: the query heads of dy.  dkv: for each head the sum over its places in a packed row, in
     * their order and in fp32; 0 for heads that none of the rank's queries reads */
    void (*pack_heads_backward)(struct device *d, const struct pack_heads *p, void *dq, void *dkv,
                                const void *dy);

    /* y = the chunks of x in the other order */
    void (*order_chunks)(struct device *d, const struct order_chunks *o, void *y, const void *x);

    /* y = addend + x * (dropped ? 0 : factor);  addend NULL: none;  y == x and y == addend allowed.
     * x, addend, y [rows, cols].  It is also the backward rule: with dy for x it makes dx. */
    void (*dropout)(struct device *d, const struct dropout *p, void *y, const void *x,
                    const void *addend);

    /* o [batch, seq, heads * head_dim];  lse fp32 [batch, heads, seq]: log-sum-exp of each query's
     * scaled scores, before any are dropped, for backward on the same device: GPUs store the
     * natural logarithm, the CPU stores it divided by scale.  Never holds a seq x seq matrix. */
    void (*attention)(struct device *d, const struct attention *a, void *o, float *lse,
                      const void *qkv, void *scratch);
    /* dqkv has the shape of qkv.  Separate: dqkv has the shape of q, and a->dkv is written too. */
    void (*attention_backward)(struct device *d, const struct attention *a, void *dqkv,
                               const void *dout, const void *o, const float *lse, const void *qkv,
                               void *scratch);
    size_t (*attention_scratch)(struct device *d, const struct attention *a, enum device_pass pass);
    /* Copy keys and values of the rows into the cache, then compute o [batch, seq, heads *
     * head_dim]: each row sees the cache from position 0, or from the first of its window, to its
     * own position.  positions [batch, seq], of which only that of each sequence's first row is
     * read: it is from 0 to capacity - seq, and the cache holds all positions before it. */
    void (*attention_cached)(struct device *d, const struct attention_cached *a, void *o,
                             void *cache, const void *qkv, const int32_t *positions, void *scratch);
    size_t (*attention_cached_scratch)(struct device *d, const struct attention_cached *a);
    unsigned attention_forms; /* bits of enum attention_form that the device offers */

    /* y = silu(gate) * up;  gate_up [rows, 2 * ffn], gate first;  y [rows, ffn] */
    void (*swiglu)(struct device *d, enum dtype dt, void *y, const void *gate_up, int64_t rows,
                   int64_t ffn);
    /* dy [rows, ffn];  dgate_up [rows, 2 * ffn];  dgate_up == gate_up allowed (in place) */
    void (*swiglu_backward)(struct device *d, enum dtype dt, void *dgate_up, const void *dy,
                            const void *gate_up, int64_t rows, int64_t ffn);

    /* y = silu(gate) * up * factors[r], for rows that count by a weight;  factors fp32 [rows] */
    void (*swiglu_scaled)(struct device *d, enum dtype dt, void *y, const void *gate_up,
                          const float *factors, int64_t rows, int64_t ffn);
    /* dgate_up as of swiglu_backward;  dfactors[r] = sum of dy * silu(gate) * up, fp32 */
    void (*swiglu_scaled_backward)(struct device *d, enum dtype dt, void *dgate_up, float *dfactors,
                                   const void *dy, const void *gate_up, const float *factors,
                                   int64_t rows, int64_t ffn);

    /* The ops of experts (ops_experts.h).
     *
     * p = softmax(logits[r,:]); the row's experts are those of the `chosen` largest logits, of
     * equal ones those of lower number, and a NaN counts as less than all numbers.  weights[s] = p
     * of the slot's row and expert, over the sum of those of the row's slots where r->normed is 1.
     * logits fp32 [rows, experts];  weights fp32 [slots];  routes int32 [routes_elems()] */
    void (*route)(struct device *d, const struct route *r, float *weights, int32_t *routes,
                  const float *logits);
    /* dlogits (r->dt) [rows, experts], of dweights fp32 [slots]; the choice itself has no gradient.
     * Where r->balance is not 0, plus the gradient of r->balance * *loss_scale * experts * (sum
     * over e of f_e times the sum of p_e over the sequence's rows that count), where f_e, which is
     * constant, is the number of these rows' slots at expert e over the number of these rows.
     * loss_scale NULL stands for one. */
    void (*route_backward)(struct device *d, const struct route *r, void *dlogits,
                           const float *dweights, const float *logits, const int32_t *routes,
                           const double *loss_scale);
    /* load[e] += the slots of expert e whose rows count;  load fp64 [experts] */
    void (*route_load)(struct device *d, const struct route *r, double *load,
                       const int32_t *routes);
    /* y[s,:] = x[row of s,:];  x [rows, columns];  y [slots, columns] */
    void (*dispatch)(struct device *d, const struct experts_rows *r, void *y, const void *x,
                     const int32_t *routes);
    /* y[r,:] = addend[r,:] + the sum over the row's slots, in their order, of x[s,:]; in fp32,
     * rounded once.  addend NULL: none;  y == addend allowed */
    void (*combine)(struct device *d, const struct experts_rows *r, void *y, const void *x,
                    const void *addend, const int32_t *routes);
    /* See struct experts_gemm;  first: of struct routes.  Returns as gemm. */
    int (*experts_gemm)(struct device *d, const struct experts_gemm *g, void *c, const void *a,
                        const void *b, const int32_t *first, void *scratch, struct error *err);
    size_t (*experts_gemm_scratch)(struct device *d, const struct experts_gemm *g);

    /* Softmax cross-entropy over rows of logits dt_x [rows, vocab] (row stride ld), which is fp32
     * or, in 16 bits, dt.
     * Row losses are written to row_loss fp32 [rows] (0 for masked rows, targets[r] < 0).
     * dlogits (dt, row stride ld_d, or NULL): (softmax - onehot) * scale * *loss_scale, 0 for
     * masked rows; may be the same memory as logits (in place: a 16-bit row is packed at the
     * start of its fp32 row, so ld_d = 2 * ld for those; else ld_d = ld).  loss_scale is where ops
     * work; NULL stands for one. */
    void (*cross_entropy)(struct device *d, enum dtype dt, float *row_loss, void *dlogits,
                          int64_t ld_d, enum dtype dt_x, const void *logits, int64_t ld,
                          const int32_t *targets, int64_t rows, int64_t vocab, float scale,
                          const double *loss_scale);
    /* The same in four steps, for ranks that each have some columns of the logits: `vocab` columns
     * (0 is allowed) from column `first` of the whole on.  Results are 0 for masked rows.
     *
     * top fp32 [rows]: the row's largest logit among these columns, -infinity if there are none;
     * sums fp32 [rows, 2]: the sum of e^(logit - top), and the target's logit, or 0 where the
     * target is not among these columns */
    void (*softmax_part)(struct device *d, float *top, float *sums, enum dtype dt_x,
                         const void *logits, int64_t ld, const int32_t *targets, int64_t rows,
                         int64_t vocab, int64_t first);
    /* terms[r] = {sums[r][0] * e^(top[r] - all_top[r]), sums[r][1]}, whose sum over ranks is
     * all_sums;  all_top: maximum of all ranks' top;  fp32 [rows, 2];  terms == sums allowed */
    void (*softmax_term)(struct device *d, float *terms, const float *sums, const float *top,
                         const float *all_top, int64_t rows);
    /* row_loss[r] = log(all_sums[r][0]) + all_top[r] - all_sums[r][1];  fp32 [rows] */
    void (*softmax_loss)(struct device *d, float *row_loss, const float *all_top,
                         const float *all_sums, const int32_t *targets, int64_t rows);
    /* dlogits of this rank's columns; dlogits, ld_d, scale and loss_scale as of cross_entropy */
    void (*softmax_gradient)(struct device *d, enum dtype dt, void *dlogits, int64_t ld_d,
                             enum dtype dt_x, const void *logits, int64_t ld,
                             const int32_t *targets, const float *all_top, const float *all_sums,
                             int64_t rows, int64_t vocab, int64_t first, float scale,
                             const double *loss_scale);
    /* out[0] += sum of row_loss in fp64, out[1] += number of targets >= 0 */
    void (*loss_sum)(struct device *d, double out[2], const float *row_loss, const int32_t *targets,
                     int64_t rows);

    /* y = a + b, y == a or b allowed */
    void (*add)(struct device *d, enum dtype dt, void *y, const void *a, const void *b,
                int64_t elems);
    /* y = x * factor, y == x allowed */
    void (*scale)(struct device *d, enum dtype dt, void *y, const void *x, float factor,
                  int64_t elems);
    /* y = x in another format;  to and from fp32, bf16 or fp16 */
    void (*cast)(struct device *d, enum dtype to, void *y, enum dtype from, const void *x,
                 int64_t elems);
    /* y = the numbers of 4 bits of records (base/nf4.h), rounded to dt;  y dt [elems], whole
     * blocks; records aligned to 4 bytes only */
    void (*decode_nf4)(struct device *d, enum dtype dt, void *y, const void *records,
                       int64_t elems);
    void (*fill_zero)(struct device *d, void *y, size_t bytes);
    void (*copy)(struct device *d, void *y, const void *x, size_t bytes);

    /* y[i] = values[i], i < count <= 8; values are read before the call returns. */
    void (*set)(struct device *d, double *y, const double *values, int count);

    /* *sum += sum of squares in fp64, over a fixed partition of the elements of x, fp32 or bf16. */
    void (*sumsq)(struct device *d, double *sum, enum dtype dt, const void *x, int64_t elems);

    /* *sum = x[count - 1] + x[count - 2] + ... + x[0], added in this order; 0 of none. */
    void (*sum_from_last)(struct device *d, double *sum, const double *x, int count);

    /* The factor by which the update multiplies gradients.  These were summed as if there were
     * `nominal` targets, and are those of the loss times *loss_scale:
     * mean = *targets > 0 ? nominal / *targets / *loss_scale : 0;  norm = sqrt(*squares) * mean;
     * *factor = mean * (clip > 0 and norm + 1e-6 > clip ? clip / (norm + 1e-6) : 1), or NaN where
     * *squares is not finite.  All fp64 and where ops work. */
    void (*update_factor)(struct device *d, double *factor, const double *targets,
                          const double *squares, const double *loss_scale, double nominal,
                          double clip);

    /* Decoupled weight decay Adam (Loshchilov and Hutter 2019), PyTorch's order of
     * operations: p -= lr*wd*p; m, v updated; p -= lr * (m/bias1) / (sqrt(v/bias2) + eps).
     * The gradient is multiplied by (float)*factor first; *factor NaN: nothing is written.
     * The tensors of s are [elems].  What p, m and v have in bf16 is rounded stochastically, by r:
     * to the neighbour of larger magnitude with the probability that makes the rounded number right
     * on average, so that small steps are not lost.  Where none of the three is in bf16, r may be
     * NULL.  m and v in 8 bits (Dettmers et al. 2022, arXiv 2110.02861): p takes its step by the
     * new m and v in fp32, which then become codes of the nearest shares (base/dynamic8.h). */
    void (*adamw)(struct device *d, const struct adamw *a, const double *factor,
                  const struct adamw_state *s, const struct rounding *r, int64_t elems);

    /* Descent with momentum, PyTorch's order of operations: v = momentum * v + (g + wd * p);
     * p -= lr * v.  A first step takes v of zeros.  factor, g, dt_copy and copy as in adamw. */
    void (*sgd)(struct device *d, const struct sgd *s, const double *factor, float *p, float *v,
                enum dtype dt_g, const void *g, enum dtype dt_copy, void *copy, int64_t elems);

    /* The first part of Muon, on single elements: with g' = g * (float)*factor,
     * m += (g' - m) * one_minus_momentum; g = nesterov ? m - (m - g') * one_minus_momentum : m.
     * *factor NaN: nothing is written.  m, g fp32 [elems] */
    void (*momentum)(struct device *d, const struct momentum *rule, const double *factor, float *m,
                     float *g, int64_t elems);
    /* The last part, in PyTorch's order of operations: p -= lr * wd * p; p -= adjusted_lr * u.
     * Of *factor only NaN matters: then nothing is written.  dt_copy and copy as in adamw. */
    void (*muon)(struct device *d, const struct muon *rule, const double *factor, float *p,
                 const float *u, enum dtype dt_copy, void *copy, int64_t elems);
    /* Between these two parts Muon makes matrix products, normalize and polynomial.
     * y = x / max(sqrt(*squares), eps);  y, x fp32 [elems], y == x allowed */
    void (*normalize)(struct device *d, float *y, const float *x, const double *squares, float eps,
                      int64_t elems);
    /* y = a I + b x + c y;  x, y fp32 [rows, rows] */
    void (*polynomial)(struct device *d, const struct polynomial *p, float *y, const float *x,
                       int64_t rows);
};

/* Expands to X(op) for every op but gemm and gemm_scratch, whose functions are named by hand.  The
 * tables of devices are filled, and the functions in them declared, by this list. */
/* clang-format off */
#define DEVICE_OPS(X) \
    X(embedding) X(embedding_backward) X(rmsnorm) X(rmsnorm_backward) X(norm_backward_scratch) \
    X(layernorm) X(layernorm_backward) X(bias) X(bias_backward) \
    X(bias_backward_scratch) X(row_squares) X(scale_columns) X(scale_columns_backward) X(gelu) \
    X(gelu_backward) X(qk_norm) X(qk_norm_backward) X(rope) X(pack_heads) \
    X(pack_heads_backward) X(order_chunks) X(dropout) X(attention) X(attention_backward) X(attention_scratch) \
    X(attention_cached) X(attention_cached_scratch) X(swiglu) \
    X(swiglu_backward) X(swiglu_scaled) X(swiglu_scaled_backward) X(route) X(route_backward) X(route_load) X(dispatch) \
    X(combine) X(experts_gemm) X(experts_gemm_scratch) X(cross_entropy) X(loss_sum) X(add) X(scale) X(cast) X(decode_nf4) X(fill_zero) X(copy) X(set) \
    X(sumsq) X(sum_from_last) X(update_factor) X(adamw) X(sgd) X(momentum) X(muon) X(normalize) \
    X(polynomial) X(softmax_part) X(softmax_term) X(softmax_loss) X(softmax_gradient)
/* clang-format on */

/* The type of the function that a member of a table points to, by which the functions of a table
 * are declared without repeating signatures: DEVICE_FUNCTION(device_ops, bias) cuda_bias; */
#define DEVICE_FUNCTION(table, member) __typeof__(*((struct table *)0)->member)

#endif
