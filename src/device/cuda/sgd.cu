/* sgd.cu - descent with momentum in one pass over its four tensors.
 *
 * Must move: p and v in and out, g in, copy out: 22 bytes an element.  One tile per block, two
 * groups of four elements per thread: six 16-byte loads under way, read and written past the
 * caches.  Groups begin where p is aligned; the elements before the first and after the last whole
 * group go one at a time.
 */
#include "device/cuda/pack.cuh"

enum { SGD_THREADS = 256, SGD_ACCESSES = 2, SGD_TILE = SGD_THREADS * SGD_ACCESSES };

struct sgd_tensors {
    float *p, *v;
    const float *g;
    bf16 *copy;
    int64_t elems;
};

/* n elements of each tensor. */
template <int n> struct sgd_group {
    raw<float, n> p, v, g;
};

template <int n>
static __device__ __forceinline__ void get(sgd_group<n> &e, const sgd_tensors &t, int64_t at)
{
    using R = raw<float, n>;
    e.p = load_once<R>(t.p + at);
    e.v = load_once<R>(t.v + at);
    e.g = load_once<R>(t.g + at);
}

/* The operations and their order are those of cpu/optimizer.c. */
template <int n>
static __device__ __forceinline__ void step(const sgd_group<n> &e, const sgd_tensors &t,
                                            const struct cuda_sgd &s, float factor, int64_t at)
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
        raw<bf16, n> rounded;
        narrow(rounded, p);
        store(t.copy + at, rounded);
    }
}

template <int n>
__global__ void __launch_bounds__(SGD_THREADS)
    sgd_tile(sgd_tensors t, struct cuda_sgd s, const double *factor, int shift)
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

void cuda_sgd(cudaStream_t s, const struct cuda_sgd *rule, const double *factor, float *p, float *v,
              const float *g, void *copy, int64_t elems)
{
    const sgd_tensors t = {p, v, g, (bf16 *)copy, elems};
    int shift = phase(p, 4);
    bool alike =
        phase(v, 4) == shift && phase(g, 4) == shift && (!copy || phase(t.copy, 4) == shift);
    if (elems == 0)
        return;
    if (alike)
        LAUNCH(sgd_tile<4>, (unsigned)pieces(elems + shift, SGD_TILE * 4), SGD_THREADS, 0, s, t,
               *rule, factor, shift);
    else
        LAUNCH(sgd_tile<1>, (unsigned)pieces(elems, SGD_TILE), SGD_THREADS, 0, s, t, *rule, factor,
               0);
}
