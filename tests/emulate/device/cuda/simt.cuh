/* simt.cuh - the words of src/device/cuda/simt.cuh, with a meaning on the host.
 *
 * Every thread of a block is a fiber; simt.cc runs the blocks of a launch one after another and
 * the threads of a block in an order drawn from TRIREME_EMULATE_SEED.  A thread gives way only
 * where CUDA lets it depend on others: barriers, shuffles, ballots, matrix instructions.  What is
 * undefined on a GPU is an error here, or gives NaN.
 */
#ifndef TRIREME_EMULATE_SIMT_CUH
#define TRIREME_EMULATE_SIMT_CUH

#include <cuda_runtime.h>
#include <float.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#include <cmath>
#include <functional>
#include <tuple>
#include <type_traits>

#include "base/fp8.h"
#include "device/cuda/state.h"

#undef __global__
#undef __device__
#undef __host__
#undef __forceinline__
#undef __launch_bounds__
#undef __shared__
#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
/* Of the one OS thread that runs all blocks, so that simt.cc finds every such variable of the
 * program in one piece, to fill it with NaN before each block. */
#define __shared__ static thread_local

/* ---- what simt.cc offers ---- */

struct emulate_thread {
    uint3 index;
};

struct emulate_launch {
    const char *name;
    const void *kernel;
    dim3 grid, block;
    size_t shared_bytes;
    bool valid; /* the dimensions fit their types */
};

struct emulate_site {
    const char *file;
    int line;
};

static inline bool emulate_same_site(struct emulate_site a, struct emulate_site b)
{
    return a.line == b.line && (a.file == b.file || strcmp(a.file, b.file) == 0);
}

extern struct emulate_thread *emulate_self;
extern dim3 emulate_block_index, emulate_block_dim, emulate_grid_dim;

void emulate_start(const struct emulate_launch *launch, cudaStream_t stream,
                   std::function<void()> body);
void emulate_barrier(struct emulate_site site);
void emulate_warp_barrier(struct emulate_site site, unsigned mask);
unsigned emulate_ballot(struct emulate_site site, unsigned mask, bool vote);
enum emulate_shuffle_kind { EMULATE_INDEX, EMULATE_XOR, EMULATE_DOWN, EMULATE_UP };
uint64_t emulate_shuffle(struct emulate_site site, enum emulate_shuffle_kind kind, unsigned mask,
                         uint64_t value, int lane, int width);
void emulate_mma(struct emulate_site site, enum dtype type, float *d, const uint32_t *a,
                 const uint32_t *b);
void emulate_load_matrices(struct emulate_site site, uint32_t *r, const void *row, bool transposed);
void emulate_async_copy(void *shared, const void *from, bool keep);
void emulate_async_commit(void);
void emulate_async_wait(int pending);
void *emulate_shared(size_t alignment);
void emulate_misaligned(const char *what, const void *address, size_t bytes);

#define EMULATE_SITE       \
    emulate_site           \
    {                      \
        __FILE__, __LINE__ \
    }

/* ---- launches ---- */

static inline dim3 emulate_dims(dim3 x, bool *valid)
{
    (void)valid;
    return x;
}

template <typename T, typename = std::enable_if_t<std::is_integral<T>::value>>
static inline dim3 emulate_dims(T x, bool *valid)
{
    if ((int64_t)x < 0 || (uint64_t)x > UINT32_MAX)
        *valid = false;
    return dim3((unsigned)x);
}

template <typename... P, typename G, typename B, typename... A>
static inline void emulate_launch_kernel(const char *name, void (*kernel)(P...), G grid, B block,
                                         size_t shared_bytes, cudaStream_t stream, A &&...args)
{
    static_assert(sizeof...(P) == sizeof...(A), "the kernel takes another number of arguments");
    static_assert((sizeof(P) + ... + 0) <= 4096, "parameters of a kernel are at most 4 KB");
    struct emulate_launch launch = {name, (const void *)kernel, {}, {}, shared_bytes, true};
    launch.grid = emulate_dims(grid, &launch.valid);
    launch.block = emulate_dims(block, &launch.valid);
    std::tuple<P...> values(static_cast<P>(args)...);
    emulate_start(&launch, stream, [kernel, values] { std::apply(kernel, values); });
}

#define LAUNCH(kernel, grid, block, shared_bytes, stream, ...) \
    emulate_launch_kernel(#kernel, kernel, (grid), (block), (shared_bytes), (stream), __VA_ARGS__)

#define ALLOW_SHARED(kernel, bytes)                                \
    (cudaFuncSetAttribute)(reinterpret_cast<const void *>(kernel), \
                           cudaFuncAttributeMaxDynamicSharedMemorySize, (int)(bytes))

#define DYNAMIC_SHARED(type, name) \
    type *name = reinterpret_cast<type *>(emulate_shared(alignof(type)))

/* ---- where a thread is ---- */

#define threadIdx (emulate_self->index)
#define blockIdx  emulate_block_index
#define blockDim  emulate_block_dim
#define gridDim   emulate_grid_dim

constexpr unsigned ALL_LANES = 0xffffffffu;

/* ---- threads meet ---- */

#define __syncthreads()           emulate_barrier(EMULATE_SITE)
#define __syncwarp(...)           emulate_warp_barrier(EMULATE_SITE, emulate_mask(__VA_ARGS__))
#define __ballot_sync(mask, vote) emulate_ballot(EMULATE_SITE, (mask), (vote) != 0)
#define __shfl_sync(...)          emulate_exchange(EMULATE_SITE, EMULATE_INDEX, __VA_ARGS__)
#define __shfl_xor_sync(...)      emulate_exchange(EMULATE_SITE, EMULATE_XOR, __VA_ARGS__)
#define __shfl_down_sync(...)     emulate_exchange(EMULATE_SITE, EMULATE_DOWN, __VA_ARGS__)
#define __shfl_up_sync(...)       emulate_exchange(EMULATE_SITE, EMULATE_UP, __VA_ARGS__)

static inline unsigned emulate_mask(unsigned mask = ALL_LANES)
{
    return mask;
}

template <typename T>
static inline T emulate_exchange(struct emulate_site site, enum emulate_shuffle_kind kind,
                                 unsigned mask, T value, int lane, int width = 32)
{
    static_assert(std::is_arithmetic<T>::value && (sizeof(T) == 4 || sizeof(T) == 8),
                  "shuffles are of 4 or 8 bytes");
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof value);
    bits = emulate_shuffle(site, kind, mask, bits, lane, width);
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* ---- functions CUDA has and the host has not ---- */

using std::isfinite;
using std::isinf;
using std::isnan;

static inline float __uint_as_float(uint32_t x)
{
    float y;
    memcpy(&y, &x, sizeof y);
    return y;
}

static inline uint32_t __float_as_uint(float x)
{
    uint32_t y;
    memcpy(&y, &x, sizeof y);
    return y;
}

/* Without a call where the processor is not known to have the instruction.  Rounded twice, which
 * shows in one result of some hundred millions. */
static inline float emulate_fmaf(float a, float b, float c)
{
    return (float)((double)a * (double)b + (double)c);
}
#define fmaf emulate_fmaf

static inline float rsqrtf(float x)
{
    return (float)(1.0 / sqrt((double)x));
}

static inline double rsqrt(double x)
{
    return 1.0 / sqrt(x);
}

static inline int __popc(unsigned x)
{
    return __builtin_popcount(x);
}

static inline int __ffs(int x)
{
    return __builtin_ffs(x);
}

/* ---- elements of 16 bits, as uint16_t: bfloat16, and IEEE half precision, whose denormals are
 * kept; the first argument says which ---- */

/* Elements of DTYPE_F16, of a type of its own: bf16 is an integer. */
struct fp16 {
    uint16_t bits;
};

static inline float float_of(bf16, uint16_t x)
{
    return __uint_as_float((uint32_t)x << 16);
}

static inline float float_of(fp16, uint16_t x)
{
    return f16_to_f32(x);
}

template <typename T> static inline void widen_pair(T, float *to, uint32_t pair)
{
    to[0] = float_of(T(), (uint16_t)pair);
    to[1] = float_of(T(), (uint16_t)(pair >> 16));
}

static inline uint32_t rounded16(bf16, float x)
{
    return x != x ? 0x7fff : f32_to_bf16(x);
}

static inline uint32_t rounded16(fp16, float x)
{
    return x != x ? 0x7fff : f32_to_f16(x);
}

template <typename T> static inline uint32_t pair_of(T, float low, float high)
{
    return rounded16(T(), high) << 16 | rounded16(T(), low);
}

static inline uint32_t larger_halves(uint32_t a, uint32_t b)
{
    return fp8_larger_halves(a, b);
}

static inline uint32_t e4m3_pair_of(float low, float high)
{
    return fp8_code(high) << 8 | fp8_code(low);
}

/* ---- fast functions ---- */

static inline float exp2_fast(float x)
{
    float y = exp2f(x);
    return y < FLT_MIN ? 0.0f : y; /* subnormal results are flushed; NaN stays */
}

static __device__ __forceinline__ void hide_value(uint32_t &)
{
}

/* ---- 16 bytes at a time, and fewer ---- */

template <typename R, typename V> static inline R *aligned(V *address)
{
    if ((uintptr_t)address % sizeof(R))
        emulate_misaligned("an access", address, sizeof(R));
    return reinterpret_cast<R *>(address);
}

static inline uint4 load16(const void *from)
{
    if ((uintptr_t)from % 16)
        emulate_misaligned("load16", from, 16);
    return *reinterpret_cast<const uint4 *>(from);
}

static inline void store16(void *to, uint4 value)
{
    if ((uintptr_t)to % 16)
        emulate_misaligned("store16", to, 16);
    *reinterpret_cast<uint4 *>(to) = value;
}

static inline uint4 load16_once(const void *from)
{
    return load16(from);
}

static inline void store16_once(void *to, uint4 value)
{
    store16(to, value);
}

static inline void async_copy16(void *shared, const void *from, bool keep)
{
    emulate_async_copy(shared, from, keep);
}

static inline void async_commit()
{
    emulate_async_commit();
}

template <int pending> static inline void async_wait()
{
    static_assert(pending >= 0 && pending <= 7, "groups under way");
    emulate_async_wait(pending);
}

/* ---- matrices; macros, so that errors name the line of the kernel ---- */

static inline enum dtype emulate_type(uint16_t)
{
    return DTYPE_BF16;
}

static inline enum dtype emulate_type(fp16)
{
    return DTYPE_F16;
}

#define mma(type, ...)                   emulate_mma(EMULATE_SITE, emulate_type(type), __VA_ARGS__)
#define load_matrices(r, ...)            emulate_load_matrices(EMULATE_SITE, r, __VA_ARGS__, false)
#define load_matrices_transposed(r, ...) emulate_load_matrices(EMULATE_SITE, r, __VA_ARGS__, true)

#endif
