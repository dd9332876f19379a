/* planning.c - the planning driver of GPUs, in every build, with and without CUDA.  It runs
 * nothing: its device_ops hold only the functions that return scratch sizes. */
#include "device/cuda/cuda_ops.h"
#include "device/cuda/sizes.h"

static const struct device_ops planning_ops = {
    .name = "cuda",
    .gemm_scratch = cuda_gemm_scratch,
    .norm_backward_scratch = cuda_norm_backward_scratch,
    .bias_backward_scratch = cuda_bias_backward_scratch,
    .attention_scratch = cuda_attention_scratch,
    .attention_cached_scratch = cuda_attention_cached_scratch,
    .experts_gemm_scratch = cuda_experts_gemm_scratch,
    .attention_forms = CUDA_ATTENTION_FORMS,
};

static int open_planning(struct device *d, const struct device_request *request, struct error *err)
{
    d->ops = &planning_ops;
    d->asynchronous = 1;
    d->threads = request->threads > 0 ? request->threads : 1; /* not those of this machine */
    d->name = "a planned GPU";
    d->level = "cuda";
    d->logits_bytes = d->logits_most = CUDA_LOGITS_BYTES;
    d->head_dim_most = CUDA_HEAD_DIM_MOST;
    d->reserve_bytes = CUDA_RESERVE_BYTES;
    return 0;
}

static void close_planning(struct device *d)
{
}

const struct device_driver cuda_planning_driver = {.open = open_planning, .close = close_planning};
