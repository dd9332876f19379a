/* add_parts.cuh - the second half of a sum over rows: add the partial sums, which thread blocks
 * have made of their rows, in order. */
#ifndef TRIREME_DEVICE_CUDA_ADD_PARTS_CUH
#define TRIREME_DEVICE_CUDA_ADD_PARTS_CUH

#include "device/cuda/pack.cuh"

/* sum[columns] = the sum of `count` parts, each [columns], which begin `stride` elements apart;
 * plus the old sum where accumulate is 1.  A block takes 32 columns: each of its warps adds some
 * consecutive parts, then the first warp adds the warps' sums in order. */
static __global__ void __launch_bounds__(1024)
    add_parts(float *sum, const float *parts, int count, int64_t stride, int64_t columns,
              int accumulate)
{
    __shared__ float sums[32][32];
    int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    int64_t column = (int64_t)blockIdx.x * 32 + lane;
    int per_warp = (count + 31) / 32, end = warp * per_warp + per_warp;
    float total = 0;
    if (end > count)
        end = count;
    if (column < columns) {
#pragma unroll 8
        for (int part = warp * per_warp; part < end; part++)
            total += parts[part * stride + column];
    }
    sums[warp][lane] = total;
    __syncthreads();
    if (warp > 0 || column >= columns)
        return;
    total = accumulate ? sum[column] : 0.0f;
#pragma unroll
    for (int i = 0; i < 32; i++)
        total += sums[i][lane];
    sum[column] = total;
}

static inline void launch_add_parts(cudaStream_t s, float *sum, const float *parts, int count,
                                    int64_t stride, int64_t columns, int accumulate)
{
    LAUNCH(add_parts, (unsigned)ceil_div(columns, 32), 1024, 0, s, sum, parts, count, stride,
           columns, accumulate);
}

#endif
