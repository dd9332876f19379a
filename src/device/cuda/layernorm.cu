/* layernorm.cu - LayerNorm forward.
 *
 * Must move: x in, y out, each rows * hidden elements once (w and b stay in cache).  As in norm.cu,
 * a team of threads takes a row and keeps it in registers, here over two reductions: the mean, then
 * the variance around it.  Short rows share a block.  Rows that do not fit, or are not whole
 * 16-byte pieces, are read three times.
 */
#include "device/cuda/pack.cuh"
#include "device/cuda/reduce.cuh"

template <typename T> struct layernorm_tensors {
    T *y;
    float *stats;
    const T *x, *w, *b;
    int64_t rows;
    int hidden;
    float eps;
    bool w_aligned, b_aligned;
};

template <typename R, int n> static __device__ __forceinline__ float sum_of(R bits)
{
    float v[n], sum = 0;
    widen(v, bits);
#pragma unroll
    for (int i = 0; i < n; i++)
        sum += v[i];
    return sum;
}

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

template <typename T, int n>
static __device__ __forceinline__ void put_normal(const layernorm_tensors<T> &t, int64_t row,
                                                  int column, raw<T, n> bits, float mean,
                                                  float rstd)
{
    float v[n], w[n], b[n];
    widen(v, bits);
    load_param(w, t.w + column, t.w_aligned);
    load_param(b, t.b + column, t.b_aligned);
#pragma unroll
    for (int i = 0; i < n; i++)
        v[i] = fmaf((v[i] - mean) * rstd, w[i], b[i]);
    narrow(bits, v);
    store(t.y + row * t.hidden + column, bits);
}

template <typename T>
static __device__ __forceinline__ void put_stats(const layernorm_tensors<T> &t, int64_t row,
                                                 float mean, float rstd)
{
    t.stats[2 * row] = mean;
    t.stats[2 * row + 1] = rstd;
}

/* A row per team of `width` threads, `count` pieces of 16 bytes each. */
template <typename T, int count>
__global__ void __launch_bounds__(1024) layernorm_kept(layernorm_tensors<T> t, int width)
{
    constexpr int n = LANES<T>;
    using R = raw<T, n>;
    __shared__ float partial[2][32];
    int column = (int)threadIdx.x % width * n;
    int64_t row = (int64_t)blockIdx.x * (blockDim.x / width) + threadIdx.x / width;
    bool live = row < t.rows;
    const int64_t first = row * t.hidden;
    const int step = width * n;
    R kept[count];
    float sum = 0, squares = 0;
#pragma unroll
    for (int j = 0; j < count; j++) {
        int at = column + j * step;
        kept[j] = R{};
        if (live && at < t.hidden)
            kept[j] = load_once<R>(t.x + first + at);
    }
#pragma unroll
    for (int j = 0; j < count; j++)
        sum += sum_of<R, n>(kept[j]);
    float mean = team_sum(sum, width / 32, partial[0]) / (float)t.hidden;
#pragma unroll
    for (int j = 0; j < count; j++)
        if (column + j * step < t.hidden)
            squares += squares_around<R, n>(kept[j], mean);
    squares = team_sum(squares, width / 32, partial[1]);
    float rstd = 1.0f / sqrtf(squares / (float)t.hidden + t.eps);
    if (!live)
        return;
    if (column == 0)
        put_stats(t, row, mean, rstd);
#pragma unroll
    for (int j = 0; j < count; j++) {
        int at = column + j * step;
        if (at < t.hidden)
            put_normal<T, n>(t, row, at, kept[j], mean, rstd);
    }
}

/* A row per block, n elements per access, any length. */
template <typename T, int n>
__global__ void __launch_bounds__(1024) layernorm_reread(layernorm_tensors<T> t)
{
    using R = raw<T, n>;
    __shared__ float partial[2][32];
    const int begin = (int)threadIdx.x * n, step = (int)blockDim.x * n;
    int64_t row = blockIdx.x;
    const T *x = t.x + row * t.hidden;
    float sum = 0, squares = 0;
    for (int at = begin; at < t.hidden; at += step)
        sum += sum_of<R, n>(load<R>(x + at));
    float mean = block_sum(sum, partial[0]) / (float)t.hidden;
    for (int at = begin; at < t.hidden; at += step)
        squares += squares_around<R, n>(load<R>(x + at), mean);
    squares = block_sum(squares, partial[1]);
    float rstd = 1.0f / sqrtf(squares / (float)t.hidden + t.eps);
    if (threadIdx.x == 0)
        put_stats(t, row, mean, rstd);
    for (int at = begin; at < t.hidden; at += step)
        put_normal<T, n>(t, row, at, load<R>(x + at), mean, rstd);
}

template <typename T, int count>
static void launch_kept(cudaStream_t s, const layernorm_tensors<T> &t, int64_t accesses)
{
    int width = whole_warps(ceil_div(accesses, count));
    int teams = width < 256 ? 256 / width : 1;
    LAUNCH((layernorm_kept<T, count>), (unsigned)ceil_div(t.rows, teams), width * teams, 0, s, t,
           width);
}

template <typename T> static void launch(cudaStream_t s, layernorm_tensors<T> t)
{
    constexpr int n = LANES<T>;
    bool whole = t.hidden % n == 0 && aligned16(t.x) && aligned16(t.y);
    int accesses = t.hidden / n;
    t.w_aligned = !whole || aligned16(t.w); /* an element at a time always is */
    t.b_aligned = !whole || aligned16(t.b);
    if (!whole)
        LAUNCH((layernorm_reread<T, 1>), (unsigned)t.rows,
               (int)min_i64(1024, whole_warps(t.hidden)), 0, s, t);
    else if (accesses <= 128)
        launch_kept<T, 1>(s, t, accesses);
    else if (accesses <= 512)
        launch_kept<T, 2>(s, t, accesses);
    else if (accesses <= 4096)
        launch_kept<T, 4>(s, t, accesses);
    else
        LAUNCH((layernorm_reread<T, n>), (unsigned)t.rows, 1024, 0, s, t);
}

template <typename T>
static void layernorm(cudaStream_t s, void *y, float *stats, const void *x, const void *w,
                      const void *b, int64_t rows, int64_t hidden, float eps)
{
    launch<T>(s, {(T *)y, stats, (const T *)x, (const T *)w, (const T *)b, rows, (int)hidden, eps,
                  false, false});
}

void cuda_layernorm(struct device *d, enum dtype dt, void *y, float *stats, const void *x,
                    const void *w, const void *b, int64_t rows, int64_t hidden, float eps)
{
    cudaStream_t s = cuda_compute(d);
    if (rows == 0)
        return;
    by_type(dt,
            [&](auto type) { layernorm<decltype(type)>(s, y, stats, x, w, b, rows, hidden, eps); });
}
