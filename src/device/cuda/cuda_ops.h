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

/* cuda_bias() as struct device_ops has bias, and so on.
 *
 * Those that size scratch are in sizes.c, in every build, and look at no device.  The others
 * enqueue kernels and return: a launch that fails is found by cudaGetLastError() in device_check().
 * To C++ a definition with other parameters is another function: then cuda_bias() is missing when
 * programs are linked. */
#define CUDA_OP(op) DEVICE_FUNCTION(device_ops, op) cuda_##op;
DEVICE_OPS(CUDA_OP)
CUDA_OP(gemm)
CUDA_OP(gemm_scratch)

/* The own attention kernels, for what cuDNN does not do: 16-bit types on tensor cores, fp32
 * without.  Heads are at most 256 wide. */
DEVICE_FUNCTION(device_ops, attention) cuda_own_attention;
DEVICE_FUNCTION(device_ops, attention_backward) cuda_own_attention_backward;

/* AdamW where p, or m and v, are kept in bf16. */
DEVICE_FUNCTION(device_ops, adamw) cuda_adamw_bf16;

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
