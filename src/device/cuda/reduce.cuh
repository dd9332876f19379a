/* reduce.cuh - sums over a warp and over a block, in an order that never changes. */
#ifndef TRIREME_DEVICE_CUDA_REDUCE_CUH
#define TRIREME_DEVICE_CUDA_REDUCE_CUH

#include "device/cuda/simt.cuh"

/* Returns, in every lane, the sum over all 32 lanes. */
template <typename V> static __device__ __forceinline__ V warp_sum(V value)
{
#pragma unroll
    for (int distance = 16; distance; distance /= 2)
        value += __shfl_xor_sync(ALL_LANES, value, distance);
    return value;
}

static __device__ __forceinline__ float warp_max(float value)
{
#pragma unroll
    for (int distance = 16; distance; distance /= 2)
        value = fmaxf(value, __shfl_xor_sync(ALL_LANES, value, distance));
    return value;
}

/* Returns the sum over the lanes up to this one. */
static __device__ __forceinline__ int warp_sum_so_far(int value)
{
    const int lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
        const int before = __shfl_sync(ALL_LANES, value, (lane - distance) & 31);
        value += lane >= distance ? before : 0;
    }
    return value;
}

/* Return to every thread the sum over its team: `warps` consecutive warps of a block that consists
 * of whole teams.  All threads of the block call.  partial is shared memory, which must not be
 * written again before the block's next barrier. */
template <typename V>
static __device__ __forceinline__ V team_sum(V value, int warps, V (&partial)[32])
{
    int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    value = warp_sum(value);
    if (warps == 1)
        return value;
    if (lane == 0)
        partial[warp] = value;
    __syncthreads();
    return warp_sum(lane < warps ? partial[warp / warps * warps + lane] : V(0));
}

template <typename V> static __device__ __forceinline__ V block_sum(V value, V (&partial)[32])
{
    return team_sum(value, (int)blockDim.x / 32, partial);
}

#endif
