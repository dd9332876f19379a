/* philox.cuh - Philox4x32-10, as in base/philox.h. */
#ifndef TRIREME_DEVICE_CUDA_PHILOX_CUH
#define TRIREME_DEVICE_CUDA_PHILOX_CUH

#include "device/cuda/simt.cuh"

static __device__ __forceinline__ uint4 philox4(uint32_t a, uint32_t b, uint32_t c, uint32_t d,
                                                uint64_t key)
{
    uint32_t key0 = (uint32_t)key, key1 = (uint32_t)(key >> 32);
#pragma unroll
    for (int round = 0; round < 10; round++) {
        uint64_t first = (uint64_t)0xD2511F53u * a, second = (uint64_t)0xCD9E8D57u * c;
        a = (uint32_t)(second >> 32) ^ b ^ key0;
        c = (uint32_t)(first >> 32) ^ d ^ key1;
        b = (uint32_t)second;
        d = (uint32_t)first;
        key0 += 0x9E3779B9u;
        key1 += 0xBB67AE85u;
    }
    return make_uint4(a, b, c, d);
}

#endif
