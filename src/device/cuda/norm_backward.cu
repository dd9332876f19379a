/* norm_backward.cu - gradient of RMSNorm: dx = dsum + rstd (dy w - x rstd^2 mean(dy w x)),
 * dw (+)= sum over rows of dy x rstd.
 *
 * Must move: dy, dsum, x in; dx out, each rows * hidden elements once.  Rows are dealt to
 * CUDA_NORM_GROUPS blocks, row r to block r % CUDA_NORM_GROUPS whatever the GPU; a block keeps its
 * part of dw in registers over all its rows, and a second kernel adds the parts in order (2 *
 * CUDA_NORM_GROUPS * hidden floats, mostly within the L2).  Two blocks of 512 threads per
 * multiprocessor hold a row of 4096 bf16 in one 16-byte access per thread and tensor; the next row
 * is loaded before the reduction of this one, so that about 48 KB per multiprocessor are always
 * under way.
 */
#include "device/cuda/add_parts.cuh"
#include "device/cuda/pack.cuh"
#include "device/cuda/reduce.cuh"

template <typename T> struct gradient {
    T *dx;
    const T *dy, *dsum, *x, *w;
    const float *rstd;
    float *parts; /* [groups, hidden] */
    int64_t rows;
    int hidden;
    bool w_aligned;
};

/* w of a piece: read once where registers allow, else where it is used (it stays in cache). */
template <typename T, int count, bool held_w> struct weights {
    raw<T, LANES<T>> bits[held_w ? count : 1] = {};
    __device__ __forceinline__ void begin(const gradient<T> &t)
    {
        float w[LANES<T>];
#pragma unroll
        for (int j = 0; held_w && j < count; j++) {
            int at = ((int)threadIdx.x + j * (int)blockDim.x) * LANES<T>;
            if (at < t.hidden) {
                load_param(w, t.w + at, t.w_aligned);
                narrow(bits[j], w);
            }
        }
    }
    __device__ __forceinline__ void get(float (&w)[LANES<T>], const gradient<T> &t, int j) const
    {
        int at = ((int)threadIdx.x + j * (int)blockDim.x) * LANES<T>;
        if (held_w)
            widen(w, bits[held_w ? j : 0]);
        else if (at < t.hidden)
            load_param(w, t.w + at, t.w_aligned);
    }
};

/* What a thread holds of a row: `count` pieces of 16 bytes of each tensor. */
template <typename T, int count> struct held {
    raw<T, LANES<T>> dy[count], dsum[count], x[count];
    float rstd;
};

template <typename T, int count>
static __device__ __forceinline__ void hold(held<T, count> &h, const gradient<T> &t, int64_t row)
{
    using R = raw<T, LANES<T>>;
    if (row >= t.rows)
        return;
    h.rstd = t.rstd[row];
#pragma unroll
    for (int j = 0; j < count; j++) {
        int at = ((int)threadIdx.x + j * (int)blockDim.x) * LANES<T>;
        int64_t from = row * t.hidden + at;
        if (at < t.hidden) {
            h.dy[j] = load_once<R>(t.dy + from);
            h.x[j] = load_once<R>(t.x + from);
            if (t.dsum)
                h.dsum[j] = load_once<R>(t.dsum + from);
        }
    }
}

/* Sum of dy w x over n elements; what they add to dw is added. */
template <int n>
static __device__ __forceinline__ float products_of(float (&dw)[n], const float (&dy)[n],
                                                    const float (&w)[n], const float (&x)[n],
                                                    float rstd)
{
    float sum = 0;
#pragma unroll
    for (int i = 0; i < n; i++) {
        float product = dy[i] * x[i];
        sum = fmaf(product, w[i], sum);
        dw[i] = fmaf(product, rstd, dw[i]);
    }
    return sum;
}

/* dsum becomes dx. */
template <int n>
static __device__ __forceinline__ void add_gradient(float (&dsum)[n], const float (&dy)[n],
                                                    const float (&w)[n], const float (&x)[n],
                                                    float rstd, float mean)
{
#pragma unroll
    for (int i = 0; i < n; i++)
        dsum[i] = fmaf(rstd, fmaf(-x[i], mean, dy[i] * w[i]), dsum[i]);
}

template <typename T, int count, bool ahead>
static __device__ __forceinline__ void kept_rows(const gradient<T> &t)
{
    constexpr int n = LANES<T>;
    __shared__ float partial[2][32];
    float dw[count][n] = {}, dy[n], x[n], w[n] = {}, dsum[n];
    weights<T, count, ahead> all_w;
    held<T, count> now = {}, next = {};
    hold(now, t, blockIdx.x);
    all_w.begin(t);
    int slot = 0;
    for (int64_t row = blockIdx.x; row < t.rows; row += gridDim.x, slot ^= 1) {
        float products = 0;
#pragma unroll
        for (int j = 0; j < count; j++) {
            widen(dy, now.dy[j]);
            all_w.get(w, t, j);
            widen(x, now.x[j]);
            products += products_of(dw[j], dy, w, x, now.rstd);
        }
        if (ahead)
            hold(next, t, row + gridDim.x);
        products = block_sum(products, partial[slot]);
        float mean = products / (float)t.hidden * now.rstd * now.rstd;
#pragma unroll
        for (int j = 0; j < count; j++) {
            int at = ((int)threadIdx.x + j * (int)blockDim.x) * n;
            widen(dy, now.dy[j]);
            all_w.get(w, t, j);
            widen(x, now.x[j]);
            widen(dsum, now.dsum[j]); /* zero where there is none */
            add_gradient(dsum, dy, w, x, now.rstd, mean);
            raw<T, n> bits;
            narrow(bits, dsum);
            if (at < t.hidden)
                store(t.dx + row * t.hidden + at, bits);
        }
        if (ahead)
            now = next;
        else
            hold(now, t, row + gridDim.x);
    }
#pragma unroll
    for (int j = 0; j < count; j++) {
        int at = ((int)threadIdx.x + j * (int)blockDim.x) * n;
        if (at < t.hidden)
            store_floats(t.parts + (int64_t)blockIdx.x * t.hidden + at, dw[j]);
    }
}

template <typename T> __global__ void __launch_bounds__(512, 2) backward_short(gradient<T> t)
{
    kept_rows<T, 1, true>(t);
}

template <typename T> __global__ void __launch_bounds__(512, 1) backward_middle(gradient<T> t)
{
    kept_rows<T, 2, true>(t);
}

template <typename T> __global__ void __launch_bounds__(512, 1) backward_long(gradient<T> t)
{
    kept_rows<T, 4, false>(t);
}

template <typename T, int n>
static __device__ __forceinline__ void get(float (&to)[n], const T *from)
{
    widen(to, load<raw<T, n>>(from));
}

/* Any length, n elements per access: rows are read twice and dw is summed where it is written. */
template <typename T, int n> __global__ void __launch_bounds__(1024) backward_reread(gradient<T> t)
{
    __shared__ float partial[2][32];
    float *part = t.parts + (int64_t)blockIdx.x * t.hidden;
    const int begin = (int)threadIdx.x * n, step = (int)blockDim.x * n;
    float dy[n], x[n], w[n], dsum[n], dw[n];
    int slot = 0;
    for (int64_t row = blockIdx.x; row < t.rows; row += gridDim.x, slot ^= 1) {
        const int64_t first = row * t.hidden;
        float products = 0, rstd = t.rstd[row];
        for (int at = begin; at < t.hidden; at += step) {
            get(dy, t.dy + first + at);
            get(x, t.x + first + at);
            load_param(w, t.w + at, t.w_aligned);
            for (int i = 0; i < n; i++)
                dw[i] = 0;
            if (row != blockIdx.x)
                load_floats(dw, part + at);
            products += products_of(dw, dy, w, x, rstd);
            store_floats(part + at, dw);
        }
        products = block_sum(products, partial[slot]);
        float mean = products / (float)t.hidden * rstd * rstd;
        for (int at = begin; at < t.hidden; at += step) {
            get(dy, t.dy + first + at);
            get(x, t.x + first + at);
            load_param(w, t.w + at, t.w_aligned);
            for (int i = 0; i < n; i++)
                dsum[i] = 0;
            if (t.dsum)
                get(dsum, t.dsum + first + at);
            add_gradient(dsum, dy, w, x, rstd, mean);
            raw<T, n> bits;
            narrow(bits, dsum);
            store(t.dx + first + at, bits);
        }
    }
}

template <typename T> static void launch(cudaStream_t s, gradient<T> t)
{
    constexpr int n = LANES<T>;
    bool whole = t.hidden % n == 0 && aligned16(t.dx) && aligned16(t.dy) && aligned16(t.dsum) &&
                 aligned16(t.x) && aligned16(t.parts);
    int accesses = t.hidden / n, groups = cuda_norm_groups(t.rows);
    t.w_aligned = aligned16(t.w);
    if (!whole) {
        t.w_aligned = true; /* an element at a time is */
        int threads = (int)min_i64(1024, whole_warps(t.hidden));
        LAUNCH((backward_reread<T, 1>), groups, threads, 0, s, t);
    } else if (accesses <= 512) {
        LAUNCH(backward_short<T>, groups, whole_warps(accesses), 0, s, t);
    } else if (accesses <= 1024) {
        LAUNCH(backward_middle<T>, groups, whole_warps(ceil_div(accesses, 2)), 0, s, t);
    } else if (accesses <= 2048) {
        LAUNCH(backward_long<T>, groups, whole_warps(ceil_div(accesses, 4)), 0, s, t);
    } else {
        LAUNCH((backward_reread<T, n>), groups, 1024, 0, s, t);
    }
}

template <typename T>
static void backward(cudaStream_t s, void *dx, const void *dy, const void *dsum, const void *x,
                     const void *w, const float *rstd, int64_t rows, int64_t hidden, void *scratch)
{
    launch<T>(s, {(T *)dx, (const T *)dy, (const T *)dsum, (const T *)x, (const T *)w, rstd,
                  (float *)scratch, rows, (int)hidden, false});
}

void cuda_rmsnorm_backward(struct device *d, enum dtype dt, void *dx, float *dw, const void *dy,
                           const void *dsum, const void *x, const void *w, const float *rstd,
                           int64_t rows, int64_t hidden, int accumulate, void *scratch)
{
    cudaStream_t s = cuda_compute(d);
    if (rows > 0)
        by_type(dt, [&](auto type) {
            backward<decltype(type)>(s, dx, dy, dsum, x, w, rstd, rows, hidden, scratch);
        });
    launch_add_parts(s, dw, (const float *)scratch, cuda_norm_groups(rows), hidden, hidden,
                     accumulate);
}
