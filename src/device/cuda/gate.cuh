/* gate.cuh - the gate of swiglu. */
#ifndef TRIREME_DEVICE_CUDA_GATE_CUH
#define TRIREME_DEVICE_CUDA_GATE_CUH

#include "device/cuda/simt.cuh"

static __device__ __forceinline__ float sigmoid(float x)
{
    const float log2_e = 1.44269504f;
    return 1.0f / (1.0f + exp2_fast(-x * log2_e));
}

#endif
