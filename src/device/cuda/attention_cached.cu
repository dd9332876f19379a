/* attention_cached.cu - attention of rows that continue sequences, over a cache of keys and values.
 *
 * Least memory traffic: the keys and values that a row sees are read once for each key head.
 *
 * One kernel puts the rows' keys and values into the cache.  In the next a block takes a query head
 * of a row; or, where that leaves enough blocks for a GPU, two or four query heads that read the
 * same keys (the other query heads of these keys find them in the L2).  A team of lanes reads a
 * position by one access of each lane, where memory allows.  The teams of all warps divide the
 * positions; a team loads the keys and values of four positions before it uses the first, which
 * makes eight accesses of a lane:
 *
 *   heads of 128 in 16 bits:   lanes 0 to 15   positions low, low + 2, low + 4, low + 6
 *   (two teams in a warp)      lanes 16 to 31  positions low + 1, low + 3, low + 5, low + 7
 *
 * Softmax is online (Milakov and Gimelshein 2018) and the teams' parts are put together at the end:
 *   m = max m_t;  l = sum l_t e^(m_t - m);  o = sum o_t e^(m_t - m) / l
 * The result has the same bits whatever the number of heads of a block.
 *
 * Where sequences have one row each, blocks are few and large.  If the cache has many positions, a
 * head of a row has several blocks, each for a span of the positions.  The blocks write their parts
 * to scratch memory, and another kernel puts the parts together as above (flash decoding, Dao
 * 2023).  The length of a span follows from the size of the cache alone (cuda_spans_of()), not from
 * how many positions are seen so far.
 *
 * Rows of prompts are queries for tensor cores (attention.cu).  Where tensor cores cannot be used,
 * as in fp32, each row has a block for each head here.
 */
#include "device/cuda/attention.cuh"
#include "device/cuda/sizes.h"

enum {
    MOST_WARPS = 16,
    PROMPT_WARPS = 4,
    MOST_HEADS = 4,      /* of a block */
    ENOUGH_BLOCKS = 512, /* about four for each multiprocessor of a large GPU, one at a time */
};

struct cached_args {
    int seq, heads, kv_heads, dim;
    int64_t capacity, window;
    int64_t span; /* positions of a block */
    int spans;    /* of a head of a row */
    float scale;  /* times log2(e) */
};

/* The positions [low, end) that a row sees. */
struct cached_range {
    int64_t low, end;
};

static __device__ __forceinline__ cached_range range_of(const cached_args &a,
                                                        const int32_t *positions, int64_t row)
{
    const int64_t end = positions[row / a.seq * a.seq] + row % a.seq + 1;
    return {a.window > 0 && end > a.window ? end - a.window : 0, end};
}

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

/* How lanes hold a head: lane l of a team has accesses l, l + lanes, ... of n elements. */
template <typename T_, int n_, int lanes_, int accesses_> struct cached_team {
    using T = T_;
    using R = raw<T, n_>;
    static constexpr int n = n_, lanes = lanes_, accesses = accesses_;
    static constexpr int teams = 32 / lanes, dim = n * lanes * accesses; /* the widest head */
    static constexpr int seen = accesses > 2 ? 2 : 4; /* positions at a time, as registers allow */
    static_assert(dim <= CUDA_HEAD_DIM_MOST, "a part is as wide as a team's head");
};

/* Where the i-th access of this lane begins in a head. */
template <class C> static __device__ __forceinline__ int place_of(int i)
{
    return ((int)threadIdx.x % C::lanes + i * C::lanes) * C::n;
}

/* Zeros after a head. */
template <class C>
static __device__ __forceinline__ void load_head(typename C::R (&to)[C::accesses],
                                                 const typename C::T *from, int dim)
{
#pragma unroll
    for (int i = 0; i < C::accesses; i++) {
        to[i] = typename C::R{};
        if (place_of<C>(i) < dim)
            to[i] = load<typename C::R>(from + place_of<C>(i));
    }
}

/* The running maximum and sum of a team, and of its output what this lane has. */
template <class C> struct cached_part {
    float top, sum, o[C::accesses][C::n];
};

/* The sum over the team of q k, times scale. */
template <class C>
static __device__ __forceinline__ float score_of(const typename C::R (&q)[C::accesses],
                                                 const typename C::R (&k)[C::accesses], float scale)
{
    float sum = 0, x[C::n], y[C::n];
#pragma unroll
    for (int i = 0; i < C::accesses; i++) {
        widen(x, k[i]);
        widen(y, q[i]);
#pragma unroll
        for (int e = 0; e < C::n; e++)
            sum = fmaf(y[e], x[e], sum);
    }
#pragma unroll
    for (int distance = C::lanes / 2; distance; distance /= 2)
        sum += __shfl_xor_sync(ALL_LANES, sum, distance);
    return sum * scale;
}

/* What the positions of k and v with these scores add to a part. */
template <class C>
static __device__ __forceinline__ void add_positions(cached_part<C> &p,
                                                     const float (&score)[C::seen],
                                                     const typename C::R (&v)[C::seen][C::accesses])
{
    float x[C::n], top = p.top;
#pragma unroll
    for (int j = 0; j < C::seen; j++)
        top = fmaxf(top, score[j]);
    const float base = top == -INFINITY ? 0 : top; /* a team that has seen nothing yet */
    const float shrink = exp2_fast(p.top - base);
    p.top = top;
#pragma unroll
    for (int i = 0; i < C::accesses; i++)
#pragma unroll
        for (int e = 0; e < C::n; e++)
            p.o[i][e] *= shrink;
#pragma unroll
    for (int j = 0; j < C::seen; j++) {
        float weight = exp2_fast(score[j] - base);
        p.sum = j ? p.sum + weight : fmaf(p.sum, shrink, weight);
#pragma unroll
        for (int i = 0; i < C::accesses; i++) {
            widen(x, v[j][i]);
#pragma unroll
            for (int e = 0; e < C::n; e++)
                p.o[i][e] = fmaf(weight, x[e], p.o[i][e]);
        }
    }
}

/* Have the compiler widen q where it is used, not once for all positions: as floats the queries of
 * four heads leave far too few registers (a dozen words are spilled as it is). */
template <typename R, int accesses>
static __device__ __forceinline__ void keep_narrow(R (&q)[accesses])
{
    constexpr int words = sizeof(R) / sizeof(uint32_t);
#pragma unroll
    for (int i = 0; i < accesses; i++) {
        uint32_t word[words];
        memcpy(word, &q[i], sizeof word);
#pragma unroll
        for (int w = 0; w < words; w++)
            hide_value(word[w]);
        memcpy(&q[i], word, sizeof word);
    }
}

/* Positions `first`, first + teams, ... of the team, C::seen of them, as far as they lie before
 * `end`, where none may be left, for each head; a whole warp calls. */
template <class C, int heads>
static __device__ __forceinline__ void see(cached_part<C> (&p)[heads],
                                           typename C::R (&q)[heads][C::accesses],
                                           const typename C::T *keys, const typename C::T *values,
                                           int64_t first, int64_t end, int64_t stride,
                                           const cached_args &a)
{
    typename C::R k[C::seen][C::accesses], v[C::seen][C::accesses];
#pragma unroll
    for (int j = 0; j < C::seen; j++) {
        int64_t at = first + j * C::teams < end ? first + j * C::teams : end - 1;
        load_head<C>(k[j], keys + at * stride, a.dim);
        load_head<C>(v[j], values + at * stride, a.dim);
    }
#pragma unroll
    for (int h = 0; h < heads; h++) {
        float score[C::seen];
        if constexpr (heads > 2)
            keep_narrow(q[h]);
#pragma unroll
        for (int j = 0; j < C::seen; j++) {
            score[j] = score_of<C>(q[h], k[j], a.scale);
            if (first + j * C::teams >= end)
                score[j] = -INFINITY;
        }
        add_positions<C>(p[h], score, v);
    }
}

/* What the teams of a block have in the end. */
template <class C> struct cached_parts {
    float top[MOST_WARPS * C::teams], sum[MOST_WARPS * C::teams];
    float o[MOST_WARPS * C::teams][C::dim];
};

/* The part of a span in scratch: its maximum, its sum, and its output before it is divided. */
static __device__ __forceinline__ int64_t part_at(const cached_args &a, int64_t row, int64_t h,
                                                  int span)
{
    return ((row * a.heads + h) * a.spans + span) * (CUDA_PART_O + a.dim);
}

template <typename T> static __device__ __forceinline__ void write_one(T *o, int i, float value)
{
    raw<T, 1> bits;
    const float one[1] = {value};
    narrow(bits, one);
    store(o + i, bits);
}

/* Put the parts of the block's teams together, element i of a head: undivided into part, or where
 * that is NULL into o. */
template <class C>
static __device__ __forceinline__ void put_together(typename C::T *o, float *part,
                                                    const cached_parts<C> &all, int parts, int i)
{
    float top = -INFINITY, sum = 0, value = 0;
    for (int t = 0; t < parts; t++)
        top = fmaxf(top, all.top[t]);
    for (int t = 0; t < parts; t++) { /* 0 of one that saw nothing */
        const float factor = exp2_fast(all.top[t] - top);
        sum = fmaf(all.sum[t], factor, sum);
        value = fmaf(all.o[t][i], factor, value);
    }
    if (!part) {
        write_one(o, i, value / sum);
        return;
    }
    part[CUDA_PART_O + i] = value;
    if (i == 0) {
        part[CUDA_PART_TOP] = top;
        part[CUDA_PART_SUM] = sum;
    }
}

/* A head's output from the parts of the spans that its row sees. */
template <typename T>
__global__ void __launch_bounds__(128)
    join_spans(T *o, const float *parts, const int32_t *positions, cached_args a)
{
    const int64_t row = blockIdx.x, h = blockIdx.y, each = CUDA_PART_O + a.dim;
    const cached_range seen = range_of(a, positions, row);
    const int spans = (int)((seen.end - seen.low + a.span - 1) / a.span);
    float top = -INFINITY, sum = 0;
    parts += part_at(a, row, h, 0);
    o += (row * a.heads + h) * a.dim;
    for (int t = 0; t < spans; t++)
        top = fmaxf(top, parts[t * each + CUDA_PART_TOP]);
    for (int t = 0; t < spans; t++)
        sum = fmaf(parts[t * each + CUDA_PART_SUM],
                   exp2_fast(parts[t * each + CUDA_PART_TOP] - top), sum);
    for (int i = (int)threadIdx.x; i < a.dim; i += (int)blockDim.x) {
        float value = 0;
        for (int t = 0; t < spans; t++)
            value = fmaf(parts[t * each + CUDA_PART_O + i],
                         exp2_fast(parts[t * each + CUDA_PART_TOP] - top), value);
        write_one(o, i, value / sum);
    }
}

/* Block y has heads y * heads, y * heads + 1, ..., which read the same keys. */
template <class C, int heads>
__global__ void __launch_bounds__(32 * MOST_WARPS)
    cached_rows(typename C::T *o, float *spans, const typename C::T *cache,
                const typename C::T *qkv, const int32_t *positions, cached_args a)
{
    DYNAMIC_SHARED(cached_parts<C>, all);
    const int64_t row = blockIdx.x, first = (int64_t)blockIdx.y * heads, b = row / a.seq;
    const int64_t stride = 2 * (int64_t)a.kv_heads * a.dim, kv = first / (a.heads / a.kv_heads);
    const cached_range seen = range_of(a, positions, row);
    const int64_t low = seen.low + blockIdx.z * a.span;
    const int64_t end = low + a.span < seen.end ? low + a.span : seen.end;
    if (low >= end)
        return; /* all of the block: join_spans() does not read its part */
    const int team = (int)threadIdx.x / C::lanes, parts = (int)blockDim.x / C::lanes;
    const typename C::T *keys = cache + b * a.capacity * stride + kv * a.dim;
    const typename C::T *values = keys + (int64_t)a.kv_heads * a.dim;
    cached_part<C> p[heads];
    typename C::R q[heads][C::accesses];
    qkv += row * ((int64_t)a.heads * a.dim + stride) + first * a.dim;
#pragma unroll
    for (int h = 0; h < heads; h++) {
        p[h] = {-INFINITY, 0, {}};
        load_head<C>(q[h], qkv + h * a.dim, a.dim);
    }
    const int64_t of_warp = low + team / C::teams * C::teams * C::seen;
    for (int64_t at = of_warp; at < end; at += parts * C::seen)
        see<C, heads>(p, q, keys, values, at + team % C::teams, end, stride, a);
#pragma unroll
    for (int h = 0; h < heads; h++) {
        if (threadIdx.x % C::lanes == 0) {
            all[h].top[team] = p[h].top;
            all[h].sum[team] = p[h].sum;
        }
#pragma unroll
        for (int i = 0; i < C::accesses; i++)
#pragma unroll
            for (int e = 0; e < C::n; e++)
                all[h].o[team][place_of<C>(i) + e] = p[h].o[i][e];
    }
    __syncthreads();
    for (int i = (int)threadIdx.x; i < heads * a.dim; i += (int)blockDim.x) {
        const int64_t h = first + i / a.dim;
        put_together<C>(o + (row * a.heads + h) * a.dim,
                        spans ? spans + part_at(a, row, h, (int)blockIdx.z) : NULL, all[i / a.dim],
                        parts, i % a.dim);
    }
}

/* What cached_rows() works on. */
template <typename T> struct cached_tensors {
    T *o;
    float *spans; /* NULL: a block has all that a head sees */
    const T *cache, *qkv;
    const int32_t *positions;
};

template <class C, int heads>
static void launch_heads(cudaStream_t s, const cached_tensors<typename C::T> &t, int64_t rows,
                         const cached_args &a)
{
    const int warps = a.seq == 1 ? MOST_WARPS : PROMPT_WARPS;
    const size_t bytes = heads * sizeof(cached_parts<C>);
    const dim3 blocks((unsigned)rows, (unsigned)(a.heads / heads), (unsigned)a.spans);
    ALLOW_SHARED((cached_rows<C, heads>), bytes);
    LAUNCH((cached_rows<C, heads>), blocks, 32 * warps, bytes, s, t.o, t.spans, t.cache, t.qkv,
           t.positions, a);
}

/* May a block have so many heads?  Spans do not count: those after a row's position do nothing. */
static bool suits(int64_t rows, const cached_args &a, int heads)
{
    return a.seq == 1 && a.heads / a.kv_heads % heads == 0 &&
           rows * (a.heads / heads) >= ENOUGH_BLOCKS;
}

template <class C>
static void launch(cudaStream_t s, const cached_tensors<typename C::T> &t, int64_t rows,
                   const cached_args &a)
{
    constexpr bool wide = C::accesses > 1; /* too many registers */
    if (!wide && suits(rows, a, MOST_HEADS))
        launch_heads<C, wide ? 1 : MOST_HEADS>(s, t, rows, a);
    else if (!wide && suits(rows, a, 2))
        launch_heads<C, wide ? 1 : 2>(s, t, rows, a);
    else
        launch_heads<C, 1>(s, t, rows, a);
}

/* The fewest lanes that have a head in one access, or two. */
template <typename T>
static void launch_widest(cudaStream_t s, const cached_tensors<T> &t, int64_t rows,
                          const cached_args &a)
{
    constexpr int n = LANES<T>;
    if (a.dim % n || !aligned16(t.cache) || !aligned16(t.qkv))
        launch<cached_team<T, 1, 32, 8>>(s, t, rows, a);
    else if (a.dim <= 8 * n)
        launch<cached_team<T, n, 8, 1>>(s, t, rows, a);
    else if (a.dim <= 16 * n)
        launch<cached_team<T, n, 16, 1>>(s, t, rows, a);
    else if (a.dim <= 32 * n)
        launch<cached_team<T, n, 32, 1>>(s, t, rows, a);
    else
        launch<cached_team<T, n, 32, CUDA_HEAD_DIM_MOST / 32 / n>>(s, t, rows, a);
}

static cached_args args_of(const struct attention_cached *a)
{
    const float log2_e = 0x1.715476p0f;
    const cuda_spans spans = cuda_spans_of(a);
    return {(int)a->seq, (int)a->heads, (int)a->kv_heads, (int)a->head_dim, a->capacity,
            a->window,   spans.span,    (int)spans.count, a->scale * log2_e};
}

void cuda_attention_cached(struct device *d, const struct attention_cached *a, void *o, void *cache,
                           const void *qkv, const int32_t *positions, void *scratch)
{
    const unsigned rows = (unsigned)(a->batch * a->seq);
    const cached_args args = args_of(a);
    cudaStream_t s = cuda_compute(d);
    if (a->head_dim > CUDA_HEAD_DIM_MOST) {
        cuda_note_failure(d,
                          "attention: heads of %lld elements are too wide for a GPU, %d is the "
                          "most",
                          (long long)a->head_dim, (int)CUDA_HEAD_DIM_MOST);
        return;
    }
    by_type(a->dt, [&](auto type) {
        using T = decltype(type);
        LAUNCH(keep_rows<T>, rows, 256, 0, s, (T *)cache, (const T *)qkv, positions, args);
        if (a->seq > 1 && attention_of_prompts(s, a, o, cache, qkv, positions))
            return;
        float *spans = args.spans > 1 ? (float *)scratch : NULL;
        const cached_tensors<T> t = {(T *)o, spans, (const T *)cache, (const T *)qkv, positions};
        launch_widest(s, t, rows, args);
        if (spans)
            LAUNCH(join_spans<T>, dim3(rows, (unsigned)a->heads), 128, 0, s, t.o, spans, positions,
                   args);
    });
}
