/* dropout.cuh - the random words of dropout on GPUs; see struct dropout_mask in device/ops.h. */
#ifndef TRIREME_DEVICE_CUDA_DROPOUT_CUH
#define TRIREME_DEVICE_CUDA_DROPOUT_CUH

#include "device/cuda/philox.cuh"

/* Return the upper two words of Philox's counter, from a plane and the sequence's sample number. */
static __device__ __forceinline__ uint2 dropout_sample(const struct dropout_mask &m,
                                                       int64_t sequence, int plane)
{
    return make_uint2(m.samples[2 * sequence], m.samples[2 * sequence + 1] | (uint32_t)plane << 16);
}

/* Return the random words of columns 4 * block to 4 * block + 3 of a row. */
static __device__ __forceinline__ uint4 dropout_words(const struct dropout_mask &m, uint2 sample,
                                                      uint32_t row, uint32_t block)
{
    return philox4(block, row, sample.x, sample.y, m.key);
}

/* Return word i, 0 to 3. */
static __device__ __forceinline__ uint32_t word_of(const uint4 &words, int i)
{
    return i < 2 ? (i ? words.y : words.x) : (i == 2 ? words.z : words.w);
}

#endif
