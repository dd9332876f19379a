/* qk_norm.cu - RMSNorm over each head of queries and of keys in packed projections, and its
 * gradient.  With n = h rstd of a head h:
 *   y = n w;  dh = rstd (dy w - h rstd^2 mean(dy w h));  dw (+)= sum over rows and heads of dy n
 *
 * Least memory traffic: forward reads x and writes y, backward reads dy and x and writes dx, each
 * once.  A block takes a row, and its warps divide the heads of the row: of a head of 128
 * elements of 16 bits a lane has four.  Values, which are not normalized, are copied.
 *
 * In backward row r belongs to block r % groups of cuda_norm_groups() blocks, on every GPU.  Each
 * warp sums its parts of dwq and dwk in shared memory of its own; the block adds those of its warps
 * in order, and a second kernel adds those of the blocks.
 */
#include "device/cuda/add_parts.cuh"
#include "device/cuda/pack.cuh"
#include "device/cuda/reduce.cuh"

enum { WARPS = 8, PARTS_BYTES = 48 << 10 };

template <typename T> struct head_norm {
    T *y;            /* dx of backward */
    const T *x, *dy; /* dy: of backward */
    const T *w[2];   /* of queries, of keys */
    float *rstd, *parts;
    int64_t rows;
    int heads, kv_heads, dim;
    float eps;
    bool w_aligned;
};

/* Elements per access, where memory allows more than one. */
enum { EACH = 4 };

static __device__ __forceinline__ int this_warp()
{
    return (int)threadIdx.x / 32;
}

static __device__ __forceinline__ int this_lane()
{
    return (int)threadIdx.x % 32;
}

/* The element with which head h of a row begins. */
template <typename T>
static __device__ __forceinline__ int64_t head_first(const head_norm<T> &t, int64_t row, int h)
{
    return (row * (t.heads + 2 * t.kv_heads) + h) * t.dim;
}

template <typename T, int n>
static __device__ __forceinline__ void copy_head(const head_norm<T> &t, const T *from,
                                                 int64_t first)
{
    for (int at = this_lane() * n; at < t.dim; at += 32 * n)
        store(t.y + first + at, load<raw<T, n>>(from + first + at));
}

template <typename T, int n> __global__ void __launch_bounds__(32 * WARPS) forward(head_norm<T> t)
{
    const int64_t row = blockIdx.x;
    const int normed = t.heads + t.kv_heads;
    float x[n], w[n];
    for (int h = this_warp(); h < normed + t.kv_heads; h += WARPS) {
        const int64_t first = head_first(t, row, h);
        float squares = 0;
        if (h >= normed) {
            copy_head<T, n>(t, t.x, first);
            continue;
        }
        for (int at = this_lane() * n; at < t.dim; at += 32 * n) {
            get(x, t.x + first + at);
#pragma unroll
            for (int i = 0; i < n; i++)
                squares = fmaf(x[i], x[i], squares);
        }
        float rstd = 1.0f / sqrtf(warp_sum(squares) / (float)t.dim + t.eps);
        if (this_lane() == 0)
            t.rstd[row * normed + h] = rstd;
        const T *weights = h < t.heads ? t.w[0] : t.w[1];
        for (int at = this_lane() * n; at < t.dim; at += 32 * n) {
            get(x, t.x + first + at);
            load_param(w, weights + at, t.w_aligned);
#pragma unroll
            for (int i = 0; i < n; i++)
                x[i] *= rstd * w[i];
            raw<T, n> bits;
            narrow(bits, x);
            store(t.y + first + at, bits);
        }
    }
}

/* Compute dx of a head, and add the head's part to sums, the gradient of its weights from this
 * warp. */
template <typename T, int n>
static __device__ __forceinline__ void head_gradient(const head_norm<T> &t, const T *weights,
                                                     int64_t first, float rstd, float *sums)
{
    float x[n], dy[n], w[n], product = 0;
    for (int at = this_lane() * n; at < t.dim; at += 32 * n) {
        get(x, t.x + first + at);
        get(dy, t.dy + first + at);
        load_param(w, weights + at, t.w_aligned);
#pragma unroll
        for (int i = 0; i < n; i++) {
            product = fmaf(dy[i] * w[i], x[i], product);
            sums[at + i] = fmaf(dy[i] * x[i], rstd, sums[at + i]);
        }
    }
    const float mean = warp_sum(product) / (float)t.dim * rstd * rstd;
    for (int at = this_lane() * n; at < t.dim; at += 32 * n) {
        get(x, t.x + first + at);
        get(dy, t.dy + first + at);
        load_param(w, weights + at, t.w_aligned);
#pragma unroll
        for (int i = 0; i < n; i++)
            dy[i] = rstd * fmaf(-x[i], mean, dy[i] * w[i]);
        raw<T, n> bits;
        narrow(bits, dy);
        store(t.y + first + at, bits);
    }
}

/* Compute dx, and the block's parts of dwq and dwk.  A block has as many warps as its shared memory
 * holds parts for, [warps, 2, dim]. */
template <typename T, int n> __global__ void __launch_bounds__(32 * WARPS) backward(head_norm<T> t)
{
    DYNAMIC_SHARED(float, shared);
    const int normed = t.heads + t.kv_heads, warps = (int)blockDim.x / 32;
    float *sums = shared + this_warp() * 2 * t.dim;
    for (int at = this_lane(); at < 2 * t.dim; at += 32)
        sums[at] = 0;
    __syncwarp();
    for (int64_t row = blockIdx.x; row < t.rows; row += gridDim.x)
        for (int h = this_warp(); h < normed + t.kv_heads; h += warps) {
            const int64_t first = head_first(t, row, h);
            const int is_key = h >= t.heads;
            if (h < normed)
                head_gradient<T, n>(t, is_key ? t.w[1] : t.w[0], first, t.rstd[row * normed + h],
                                    sums + is_key * t.dim);
            else
                copy_head<T, n>(t, t.dy, first);
        }
    __syncthreads();
    for (int at = (int)threadIdx.x; at < 2 * t.dim; at += (int)blockDim.x) {
        float total = 0;
        for (int warp = 0; warp < warps; warp++)
            total += shared[warp * 2 * t.dim + at];
        t.parts[(int64_t)blockIdx.x * 2 * t.dim + at] = total;
    }
}

template <typename T>
static head_norm<T> tensors_of(const struct qk_norm *n, void *y, const void *x, const void *dy,
                               const void *wq, const void *wk, const float *rstd, void *parts)
{
    head_norm<T> t = {};
    t.y = (T *)y;
    t.x = (const T *)x;
    t.dy = (const T *)dy;
    t.w[0] = (const T *)wq;
    t.w[1] = (const T *)wk;
    t.rstd = (float *)rstd; /* backward reads it alone */
    t.parts = (float *)parts;
    t.rows = n->rows;
    t.heads = (int)n->heads;
    t.kv_heads = (int)n->kv_heads;
    t.dim = (int)n->head_dim;
    t.eps = n->eps;
    t.w_aligned = aligned16(wq) && aligned16(wk);
    return t;
}

/* Can heads be read EACH elements at a time? */
template <typename T> static bool is_whole(const head_norm<T> &t)
{
    return t.dim % EACH == 0 && aligned16(t.y) && aligned16(t.x) && aligned16(t.dy);
}

void cuda_qk_norm(struct device *d, const struct qk_norm *n, void *y, float *rstd, const void *x,
                  const void *wq, const void *wk)
{
    cudaStream_t s = cuda_compute(d);
    if (n->rows == 0)
        return;
    by_type(n->dt, [&](auto type) {
        using T = decltype(type);
        head_norm<T> t = tensors_of<T>(n, y, x, NULL, wq, wk, rstd, NULL);
        if (is_whole(t))
            LAUNCH((forward<T, EACH>), (unsigned)n->rows, 32 * WARPS, 0, s, t);
        else
            LAUNCH((forward<T, 1>), (unsigned)n->rows, 32 * WARPS, 0, s, t);
    });
}

void cuda_qk_norm_backward(struct device *d, const struct qk_norm *n, void *dx, float *dwq,
                           float *dwk, const void *dy, const void *x, const void *wq,
                           const void *wk, const float *rstd, int accumulate, void *scratch)
{
    cudaStream_t s = cuda_compute(d);
    const float *parts = (const float *)scratch;
    const size_t warp_bytes = 2 * sizeof(float) * (size_t)n->head_dim;
    int groups = cuda_norm_groups(n->rows);
    size_t fit = PARTS_BYTES / warp_bytes;
    int warps = fit >= WARPS ? WARPS : fit > 1 ? (int)fit : 1;
    if (n->rows > 0)
        by_type(n->dt, [&](auto type) {
            using T = decltype(type);
            head_norm<T> t = tensors_of<T>(n, dx, x, dy, wq, wk, rstd, scratch);
            if (is_whole(t))
                LAUNCH((backward<T, EACH>), groups, 32 * warps, warps * warp_bytes, s, t);
            else
                LAUNCH((backward<T, 1>), groups, 32 * warps, warps * warp_bytes, s, t);
        });
    launch_add_parts(s, dwq, parts, groups, 2 * n->head_dim, n->head_dim, accumulate);
    launch_add_parts(s, dwk, parts + n->head_dim, groups, 2 * n->head_dim, n->head_dim, accumulate);
}
