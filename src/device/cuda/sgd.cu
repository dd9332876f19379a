/* sgd.cu - descent with momentum in one pass over its four tensors.
 *
 * Must move: p and v in and out, g in, copy out: 22 bytes an element.  One tile per block, two
 * groups of four elements per thread: six 16-byte loads under way, read and written past the
 * caches.  Groups begin where p is aligned; the elements before the first and after the last whole
 * group go one at a time.
 */
#include "device/cuda/pack.cuh"

enum { SGD_THREADS = 256, SGD_ACCESSES = 2, SGD_TILE = SGD_THREADS * SGD_ACCESSES };

template <typename C> struct sgd_tensors {
    float *p, *v;
    const float *g;
    C *copy; /* or NULL */
    int64_t elems;
};

/* n elements of each tensor. */
template <int n> struct sgd_group {
    raw<float, n> p, v, g;
};

template <typename C, int n>
static __device__ __forceinline__ void get(sgd_group<n> &e, const sgd_tensors<C> &t, int64_t at)
{
    using R = raw<float, n>;
    e.p = load_once<R>(t.p + at);
    e.v = load_once<R>(t.v + at);
    e.g = load_once<R>(t.g + at);
}

/* The operations and their order are those of cpu/optimizer.c. */
template <typename C, int n>
static __device__ __forceinline__ void step(const sgd_group<n> &e, const sgd_tensors<C> &t,
                                            const struct sgd &s, float factor, int64_t at)
{
    float p[n], v[n], g[n];
    widen(p, e.p);
    widen(v, e.v);
    widen(g, e.g);
#pragma unroll
    for (int i = 0; i < n; i++) {
        v[i] = v[i] * s.momentum + (g[i] * factor + p[i] * s.weight_decay);
        p[i] = p[i] - s.lr * v[i];
    }
    raw<float, n> out;
    narrow(out, p);
    store_once(t.p + at, out);
    narrow(out, v);
    store_once(t.v + at, out);
    if (t.copy) {
        raw<C, n> rounded;
        narrow(rounded, p);
        store(t.copy + at, rounded);
    }
}

template <typename C, int n>
__global__ void __launch_bounds__(SGD_THREADS)
    sgd_tile(sgd_tensors<C> t, struct sgd s, const double *factor, int shift)
{
    const float by = (float)*factor;
    sgd_group<n> e[SGD_ACCESSES];
    const int64_t begin = ((int64_t)blockIdx.x * SGD_TILE + threadIdx.x) * n - shift;
    if (isnan(by))
        return;
#pragma unroll
    for (int j = 0; j < SGD_ACCESSES; j++) {
        int64_t at = begin + j * SGD_THREADS * n;
        if (at >= 0 && at + n <= t.elems)
            get(e[j], t, at);
    }
#pragma unroll
    for (int j = 0; j < SGD_ACCESSES; j++) {
        int64_t at = begin + j * SGD_THREADS * n;
        if (at >= 0 && at + n <= t.elems) {
            step(e[j], t, s, by, at);
            continue;
        }
        for (int64_t i = at < 0 ? 0 : at; i < at + n && i < t.elems; i++) {
            sgd_group<1> one;
            get(one, t, i);
            step(one, t, s, by, i);
        }
    }
}

template <typename C>
static void launch(cudaStream_t s, const sgd_tensors<C> &t, const struct sgd *rule,
                   const double *factor)
{
    int shift = phase(t.p, 4);
    bool alike =
        phase(t.v, 4) == shift && phase(t.g, 4) == shift && (!t.copy || phase(t.copy, 4) == shift);
    if (alike)
        LAUNCH((sgd_tile<C, 4>), (unsigned)ceil_div(t.elems + shift, SGD_TILE * 4), SGD_THREADS, 0,
               s, t, *rule, factor, shift);
    else
        LAUNCH((sgd_tile<C, 1>), (unsigned)ceil_div(t.elems, SGD_TILE), SGD_THREADS, 0, s, t, *rule,
               factor, 0);
}

void cuda_sgd(struct device *d, const struct sgd *rule, const double *factor, float *p, float *v,
              const float *g, enum dtype dt_copy, void *copy, int64_t elems)
{
    cudaStream_t s = cuda_compute(d);
    if (elems == 0)
        return;
    if (dt_copy == DTYPE_F16)
        launch<fp16>(s, {p, v, g, (fp16 *)copy, elems}, rule, factor);
    else
        launch<bf16>(s, {p, v, g, (bf16 *)copy, elems}, rule, factor);
}
