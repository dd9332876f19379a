/* bytes.c - ops that write or copy bytes, whatever they mean. */
#include "device/cuda/state.h"

void cuda_fill_zero(struct device *d, void *y, size_t bytes)
{
    if (bytes && cudaMemsetAsync(y, 0, bytes, cuda_compute(d)) != cudaSuccess)
        cuda_note_failure(d, "cudaMemsetAsync: %s", cudaGetErrorString(cudaGetLastError()));
}

void cuda_copy(struct device *d, void *y, const void *x, size_t bytes)
{
    cudaStream_t stream = cuda_compute(d);
    if (bytes && cudaMemcpyAsync(y, x, bytes, cudaMemcpyDeviceToDevice, stream) != cudaSuccess)
        cuda_note_failure(d, "cudaMemcpyAsync: %s", cudaGetErrorString(cudaGetLastError()));
}
