/* gemm_plain.cu - matrix products without tensor cores, for any alignment.
 *
 * A block of 16 x 16 threads makes a tile of 64 x 64 of c, a thread 4 x 4 elements of it, 16 apart
 * so that neighbours read neighbouring words.  Slices of a and b 16 deep go through shared memory
 * as fp32, with k outermost; outside the matrices they are 0.
 */
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

/* slice[k][i] = x'(first + i, first_k + k), where x' is [count, depth]: x itself with row stride
 * ld, or the transpose of x.  Threads run along the rows of memory. */
template <typename T>
static __device__ void load_slice(float slice[DEPTH][TILE + 1], const T *x, int64_t ld, bool trans,
                                  int64_t first, int64_t count, int64_t first_k, int64_t depth)
{
    for (int e = (int)threadIdx.x; e < TILE * DEPTH; e += THREADS) {
        int i = trans ? e % TILE : e / DEPTH, k = trans ? e / TILE : e % DEPTH;
        int64_t row = first + i, col = first_k + k;
        bool inside = row < count && col < depth;
        slice[k][i] = inside ? get(x + (trans ? col * ld + row : row * ld + col)) : 0.0f;
    }
}

template <typename T, typename C> __global__ void __launch_bounds__(THREADS) product(struct gemm g)
{
    __shared__ float a[DEPTH][TILE + 1], b[DEPTH][TILE + 1];
    int64_t tiles = (g.n + TILE - 1) / TILE;
    int64_t row0 = (int64_t)blockIdx.x / tiles * TILE, col0 = (int64_t)blockIdx.x % tiles * TILE;
    int y = (int)threadIdx.x / SIDE, x = (int)threadIdx.x % SIDE;
    float sum[EACH][EACH] = {};
    for (int64_t k0 = 0; k0 < g.k; k0 += DEPTH) {
        load_slice(a, (const T *)g.a, g.lda, g.trans_a != 0, row0, g.m, k0, g.k);
        load_slice(b, (const T *)g.b, g.ldb, g.trans_b == 0, col0, g.n, k0, g.k);
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

void cuda_gemm_plain(struct device *d, const struct gemm *g)
{
    cudaStream_t s = cuda_compute(d);
    int64_t blocks = (g->m + TILE - 1) / TILE * ((g->n + TILE - 1) / TILE);
    if (blocks == 0)
        return;
    by_type(g->dt, [&](auto type) {
        using T = decltype(type);
        if (g->dt_c == DTYPE_F32)
            LAUNCH((product<T, float>), (unsigned)blocks, THREADS, 0, s, *g);
        else
            LAUNCH((product<T, T>), (unsigned)blocks, THREADS, 0, s, *g);
    });
}
