/* gemm_plain.cuh - a tile of a matrix product without tensor cores, for any alignment.
 *
 * A block of 16 x 16 threads makes a tile of 64 x 64 of c, a thread 4 x 4 elements of it, 16 apart
 * so that neighbours read neighbouring words.  Slices of a and b 16 deep go through shared memory
 * as fp32, with k outermost; outside the matrices they are 0.
 */
#ifndef TRIREME_DEVICE_CUDA_GEMM_PLAIN_CUH
#define TRIREME_DEVICE_CUDA_GEMM_PLAIN_CUH

#include "device/cuda/pack.cuh"

constexpr int PLAIN_TILE = 64, PLAIN_DEPTH = 16, PLAIN_SIDE = 16;
constexpr int PLAIN_EACH = PLAIN_TILE / PLAIN_SIDE, PLAIN_THREADS = PLAIN_SIDE * PLAIN_SIDE;

template <typename T> static __device__ __forceinline__ float plain_get(const T *from)
{
    float value[1];
    widen(value, *from);
    return value[0];
}

template <typename T> static __device__ __forceinline__ void plain_put(T *to, float value)
{
    const float values[1] = {value};
    narrow(*to, values);
}

/* slice[k][i] = x'(first + i, first_k + k), where x' is [count, depth]: x itself with row stride
 * ld, or the transpose of x.  Threads run along the rows of memory. */
template <typename T>
static __device__ void plain_load(float slice[PLAIN_DEPTH][PLAIN_TILE + 1], const T *x, int64_t ld,
                                  bool trans, int64_t first, int64_t count, int64_t first_k,
                                  int64_t depth)
{
    for (int e = (int)threadIdx.x; e < PLAIN_TILE * PLAIN_DEPTH; e += PLAIN_THREADS) {
        int i = trans ? e % PLAIN_TILE : e / PLAIN_DEPTH;
        int k = trans ? e / PLAIN_TILE : e % PLAIN_DEPTH;
        int64_t row = first + i, col = first_k + k;
        bool inside = row < count && col < depth;
        slice[k][i] = inside ? plain_get(x + (trans ? col * ld + row : row * ld + col)) : 0.0f;
    }
}

/* Make the tile of g.c whose first element is at (row0, col0), of a and b of type T and c of type
 * C.  Every element is one fp32 sum in the order of k, the addend last. */
template <typename T, typename C>
static __device__ __forceinline__ void plain_product(const struct gemm &g, int64_t row0,
                                                     int64_t col0)
{
    __shared__ float a[PLAIN_DEPTH][PLAIN_TILE + 1], b[PLAIN_DEPTH][PLAIN_TILE + 1];
    int y = (int)threadIdx.x / PLAIN_SIDE, x = (int)threadIdx.x % PLAIN_SIDE;
    float sum[PLAIN_EACH][PLAIN_EACH] = {};
    for (int64_t k0 = 0; k0 < g.k; k0 += PLAIN_DEPTH) {
        plain_load(a, (const T *)g.a, g.lda, g.trans_a != 0, row0, g.m, k0, g.k);
        plain_load(b, (const T *)g.b, g.ldb, g.trans_b == 0, col0, g.n, k0, g.k);
        __syncthreads();
        for (int k = 0; k < PLAIN_DEPTH; k++)
#pragma unroll
            for (int i = 0; i < PLAIN_EACH; i++)
#pragma unroll
                for (int j = 0; j < PLAIN_EACH; j++)
                    sum[i][j] = fmaf(a[k][y + i * PLAIN_SIDE], b[k][x + j * PLAIN_SIDE], sum[i][j]);
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < PLAIN_EACH; i++)
#pragma unroll
        for (int j = 0; j < PLAIN_EACH; j++) {
            int64_t row = row0 + y + i * PLAIN_SIDE, col = col0 + x + j * PLAIN_SIDE;
            int64_t at = row * g.ldc + col;
            if (row < g.m && col < g.n)
                plain_put((C *)g.c + at,
                          g.addend ? sum[i][j] + plain_get((const C *)g.addend + at) : sum[i][j]);
        }
}

#endif
