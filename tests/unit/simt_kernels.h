/* simt_kernels.h - one small kernel for each word of simt.cuh. */
#ifndef TRIREME_TESTS_SIMT_KERNELS_H
#define TRIREME_TESTS_SIMT_KERNELS_H

#include <cuda_runtime_api.h>
#include <stdint.h>

#include "base/dtype.h"

#ifdef __cplusplus
extern "C" {
#endif

/* d[16,8] = a[16,16] b[16,8] + d, bf16 or fp16, and fp32; b is [k][n], or [n][k] when transposed.
 */
void simt_product(cudaStream_t s, enum dtype dt, float *d, const uint16_t *a, const uint16_t *b,
                  int transposed);

/* out[4][threads]: the value of the lane asked for by index, xor, down, and index of 8 bytes. */
enum { SIMT_SHUFFLES = 4 };
void simt_shuffles(cudaStream_t s, int threads, int width, int lane, int32_t *out);

/* out[threads]: votes of the odd lanes among those whose lane is below `lanes` */
void simt_ballots(cudaStream_t s, int threads, int lanes, uint32_t *out);

/* Threads from `live` on end at once; out[i] of the others is the sum of all others' numbers. */
void simt_early_exit(cudaStream_t s, int threads, int live, int64_t *out);

/* out[n] = sum over k of in[k][n], rows of 32 floats copied `stages` ahead; the tail of a row from
 * `cols` on is taken as 0 without being read */
void simt_pipeline(cudaStream_t s, int stages, int rows, int cols, const float *in, float *out);

/* Convert floats to pairs of bf16 or fp16. */
void simt_narrow(cudaStream_t s, enum dtype dt, int pairs, const float *in, uint32_t *out);

/* Convert pairs of fp16 to floats. */
void simt_widen(cudaStream_t s, int pairs, const uint32_t *in, float *out);
void simt_exp2(cudaStream_t s, int count, const float *in, float *out);

/* Reverse `count` floats within shared memory of that size; returns what ALLOW_SHARED says. */
int simt_reverse(cudaStream_t s, int count, const float *in, float *out);

/* out[i] = i at the linear place of each thread of a grid of three dimensions */
void simt_number(cudaStream_t s, const int grid[3], const int block[3], int32_t *out);

/* 16 bytes at a time, forth and back */
void simt_copy(cudaStream_t s, int count, const void *in, void *out);

#ifdef __cplusplus
}
#endif

#endif
