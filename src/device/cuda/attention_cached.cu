/* attention_cached.cu - attention of rows that continue sequences, over a cache of keys and values.
 *
 * Must move: the keys and values that a row sees, once for each key head; they come from the second
 * level of cache for the other query heads of a group.  One kernel puts the rows' keys and values
 * into the cache.  In the next a block takes a query head of a row, and each of its warps every
 * fourth group of positions, of which a lane has some elements; softmax is online (Milakov and
 * Gimelshein 2018) and the warps' parts are put together at the end:
 *   m = max m_w;  l = sum l_w e^(m_w - m);  o = sum o_w e^(m_w - m) / l
 * Rows of a prompt are as many blocks; tensor cores are left idle there.
 */
#include "device/cuda/pack.cuh"
#include "device/cuda/reduce.cuh"
#include "device/cuda/sizes.h"

enum { CACHED_WARPS = 4, CACHED_LANE = 8, CACHED_GROUP = 4 }; /* of 32 lanes: heads up to 256 */
static_assert(32 * CACHED_LANE == CUDA_HEAD_DIM_MOST, "lanes hold the widest head");

struct cached_args {
    int seq, heads, kv_heads, dim;
    int64_t capacity, window;
    float scale; /* times log2(e) */
};

template <typename T>
__global__ void __launch_bounds__(256)
    keep_rows(T *cache, const T *qkv, const int32_t *positions, cached_args a)
{
    int64_t row = blockIdx.x, b = row / a.seq, position = positions[b * a.seq] + row % a.seq;
    const int64_t kept = 2 * (int64_t)a.kv_heads * a.dim, queries = (int64_t)a.heads * a.dim;
    cache += (b * a.capacity + position) * kept;
    qkv += row * (queries + kept) + queries;
    for (int64_t at = threadIdx.x; at < kept; at += blockDim.x)
        cache[at] = qkv[at];
}

/* Elements lane, lane + 32, ... of a head. */
template <typename T>
static __device__ __forceinline__ void get_lane(float (&to)[CACHED_LANE], const T *from, int dim)
{
    const int lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < CACHED_LANE; i++) {
        float one[1] = {0};
        if (lane + 32 * i < dim)
            get<T, 1>(one, from + lane + 32 * i);
        to[i] = one[0];
    }
}

/* The running maximum, sum and output of one warp. */
struct cached_part {
    float top, sum, o[CACHED_LANE];
};

/* `count` positions from `first` on. */
template <typename T>
static __device__ __forceinline__ void see(cached_part &p, const float (&q)[CACHED_LANE],
                                           const T *keys, const T *values, int64_t first, int count,
                                           int64_t stride, const cached_args &a)
{
    float score[CACHED_GROUP], x[CACHED_LANE], top = p.top;
#pragma unroll
    for (int j = 0; j < CACHED_GROUP; j++) {
        float sum = 0;
        get_lane(x, keys + (first + (j < count ? j : 0)) * stride, a.dim);
#pragma unroll
        for (int i = 0; i < CACHED_LANE; i++)
            sum += q[i] * x[i];
        score[j] = j < count ? warp_sum(sum) * a.scale : -INFINITY;
        top = fmaxf(top, score[j]);
    }
    float shrink = exp2_fast(p.top - top);
    p.top = top;
    p.sum *= shrink;
#pragma unroll
    for (int i = 0; i < CACHED_LANE; i++)
        p.o[i] *= shrink;
#pragma unroll
    for (int j = 0; j < CACHED_GROUP; j++) {
        float weight = exp2_fast(score[j] - top);
        get_lane(x, values + (first + (j < count ? j : 0)) * stride, a.dim);
        p.sum += weight;
#pragma unroll
        for (int i = 0; i < CACHED_LANE; i++)
            p.o[i] += weight * x[i];
    }
}

template <typename T>
__global__ void __launch_bounds__(32 * CACHED_WARPS)
    cached_rows(T *o, const T *cache, const T *qkv, const int32_t *positions, cached_args a)
{
    __shared__ float tops[CACHED_WARPS], sums[CACHED_WARPS];
    __shared__ float parts[CACHED_WARPS][32 * CACHED_LANE];
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    const int64_t row = blockIdx.x, h = blockIdx.y, b = row / a.seq;
    const int64_t position = positions[b * a.seq] + row % a.seq, stride = 2 * a.kv_heads * a.dim;
    const int64_t low = a.window > 0 && position >= a.window ? position - a.window + 1 : 0;
    const int64_t kv = h / (a.heads / a.kv_heads);
    const T *keys = cache + b * a.capacity * stride + kv * a.dim;
    const T *values = keys + (int64_t)a.kv_heads * a.dim;
    cached_part p = {-INFINITY, 0, {}};
    float q[CACHED_LANE];
    get_lane(q, qkv + row * ((int64_t)a.heads * a.dim + stride) + h * a.dim, a.dim);
    for (int64_t at = low + warp * CACHED_GROUP; at <= position;
         at += CACHED_WARPS * CACHED_GROUP) {
        int64_t left = position + 1 - at;
        see(p, q, keys, values, at, left < CACHED_GROUP ? (int)left : CACHED_GROUP, stride, a);
    }
    if (lane == 0) {
        tops[warp] = p.top;
        sums[warp] = p.sum;
    }
#pragma unroll
    for (int i = 0; i < CACHED_LANE; i++)
        parts[warp][lane + 32 * i] = p.o[i];
    __syncthreads();
    float top = -INFINITY, sum = 0, factor[CACHED_WARPS];
    for (int w = 0; w < CACHED_WARPS; w++)
        top = fmaxf(top, tops[w]);
    for (int w = 0; w < CACHED_WARPS; w++) {
        factor[w] = exp2_fast(tops[w] - top); /* 0 of a warp that saw nothing */
        sum += sums[w] * factor[w];
    }
    o += (row * a.heads + h) * a.dim;
    for (int i = (int)threadIdx.x; i < a.dim; i += 32 * CACHED_WARPS) {
        float value[1] = {0};
        for (int w = 0; w < CACHED_WARPS; w++)
            value[0] += parts[w][i] * factor[w];
        value[0] /= sum;
        raw<T, 1> bits;
        narrow(bits, value);
        store(o + i, bits);
    }
}

void cuda_attention_cached(struct device *d, const struct attention_cached *a, void *o, void *cache,
                           const void *qkv, const int32_t *positions, void *scratch)
{
    const float log2_e = 0x1.715476p0f;
    const unsigned rows = (unsigned)(a->batch * a->seq);
    const cached_args args = {(int)a->seq, (int)a->heads, (int)a->kv_heads, (int)a->head_dim,
                              a->capacity, a->window,     a->scale * log2_e};
    cudaStream_t s = cuda_compute(d);
    if (a->head_dim > 32 * CACHED_LANE) {
        cuda_note_failure(d,
                          "attention: heads of %lld elements are too wide for a GPU, %d is the "
                          "most",
                          (long long)a->head_dim, 32 * CACHED_LANE);
        return;
    }
    by_type(a->dt, [&](auto type) {
        using T = decltype(type);
        LAUNCH(keep_rows<T>, rows, 256, 0, s, (T *)cache, (const T *)qkv, positions, args);
        LAUNCH(cached_rows<T>, dim3(rows, (unsigned)a->heads), 32 * CACHED_WARPS, 0, s, (T *)o,
               (const T *)cache, (const T *)qkv, positions, args);
    });
}

size_t cuda_attention_cached_scratch(struct device *d, const struct attention_cached *a)
{
    return 0;
}
