/* ops.c - the op set of GPUs: the launchers of cuda.h on the compute stream, and the choice
 * between cuDNN's attention and trireme's own. */
#include <string.h>

#include "device/cuda/sizes.h"
#include "device/cuda/state.h"

static void embedding(struct device *d, enum dtype dt, void *y, const void *table,
                      const int32_t *tokens, int64_t rows, int64_t hidden, int64_t vocab)
{
    cuda_embedding(cuda_compute(d), dt, y, table, tokens, rows, hidden, vocab);
}

static void embedding_backward(struct device *d, enum dtype dt, float *dtable, const void *dy,
                               const int32_t *tokens, int64_t rows, int64_t hidden, int64_t vocab,
                               int accumulate)
{
    cuda_embedding_backward(cuda_compute(d), dt, dtable, dy, tokens, rows, hidden, vocab,
                            accumulate);
}

static void rmsnorm(struct device *d, enum dtype dt, void *y, void *sum, float *rstd, const void *x,
                    const void *delta, const void *w, int64_t rows, int64_t hidden, float eps)
{
    cuda_rmsnorm(cuda_compute(d), dt, y, sum, rstd, x, delta, w, rows, hidden, eps);
}

static void rmsnorm_backward(struct device *d, enum dtype dt, void *dx, float *dw, const void *dy,
                             const void *dsum, const void *x, const void *w, const float *rstd,
                             int64_t rows, int64_t hidden, int accumulate, void *scratch)
{
    cuda_rmsnorm_backward(cuda_compute(d), dt, dx, dw, dy, dsum, x, w, rstd, rows, hidden,
                          accumulate, scratch);
}

static void layernorm(struct device *d, enum dtype dt, void *y, float *stats, const void *x,
                      const void *w, const void *b, int64_t rows, int64_t hidden, float eps)
{
    cuda_layernorm(cuda_compute(d), dt, y, stats, x, w, b, rows, hidden, eps);
}

static void layernorm_backward(struct device *d, enum dtype dt, void *dx, float *dw, float *db,
                               const void *dy, const void *dsum, const void *x, const void *w,
                               const float *stats, int64_t rows, int64_t hidden, int accumulate,
                               void *scratch)
{
    cuda_layernorm_backward(cuda_compute(d), dt, dx, dw, db, dy, dsum, x, w, stats, rows, hidden,
                            accumulate, scratch);
}

static void bias(struct device *d, enum dtype dt, void *y, const void *x, const void *b,
                 int64_t rows, int64_t cols)
{
    cuda_bias(cuda_compute(d), dt, y, x, b, rows, cols);
}

static void bias_backward(struct device *d, enum dtype dt, float *db, const void *dy, int64_t rows,
                          int64_t cols, int accumulate, void *scratch)
{
    cuda_bias_backward(cuda_compute(d), dt, db, dy, rows, cols, accumulate, scratch);
}

static void gelu(struct device *d, enum dtype dt, void *y, const void *x, const void *b,
                 int64_t rows, int64_t cols)
{
    cuda_gelu(cuda_compute(d), dt, y, x, b, rows, cols);
}

static void gelu_backward(struct device *d, enum dtype dt, void *dx, const void *dy, const void *x,
                          const void *b, int64_t rows, int64_t cols)
{
    cuda_gelu_backward(cuda_compute(d), dt, dx, dy, x, b, rows, cols);
}

static void rope(struct device *d, const struct rope *r, void *y, const void *x,
                 const float *cos_sin)
{
    cuda_rope(cuda_compute(d), r->dt, y, x, cos_sin, r->rows, r->seq, r->row_heads, r->rotated,
              r->head_dim, r->inverse);
}

static struct cuda_attention own(const struct attention *a)
{
    return (struct cuda_attention){a->dt,       a->batch,    a->seq,  a->heads,
                                   a->kv_heads, a->head_dim, a->scale};
}

/* The own kernels keep a row of heads in registers. */
static int too_wide(struct device *d, const struct attention *a)
{
    enum { WIDEST = 256 };
    if (a->head_dim <= WIDEST)
        return 0;
    cuda_note_failure(d, "attention: heads of %lld elements are too wide for a GPU, %d is the most",
                      (long long)a->head_dim, WIDEST);
    return 1;
}

static void attention(struct device *d, const struct attention *a, void *o, float *lse,
                      const void *qkv, void *scratch)
{
    struct cuda_attention mine = own(a);
    if (!cuda_sdpa_forward(d, a, o, lse, qkv, scratch, cuda_attention_scratch(d, a, 0)) &&
        !too_wide(d, a))
        cuda_attention(cuda_compute(d), &mine, o, lse, qkv, scratch);
}

static void attention_backward(struct device *d, const struct attention *a, void *dqkv,
                               const void *dout, const void *o, const float *lse, const void *qkv,
                               void *scratch)
{
    struct cuda_attention mine = own(a);
    if (!cuda_sdpa_backward(d, a, dqkv, dout, o, lse, qkv, scratch,
                            cuda_attention_scratch(d, a, 1)) &&
        !too_wide(d, a))
        cuda_attention_backward(cuda_compute(d), &mine, dqkv, dout, o, lse, qkv, scratch);
}

static void swiglu(struct device *d, enum dtype dt, void *y, const void *gate_up, int64_t rows,
                   int64_t ffn)
{
    cuda_swiglu(cuda_compute(d), dt, y, gate_up, rows, ffn);
}

static void swiglu_backward(struct device *d, enum dtype dt, void *dgate_up, const void *dy,
                            const void *gate_up, int64_t rows, int64_t ffn)
{
    cuda_swiglu_backward(cuda_compute(d), dt, dgate_up, dy, gate_up, rows, ffn);
}

static void cross_entropy(struct device *d, enum dtype dt, float *row_loss, void *dlogits,
                          int64_t ld_d, const float *logits, int64_t ld, const int32_t *targets,
                          int64_t rows, int64_t vocab, float scale, const double *loss_scale)
{
    cuda_cross_entropy(cuda_compute(d), dt, row_loss, dlogits, ld_d, logits, ld, targets, rows,
                       vocab, scale, loss_scale);
}

static void loss_sum(struct device *d, double out[2], const float *row_loss, const int32_t *targets,
                     int64_t rows)
{
    cuda_loss_sum(cuda_compute(d), out, row_loss, targets, rows);
}

static void add(struct device *d, enum dtype dt, void *y, const void *a, const void *b,
                int64_t elems)
{
    cuda_add(cuda_compute(d), dt, y, a, b, elems);
}

static void cast(struct device *d, enum dtype to, void *y, enum dtype from, const void *x,
                 int64_t elems)
{
    cuda_cast(cuda_compute(d), to, y, from, x, elems);
}

static void fill_zero(struct device *d, void *y, size_t bytes)
{
    if (bytes && cudaMemsetAsync(y, 0, bytes, cuda_compute(d)) != cudaSuccess)
        cuda_note_failure(d, "cudaMemsetAsync: %s", cudaGetErrorString(cudaGetLastError()));
}

static void copy(struct device *d, void *y, const void *x, size_t bytes)
{
    cudaStream_t stream = cuda_compute(d);
    if (bytes && cudaMemcpyAsync(y, x, bytes, cudaMemcpyDeviceToDevice, stream) != cudaSuccess)
        cuda_note_failure(d, "cudaMemcpyAsync: %s", cudaGetErrorString(cudaGetLastError()));
}

static void set(struct device *d, double *y, const double *values, int count)
{
    cuda_set(cuda_compute(d), y, values, count);
}

static void sumsq(struct device *d, double *sum, const float *x, int64_t elems)
{
    cuda_sumsq(cuda_compute(d), sum, x, elems, cuda_state(d)->partial);
}

static void update_factor(struct device *d, double *factor, const double *targets,
                          const double *squares, const double *loss_scale, double nominal,
                          double clip)
{
    cuda_update_factor(cuda_compute(d), factor, targets, squares, loss_scale, nominal, clip);
}

static struct cuda_adamw rule_of(const struct adamw *a)
{
    return (struct cuda_adamw){
        .lr = a->lr,
        .beta2 = a->beta2,
        .eps = a->eps,
        .weight_decay = a->weight_decay,
        .one_minus_beta1 = a->one_minus_beta1,
        .one_minus_beta2 = a->one_minus_beta2,
        .bias1 = a->bias1,
        .bias2 = a->bias2,
    };
}

static void adamw(struct device *d, const struct adamw *a, const double *factor, float *p, float *m,
                  float *v, const float *g, enum dtype dt_copy, void *copy_out, int64_t elems)
{
    struct cuda_adamw rule = rule_of(a);
    cuda_adamw(cuda_compute(d), &rule, factor, p, m, v, g, dt_copy, copy_out, elems);
}

static void adamw_bf16(struct device *d, const struct adamw *a, const double *factor,
                       const struct adamw_state *s, const struct rounding *r, int64_t elems)
{
    struct cuda_adamw rule = rule_of(a);
    struct cuda_adamw_state state = {s->dt_p, s->dt_m, s->p, s->m, s->v, s->g, s->dt_copy, s->copy};
    struct cuda_rounding rounding = {r->key, r->step, r->first};
    cuda_adamw_bf16(cuda_compute(d), &rule, factor, &state, &rounding, elems);
}

static void sgd(struct device *d, const struct sgd *s, const double *factor, float *p, float *v,
                const float *g, enum dtype dt_copy, void *copy_out, int64_t elems)
{
    struct cuda_sgd rule = {s->lr, s->momentum, s->weight_decay};
    cuda_sgd(cuda_compute(d), &rule, factor, p, v, g, dt_copy, copy_out, elems);
}

const struct device_ops cuda_ops = {
    .name = "cuda",
    .gemm = cuda_gemm,
    .gemm_scratch = cuda_gemm_scratch,
    .embedding = embedding,
    .embedding_backward = embedding_backward,
    .rmsnorm = rmsnorm,
    .rmsnorm_backward = rmsnorm_backward,
    .rmsnorm_backward_scratch = cuda_rmsnorm_backward_scratch,
    .layernorm = layernorm,
    .layernorm_backward = layernorm_backward,
    .layernorm_backward_scratch = cuda_layernorm_backward_scratch,
    .bias = bias,
    .bias_backward = bias_backward,
    .bias_backward_scratch = cuda_bias_backward_scratch,
    .gelu = gelu,
    .gelu_backward = gelu_backward,
    .rope = rope,
    .attention = attention,
    .attention_backward = attention_backward,
    .attention_scratch = cuda_attention_scratch,
    .swiglu = swiglu,
    .swiglu_backward = swiglu_backward,
    .cross_entropy = cross_entropy,
    .loss_sum = loss_sum,
    .add = add,
    .cast = cast,
    .fill_zero = fill_zero,
    .copy = copy,
    .set = set,
    .sumsq = sumsq,
    .update_factor = update_factor,
    .adamw = adamw,
    .adamw_bf16 = adamw_bf16,
    .sgd = sgd,
};
