/* magnitude.cu - products whose columns are scaled to trained lengths: the squares of a matrix's
 * rows, the scaling, and its gradient.
 *
 * Least memory traffic, and the threads' work:
 *   squares    W is read once; a warp takes a row
 *   scaling    x is read and y written once; a thread takes 16 bytes of the columns, computes their
 *              factors once, and goes over the rows, four at a time
 *   gradient   dy and x are read once; the sum over rows is that of a bias (bias.cu)
 */
#include "device/cuda/add_parts.cuh"
#include "device/cuda/pack.cuh"
#include "device/cuda/reduce.cuh"

enum { WARPS = 8 };

/* ---- squares ---- */

template <typename T> struct rows_squared {
    float *squares;
    const T *w, *b;
    const float *wa, *aa;
    int64_t rows, cols;
    int rank;
    float factor;
};

template <typename T> static __device__ __forceinline__ float value_at(const T *from)
{
    float one[1];
    widen(one, *from);
    return one[0];
}

/* squares = w w + factor b (2 wa + factor aa b), a row per warp; aa is symmetric, so that lanes
 * read neighbours of it. */
template <typename T, int n>
__global__ void __launch_bounds__(WARPS * 32) square_rows(rows_squared<T> t)
{
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    const int64_t row = (int64_t)blockIdx.x * WARPS + warp;
    if (row >= t.rows)
        return;
    const T *w = t.w + row * t.cols, *b = t.b + row * t.rank;
    const float *wa = t.wa + row * t.rank;
    float v[n], sum = 0, added = 0;
    for (int64_t at = lane * n; at < t.cols; at += 32 * n) {
        widen(v, load_once<raw<T, n>>(w + at));
#pragma unroll
        for (int i = 0; i < n; i++)
            sum = fmaf(v[i], v[i], sum);
    }
    for (int k = lane; k < t.rank; k += 32) {
        float both = 0;
        for (int l = 0; l < t.rank; l++)
            both = fmaf(t.aa[(int64_t)l * t.rank + k], value_at(b + l), both);
        added = fmaf(value_at(b + k), fmaf(t.factor, both, 2.0f * wa[k]), added);
    }
    sum = warp_sum(fmaf(t.factor, added, sum));
    if (lane == 0)
        t.squares[row] = sum < 0 ? 0 : sum; /* NaN stays */
}

void cuda_row_squares(struct device *d, const struct row_squares *s, float *squares, const void *w,
                      const void *b, const float *wa, const float *aa)
{
    cudaStream_t stream = cuda_compute(d);
    if (s->rows == 0)
        return;
    unsigned blocks = (unsigned)ceil_div(s->rows, WARPS);
    by_type(s->dt, [&](auto type) {
        using T = decltype(type);
        constexpr int n = LANES<T>;
        const rows_squared<T> t = {squares, (const T *)w, (const T *)b, wa,       aa,
                                   s->rows, s->cols,      (int)s->rank, s->factor};
        if (s->cols % n == 0 && aligned16(w))
            LAUNCH((square_rows<T, n>), blocks, WARPS * 32, 0, stream, t);
        else
            LAUNCH((square_rows<T, 1>), blocks, WARPS * 32, 0, stream, t);
    });
}

/* ---- scaling ---- */

enum { THREADS = 128, ROWS = 4 };

/* 1 / sqrt(squares); 0 where there is nothing to divide by. */
static __device__ __forceinline__ float inverse_norm(float squares)
{
    return squares == 0 ? 0.0f : 1.0f / sqrtf(squares);
}

template <typename T> struct scaled {
    T *y;
    const T *x, *m; /* m NULL: all ones */
    const float *squares;
    int64_t rows, cols, ld;
    bool m_aligned, squares_aligned;
};

/* y = x m / sqrt(squares) by columns, n columns and ROWS rows at a time per thread. */
template <typename T, int n> __global__ void __launch_bounds__(THREADS) scale_tile(scaled<T> t)
{
    using R = raw<T, n>;
    const int64_t at = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * n;
    float factor[n], squares[n], v[n];
    if (at >= t.cols)
        return;
#pragma unroll
    for (int i = 0; i < n; i++)
        factor[i] = 1;
    if (t.m) {
        load_param(factor, t.m + at, t.m_aligned);
        if (t.squares_aligned)
            load_floats(squares, t.squares + at);
#pragma unroll
        for (int i = 0; i < n; i++)
            factor[i] *= inverse_norm(t.squares_aligned ? squares[i] : t.squares[at + i]);
    }
    for (int64_t row = (int64_t)blockIdx.y * ROWS; row < t.rows; row += (int64_t)gridDim.y * ROWS) {
        R bits[ROWS];
#pragma unroll
        for (int j = 0; j < ROWS; j++)
            if (row + j < t.rows)
                bits[j] = load_once<R>(t.x + (row + j) * t.ld + at);
#pragma unroll
        for (int j = 0; j < ROWS; j++) {
            if (row + j >= t.rows)
                break;
            widen(v, bits[j]);
#pragma unroll
            for (int i = 0; i < n; i++)
                v[i] *= factor[i];
            narrow(bits[j], v);
            store(t.y + (row + j) * t.ld + at, bits[j]);
        }
    }
}

template <int n> static dim3 grid_of(const struct column_scale *s)
{
    return dim3((unsigned)ceil_div(s->cols, THREADS * n),
                (unsigned)min_i64(ceil_div(s->rows, ROWS), 65535));
}

void cuda_scale_columns(struct device *d, const struct column_scale *s, void *y, const void *x,
                        const void *m, const float *squares)
{
    cudaStream_t stream = cuda_compute(d);
    if (s->rows == 0 || s->cols == 0)
        return;
    by_type(s->dt, [&](auto type) {
        using T = decltype(type);
        constexpr int n = LANES<T>;
        bool whole = s->cols % n == 0 && s->ld % n == 0 && aligned16(y) && aligned16(x);
        const scaled<T> t = {(T *)y,
                             (const T *)x,
                             (const T *)m,
                             squares,
                             s->rows,
                             s->cols,
                             s->ld,
                             !whole || aligned16(m), /* an element at a time always is */
                             !whole || aligned16(squares)};
        if (whole)
            LAUNCH((scale_tile<T, n>), grid_of<n>(s), THREADS, 0, stream, t);
        else
            LAUNCH((scale_tile<T, 1>), grid_of<1>(s), THREADS, 0, stream, t);
    });
}

/* ---- the gradient of the magnitudes ---- */

template <typename T> struct products_summed {
    float *sums;
    const T *dy, *x;
    const float *squares;
    int64_t rows, cols, ld, per_group;
    int accumulate;
};

/* Sum dy x of the rows of group blockIdx.y, over sqrt(squares), into sums[blockIdx.y, cols].  The
 * threads share the work as in bias_sum_rows() (bias.cu). */
template <typename T, int n>
__global__ void __launch_bounds__(WARPS * 32) sum_products(products_summed<T> t)
{
    using R = raw<T, n>;
    enum { AHEAD = 4 };
    __shared__ float partial[WARPS][32 * n];
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    const int64_t first = (int64_t)blockIdx.x * 32 * n, at = first + lane * n;
    const int64_t begin = blockIdx.y * t.per_group;
    const int64_t end = begin + t.per_group < t.rows ? begin + t.per_group : t.rows;
    float total[n] = {}, v[n], g[n];
    for (int64_t row = begin + warp; row < end && at < t.cols; row += WARPS * AHEAD) {
        R bits[AHEAD], grad[AHEAD];
#pragma unroll
        for (int j = 0; j < AHEAD; j++)
            if (row + j * WARPS < end) {
                bits[j] = load_once<R>(t.x + (row + j * WARPS) * t.ld + at);
                grad[j] = load_once<R>(t.dy + (row + j * WARPS) * t.ld + at);
            }
#pragma unroll
        for (int j = 0; j < AHEAD; j++) {
            if (row + j * WARPS >= end)
                break;
            widen(v, bits[j]);
            widen(g, grad[j]);
#pragma unroll
            for (int i = 0; i < n; i++)
                total[i] = fmaf(v[i], g[i], total[i]);
        }
    }
#pragma unroll
    for (int i = 0; i < n; i++)
        partial[warp][i * 32 + lane] = total[i];
    __syncthreads();
    const int64_t column = first + lane * n + warp; /* its sums are partial[i][warp * 32 + lane] */
    if (warp >= n || column >= t.cols)
        return;
    float *to = t.sums + blockIdx.y * t.cols + column, sum = 0;
    for (int i = 0; i < WARPS; i++)
        sum += partial[i][warp * 32 + lane];
    sum *= inverse_norm(t.squares[column]);
    *to = t.accumulate ? *to + sum : sum;
}

void cuda_scale_columns_backward(struct device *d, const struct column_scale *s, float *dm,
                                 const void *dy, const void *x, const float *squares,
                                 int accumulate, void *scratch)
{
    cudaStream_t stream = cuda_compute(d);
    int groups = cuda_bias_groups(s->rows);
    float *sums = groups > 1 ? (float *)scratch : dm;
    if (s->rows == 0 || s->cols == 0)
        return;
    by_type(s->dt, [&](auto type) {
        using T = decltype(type);
        constexpr int n = LANES<T>;
        const products_summed<T> t = {sums,
                                      (const T *)dy,
                                      (const T *)x,
                                      squares,
                                      s->rows,
                                      s->cols,
                                      s->ld,
                                      ceil_div(s->rows, groups),
                                      groups > 1 ? 0 : accumulate};
        dim3 by_pieces((unsigned)ceil_div(s->cols, 32 * n), groups);
        dim3 by_ones((unsigned)ceil_div(s->cols, 32), groups);
        if (s->cols % n == 0 && s->ld % n == 0 && aligned16(dy) && aligned16(x))
            LAUNCH((sum_products<T, n>), by_pieces, WARPS * 32, 0, stream, t);
        else
            LAUNCH((sum_products<T, 1>), by_ones, WARPS * 32, 0, stream, t);
    });
    if (groups > 1)
        launch_add_parts(stream, dm, sums, groups, s->cols, s->cols, accumulate);
}
