/* gemm_plain.cu - matrix products without tensor cores, for any alignment; a block makes a tile
 * (gemm_plain.cuh), and the blocks go through c row by row. */
#include "device/cuda/gemm_plain.cuh"

template <typename T, typename C>
__global__ void __launch_bounds__(PLAIN_THREADS) product(struct gemm g)
{
    int64_t tiles = (g.n + PLAIN_TILE - 1) / PLAIN_TILE;
    plain_product<T, C>(g, (int64_t)blockIdx.x / tiles * PLAIN_TILE,
                        (int64_t)blockIdx.x % tiles * PLAIN_TILE);
}

void cuda_gemm_plain(struct device *d, const struct gemm *g)
{
    cudaStream_t s = cuda_compute(d);
    int64_t blocks = (g->m + PLAIN_TILE - 1) / PLAIN_TILE * ((g->n + PLAIN_TILE - 1) / PLAIN_TILE);
    if (blocks == 0)
        return;
    by_type(g->dt, [&](auto type) {
        using T = decltype(type);
        if (g->dt_c == DTYPE_F32)
            LAUNCH((product<T, float>), (unsigned)blocks, PLAIN_THREADS, 0, s, *g);
        else
            LAUNCH((product<T, T>), (unsigned)blocks, PLAIN_THREADS, 0, s, *g);
    });
}
