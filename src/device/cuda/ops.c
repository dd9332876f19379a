/* ops.c - the op set of GPUs, and the choice between cuDNN's attention and trireme's own. */
#include "device/cuda/state.h"

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
    if (!cuda_sdpa_forward(d, a, o, lse, qkv, scratch,
                           cuda_attention_scratch(d, a, DEVICE_FORWARD)) &&
        !too_wide(d, a))
        cuda_own_attention(d, a, o, lse, qkv, scratch);
}

static void attention_backward(struct device *d, const struct attention *a, void *dqkv,
                               const void *dout, const void *o, const float *lse, const void *qkv,
                               void *scratch)
{
    if (!cuda_sdpa_backward(d, a, dqkv, dout, o, lse, qkv, scratch,
                            cuda_attention_scratch(d, a, DEVICE_BACKWARD)) &&
        !too_wide(d, a))
        cuda_own_attention_backward(d, a, dqkv, dout, o, lse, qkv, scratch);
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

const struct device_ops cuda_ops = {
    .name = "cuda",
    .gemm = cuda_gemm,
    .gemm_scratch = cuda_gemm_scratch,
    .embedding = cuda_embedding,
    .embedding_backward = cuda_embedding_backward,
    .rmsnorm = cuda_rmsnorm,
    .rmsnorm_backward = cuda_rmsnorm_backward,
    .rmsnorm_backward_scratch = cuda_rmsnorm_backward_scratch,
    .layernorm = cuda_layernorm,
    .layernorm_backward = cuda_layernorm_backward,
    .layernorm_backward_scratch = cuda_layernorm_backward_scratch,
    .bias = cuda_bias,
    .bias_backward = cuda_bias_backward,
    .bias_backward_scratch = cuda_bias_backward_scratch,
    .gelu = cuda_gelu,
    .gelu_backward = cuda_gelu_backward,
    .rope = cuda_rope,
    .attention = attention,
    .attention_backward = attention_backward,
    .attention_scratch = cuda_attention_scratch,
    .swiglu = cuda_swiglu,
    .swiglu_backward = cuda_swiglu_backward,
    .cross_entropy = cuda_cross_entropy,
    .loss_sum = cuda_loss_sum,
    .add = cuda_add,
    .cast = cuda_cast,
    .fill_zero = fill_zero,
    .copy = copy,
    .set = cuda_set,
    .sumsq = cuda_sumsq,
    .update_factor = cuda_update_factor,
    .adamw = cuda_adamw,
    .adamw_bf16 = cuda_adamw_bf16,
    .sgd = cuda_sgd,
    .momentum = cuda_momentum,
    .muon = cuda_muon,
    .normalize = cuda_normalize,
    .polynomial = cuda_polynomial,
};
