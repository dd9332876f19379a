/* pack.cuh - read and write several elements at a time, and convert them to fp32 and back.
 *
 * A kernel reads n elements by one access of the type raw<T, n>: 16 bytes where memory allows, one
 * element where it does not (n = 1), and the same source serves both.  T is float, bf16 or fp16.
 */
#ifndef TRIREME_DEVICE_CUDA_PACK_CUH
#define TRIREME_DEVICE_CUDA_PACK_CUH

#include "base/round.h"
#include "device/cuda/simt.cuh"

/* 16-bit elements of type T, two in each word of W; T is bf16 or fp16. */
template <typename T, typename W> struct halves {
    static_assert(sizeof(T) == 2);
    W bits;
};

template <typename T, int n> struct raw_type;
template <typename T> struct raw_type<T, 8> {
    using type = halves<T, uint4>;
};
template <typename T> struct raw_type<T, 4> {
    using type = halves<T, uint2>;
};
template <> struct raw_type<float, 4> {
    using type = uint4;
};
template <typename T> struct raw_type<T, 1> {
    using type = T;
};
template <typename T, int n> using raw = typename raw_type<T, n>::type;

/* Elements in 16 bytes. */
template <typename T> constexpr int LANES = 16 / (int)sizeof(T);

template <typename R> static __device__ __forceinline__ R load(const void *from)
{
    if constexpr (sizeof(R) == 16)
        return {load16(from)};
    else
        return *aligned<const R>(from);
}

template <typename R> static __device__ __forceinline__ R load_once(const void *from)
{
    if constexpr (sizeof(R) == 16)
        return {load16_once(from)};
    else
        return load<R>(from);
}

static __device__ __forceinline__ uint4 bits16(uint4 value)
{
    return value;
}

template <typename T> static __device__ __forceinline__ uint4 bits16(halves<T, uint4> value)
{
    return value.bits;
}

template <typename R> static __device__ __forceinline__ void store(void *to, R value)
{
    if constexpr (sizeof(R) == 16)
        store16(to, bits16(value));
    else
        *aligned<R>(to) = value;
}

template <typename R> static __device__ __forceinline__ void store_once(void *to, R value)
{
    if constexpr (sizeof(R) == 16)
        store16_once(to, bits16(value));
    else
        store(to, value);
}

/* ---- to fp32 and back ---- */

template <typename T>
static __device__ __forceinline__ void widen(float (&to)[8], halves<T, uint4> from)
{
    widen_pair(T(), to, from.bits.x);
    widen_pair(T(), to + 2, from.bits.y);
    widen_pair(T(), to + 4, from.bits.z);
    widen_pair(T(), to + 6, from.bits.w);
}

template <typename T>
static __device__ __forceinline__ void widen(float (&to)[4], halves<T, uint2> from)
{
    widen_pair(T(), to, from.bits.x);
    widen_pair(T(), to + 2, from.bits.y);
}

static __device__ __forceinline__ void widen(float (&to)[4], uint4 from)
{
    memcpy(to, &from, sizeof from);
}

static __device__ __forceinline__ void widen(float (&to)[1], bf16 from)
{
    to[0] = float_of(bf16(), from);
}

static __device__ __forceinline__ void widen(float (&to)[1], fp16 from)
{
    to[0] = float_of(fp16(), from.bits);
}

static __device__ __forceinline__ void widen(float (&to)[1], float from)
{
    to[0] = from;
}

template <typename T>
static __device__ __forceinline__ void narrow(halves<T, uint4> &to, const float (&from)[8])
{
    to.bits = make_uint4(pair_of(T(), from[0], from[1]), pair_of(T(), from[2], from[3]),
                         pair_of(T(), from[4], from[5]), pair_of(T(), from[6], from[7]));
}

template <typename T>
static __device__ __forceinline__ void narrow(halves<T, uint2> &to, const float (&from)[4])
{
    to.bits = make_uint2(pair_of(T(), from[0], from[1]), pair_of(T(), from[2], from[3]));
}

static __device__ __forceinline__ void narrow(uint4 &to, const float (&from)[4])
{
    memcpy(&to, from, sizeof to);
}

static __device__ __forceinline__ void narrow(bf16 &to, const float (&from)[1])
{
    to = (bf16)pair_of(bf16(), from[0], 0.0f);
}

static __device__ __forceinline__ void narrow(fp16 &to, const float (&from)[1])
{
    to.bits = (uint16_t)pair_of(fp16(), from[0], 0.0f);
}

static __device__ __forceinline__ void narrow(float &to, const float (&from)[1])
{
    to = from[0];
}

/* Add n elements of left to those of right; each sum is rounded once. */
template <typename R, int n> static __device__ __forceinline__ R sum_of(R left, R right)
{
    float a[n], b[n];
    widen(a, left);
    widen(b, right);
#pragma unroll
    for (int i = 0; i < n; i++)
        a[i] += b[i];
    narrow(left, a);
    return left;
}

/* Read n fp32 numbers, 16 bytes at a time where n is 4 or more. */
template <int n>
static __device__ __forceinline__ void load_floats(float (&to)[n], const float *from)
{
    constexpr int piece = n < 4 ? 1 : 4;
#pragma unroll
    for (int i = 0; i < n; i += piece) {
        raw<float, piece> bits = load<raw<float, piece>>(from + i);
        memcpy(&to[i], &bits, sizeof bits);
    }
}

template <int n>
static __device__ __forceinline__ void store_floats(float *to, const float (&from)[n])
{
    constexpr int piece = n < 4 ? 1 : 4;
#pragma unroll
    for (int i = 0; i < n; i += piece) {
        raw<float, piece> bits;
        memcpy(&bits, &from[i], sizeof bits);
        store(to + i, bits);
    }
}

/* Read n elements of type T as fp32. */
template <typename T, int n>
static __device__ __forceinline__ void get(float (&to)[n], const T *from)
{
    widen(to, load<raw<T, n>>(from));
}

/* Read n elements of a parameter as fp32; aligned: `from` allows one access for all of them. */
template <typename T, int n>
static __device__ __forceinline__ void load_param(float (&to)[n], const T *from, bool aligned)
{
    if (aligned) {
        get(to, from);
    } else {
        for (int i = 0; i < n; i++) {
            float one[1];
            widen(one, from[i]);
            to[i] = one[0];
        }
    }
}

/* ---- for launchers ---- */

/* Call f with a value of the type that dt stands for. */
template <typename F> static inline void by_type(enum dtype dt, F f)
{
    if (dt == DTYPE_BF16)
        f(bf16());
    else if (dt == DTYPE_F16)
        f(fp16());
    else
        f(float());
}

static inline bool aligned16(const void *p)
{
    return (uintptr_t)p % 16 == 0;
}

/* Return how many elements of T lie between the last address that is a multiple of n elements and
 * p. Tensors of the same phase can be read n elements at a time, beginning that many before element
 * 0. */
template <typename T> static inline int phase(const T *p, int n)
{
    return (int)((uintptr_t)p / sizeof(T) % (uintptr_t)n);
}

/* Return threads rounded up to whole warps. */
static inline int whole_warps(int64_t threads)
{
    return (int)round_up(threads, 32);
}

#endif
