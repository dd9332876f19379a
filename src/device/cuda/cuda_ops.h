/* cuda_ops.h - declare the ops of device/cuda.
 *
 * The functions that fill a table of device/ are declared here by the type that their member has in
 * that table (DEVICE_FUNCTION), so that a signature is written twice only: in the table and in the
 * definition.
 */
#ifndef TRIREME_DEVICE_CUDA_CUDA_OPS_H
#define TRIREME_DEVICE_CUDA_CUDA_OPS_H

#include "device/driver.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Declare cuda_bias() with the type of struct device_ops's member bias, and so on for each op.
 *
 * The functions that return scratch sizes are in sizes.c, in every build, and their device may be
 * anything.  The others enqueue kernels and return; device_check() finds a launch that failed, by
 * cudaGetLastError().  A definition in a .cu file with other parameters is an overload to C++: then
 * linking fails for want of cuda_bias(). */
#define CUDA_OP(op) DEVICE_FUNCTION(device_ops, op) cuda_##op;
DEVICE_OPS(CUDA_OP)
CUDA_OP(gemm)
CUDA_OP(gemm_scratch)

/* Attention by trireme's own kernels, for what cuDNN does not do: 16-bit types on tensor cores,
 * fp32 without them.  Heads have at most CUDA_HEAD_DIM_MOST elements. */
DEVICE_FUNCTION(device_ops, attention) cuda_own_attention;
DEVICE_FUNCTION(device_ops, attention_backward) cuda_own_attention_backward;

/* Do a step of AdamW where p, or m and v, are kept in bf16. */
DEVICE_FUNCTION(device_ops, adamw) cuda_adamw_bf16;

/* The same where m and v are codes of 8 bits. */
DEVICE_FUNCTION(device_ops, adamw) cuda_adamw_8bit;

/* Multiply as struct gemm says, without cuBLASLt: pointers and row strides may have any alignment,
 * and k any size, 0 too.  Every element is one fp32 sum in the order of k, the addend last: bitwise
 * reproducible. */
void cuda_gemm_plain(struct device *d, const struct gemm *g);

/* Members of struct device_driver, which run on any stream. */
DEVICE_FUNCTION(device_driver, sum_parts) cuda_sum_parts;
DEVICE_FUNCTION(device_driver, cast) cuda_cast_on;

#ifdef __cplusplus
}
#endif

#endif
