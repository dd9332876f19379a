/* muon.cu - the passes of Muon over single elements; its products are cuda_gemm's.
 *
 * Least memory traffic: momentum 16 bytes an element, normalize 8, polynomial 12; the step is in
 * optimizer.cu.  A thread takes EACH elements, THREADS apart, so that neighbouring threads access
 * neighbouring words at any alignment: matrices begin anywhere in a flat parameter.
 */
#include "device/cuda/pack.cuh"

enum { THREADS = 256, EACH = 4, TILE = THREADS * EACH };

static unsigned tiles(int64_t elems)
{
    return (unsigned)ceil_div(elems, TILE);
}

/* The thread's j-th element. */
static __device__ __forceinline__ int64_t element(int j)
{
    return (int64_t)blockIdx.x * TILE + j * THREADS + (int)threadIdx.x;
}

static __global__ void __launch_bounds__(THREADS)
    momentum_tile(struct momentum rule, const double *factor, float *m, float *g, int64_t elems)
{
    const float scale = (float)*factor, fresh = rule.one_minus_momentum;
    const float ahead = rule.nesterov ? fresh : 0.0f;
    if (isnan(scale))
        return;
#pragma unroll
    for (int j = 0; j < EACH; j++) {
        int64_t i = element(j);
        if (i >= elems)
            return;
        float mean = fmaf(fmaf(g[i], scale, -m[i]), fresh, m[i]);
        m[i] = mean;
        g[i] = fmaf(-fmaf(-g[i], scale, mean), ahead, mean);
    }
}

void cuda_momentum(struct device *d, const struct momentum *rule, const double *factor, float *m,
                   float *g, int64_t elems)
{
    cudaStream_t s = cuda_compute(d);
    if (elems)
        LAUNCH(momentum_tile, tiles(elems), THREADS, 0, s, *rule, factor, m, g, elems);
}

static __global__ void __launch_bounds__(THREADS)
    normalize_tile(float *y, const float *x, const double *squares, float eps, int64_t elems)
{
    const float by = 1.0f / fmaxf((float)sqrt(*squares), eps);
#pragma unroll
    for (int j = 0; j < EACH; j++) {
        int64_t i = element(j);
        if (i < elems)
            y[i] = x[i] * by;
    }
}

void cuda_normalize(struct device *d, float *y, const float *x, const double *squares, float eps,
                    int64_t elems)
{
    cudaStream_t s = cuda_compute(d);
    if (elems)
        LAUNCH(normalize_tile, tiles(elems), THREADS, 0, s, y, x, squares, eps, elems);
}

static __global__ void __launch_bounds__(THREADS)
    polynomial_tile(struct polynomial p, float *y, const float *x, int64_t rows)
{
#pragma unroll
    for (int j = 0; j < EACH; j++) {
        int64_t i = element(j);
        if (i < rows * rows)
            y[i] = fmaf(p.b, x[i], p.c * y[i]) + (i % (rows + 1) == 0 ? p.a : 0.0f);
    }
}

void cuda_polynomial(struct device *d, const struct polynomial *p, float *y, const float *x,
                     int64_t rows)
{
    cudaStream_t s = cuda_compute(d);
    if (rows)
        LAUNCH(polynomial_tile, tiles(rows * rows), THREADS, 0, s, *p, y, x, rows);
}
