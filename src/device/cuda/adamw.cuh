/* adamw.cuh - the step of AdamW on one element in fp32, whatever the formats that it is kept in. */
#ifndef TRIREME_DEVICE_CUDA_ADAMW_CUH
#define TRIREME_DEVICE_CUDA_ADAMW_CUH

#include "device/cuda/simt.cuh"

/* Factors of the step that are the same for all elements. */
struct adamw_constants {
    float keep, step_size, root_bias2;
};

static __device__ __forceinline__ adamw_constants adamw_constants_of(const struct adamw &a)
{
    return {fmaf(-a.lr, a.weight_decay, 1.0f), a.lr / a.bias1, sqrtf(a.bias2)};
}

/* Update one element's p, m and v by the gradient g * factor, by the operations of cpu/optimizer.c
 * in their order. */
static __device__ __forceinline__ void adamw_element(float &p, float &m, float &v, float g,
                                                     float factor, const struct adamw &a,
                                                     const adamw_constants &c)
{
    const float grad = g * factor;
    m = fmaf(fmaf(g, factor, -m), a.one_minus_beta1, m);
    v = fmaf(v, a.beta2, grad * grad * a.one_minus_beta2);
    p = fmaf(p, c.keep, -(c.step_size * (m / (sqrtf(v) / c.root_bias2 + a.eps))));
}

#endif
