/* gemm_plain.cu - matrix products without tensor cores, for any alignment, and of operands that
 * were rounded to fp8.
 *
 * A block of 16 x 16 threads makes a tile of 64 x 64 of c, a thread 4 x 4 elements of it, 16 apart
 * so that neighbours read neighbouring words.  Slices of a and b 16 deep go through shared memory
 * as fp32, with k outermost; outside the matrices they are 0.
 */
#include "device/cuda/fp8.h"
#include "device/cuda/pack.cuh"

constexpr int TILE = 64, DEPTH = 16, SIDE = 16, EACH = TILE / SIDE, THREADS = SIDE * SIDE;

template <typename T> static __device__ __forceinline__ float get(const T *from)
{
    float value[1];
    widen(value, *from);
    return value[0];
}

template <typename T> static __device__ __forceinline__ void put(T *to, float value)
{
    const float values[1] = {value};
    narrow(*to, values);
}

/* An operand x' [count, depth]: x itself with row stride ld, or the transpose of x. */
template <typename T> struct plain {
    const T *x;
    int64_t ld;
    bool trans;
    __device__ __forceinline__ float at(int64_t row, int64_t col) const
    {
        return get(x + (trans ? col * ld + row : row * ld + col));
    }
};

/* One of codes and scales. */
struct rounded {
    struct cuda_fp8 x;
    static constexpr bool trans = false;
    __device__ __forceinline__ float at(int64_t row, int64_t col) const
    {
        int64_t block = col / FP8_BLOCK;
        float scale = x.scale[x.squares ? row / FP8_BLOCK * x.step + block : block * x.step + row];
        return fp8_value(x.code[row * x.padded + col]) * scale;
    }
};

/* slice[k][i] = x'(first + i, first_k + k).  Threads run along the rows of memory. */
template <typename X>
static __device__ void load_slice(float slice[DEPTH][TILE + 1], const X &x, int64_t first,
                                  int64_t count, int64_t first_k, int64_t depth)
{
    for (int e = (int)threadIdx.x; e < TILE * DEPTH; e += THREADS) {
        int i = x.trans ? e % TILE : e / DEPTH, k = x.trans ? e / TILE : e % DEPTH;
        int64_t row = first + i, col = first_k + k;
        slice[k][i] = row < count && col < depth ? x.at(row, col) : 0.0f;
    }
}

template <typename X, typename C>
__global__ void __launch_bounds__(THREADS) product(struct gemm g, X of_a, X of_b)
{
    __shared__ float a[DEPTH][TILE + 1], b[DEPTH][TILE + 1];
    int64_t tiles = (g.n + TILE - 1) / TILE;
    int64_t row0 = (int64_t)blockIdx.x / tiles * TILE, col0 = (int64_t)blockIdx.x % tiles * TILE;
    int y = (int)threadIdx.x / SIDE, x = (int)threadIdx.x % SIDE;
    float sum[EACH][EACH] = {};
    for (int64_t k0 = 0; k0 < g.k; k0 += DEPTH) {
        load_slice(a, of_a, row0, g.m, k0, g.k);
        load_slice(b, of_b, col0, g.n, k0, g.k);
        __syncthreads();
        for (int k = 0; k < DEPTH; k++)
#pragma unroll
            for (int i = 0; i < EACH; i++)
#pragma unroll
                for (int j = 0; j < EACH; j++)
                    sum[i][j] = fmaf(a[k][y + i * SIDE], b[k][x + j * SIDE], sum[i][j]);
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < EACH; i++)
#pragma unroll
        for (int j = 0; j < EACH; j++) {
            int64_t row = row0 + y + i * SIDE, col = col0 + x + j * SIDE, at = row * g.ldc + col;
            if (row < g.m && col < g.n)
                put((C *)g.c + at,
                    g.addend ? sum[i][j] + get((const C *)g.addend + at) : sum[i][j]);
        }
}

template <typename C, typename X>
static void launch(struct device *d, const struct gemm *g, const X &a, const X &b)
{
    int64_t blocks = (g->m + TILE - 1) / TILE * ((g->n + TILE - 1) / TILE);
    if (blocks)
        LAUNCH((product<X, C>), (unsigned)blocks, THREADS, 0, cuda_compute(d), *g, a, b);
}

void cuda_gemm_plain(struct device *d, const struct gemm *g)
{
    by_type(g->dt, [&](auto type) {
        using T = decltype(type);
        const plain<T> a = {(const T *)g->a, g->lda, g->trans_a != 0};
        const plain<T> b = {(const T *)g->b, g->ldb, g->trans_b == 0};
        if (g->dt_c == DTYPE_F32)
            launch<float>(d, g, a, b);
        else
            launch<T>(d, g, a, b);
    });
}

void cuda_fp8_gemm_plain(struct device *d, const struct gemm *g, const struct cuda_fp8 *a,
                         const struct cuda_fp8 *b)
{
    if (g->dt_c == DTYPE_F32)
        launch<float>(d, g, rounded{*a}, rounded{*b});
    else
        launch<bf16>(d, g, rounded{*a}, rounded{*b});
}
