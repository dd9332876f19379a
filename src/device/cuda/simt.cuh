/* simt.cuh - all of CUDA that kernels use, and nothing else.
 *
 * A .cu file includes this header alone (and headers of this folder).  Besides what
 * is defined here it may use: __global__ __device__ __host__ __forceinline__ __launch_bounds__
 * __shared__ (static) __align__, dim3 threadIdx blockIdx blockDim gridDim, __syncthreads,
 * __syncwarp, __shfl_sync __shfl_xor_sync __shfl_down_sync, __ballot_sync, __popc, __ffs,
 * __float_as_uint __uint_as_float, float2 float4 uint2 uint4 and their make_ functions, and fmaf
 * fmaxf fminf sqrtf rsqrtf expf exp2f logf fabsf copysignf isfinite isnan and the double versions;
 * templates and C++17.  Kernels are started by LAUNCH().
 *
 * A product that is a term of a sum is written as fmaf(a, b, c).  Written as a * b + c, nvcc may
 * fuse it in one inlined copy and not in another, or fuse the other product of a * b + c * d: an
 * element then has other bits where it is alone than where it is one of four.  src/m4/nvcc.mk has
 * nvcc fuse nothing by itself; fmaf() costs what a sum costs.
 *
 * tests/emulate has a header of the same name that gives all of it a meaning on the host, one
 * fiber per thread, so that every kernel runs in tests on machines without a GPU.
 */
#ifndef TRIREME_DEVICE_CUDA_SIMT_CUH
#define TRIREME_DEVICE_CUDA_SIMT_CUH

#include <cuda_runtime.h>
#include <stdint.h>

#include "base/fp8.h"
#include "device/cuda/state.h"

/* kernel may be in parentheses where its template arguments have commas. */
#define LAUNCH(kernel, grid, block, shared_bytes, stream, ...) \
    kernel<<<(grid), (block), (shared_bytes), (stream)>>>(__VA_ARGS__)

/* Let a kernel have more than 48 KB of dynamic shared memory; once before its first launch. */
#define ALLOW_SHARED(kernel, bytes) \
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)(bytes))

/* The dynamic shared memory of the block, 16-byte aligned, as type name[]. */
#define DYNAMIC_SHARED(type, name)                                        \
    extern __shared__ __align__(16) unsigned char dynamic_shared_bytes[]; \
    type *name = reinterpret_cast<type *>(dynamic_shared_bytes)

constexpr unsigned ALL_LANES = 0xffffffffu;

/* ---- elements of 16 bits, as uint16_t: bfloat16, and IEEE half precision, whose denormals are
 * kept; the first argument says which ---- */

/* Elements of DTYPE_F16, of a type of its own: bf16 is an integer. */
struct fp16 {
    uint16_t bits;
};

static __device__ __forceinline__ float float_of(bf16, uint16_t x)
{
    return __uint_as_float((uint32_t)x << 16);
}

static __device__ __forceinline__ float float_of(fp16, uint16_t x)
{
    float wide;
    asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(x));
    return wide;
}

/* Unpack two elements from a word, and pack two, low in its lower half, which is the first in
 * memory. Packing rounds to nearest even; what is too large becomes infinity; NaN stays NaN. */
static __device__ __forceinline__ void widen_pair(bf16, float *to, uint32_t pair)
{
    to[0] = __uint_as_float(pair << 16);
    to[1] = __uint_as_float(pair & 0xffff0000u);
}

static __device__ __forceinline__ void widen_pair(fp16, float *to, uint32_t pair)
{
    to[0] = float_of(fp16(), (uint16_t)pair);
    to[1] = float_of(fp16(), (uint16_t)(pair >> 16));
}

static __device__ __forceinline__ uint32_t pair_of(bf16, float low, float high)
{
    uint32_t pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}

static __device__ __forceinline__ uint32_t pair_of(fp16, float low, float high)
{
    uint32_t pair;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}

/* larger_halves() is fp8_larger_halves(), e4m3_pair_of() two fp8_code() of magnitudes up to 448,
 * low in the lower byte.  Each is one instruction from compute capability 9.0 on, without which a
 * GPU has no products in fp8 either. */
static __device__ __forceinline__ uint32_t larger_halves(uint32_t a, uint32_t b)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    uint32_t larger;
    asm("max.u16x2 %0, %1, %2;" : "=r"(larger) : "r"(a), "r"(b));
    return larger;
#else
    return fp8_larger_halves(a, b);
#endif
}

static __device__ __forceinline__ uint32_t e4m3_pair_of(float low, float high)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    uint16_t pair;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
    return pair;
#else
    return fp8_code(high) << 8 | fp8_code(low);
#endif
}

/* Refuse a first argument of another type, which would be converted to bf16. */
template <typename T> static __device__ float float_of(T, uint16_t) = delete;
template <typename T> static __device__ void widen_pair(T, float *, uint32_t) = delete;
template <typename T> static __device__ uint32_t pair_of(T, float, float) = delete;

/* ---- fast functions of one float ---- */

static __device__ __forceinline__ float exp2_fast(float x) /* 2^x, two ulp; -inf gives 0 */
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* ---- what the compiler is to know ---- */

/* Make the compiler take the word for a new value here, so that it computes nothing earlier that
 * depends on it. */
static __device__ __forceinline__ void hide_value(uint32_t &word)
{
    asm volatile("" : "+r"(word));
}

/* ---- global memory; addresses are multiples of the size of an access ---- */

template <typename R, typename V> static __device__ __forceinline__ R *aligned(V *address)
{
    return reinterpret_cast<R *>(address);
}

static __device__ __forceinline__ uint4 load16(const void *from)
{
    return *reinterpret_cast<const uint4 *>(from);
}

static __device__ __forceinline__ void store16(void *to, uint4 value)
{
    *reinterpret_cast<uint4 *>(to) = value;
}

/* Access data that nobody reads again soon, and leave the caches to other data. */
static __device__ __forceinline__ uint4 load16_once(const void *from)
{
    return __ldcs(reinterpret_cast<const uint4 *>(from));
}

static __device__ __forceinline__ void store16_once(void *to, uint4 value)
{
    __stcs(reinterpret_cast<uint4 *>(to), value);
}

/* ---- global to shared memory without registers (sm_80) ---- */

/* Copy 16 bytes; with keep false write zeros and do not read `from`. */
static __device__ __forceinline__ void async_copy16(void *shared, const void *from, bool keep)
{
    uint32_t to = (uint32_t)__cvta_generic_to_shared(shared);
    int bytes = keep ? 16 : 0;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes)
                 : "memory");
}

static __device__ __forceinline__ void async_commit()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

/* Wait until at most `pending` groups of this thread are under way. */
template <int pending> static __device__ __forceinline__ void async_wait()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
}

/* ---- tensor cores: d[16,8] += a[16,16] b[16,8], in the type of the first argument, sums in fp32;
 * a whole warp calls ----
 * Lane l holds, with g = l / 4 and t = l % 4:
 *  - a[0] = A[g][2t, 2t+1], a[1] = A[g+8][2t, 2t+1], a[2] and a[3] the same 8 columns on;
 *  - b[0] = B[2t, 2t+1][g], b[1] = B[2t+8, 2t+9][g];
 *  - d[0], d[1] = D[g][2t, 2t+1], d[2], d[3] = D[g+8][2t, 2t+1]. */
static __device__ __forceinline__ void mma(bf16, float d[4], const uint32_t a[4],
                                           const uint32_t b[2])
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

static __device__ __forceinline__ void mma(fp16, float d[4], const uint32_t a[4],
                                           const uint32_t b[2])
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* Four 8x8 matrices of 16-bit elements from shared memory; lane l names row l % 8 (16 bytes, 16
 * aligned) of matrix l / 8.  r[i] of lane l gets elements 2(l%4), 2(l%4)+1 of row l / 4 of matrix
 * i; transposed: elements [2(l%4)][l/4] and [2(l%4)+1][l/4]. */
static __device__ __forceinline__ void load_matrices(uint32_t r[4], const void *row)
{
    uint32_t at = (uint32_t)__cvta_generic_to_shared(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at)
                 : "memory");
}

static __device__ __forceinline__ void load_matrices_transposed(uint32_t r[4], const void *row)
{
    uint32_t at = (uint32_t)__cvta_generic_to_shared(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at)
                 : "memory");
}

#endif
