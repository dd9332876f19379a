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

void cuda_attention(struct device *d, const struct attention *a, void *o, float *lse,
                    const void *qkv, void *scratch)
{
    if (!cuda_sdpa_forward(d, a, o, lse, qkv, scratch,
                           cuda_attention_scratch(d, a, DEVICE_FORWARD)) &&
        !too_wide(d, a))
        cuda_own_attention(d, a, o, lse, qkv, scratch);
}

void cuda_attention_backward(struct device *d, const struct attention *a, void *dqkv,
                             const void *dout, const void *o, const float *lse, const void *qkv,
                             void *scratch)
{
    if (!cuda_sdpa_backward(d, a, dqkv, dout, o, lse, qkv, scratch,
                            cuda_attention_scratch(d, a, DEVICE_BACKWARD)) &&
        !too_wide(d, a))
        cuda_own_attention_backward(d, a, dqkv, dout, o, lse, qkv, scratch);
}

#define ROW(op) .op = cuda_##op,

const struct device_ops cuda_ops = {.name = "cuda",
                                    .gemm = cuda_gemm,
                                    .gemm_scratch = cuda_gemm_scratch,
                                    .attention_forms = CUDA_ATTENTION_FORMS,
                                    DEVICE_OPS(ROW)};
