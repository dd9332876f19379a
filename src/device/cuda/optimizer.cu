/* optimizer.cu - AdamW in one pass over its five tensors, the norm that clips, small scalars.
 *
 * Must move: adamw p, m, v in and out, g in, copy out: 30 bytes an element; sumsq 4 bytes an
 * element. adamw takes one tile per block, two groups of four elements per thread: eight 16-byte
 * loads under way, read and written past the caches.  Groups begin where p is aligned; the elements
 * before the first and after the last whole group go one at a time. sumsq deals tiles to
 * CUDA_PARTIALS blocks, tile i to block i % CUDA_PARTIALS whatever the GPU: eight blocks of 256
 * threads on each multiprocessor of the largest.
 */
#include "device/cuda/pack.cuh"
#include "device/cuda/reduce.cuh"

struct eight {
    double values[8];
};

static __global__ void set_values(double *y, eight values, int count)
{
#pragma unroll
    for (int i = 0; i < 8; i++)
        if (i < count)
            y[i] = values.values[i];
}

void cuda_set(struct device *d, double *y, const double *values, int count)
{
    eight all = {};
    for (int i = 0; i < count; i++)
        all.values[i] = values[i];
    LAUNCH(set_values, 1, 1, 0, cuda_compute(d), y, all, count);
}

/* ---- sum of squares ---- */

enum { SUM_THREADS = 256, SUM_ACCESSES = 4, SUM_TILE = SUM_THREADS * SUM_ACCESSES * 4 };

static __device__ __forceinline__ void add_squares(double (&sum)[2], const float (&v)[4])
{
#pragma unroll
    for (int i = 0; i < 4; i++)
        sum[i % 2] = fma((double)v[i], (double)v[i], sum[i % 2]);
}

/* Four elements, zeros behind the end. */
static __device__ __forceinline__ uint4 four_of(const float *x, int64_t at, int64_t elems,
                                                bool aligned)
{
    uint4 bits;
    float v[4] = {};
    if (aligned && at + 4 <= elems)
        return load16_once(x + at);
    for (int i = 0; i < 4; i++)
        if (at + i < elems)
            v[i] = x[at + i];
    narrow(bits, v);
    return bits;
}

static __global__ void __launch_bounds__(SUM_THREADS)
    sum_squares(double *partial, const float *x, int64_t elems, bool aligned)
{
    __shared__ double sums[32];
    double sum[2] = {};
    for (int64_t begin = (int64_t)blockIdx.x * SUM_TILE; begin < elems;
         begin += (int64_t)gridDim.x * SUM_TILE) {
        uint4 bits[SUM_ACCESSES];
        float v[4];
#pragma unroll
        for (int j = 0; j < SUM_ACCESSES; j++)
            bits[j] = four_of(x, begin + (j * SUM_THREADS + (int)threadIdx.x) * 4, elems, aligned);
#pragma unroll
        for (int j = 0; j < SUM_ACCESSES; j++) {
            widen(v, bits[j]);
            add_squares(sum, v);
        }
    }
    double total = block_sum(sum[0] + sum[1], sums);
    if (threadIdx.x == 0)
        partial[blockIdx.x] = total;
}

static __global__ void __launch_bounds__(CUDA_PARTIALS)
    add_partials(double *sum, const double *partial, int count)
{
    __shared__ double sums[32];
    double total = block_sum((int)threadIdx.x < count ? partial[threadIdx.x] : 0.0, sums);
    if (threadIdx.x == 0)
        *sum += total;
}

void cuda_sumsq(struct device *d, double *sum, const float *x, int64_t elems)
{
    cudaStream_t s = cuda_compute(d);
    int count = (int)min_i64(ceil_div(elems, SUM_TILE), CUDA_PARTIALS);
    double *partial = cuda_state(d)->partial;
    if (elems == 0)
        return;
    LAUNCH(sum_squares, count, SUM_THREADS, 0, s, partial, x, elems, aligned16(x));
    LAUNCH(add_partials, 1, CUDA_PARTIALS, 0, s, sum, (const double *)partial, count);
}

static __global__ void find_factor(double *factor, const double *targets, const double *squares,
                                   const double *loss_scale, double nominal, double clip)
{
    double mean = *targets > 0 ? nominal / *targets / *loss_scale : 0;
    double norm = sqrt(*squares) * mean + 1e-6;
    double clipped = clip > 0 && norm > clip ? clip / norm : 1;
    *factor = isfinite(*squares) ? mean * clipped : (double)NAN;
}

void cuda_update_factor(struct device *d, double *factor, const double *targets,
                        const double *squares, const double *loss_scale, double nominal,
                        double clip)
{
    cudaStream_t s = cuda_compute(d);
    LAUNCH(find_factor, 1, 1, 0, s, factor, targets, squares, loss_scale, nominal, clip);
}

/* ---- AdamW ---- */

enum { ADAMW_THREADS = 256, ADAMW_ACCESSES = 2, ADAMW_TILE = ADAMW_THREADS * ADAMW_ACCESSES };

template <typename C> struct adamw_tensors {
    float *p, *m, *v;
    const float *g;
    C *copy; /* or NULL */
    int64_t elems;
};

/* n elements of each tensor. */
template <int n> struct adamw_group {
    raw<float, n> p, m, v, g;
};

template <typename C, int n>
static __device__ __forceinline__ void get(adamw_group<n> &e, const adamw_tensors<C> &t, int64_t at)
{
    using R = raw<float, n>;
    e.p = load_once<R>(t.p + at);
    e.m = load_once<R>(t.m + at);
    e.v = load_once<R>(t.v + at);
    e.g = load_once<R>(t.g + at);
}

/* The operations and their order are those of cpu/optimizer.c. */
template <typename C, int n>
static __device__ __forceinline__ void step(const adamw_group<n> &e, const adamw_tensors<C> &t,
                                            const struct adamw &a, float factor, int64_t at)
{
    const float keep = 1.0f - a.lr * a.weight_decay, step_size = a.lr / a.bias1;
    const float root_bias2 = sqrtf(a.bias2);
    float p[n], m[n], v[n], g[n];
    widen(p, e.p);
    widen(m, e.m);
    widen(v, e.v);
    widen(g, e.g);
#pragma unroll
    for (int i = 0; i < n; i++) {
        float grad = g[i] * factor;
        m[i] = m[i] + (grad - m[i]) * a.one_minus_beta1;
        v[i] = v[i] * a.beta2 + grad * grad * a.one_minus_beta2;
        p[i] = p[i] * keep - step_size * (m[i] / (sqrtf(v[i]) / root_bias2 + a.eps));
    }
    raw<float, n> out;
    narrow(out, p);
    store_once(t.p + at, out);
    narrow(out, m);
    store_once(t.m + at, out);
    narrow(out, v);
    store_once(t.v + at, out);
    if (t.copy) {
        raw<C, n> rounded;
        narrow(rounded, p);
        store(t.copy + at, rounded);
    }
}

template <typename C, int n>
__global__ void __launch_bounds__(ADAMW_THREADS)
    adamw_tile(adamw_tensors<C> t, struct adamw a, const double *factor, int shift)
{
    const float by = (float)*factor;
    const struct pack_span tile = tile_span(ADAMW_TILE * n, t.elems, shift);
    const int64_t begin = tile.begin + (int)threadIdx.x * n;
    adamw_group<n> e[ADAMW_ACCESSES];
    adamw_group<1> one;
    if (isnan(by))
        return;
    if (!tile.whole) {
        for (int64_t i = tile.begin + (int)threadIdx.x; i < tile.end; i += ADAMW_THREADS) {
            get(one, t, i);
            step(one, t, a, by, i);
        }
        return;
    }
#pragma unroll
    for (int j = 0; j < ADAMW_ACCESSES; j++)
        get(e[j], t, begin + j * ADAMW_THREADS * n);
#pragma unroll
    for (int j = 0; j < ADAMW_ACCESSES; j++)
        step(e[j], t, a, by, begin + j * ADAMW_THREADS * n);
}

template <typename C>
static void launch(cudaStream_t s, const adamw_tensors<C> &t, const struct adamw *a,
                   const double *factor)
{
    int shift = phase(t.p, 4);
    bool alike = phase(t.m, 4) == shift && phase(t.v, 4) == shift && phase(t.g, 4) == shift &&
                 (!t.copy || phase(t.copy, 4) == shift);
    if (alike)
        LAUNCH((adamw_tile<C, 4>), (unsigned)ceil_div(t.elems + shift, ADAMW_TILE * 4),
               ADAMW_THREADS, 0, s, t, *a, factor, shift);
    else
        LAUNCH((adamw_tile<C, 1>), (unsigned)ceil_div(t.elems, ADAMW_TILE), ADAMW_THREADS, 0, s, t,
               *a, factor, 0);
}

void cuda_adamw(struct device *d, const struct adamw *a, const double *factor, float *p, float *m,
                float *v, const float *g, enum dtype dt_copy, void *copy, int64_t elems)
{
    cudaStream_t s = cuda_compute(d);
    if (elems == 0)
        return;
    if (dt_copy == DTYPE_F16)
        launch<fp16>(s, {p, m, v, g, (fp16 *)copy, elems}, a, factor);
    else
        launch<bf16>(s, {p, m, v, g, (bf16 *)copy, elems}, a, factor);
}
