/* rounding.cuh - numbers to bf16, rounded stochastically as cpu/optimizer.c says: the random words
 * of an element, and what they do.
 *
 * Ten rounds of Philox make the words of two elements, a pair.  n elements, 1 or 4, are drawn for
 * and stored by one access; of four, the first must be the first of a pair (rounds_in_fours()).
 */
#ifndef TRIREME_DEVICE_CUDA_ROUNDING_CUH
#define TRIREME_DEVICE_CUDA_ROUNDING_CUH

#include "device/cuda/pack.cuh"
#include "device/cuda/philox.cuh"

/* Of counter (pair, step). */
static __device__ __forceinline__ uint4 draw(const struct rounding &r, uint64_t pair)
{
    return philox4((uint32_t)pair, (uint32_t)(pair >> 32), (uint32_t)r.step,
                   (uint32_t)(r.step >> 32), r.key);
}

/* Two words for each of n elements, the first of which is number index. */
template <int n>
static __device__ __forceinline__ void noise_of(uint32_t (&words)[2 * n], const struct rounding &r,
                                                uint64_t index)
{
    if constexpr (n == 1) {
        uint4 drawn = draw(r, index / 2);
        words[0] = index % 2 ? drawn.z : drawn.x;
        words[1] = index % 2 ? drawn.w : drawn.y;
    } else {
#pragma unroll
        for (int i = 0; i < n / 2; i++) {
            uint4 drawn = draw(r, index / 2 + i);
            words[4 * i] = drawn.x, words[4 * i + 1] = drawn.y;
            words[4 * i + 2] = drawn.z, words[4 * i + 3] = drawn.w;
        }
    }
}

/* noise in [0, 2^16) */
static __device__ __forceinline__ uint32_t round_by(float value, uint32_t noise)
{
    uint32_t bits = __float_as_uint(value);
    return (bits & 0x7fffffffu) > 0x7f800000u ? (bits >> 16) | 0x40u : (bits + noise) >> 16;
}

static __device__ __forceinline__ void pack(raw<bf16, 4> &to, const uint32_t (&bits)[4])
{
    to.bits = make_uint2(bits[0] | bits[1] << 16, bits[2] | bits[3] << 16);
}

static __device__ __forceinline__ void pack(bf16 &to, const uint32_t (&bits)[1])
{
    to = (bf16)bits[0];
}

/* `shift`: where in each word the 16 bits are; second: in the second word of an element. */
template <typename T, int n>
static __device__ __forceinline__ void put(T *to, const float (&value)[n],
                                           const uint32_t (&words)[2 * n], int second, int shift)
{
    raw<T, n> out;
    if constexpr (sizeof(T) == sizeof(float)) {
        narrow(out, value);
    } else {
        uint32_t bits[n];
#pragma unroll
        for (int i = 0; i < n; i++)
            bits[i] = round_by(value[i], words[2 * i + second] >> shift & 0xffffu);
        pack(out, bits);
    }
    store(to, out);
}

/* The number of element i; of less than 2^32 elements without a division of 64 bits. */
static __device__ __forceinline__ uint64_t number_of(const struct rounding &r, int64_t i)
{
    if (!r.run)
        return r.first + (uint64_t)i;
    const int64_t row = (i | r.run) >> 32 ? i / r.run : (uint32_t)i / (uint32_t)r.run;
    return r.first + (uint64_t)(row * r.stride + (i - row * r.run));
}

/* Does every four elements from element `first` on begin with the first of a pair, and lie in one
 * row? */
static inline bool rounds_in_fours(const struct rounding &r, int first)
{
    bool is_even = (r.first + (uint64_t)first) % 2 == 0;
    return is_even && (!r.run || (first == 0 && r.run % 4 == 0 && r.stride % 2 == 0));
}

#endif
