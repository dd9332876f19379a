/* layernorm_backward.cu - gradient of LayerNorm, with n = (x - mean) rstd:
 *   dx = dsum + rstd (dy w - mean(dy w) - n mean(dy w n)),  dw (+)= sum over rows of dy n,
 *   db (+)= sum over rows of dy.
 *
 * Must move: dy, dsum, x in; dx out, each rows * hidden elements once.  As in norm_backward.cu,
 * rows are dealt to CUDA_NORM_GROUPS blocks whatever the GPU, a block keeps its parts of dw and db
 * in registers over all its rows, and the parts are added in order by a second kernel; the next row
 * is loaded before the reductions of this one.
 */
#include "device/cuda/add_parts.cuh"
#include "device/cuda/pack.cuh"
#include "device/cuda/reduce.cuh"

template <typename T> struct layernorm_gradient {
    T *dx;
    const T *dy, *dsum, *x, *w;
    const float *stats;
    float *parts; /* [groups, 2, hidden]: of dw, of db */
    int64_t rows;
    int hidden;
    bool w_aligned;
};

/* What both reductions of a row need. */
struct layernorm_sums {
    float sum, product; /* of dy w, and of dy w n */
};

/* Both sums over the block; partial as in team_sum(). */
static __device__ __forceinline__ layernorm_sums block_sums(layernorm_sums p,
                                                            float (&partial)[2][32])
{
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    const int warps = (int)blockDim.x / 32;
    p.sum = warp_sum(p.sum);
    p.product = warp_sum(p.product);
    if (warps == 1)
        return p;
    if (lane == 0) {
        partial[0][warp] = p.sum;
        partial[1][warp] = p.product;
    }
    __syncthreads();
    p.sum = warp_sum(lane < warps ? partial[0][lane] : 0.0f);
    p.product = warp_sum(lane < warps ? partial[1][lane] : 0.0f);
    return p;
}

/* What n elements add to the sums, to dw and to db; x becomes its normal form. */
template <int n>
static __device__ __forceinline__ void collect(layernorm_sums &p, float (&dw)[n], float (&db)[n],
                                               const float (&dy)[n], const float (&w)[n],
                                               float (&x)[n], float mean, float rstd)
{
#pragma unroll
    for (int i = 0; i < n; i++) {
        float normal = (x[i] - mean) * rstd, product = dy[i] * normal;
        p.sum = fmaf(dy[i], w[i], p.sum);
        p.product = fmaf(product, w[i], p.product);
        dw[i] += product;
        db[i] += dy[i];
    }
}

/* dsum becomes dx; m are the means. */
template <int n>
static __device__ __forceinline__ void add_gradient(float (&dsum)[n], const float (&dy)[n],
                                                    const float (&w)[n], const float (&x)[n],
                                                    layernorm_sums m, float mean, float rstd)
{
#pragma unroll
    for (int i = 0; i < n; i++) {
        float normal = (x[i] - mean) * rstd;
        dsum[i] = fmaf(rstd, fmaf(-normal, m.product, fmaf(dy[i], w[i], -m.sum)), dsum[i]);
    }
}

/* What a thread holds of a row: `count` pieces of 16 bytes of each tensor. */
template <typename T, int count> struct layernorm_held {
    raw<T, LANES<T>> dy[count], dsum[count], x[count];
    float mean, rstd;
};

template <typename T> static __device__ __forceinline__ int column_of(int j)
{
    return ((int)threadIdx.x + j * (int)blockDim.x) * LANES<T>;
}

template <typename T, int count>
static __device__ __forceinline__ void hold(layernorm_held<T, count> &h,
                                            const layernorm_gradient<T> &t, int64_t row)
{
    using R = raw<T, LANES<T>>;
    if (row >= t.rows)
        return;
    h.mean = t.stats[2 * row];
    h.rstd = t.stats[2 * row + 1];
#pragma unroll
    for (int j = 0; j < count; j++) {
        int at = column_of<T>(j);
        int64_t from = row * t.hidden + at;
        if (at < t.hidden) {
            h.dy[j] = load_once<R>(t.dy + from);
            h.x[j] = load_once<R>(t.x + from);
            if (t.dsum)
                h.dsum[j] = load_once<R>(t.dsum + from);
        }
    }
}

/* w of piece j; where the row has ended, zeros. */
template <typename T>
static __device__ __forceinline__ void weights(float (&w)[LANES<T>], const layernorm_gradient<T> &t,
                                               int j)
{
#pragma unroll
    for (int i = 0; i < LANES<T>; i++)
        w[i] = 0;
    if (column_of<T>(j) < t.hidden)
        load_param(w, t.w + column_of<T>(j), t.w_aligned);
}

template <typename T, int count>
static __device__ __forceinline__ void put_row(const layernorm_gradient<T> &t,
                                               const layernorm_held<T, count> &h, int64_t row,
                                               layernorm_sums m)
{
    constexpr int n = LANES<T>;
    float dy[n], x[n], w[n], dsum[n];
#pragma unroll
    for (int j = 0; j < count; j++) {
        int at = column_of<T>(j);
        widen(dy, h.dy[j]);
        widen(x, h.x[j]);
        widen(dsum, h.dsum[j]); /* zero where there is none */
        weights(w, t, j);
        add_gradient(dsum, dy, w, x, m, h.mean, h.rstd);
        raw<T, n> bits;
        narrow(bits, dsum);
        if (at < t.hidden)
            store(t.dx + row * t.hidden + at, bits);
    }
}

template <typename T, int count>
__global__ void __launch_bounds__(512, 1) layernorm_backward_kept(layernorm_gradient<T> t)
{
    constexpr int n = LANES<T>;
    __shared__ float partial[2][2][32];
    float dw[count][n] = {}, db[count][n] = {}, dy[n], x[n], w[n];
    layernorm_held<T, count> now = {}, next = {};
    hold(now, t, blockIdx.x);
    int slot = 0;
    for (int64_t row = blockIdx.x; row < t.rows; row += gridDim.x, slot ^= 1) {
        layernorm_sums p = {0, 0};
#pragma unroll
        for (int j = 0; j < count; j++) {
            widen(dy, now.dy[j]);
            widen(x, now.x[j]);
            weights(w, t, j);
            collect(p, dw[j], db[j], dy, w, x, now.mean, now.rstd);
        }
        hold(next, t, row + gridDim.x);
        p = block_sums(p, partial[slot]);
        put_row<T, count>(t, now, row, {p.sum / (float)t.hidden, p.product / (float)t.hidden});
        now = next;
    }
    float *part = t.parts + (int64_t)blockIdx.x * 2 * t.hidden;
#pragma unroll
    for (int j = 0; j < count; j++) {
        int at = column_of<T>(j);
        if (at < t.hidden) {
            store_floats(part + at, dw[j]);
            store_floats(part + t.hidden + at, db[j]);
        }
    }
}

template <typename T, int n>
static __device__ __forceinline__ void get(float (&to)[n], const T *from)
{
    widen(to, load<raw<T, n>>(from));
}

/* The parts of dw and db at n columns, zero before a block's first row. */
template <int n>
static __device__ __forceinline__ void get_parts(float (&dw)[n], float (&db)[n], const float *part,
                                                 int hidden, bool first)
{
    for (int i = 0; i < n; i++)
        dw[i] = db[i] = 0;
    if (first)
        return;
    load_floats(dw, part);
    load_floats(db, part + hidden);
}

/* Any length, n elements per access: rows are read twice, dw and db summed where they are
 * written. */
template <typename T, int n>
__global__ void __launch_bounds__(1024) layernorm_backward_reread(layernorm_gradient<T> t)
{
    __shared__ float partial[2][2][32];
    float *part = t.parts + (int64_t)blockIdx.x * 2 * t.hidden;
    const int begin = (int)threadIdx.x * n, step = (int)blockDim.x * n;
    float dy[n], x[n], w[n], dsum[n], dw[n], db[n];
    int slot = 0;
    for (int64_t row = blockIdx.x; row < t.rows; row += gridDim.x, slot ^= 1) {
        const int64_t first = row * t.hidden;
        const float mean = t.stats[2 * row], rstd = t.stats[2 * row + 1];
        layernorm_sums p = {0, 0};
        for (int at = begin; at < t.hidden; at += step) {
            get(dy, t.dy + first + at);
            get(x, t.x + first + at);
            load_param(w, t.w + at, t.w_aligned);
            get_parts(dw, db, part + at, t.hidden, row == blockIdx.x);
            collect(p, dw, db, dy, w, x, mean, rstd);
            store_floats(part + at, dw);
            store_floats(part + t.hidden + at, db);
        }
        p = block_sums(p, partial[slot]);
        p = {p.sum / (float)t.hidden, p.product / (float)t.hidden};
        for (int at = begin; at < t.hidden; at += step) {
            get(dy, t.dy + first + at);
            get(x, t.x + first + at);
            load_param(w, t.w + at, t.w_aligned);
            for (int i = 0; i < n; i++)
                dsum[i] = 0;
            if (t.dsum)
                get(dsum, t.dsum + first + at);
            add_gradient(dsum, dy, w, x, p, mean, rstd);
            raw<T, n> bits;
            narrow(bits, dsum);
            store(t.dx + first + at, bits);
        }
    }
}

template <typename T> static void launch(cudaStream_t s, layernorm_gradient<T> t)
{
    constexpr int n = LANES<T>;
    bool whole = t.hidden % n == 0 && aligned16(t.dx) && aligned16(t.dy) && aligned16(t.dsum) &&
                 aligned16(t.x) && aligned16(t.parts);
    int accesses = t.hidden / n, groups = cuda_norm_groups(t.rows);
    t.w_aligned = !whole || aligned16(t.w); /* an element at a time always is */
    if (!whole)
        LAUNCH((layernorm_backward_reread<T, 1>), groups, (int)min_i64(1024, whole_warps(t.hidden)),
               0, s, t);
    else if (accesses <= 512)
        LAUNCH((layernorm_backward_kept<T, 1>), groups, whole_warps(accesses), 0, s, t);
    else if (accesses <= 1024)
        LAUNCH((layernorm_backward_kept<T, 2>), groups, whole_warps(ceil_div(accesses, 2)), 0, s,
               t);
    else
        LAUNCH((layernorm_backward_reread<T, n>), groups, 1024, 0, s, t);
}

template <typename T>
static void backward(cudaStream_t s, void *dx, const void *dy, const void *dsum, const void *x,
                     const void *w, const float *stats, int64_t rows, int64_t hidden, void *scratch)
{
    launch<T>(s, {(T *)dx, (const T *)dy, (const T *)dsum, (const T *)x, (const T *)w, stats,
                  (float *)scratch, rows, (int)hidden, false});
}

void cuda_layernorm_backward(struct device *d, enum dtype dt, void *dx, float *dw, float *db,
                             const void *dy, const void *dsum, const void *x, const void *w,
                             const float *stats, int64_t rows, int64_t hidden, int accumulate,
                             void *scratch)
{
    cudaStream_t s = cuda_compute(d);
    const float *parts = (const float *)scratch;
    int groups = cuda_norm_groups(rows);
    if (rows > 0)
        by_type(dt, [&](auto type) {
            backward<decltype(type)>(s, dx, dy, dsum, x, w, stats, rows, hidden, scratch);
        });
    launch_add_parts(s, dw, parts, groups, 2 * hidden, hidden, accumulate);
    launch_add_parts(s, db, parts + hidden, groups, 2 * hidden, hidden, accumulate);
}
