/* gemm_plain.h - a matrix product for what the library has no algorithm for. */
#ifndef TRIREME_DEVICE_CUDA_GEMM_PLAIN_H
#define TRIREME_DEVICE_CUDA_GEMM_PLAIN_H

#include "device/cuda/cuda.h"
#include "device/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The product of struct gemm, for pointers and row strides of any alignment and any k, 0 too.
 * Every element is one fp32 sum in the order of k, the addend last: bitwise reproducible. */
void cuda_gemm_plain(cudaStream_t s, const struct gemm *g);

#ifdef __cplusplus
}
#endif

#endif
