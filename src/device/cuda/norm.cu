/* norm.cu - RMSNorm, with the residual addition before it, and LayerNorm: forward.
 *
 * Least memory traffic: x and delta are read, sum and y written, rows * hidden elements each (w and
 * b stay in cache).
 *
 * A team of threads takes a row and keeps it in registers between the reductions and the result, so
 * that x is read once.  LayerNorm (`centered`) has one reduction more: first the mean, then the
 * squares around it.  For a row of 4096 bf16 there are 256 threads, each with two 16-byte loads of
 * each input; several such blocks run on a multiprocessor, so that some load while others reduce.
 * Short rows share a block.  Rows that do not fit into registers, or are not whole 16-byte pieces,
 * are read again for each pass.
 */
#include "device/cuda/pack.cuh"
#include "device/cuda/reduce.cuh"

template <typename T> struct norm_tensors {
    T *y, *sum;         /* sum: of RMSNorm with delta */
    float *stats;       /* a row's rstd; of LayerNorm mean and rstd */
    const T *x, *delta; /* delta NULL: none */
    const T *w, *b;     /* b: of LayerNorm */
    int64_t rows;
    int hidden;
    float eps;
    bool w_aligned, b_aligned;
};

/* The sum of n elements. */
template <typename R, int n> static __device__ __forceinline__ float total_of(R bits)
{
    float v[n], sum = 0;
    widen(v, bits);
#pragma unroll
    for (int i = 0; i < n; i++)
        sum += v[i];
    return sum;
}

/* The sum of the squares of n elements' distances from mean. */
template <typename R, int n>
static __device__ __forceinline__ float squares_around(R bits, float mean)
{
    float v[n], sum = 0;
    widen(v, bits);
#pragma unroll
    for (int i = 0; i < n; i++)
        sum = fmaf(v[i] - mean, v[i] - mean, sum);
    return sum;
}

/* Normalise n elements of a row, and write them to y. */
template <bool centered, typename T, int n>
static __device__ __forceinline__ void put_normal(const norm_tensors<T> &t, int64_t row, int column,
                                                  raw<T, n> bits, float mean, float rstd)
{
    float v[n], w[n], b[n];
    widen(v, bits);
    load_param(w, t.w + column, t.w_aligned);
    if (centered)
        load_param(b, t.b + column, t.b_aligned);
#pragma unroll
    for (int i = 0; i < n; i++)
        v[i] = centered ? fmaf((v[i] - mean) * rstd, w[i], b[i]) : v[i] * rstd * w[i];
    narrow(bits, v);
    store(t.y + row * t.hidden + column, bits);
}

template <bool centered, typename T>
static __device__ __forceinline__ void put_stats(const norm_tensors<T> &t, int64_t row, float mean,
                                                 float rstd)
{
    if (centered)
        t.stats[2 * row] = mean;
    t.stats[centered ? 2 * row + 1 : row] = rstd;
}

/* Normalise a row per team of `width` threads, each of which keeps `count` pieces of 16 bytes. */
template <bool centered, typename T, int count>
__global__ void __launch_bounds__(1024) norm_kept(norm_tensors<T> t, int width)
{
    constexpr int n = LANES<T>;
    using R = raw<T, n>;
    __shared__ float partial[2][32];
    int column = (int)threadIdx.x % width * n;
    int64_t row = (int64_t)blockIdx.x * (blockDim.x / width) + threadIdx.x / width;
    bool live = row < t.rows;
    const int64_t first = row * t.hidden;
    const int step = width * n;
    R kept[count], more[count];
    float mean = 0, sum = 0, squares = 0;
#pragma unroll
    for (int j = 0; j < count; j++) {
        int at = column + j * step;
        kept[j] = more[j] = R{};
        if (live && at < t.hidden) {
            kept[j] = load_once<R>(t.x + first + at);
            if (!centered && t.delta)
                more[j] = load_once<R>(t.delta + first + at);
        }
    }
    if (centered) {
#pragma unroll
        for (int j = 0; j < count; j++)
            sum += total_of<R, n>(kept[j]);
        mean = team_sum(sum, width / 32, partial[0]) / (float)t.hidden;
    }
#pragma unroll
    for (int j = 0; j < count; j++) {
        int at = column + j * step;
        if (!centered && t.delta) {
            kept[j] = sum_of<R, n>(kept[j], more[j]);
            if (live && at < t.hidden)
                store_once(t.sum + first + at, kept[j]);
        }
        if (!centered || at < t.hidden)
            squares += squares_around<R, n>(kept[j], mean);
    }
    squares = team_sum(squares, width / 32, partial[1]);
    float rstd = 1.0f / sqrtf(squares / (float)t.hidden + t.eps);
    if (!live)
        return;
    if (column == 0)
        put_stats<centered>(t, row, mean, rstd);
#pragma unroll
    for (int j = 0; j < count; j++) {
        int at = column + j * step;
        if (at < t.hidden)
            put_normal<centered, T, n>(t, row, at, kept[j], mean, rstd);
    }
}

/* Normalise a row of any length per block, n elements per access; each thread reads its elements
 * again for each pass, the sums that it wrote too. */
template <bool centered, typename T, int n>
__global__ void __launch_bounds__(1024) norm_reread(norm_tensors<T> t)
{
    using R = raw<T, n>;
    __shared__ float partial[2][32];
    const int begin = (int)threadIdx.x * n, step = (int)blockDim.x * n;
    const int64_t row = blockIdx.x, first = row * t.hidden;
    float mean = 0, sum = 0, squares = 0;
    if (centered) {
        for (int at = begin; at < t.hidden; at += step)
            sum += total_of<R, n>(load<R>(t.x + first + at));
        mean = block_sum(sum, partial[0]) / (float)t.hidden;
    }
    for (int at = begin; at < t.hidden; at += step) {
        R bits = load<R>(t.x + first + at);
        if (!centered && t.delta) {
            bits = sum_of<R, n>(bits, load<R>(t.delta + first + at));
            store(t.sum + first + at, bits);
        }
        squares += squares_around<R, n>(bits, mean);
    }
    squares = block_sum(squares, partial[1]);
    float rstd = 1.0f / sqrtf(squares / (float)t.hidden + t.eps);
    if (threadIdx.x == 0)
        put_stats<centered>(t, row, mean, rstd);
    const T *rounded = !centered && t.delta ? t.sum : t.x;
    for (int at = begin; at < t.hidden; at += step)
        put_normal<centered, T, n>(t, row, at, load<R>(rounded + first + at), mean, rstd);
}

template <bool centered, typename T, int count>
static void launch_kept(cudaStream_t s, const norm_tensors<T> &t, int64_t accesses)
{
    int width = whole_warps(ceil_div(accesses, count));
    int teams = width < 256 ? 256 / width : 1;
    LAUNCH((norm_kept<centered, T, count>), (unsigned)ceil_div(t.rows, teams), width * teams, 0, s,
           t, width);
}

template <bool centered, typename T> static void launch(cudaStream_t s, norm_tensors<T> t)
{
    constexpr int n = LANES<T>;
    bool whole = t.hidden % n == 0 && aligned16(t.x) && aligned16(t.delta) && aligned16(t.y) &&
                 (!t.delta || aligned16(t.sum));
    int accesses = t.hidden / n;
    t.w_aligned = !whole || aligned16(t.w); /* an element at a time always is */
    t.b_aligned = !whole || aligned16(t.b);
    if (!whole)
        LAUNCH((norm_reread<centered, T, 1>), (unsigned)t.rows,
               (int)min_i64(1024, whole_warps(t.hidden)), 0, s, t);
    else if (accesses <= 128)
        launch_kept<centered, T, 1>(s, t, accesses);
    else if (accesses <= 512)
        launch_kept<centered, T, 2>(s, t, accesses);
    else if (accesses <= 4096)
        launch_kept<centered, T, 4>(s, t, accesses);
    else
        LAUNCH((norm_reread<centered, T, n>), (unsigned)t.rows, 1024, 0, s, t);
}

void cuda_rmsnorm(struct device *d, enum dtype dt, void *y, void *sum, float *rstd, const void *x,
                  const void *delta, const void *w, int64_t rows, int64_t hidden, float eps)
{
    if (rows == 0)
        return;
    by_type(dt, [&](auto type) {
        using T = decltype(type);
        launch<false, T>(cuda_compute(d),
                         {(T *)y, (T *)sum, rstd, (const T *)x, (const T *)delta, (const T *)w,
                          NULL, rows, (int)hidden, eps, false, false});
    });
}

void cuda_layernorm(struct device *d, enum dtype dt, void *y, float *stats, const void *x,
                    const void *w, const void *b, int64_t rows, int64_t hidden, float eps)
{
    if (rows == 0)
        return;
    by_type(dt, [&](auto type) {
        using T = decltype(type);
        launch<true, T>(cuda_compute(d), {(T *)y, NULL, stats, (const T *)x, NULL, (const T *)w,
                                          (const T *)b, rows, (int)hidden, eps, false, false});
    });
}
