/* cuda_ops.h - the ops of device/cuda.
 *
 * What a table of device/ is filled with is declared by its type there: a signature is written in
 * the table and where the function is defined, and nowhere else.
 */
#ifndef TRIREME_DEVICE_CUDA_CUDA_OPS_H
#define TRIREME_DEVICE_CUDA_CUDA_OPS_H

#include "device/driver.h"

#ifdef __cplusplus
extern "C" {
#endif

/* CUDA_OP(bias) declares cuda_bias() as struct device_ops has bias. */
#define CUDA_OP(op) DEVICE_FUNCTION(device_ops, op) cuda_##op

/* sizes.c, in every build; the device is not looked at */
CUDA_OP(gemm_scratch);
CUDA_OP(rmsnorm_backward_scratch);
CUDA_OP(layernorm_backward_scratch);
CUDA_OP(bias_backward_scratch);
CUDA_OP(attention_scratch);

/* gemm.c */
CUDA_OP(gemm);

/* The .cu files: kernels and, for each op, a function that enqueues them and returns.  A launch
 * that fails is found by cudaGetLastError() in device_check().  To C++ a definition with other
 * parameters is another function: then cuda_bias() is missing when programs are linked. */
CUDA_OP(embedding);
CUDA_OP(embedding_backward);
CUDA_OP(rmsnorm);
CUDA_OP(rmsnorm_backward);
CUDA_OP(layernorm);
CUDA_OP(layernorm_backward);
CUDA_OP(bias);
CUDA_OP(bias_backward);
CUDA_OP(gelu);
CUDA_OP(gelu_backward);
CUDA_OP(rope);
CUDA_OP(swiglu);
CUDA_OP(swiglu_backward);
CUDA_OP(cross_entropy);
CUDA_OP(loss_sum);
CUDA_OP(add);
CUDA_OP(cast);
CUDA_OP(set);
CUDA_OP(sumsq);
CUDA_OP(update_factor);
CUDA_OP(adamw);
CUDA_OP(adamw_bf16);
CUDA_OP(sgd);
CUDA_OP(momentum);
CUDA_OP(muon);
CUDA_OP(normalize);
CUDA_OP(polynomial);

/* The own attention kernels, for what cuDNN does not do: 16-bit types on tensor cores, fp32
 * without.  Heads are at most 256 wide. */
DEVICE_FUNCTION(device_ops, attention) cuda_own_attention;
DEVICE_FUNCTION(device_ops, attention_backward) cuda_own_attention_backward;

/* The product of struct gemm, for pointers and row strides of any alignment and any k, 0 too.
 * Every element is one fp32 sum in the order of k, the addend last: bitwise reproducible. */
void cuda_gemm_plain(struct device *d, const struct gemm *g);

/* Of struct device_driver, on any stream. */
DEVICE_FUNCTION(device_driver, sum_parts) cuda_sum_parts;
DEVICE_FUNCTION(device_driver, cast) cuda_cast_on;

#ifdef __cplusplus
}
#endif

#endif
