/* bias.cu - add a bias to every row, alone or before GELU, and compute the gradient of the bias.
 *
 * Least memory traffic: x is read and y written once (the bias stays in cache); GELU's backward
 * reads dy and x and writes dx; the gradient of the bias reads dy.  A thread takes 16 bytes of the
 * columns and four rows, so that it starts four loads, or eight, before it uses the first.
 *
 * The gradient of the bias is summed over groups of rows.  A block has the columns of 32 lanes and
 * a group of rows, which its warps divide; the sums of its warps are added in order, then those of
 * the blocks.  The groups follow from the number of rows alone, so the sum is the same on every
 * GPU.
 */
#include "device/cuda/add_parts.cuh"
#include "device/cuda/pack.cuh"

enum { THREADS = 128, ROWS = 4 };

/* gelu(v) = v s,  s = (1 + tanh(u)) / 2 = 1 / (1 + e^-2u),  u = sqrt(2/pi) (v + 0.044715 v^3) */
static __device__ __forceinline__ float gate_of(float v)
{
    const float scale = -2.3022082f, cubic = 0.044715f; /* -2 sqrt(2/pi) / ln 2 */
    return 1.0f / (1.0f + exp2_fast(scale * fmaf(cubic * v * v, v, v)));
}

/* s + v s (1 - s) 2u',  2u' = 2 sqrt(2/pi) (1 + 3 0.044715 v^2) */
static __device__ __forceinline__ float gelu_slope(float v)
{
    const float twice_root = 1.5957691216f, cubic3 = 3 * 0.044715f;
    float s = gate_of(v);
    return fmaf(v * s * (1.0f - s), twice_root * fmaf(cubic3 * v, v, 1.0f), s);
}

/* The functions of v = x + b, and of dy if reads_dy says so, that bias_tile() computes. */
struct bias_alone {
    static constexpr bool reads_dy = false;
    static __device__ __forceinline__ float of(float v, float)
    {
        return v;
    }
};

struct bias_gelu {
    static constexpr bool reads_dy = false;
    static __device__ __forceinline__ float of(float v, float)
    {
        return v * gate_of(v);
    }
};

struct bias_gelu_gradient {
    static constexpr bool reads_dy = true;
    static __device__ __forceinline__ float of(float v, float dy)
    {
        return dy * gelu_slope(v);
    }
};

template <typename T> struct bias_rows {
    T *to;
    const T *x, *dy, *b;
    int64_t rows, cols;
    bool b_aligned;
};

/* to = F(x + b, dy), n columns and ROWS rows at a time per thread. */
template <typename T, int n, typename F>
__global__ void __launch_bounds__(THREADS) bias_tile(bias_rows<T> t)
{
    using R = raw<T, n>;
    const int64_t at = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * n;
    float b[n], v[n], dy[n] = {};
    if (at >= t.cols)
        return;
    load_param(b, t.b + at, t.b_aligned);
    for (int64_t row = (int64_t)blockIdx.y * ROWS; row < t.rows; row += (int64_t)gridDim.y * ROWS) {
        R bits[ROWS], grad[ROWS];
#pragma unroll
        for (int j = 0; j < ROWS; j++)
            if (row + j < t.rows) {
                bits[j] = load_once<R>(t.x + (row + j) * t.cols + at);
                if (F::reads_dy)
                    grad[j] = load_once<R>(t.dy + (row + j) * t.cols + at);
            }
#pragma unroll
        for (int j = 0; j < ROWS; j++) {
            if (row + j >= t.rows)
                break;
            widen(v, bits[j]);
            if (F::reads_dy)
                widen(dy, grad[j]);
#pragma unroll
            for (int i = 0; i < n; i++)
                v[i] = F::of(v[i] + b[i], dy[i]);
            narrow(bits[j], v);
            store(t.to + (row + j) * t.cols + at, bits[j]);
        }
    }
}

template <int n> static dim3 grid_of(int64_t rows, int64_t cols)
{
    return dim3((unsigned)ceil_div(cols, THREADS * n),
                (unsigned)min_i64(ceil_div(rows, ROWS), 65535));
}

template <typename F>
static void launch(struct device *d, enum dtype dt, void *to, const void *dy, const void *x,
                   const void *b, int64_t rows, int64_t cols)
{
    cudaStream_t s = cuda_compute(d);
    if (rows == 0)
        return;
    by_type(dt, [&](auto type) {
        using T = decltype(type);
        constexpr int n = LANES<T>;
        bool whole = cols % n == 0 && aligned16(to) && aligned16(x) && aligned16(dy);
        bool b_aligned = !whole || aligned16(b); /* an element at a time always is */
        const bias_rows<T> t = {(T *)to, (const T *)x, (const T *)dy, (const T *)b,
                                rows,    cols,         b_aligned};
        if (whole)
            LAUNCH((bias_tile<T, n, F>), grid_of<n>(rows, cols), THREADS, 0, s, t);
        else
            LAUNCH((bias_tile<T, 1, F>), grid_of<1>(rows, cols), THREADS, 0, s, t);
    });
}

void cuda_bias(struct device *d, enum dtype dt, void *y, const void *x, const void *b, int64_t rows,
               int64_t cols)
{
    launch<bias_alone>(d, dt, y, NULL, x, b, rows, cols);
}

void cuda_gelu(struct device *d, enum dtype dt, void *y, const void *x, const void *b, int64_t rows,
               int64_t cols)
{
    launch<bias_gelu>(d, dt, y, NULL, x, b, rows, cols);
}

void cuda_gelu_backward(struct device *d, enum dtype dt, void *dx, const void *dy, const void *x,
                        const void *b, int64_t rows, int64_t cols)
{
    launch<bias_gelu_gradient>(d, dt, dx, dy, x, b, rows, cols);
}

/* ---- the gradient of the bias ---- */

enum { WARPS = 8 };

/* Sum the rows of group blockIdx.y into sums[blockIdx.y, cols].  Each warp sums every WARPS-th row
 * in n columns per lane; then the threads of warp w < n add up the warps' sums of column w of each
 * lane.
 */
template <typename T, int n>
__global__ void __launch_bounds__(WARPS * 32)
    bias_sum_rows(float *sums, const T *dy, int64_t rows, int64_t cols, int64_t per_group,
                  int accumulate)
{
    using R = raw<T, n>;
    enum { AHEAD = 4 };
    __shared__ float partial[WARPS][32 * n];
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    const int64_t first = (int64_t)blockIdx.x * 32 * n, at = first + lane * n;
    const int64_t begin = blockIdx.y * per_group;
    const int64_t end = begin + per_group < rows ? begin + per_group : rows;
    float total[n] = {}, v[n];
    for (int64_t row = begin + warp; row < end && at < cols; row += WARPS * AHEAD) {
        R bits[AHEAD];
#pragma unroll
        for (int j = 0; j < AHEAD; j++)
            if (row + j * WARPS < end)
                bits[j] = load_once<R>(dy + (row + j * WARPS) * cols + at);
#pragma unroll
        for (int j = 0; j < AHEAD; j++) {
            if (row + j * WARPS >= end)
                break;
            widen(v, bits[j]);
#pragma unroll
            for (int i = 0; i < n; i++)
                total[i] += v[i];
        }
    }
#pragma unroll
    for (int i = 0; i < n; i++)
        partial[warp][i * 32 + lane] = total[i];
    __syncthreads();
    const int64_t column = first + lane * n + warp; /* its sums are partial[i][warp * 32 + lane] */
    if (warp >= n || column >= cols)
        return;
    float *to = sums + blockIdx.y * cols + column;
    float sum = accumulate ? *to : 0.0f;
    for (int i = 0; i < WARPS; i++)
        sum += partial[i][warp * 32 + lane];
    *to = sum;
}

void cuda_bias_backward(struct device *d, enum dtype dt, float *db, const void *dy, int64_t rows,
                        int64_t cols, int accumulate, void *scratch)
{
    cudaStream_t s = cuda_compute(d);
    int groups = cuda_bias_groups(rows), adds = groups > 1 ? 0 : accumulate;
    float *sums = groups > 1 ? (float *)scratch : db;
    if (rows == 0)
        return;
    int64_t per_group = ceil_div(rows, groups);
    by_type(dt, [&](auto type) {
        using T = decltype(type);
        constexpr int n = LANES<T>;
        dim3 by_pieces((unsigned)ceil_div(cols, 32 * n), groups);
        dim3 by_ones((unsigned)ceil_div(cols, 32), groups);
        if (cols % n == 0 && aligned16(dy))
            LAUNCH((bias_sum_rows<T, n>), by_pieces, WARPS * 32, 0, s, sums, (const T *)dy, rows,
                   cols, per_group, adds);
        else
            LAUNCH((bias_sum_rows<T, 1>), by_ones, WARPS * 32, 0, s, sums, (const T *)dy, rows,
                   cols, per_group, adds);
    });
    if (groups > 1)
        launch_add_parts(s, db, sums, groups, cols, cols, accumulate);
}
