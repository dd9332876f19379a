/* norm.cu - RMSNorm forward, with the residual addition before it.
 *
 * Must move: x, delta in; sum, y out, each rows * hidden elements once (w stays in cache).
 * A team of threads takes a row and keeps it in registers between the sum of squares and the
 * result, so that x is read once.  A row of 4096 bf16 is 256 threads with two 16-byte loads of each
 * input in flight; several such blocks per multiprocessor cover each other's reductions.  Short
 * rows share a block.  Rows that do not fit, or are not whole 16-byte pieces, are read twice.
 */
#include "device/cuda/pack.cuh"
#include "device/cuda/reduce.cuh"

template <typename T> struct tensors {
    T *y, *sum;
    float *rstd;
    const T *x, *delta, *w;
    int64_t rows;
    int hidden;
    float eps;
    bool w_aligned;
};

template <typename R, int n> static __device__ __forceinline__ R added(R left, R right)
{
    float a[n], b[n];
    widen(a, left);
    widen(b, right);
#pragma unroll
    for (int i = 0; i < n; i++)
        a[i] += b[i];
    narrow(left, a);
    return left;
}

template <typename R, int n> static __device__ __forceinline__ float squares_of(R bits)
{
    float v[n], sum = 0;
    widen(v, bits);
#pragma unroll
    for (int i = 0; i < n; i++)
        sum = fmaf(v[i], v[i], sum);
    return sum;
}

template <typename T, int n>
static __device__ __forceinline__ void put_scaled(const tensors<T> &t, int64_t row, int column,
                                                  raw<T, n> bits, float scale)
{
    float v[n], w[n];
    widen(v, bits);
    load_param(w, t.w + column, t.w_aligned);
#pragma unroll
    for (int i = 0; i < n; i++)
        v[i] = v[i] * scale * w[i];
    narrow(bits, v);
    store(t.y + row * t.hidden + column, bits);
}

/* A row per team of `width` threads, `count` pieces of 16 bytes each. */
template <typename T, int count>
__global__ void __launch_bounds__(1024) rmsnorm_kept(tensors<T> t, int width)
{
    constexpr int n = LANES<T>;
    using R = raw<T, n>;
    __shared__ float partial[32];
    int column = (int)threadIdx.x % width * n;
    int64_t row = (int64_t)blockIdx.x * (blockDim.x / width) + threadIdx.x / width;
    bool live = row < t.rows;
    const int64_t first = row * t.hidden;
    const int step = width * n;
    R kept[count], more[count];
    float squares = 0;
#pragma unroll
    for (int j = 0; j < count; j++) {
        int at = column + j * step;
        kept[j] = more[j] = R{};
        if (live && at < t.hidden) {
            kept[j] = load_once<R>(t.x + first + at);
            if (t.delta)
                more[j] = load_once<R>(t.delta + first + at);
        }
    }
#pragma unroll
    for (int j = 0; j < count; j++) {
        int at = column + j * step;
        if (t.delta) {
            kept[j] = added<R, n>(kept[j], more[j]);
            if (live && at < t.hidden)
                store_once(t.sum + first + at, kept[j]);
        }
        squares += squares_of<R, n>(kept[j]);
    }
    squares = team_sum(squares, width / 32, partial);
    float scale = 1.0f / sqrtf(squares / (float)t.hidden + t.eps);
    if (!live)
        return;
    if (column == 0)
        t.rstd[row] = scale;
#pragma unroll
    for (int j = 0; j < count; j++) {
        int at = column + j * step;
        if (at < t.hidden)
            put_scaled<T, n>(t, row, at, kept[j], scale);
    }
}

/* A row per block, n elements per access, any length; each thread rereads what it wrote. */
template <typename T, int n> __global__ void __launch_bounds__(1024) rmsnorm_reread(tensors<T> t)
{
    using R = raw<T, n>;
    __shared__ float partial[32];
    int64_t row = blockIdx.x, first = row * t.hidden;
    float squares = 0;
    for (int at = (int)threadIdx.x * n; at < t.hidden; at += (int)blockDim.x * n) {
        R bits = load<R>(t.x + first + at);
        if (t.delta) {
            bits = added<R, n>(bits, load<R>(t.delta + first + at));
            store(t.sum + first + at, bits);
        }
        squares += squares_of<R, n>(bits);
    }
    squares = block_sum(squares, partial);
    float scale = 1.0f / sqrtf(squares / (float)t.hidden + t.eps);
    if (threadIdx.x == 0)
        t.rstd[row] = scale;
    const T *rounded = t.delta ? t.sum : t.x;
    for (int at = (int)threadIdx.x * n; at < t.hidden; at += (int)blockDim.x * n)
        put_scaled<T, n>(t, row, at, load<R>(rounded + first + at), scale);
}

template <typename T, int count>
static void launch_kept(cudaStream_t s, const tensors<T> &t, int64_t accesses)
{
    int width = whole_warps(ceil_div(accesses, count));
    int teams = width < 256 ? 256 / width : 1;
    int64_t blocks = ceil_div(t.rows, teams);
    LAUNCH((rmsnorm_kept<T, count>), (unsigned)blocks, width * teams, 0, s, t, width);
}

template <typename T> static void launch(cudaStream_t s, tensors<T> t)
{
    constexpr int n = LANES<T>;
    bool whole = t.hidden % n == 0 && aligned16(t.x) && aligned16(t.delta) && aligned16(t.y) &&
                 (!t.delta || aligned16(t.sum));
    int accesses = t.hidden / n;
    int threads = (int)min_i64(1024, whole_warps(t.hidden));
    t.w_aligned = aligned16(t.w);
    if (!whole) {
        t.w_aligned = true; /* an element at a time is */
        LAUNCH((rmsnorm_reread<T, 1>), (unsigned)t.rows, threads, 0, s, t);
    } else if (accesses <= 128) {
        launch_kept<T, 1>(s, t, accesses);
    } else if (accesses <= 512) {
        launch_kept<T, 2>(s, t, accesses);
    } else if (accesses <= 4096) {
        launch_kept<T, 4>(s, t, accesses);
    } else {
        LAUNCH((rmsnorm_reread<T, n>), (unsigned)t.rows, 1024, 0, s, t);
    }
}

template <typename T>
static void rmsnorm(cudaStream_t s, void *y, void *sum, float *rstd, const void *x,
                    const void *delta, const void *w, int64_t rows, int64_t hidden, float eps)
{
    launch<T>(s, {(T *)y, (T *)sum, rstd, (const T *)x, (const T *)delta, (const T *)w, rows,
                  (int)hidden, eps, false});
}

void cuda_rmsnorm(struct device *d, enum dtype dt, void *y, void *sum, float *rstd, const void *x,
                  const void *delta, const void *w, int64_t rows, int64_t hidden, float eps)
{
    if (rows == 0)
        return;
    by_type(dt, [&](auto type) {
        rmsnorm<decltype(type)>(cuda_compute(d), y, sum, rstd, x, delta, w, rows, hidden, eps);
    });
}
