/* cuda.h - what the files of device/cuda share: the opened GPU, checks, launchers.
 *
 * C files call the CUDA runtime and the libraries; .cu files hold kernels and, for each, one
 * launcher with C linkage that is declared here.  A launcher enqueues on the stream it is given
 * and returns; a launch that fails is found by cudaGetLastError() in device_check().
 */
#ifndef TRIREME_DEVICE_CUDA_CUDA_H
#define TRIREME_DEVICE_CUDA_CUDA_H

#include <cuda_runtime_api.h>
#include <stdint.h>

#include "base/dtype.h"
#include "device/cuda/sizes.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- launchers; names and meaning as in ops.h, dt as enum dtype ---- */

void cuda_embedding(cudaStream_t s, enum dtype dt, void *y, const void *table,
                    const int32_t *tokens, int64_t rows, int64_t hidden, int64_t vocab);
/* dtable is cleared first when accumulate is 0 */
void cuda_embedding_backward(cudaStream_t s, enum dtype dt, float *dtable, const void *dy,
                             const int32_t *tokens, int64_t rows, int64_t hidden, int64_t vocab,
                             int accumulate);

void cuda_rmsnorm(cudaStream_t s, enum dtype dt, void *y, void *sum, float *rstd, const void *x,
                  const void *delta, const void *w, int64_t rows, int64_t hidden, float eps);
void cuda_rmsnorm_backward(cudaStream_t s, enum dtype dt, void *dx, float *dw, const void *dy,
                           const void *dsum, const void *x, const void *w, const float *rstd,
                           int64_t rows, int64_t hidden, int accumulate, void *scratch);

void cuda_layernorm(cudaStream_t s, enum dtype dt, void *y, float *stats, const void *x,
                    const void *w, const void *b, int64_t rows, int64_t hidden, float eps);
void cuda_layernorm_backward(cudaStream_t s, enum dtype dt, void *dx, float *dw, float *db,
                             const void *dy, const void *dsum, const void *x, const void *w,
                             const float *stats, int64_t rows, int64_t hidden, int accumulate,
                             void *scratch);
void cuda_bias(cudaStream_t s, enum dtype dt, void *y, const void *x, const void *b, int64_t rows,
               int64_t cols);
void cuda_bias_backward(cudaStream_t s, enum dtype dt, float *db, const void *dy, int64_t rows,
                        int64_t cols, int accumulate, void *scratch);
void cuda_gelu(cudaStream_t s, enum dtype dt, void *y, const void *x, const void *b, int64_t rows,
               int64_t cols);
void cuda_gelu_backward(cudaStream_t s, enum dtype dt, void *dx, const void *dy, const void *x,
                        const void *b, int64_t rows, int64_t cols);

void cuda_rope(cudaStream_t s, enum dtype dt, void *y, const void *x, const float *cos_sin,
               int64_t rows, int64_t seq, int64_t row_heads, int64_t rotated, int64_t head_dim,
               int inverse);

void cuda_swiglu(cudaStream_t s, enum dtype dt, void *y, const void *gate_up, int64_t rows,
                 int64_t ffn);
void cuda_swiglu_backward(cudaStream_t s, enum dtype dt, void *dgate_up, const void *dy,
                          const void *gate_up, int64_t rows, int64_t ffn);

void cuda_cross_entropy(cudaStream_t s, enum dtype dt, float *row_loss, void *dlogits, int64_t ld_d,
                        const float *logits, int64_t ld, const int32_t *targets, int64_t rows,
                        int64_t vocab, float scale, const double *loss_scale);
void cuda_loss_sum(cudaStream_t s, double *out, const float *row_loss, const int32_t *targets,
                   int64_t rows);

void cuda_add(cudaStream_t s, enum dtype dt, void *y, const void *a, const void *b, int64_t elems);
void cuda_cast(cudaStream_t s, enum dtype to, void *y, enum dtype from, const void *x,
               int64_t elems);

/* partial is fp64 [CUDA_PARTIALS] of the caller, used by one launch at a time */
enum { CUDA_PARTIALS = 1024 };
void cuda_set(cudaStream_t s, double *y, const double *values, int count);
void cuda_sumsq(cudaStream_t s, double *sum, const float *x, int64_t elems, double *partial);
void cuda_update_factor(cudaStream_t s, double *factor, const double *targets,
                        const double *squares, const double *loss_scale, double nominal,
                        double clip);

struct cuda_adamw {
    float lr, beta2, eps, weight_decay, one_minus_beta1, one_minus_beta2, bias1, bias2;
};
void cuda_adamw(cudaStream_t s, const struct cuda_adamw *a, const double *factor, float *p,
                float *m, float *v, const float *g, enum dtype dt_copy, void *copy, int64_t elems);

struct cuda_adamw_state {
    enum dtype dt_p, dt_m;
    void *p, *m, *v;
    const float *g;
    enum dtype dt_copy;
    void *copy;
};
struct cuda_rounding {
    uint64_t key, step, first;
};
void cuda_adamw_bf16(cudaStream_t s, const struct cuda_adamw *a, const double *factor,
                     const struct cuda_adamw_state *state, const struct cuda_rounding *r,
                     int64_t elems);

struct cuda_sgd {
    float lr, momentum, weight_decay;
};
void cuda_sgd(cudaStream_t s, const struct cuda_sgd *rule, const double *factor, float *p, float *v,
              const float *g, enum dtype dt_copy, void *copy, int64_t elems);

/* Of transfers: recv[i] = (accumulate ? recv[i] : 0) + parts[0][i] + parts[1][i] + ..., in that
 * order, in fp32; parts[m] begins at parts + m * stride elements, fp32 or bf16. */
void cuda_sum_parts(cudaStream_t s, float *recv, enum dtype dt, const void *parts, int count,
                    int64_t stride, int64_t elems, int accumulate);

/* Own attention kernels: 16-bit types on tensor cores, fp32 without.  Layouts of struct attention.
 */
struct cuda_attention {
    enum dtype dt;
    int64_t batch, seq, heads, kv_heads, head_dim;
    float scale;
};
void cuda_attention(cudaStream_t s, const struct cuda_attention *a, void *o, float *lse,
                    const void *qkv, void *scratch);
void cuda_attention_backward(cudaStream_t s, const struct cuda_attention *a, void *dqkv,
                             const void *dout, const void *o, const float *lse, const void *qkv,
                             void *scratch);

#ifdef __cplusplus
}
#endif

#endif
