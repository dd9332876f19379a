/* attention.cu - causal attention with grouped queries on tensor cores, forward.
 *
 * FlashAttention-2 (Dao 2023).  A thread block computes `rows` queries of one head and chunk, each
 * warp of it 16 or 32 of them with all their sums.  The block goes over tiles of keys and values up
 * to the diagonal, and for each tile computes
 *
 *   S  = Q K^T                        scores
 *   m' = max(m, max S)                the largest score so far
 *   P  = exp(S - m')                  weights
 *   l  = l exp(m - m') + sum P        the sum of weights
 *   O  = O exp(m - m') + P V          the output, before the division
 *
 * and in the end O / l and lse = m + log l.  Exponentials are to base 2, with log2(e) in the scale.
 * V is copied while Q K^T is computed, and the next K during the rest.  Blocks with most keys start
 * first.
 *
 * With packed documents or a sliding window, a thread block begins with the first key that its
 * first query sees, and gives no weight to keys that its later queries do not see.  Dropout drops
 * weights after they have been added to l.  Prompts of generation are queries whose keys lie in a
 * cache and whose positions begin where the cache says; a block reads nothing of the cache after
 * the last key that it sees, because those bytes may be anything.
 */
#include "device/cuda/attention.cuh"

template <class E_, int dim_, int warps, int tall_, int keys_> struct forward_tiles {
    using E = E_; /* bf16 or fp16 */
    static constexpr int dim = dim_, tall = tall_, keys = keys_;
    static constexpr int threads = 32 * warps, rows = 16 * tall * warps;
    static constexpr size_t shared_bytes = sizeof(uint16_t) * dim * (rows + 2 * keys);
};

/* A warp's running results O, m and l.  The first index of top and sum is m of warp_sums; the
 * second is 1 for the rows 8 below. */
template <class T> struct forward_sums {
    struct warp_sums<T::tall, T::dim> o;
    float top[T::tall][2], sum[T::tall][2]; /* of scores not scaled; sum of this lane's columns */

    __device__ __forceinline__ void clear()
    {
        o.clear();
#pragma unroll
        for (int m = 0; m < T::tall; m++)
#pragma unroll
            for (int half = 0; half < 2; half++) {
                top[m][half] = -INFINITY;
                sum[m][half] = 0;
            }
    }
};

/* Give no weight to keys after their query; row and key are those of the lane's element 0. */
template <class T>
static __device__ __forceinline__ void mask(struct warp_sums<T::tall, T::keys> &s, int row, int key)
{
#pragma unroll
    for (int m = 0; m < T::tall; m++)
#pragma unroll
        for (int i = 0; i < T::keys / 8; i++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                if (key + 8 * i + e % 2 > row + 16 * m + e / 2 * 8)
                    s.v[m][i][e] = -INFINITY;
}

/* Give no weight to keys before the first one that their query sees.  `limit` is that of the tile;
 * row and key are those of the lane's element 0. */
template <class T>
static __device__ __forceinline__ void hide_early(struct warp_sums<T::tall, T::keys> &s,
                                                  const struct attention_limit &limit, int row,
                                                  int key)
{
#pragma unroll
    for (int m = 0; m < T::tall; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            int low = attention_low(limit, row + 16 * m + 8 * half);
#pragma unroll
            for (int i = 0; i < T::keys / 8; i++)
#pragma unroll
                for (int e = 0; e < 2; e++)
                    if (key + 8 * i + e < low)
                        s.v[m][i][2 * half + e] = -INFINITY;
        }
}

/* Return the weight 2^((s - top) * scale) of score s; shift is -top * scale, rounded.  With huge
 * scores that rounding multiplies all weights of a query by one factor, which the division by l
 * undoes as long as the weights are in the type's range.  They are in bf16; fp16 has a smaller
 * range, so it subtracts first, by one more operation, and its weights are 1 at most. */
static __device__ __forceinline__ float weight_of(bf16, float s, float top, float scale,
                                                  float shift)
{
    return exp2_fast(fmaf(s, scale, shift));
}

static __device__ __forceinline__ float weight_of(fp16, float s, float top, float scale,
                                                  float shift)
{
    return exp2_fast((s - top) * scale);
}

/* Make scores weights, in place, and update w.  Where keys are hidden (`limited`), a query may
 * have seen no key yet; it has no largest score to subtract. */
template <class T, bool limited>
static __device__ __forceinline__ void softmax(struct forward_sums<T> &w,
                                               struct warp_sums<T::tall, T::keys> &s, float scale)
{
#pragma unroll
    for (int m = 0; m < T::tall; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float old = w.top[m][half], top = old, sum = 0;
#pragma unroll
            for (int i = 0; i < T::keys / 8; i++)
                top = fmaxf(top, fmaxf(s.v[m][i][2 * half], s.v[m][i][2 * half + 1]));
            top = fmaxf(top, __shfl_xor_sync(ALL_LANES, top, 1));
            top = fmaxf(top, __shfl_xor_sync(ALL_LANES, top, 2));
            float base = limited && top == -INFINITY ? 0 : top;
            float shrink = exp2_fast((old - base) * scale), shift = -base * scale;
#pragma unroll
            for (int i = 0; i < T::keys / 8; i++)
#pragma unroll
                for (int e = 2 * half; e < 2 * half + 2; e++) {
                    s.v[m][i][e] = weight_of(typename T::E(), s.v[m][i][e], base, scale, shift);
                    sum += s.v[m][i][e];
                }
            w.top[m][half] = top;
            w.sum[m][half] = fmaf(w.sum[m][half], shrink, sum);
#pragma unroll
            for (int i = 0; i < T::dim / 8; i++) {
                w.o.v[m][i][2 * half] *= shrink;
                w.o.v[m][i][2 * half + 1] *= shrink;
            }
        }
}

/* Drop weights; query and key are the positions of the lane's element 0. */
template <class T>
static __device__ __forceinline__ void drop(struct warp_sums<T::tall, T::keys> &s,
                                            const struct attention_args &a, uint2 sample, int query,
                                            int key)
{
#pragma unroll
    for (int m = 0; m < T::tall; m++)
#pragma unroll
        for (int i = 0; i < T::keys / 8; i++) {
            float by[4];
            kept_of_queries(by, a, sample, query + 16 * m, key + 8 * i);
#pragma unroll
            for (int e = 0; e < 4; e++)
                s.v[m][i][e] *= by[e];
        }
}

/* Divide O by l, and store lse, unless `lse` is NULL, for the rows of the block below `valid`; row
 * is that of the lane's element 0. */
template <class T>
static __device__ __forceinline__ void finish(struct forward_sums<T> &w, float *lse, int row,
                                              int valid, float scale)
{
#pragma unroll
    for (int m = 0; m < T::tall; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float sum = w.sum[m][half];
            sum += __shfl_xor_sync(ALL_LANES, sum, 1);
            sum += __shfl_xor_sync(ALL_LANES, sum, 2);
            int r = row + 16 * m + 8 * half;
            if (lse && lane_id() % 4 == 0 && r < valid)
                lse[r] = fmaf(w.top[m][half], scale, logf(sum));
            float inverse = 1.0f / sum;
#pragma unroll
            for (int i = 0; i < T::dim / 8; i++) {
                w.o.v[m][i][2 * half] *= inverse;
                w.o.v[m][i][2 * half + 1] *= inverse;
            }
        }
}

/* Add P V of a tile of keys to O. */
template <class T>
static __device__ __forceinline__ void add_values(struct forward_sums<T> &w,
                                                  const struct warp_sums<T::tall, T::keys> &weights,
                                                  const uint16_t *v)
{
    struct warp_operand<typename T::E, T::tall, T::keys> p;
    p.round(weights);
    sum_of_rows<T::dim>(w.o, p, v);
}

/* Return the n-th tile of a sequence's queries; over a cache their positions begin with that of the
 * sequence's first row. */
static __device__ __forceinline__ struct attention_queries queries_of(
    const struct attention_args &a, int batch, int n, int rows)
{
    struct attention_queries tile = attention_query_tile(a, n, rows);
    if (a.positions)
        tile.position += a.positions[(int64_t)batch * a.seq];
    return tile;
}

template <class T, enum attention_kind kind>
__global__ void __launch_bounds__(T::threads)
    attention_forward(struct attention_args a, uint16_t *o, float *lse, const uint16_t *q_all,
                      const uint16_t *k_all)
{
    constexpr bool limited = kind != ATTENTION_ALL, drops = kind == ATTENTION_DROPPED;
    DYNAMIC_SHARED(uint16_t, q);
    uint16_t *k = q + T::rows * T::dim, *v = k + T::keys * T::dim;
    struct attention_place at = attention_place_of(a, blockIdx.x);
    int batch = at.head / a.heads, head = at.head % a.heads;
    const struct attention_queries tile = queries_of(a, batch, a.blocks - 1 - at.rank, T::rows);
    int end = tile.position + (T::rows < tile.valid ? T::rows : tile.valid);
    int64_t query = (int64_t)batch * a.seq + tile.row;
    const struct attention_limit limit = attention_limit_of(a, query, tile.position, tile.valid);
    int first_low = limited ? attention_low(limit, 0) : 0;
    int begin = first_low > 0 ? first_low / T::keys * T::keys : 0;
    int last_low = limited ? attention_low(limit, T::rows - 1) : 0;
    const uint16_t *keys = k_all + ((int64_t)batch * a.keys + begin) * a.kv_row +
                           (int64_t)(head / a.group) * a.head_dim;
    const uint16_t *queries = q_all + query * a.q_row + (int64_t)head * a.head_dim;
    int row = warp_id() * 16 * T::tall, lane = (int)lane_id(); /* row: the warp's first */
    int position = tile.position + row, last = position + 16 * T::tall - 1;
    bool warp_has_rows = row < tile.valid;
    const uint2 sample = drops ? attention_sample(a, batch, head) : make_uint2(0, 0);
    struct forward_sums<T> sums;
    sums.clear();
    tile_load<T::dim, T::rows, T::threads>(q, tile_source<T::dim, T::threads>(queries, a.q_row),
                                           a.q_row, tile.valid, a.head_dim);
    const uint16_t *next = tile_source<T::dim, T::threads>(keys, a.kv_row);
    int64_t to_values = (int64_t)a.kv_heads * a.head_dim;
    tile_load<T::dim, T::keys, T::threads>(k, next, a.kv_row, end - begin, a.head_dim);
    async_commit();
    for (int key = begin; key < end; key += T::keys) {
        bool work = warp_has_rows && key <= last;
        struct warp_sums<T::tall, T::keys> s;
        async_wait<0>();
        __syncthreads(); /* K is there, and nobody reads V any more */
        next += to_values;
        tile_load<T::dim, T::keys, T::threads>(v, next, a.kv_row, end - key, a.head_dim);
        async_commit();
        if (work) {
            s.clear();
            product_of_rows<typename T::E, T::dim>(s, q, row, k);
        }
        async_wait<0>();
        __syncthreads(); /* V is there, and nobody reads K any more */
        next += (int64_t)T::keys * a.kv_row - to_values;
        if (key + T::keys < end)
            tile_load<T::dim, T::keys, T::threads>(k, next, a.kv_row, end - key - T::keys,
                                                   a.head_dim);
        async_commit();
        if (work) {
            if (key + T::keys - 1 > position)
                mask<T>(s, position + lane / 4, key + lane % 4 * 2);
            if (limited && key < last_low)
                hide_early<T>(s, limit, row + lane / 4, key + lane % 4 * 2);
            softmax<T, limited>(sums, s, a.scale * LOG2_E);
            if (drops)
                drop<T>(s, a, sample, position + lane / 4, key + lane % 4 * 2);
            add_values<T>(sums, s, v);
        }
    }
    int64_t o_first = query * a.o_row + (int64_t)head * a.head_dim;
    finish<T>(sums, lse ? lse + (int64_t)at.head * a.seq + tile.row : NULL, row + lane / 4,
              tile.valid, a.scale);
    tile_store<typename T::E, T::dim>(o + o_first, a.o_row, sums.o, 1.0f, q, row, tile.valid,
                                      a.head_dim);
}

/* positions: NULL, or, for queries over a cache, the position of each sequence's first row; qkv
 * then holds packed projections, of which only the queries are read. */
template <class T, enum attention_kind kind>
static void launch(cudaStream_t s, const struct attention *a, void *o, float *lse, const void *qkv,
                   const int32_t *positions)
{
    struct attention_args args = attention_query_args(a, T::rows);
    args.positions = positions;
    if (positions)
        args.q_row = (args.heads + 2 * args.kv_heads) * args.head_dim;
    ALLOW_SHARED((attention_forward<T, kind>), T::shared_bytes);
    LAUNCH((attention_forward<T, kind>), attention_grid(&args), T::threads, T::shared_bytes, s,
           args, (uint16_t *)o, lse, (const uint16_t *)qkv,
           attention_keys_in(a, (const uint16_t *)qkv, (const uint16_t *)a->kv));
}

template <class T>
static void run(cudaStream_t s, const struct attention *a, void *o, float *lse, const void *qkv,
                const int32_t *positions)
{
    switch (attention_kind_of(a)) {
    case ATTENTION_ALL: launch<T, ATTENTION_ALL>(s, a, o, lse, qkv, positions); break;
    case ATTENTION_LIMITED: launch<T, ATTENTION_LIMITED>(s, a, o, lse, qkv, positions); break;
    case ATTENTION_DROPPED: launch<T, ATTENTION_DROPPED>(s, a, o, lse, qkv, positions); break;
    }
}

template <class E>
static void run_type(cudaStream_t s, const struct attention *a, void *o, float *lse,
                     const void *qkv, const int32_t *positions)
{
    if (a->head_dim <= 64)
        run<forward_tiles<E, 64, 4, 2, 64>>(s, a, o, lse, qkv, positions);
    else if (a->head_dim <= 96)
        run<forward_tiles<E, 96, 4, 2, 64>>(s, a, o, lse, qkv, positions);
    else if (a->head_dim <= 128)
        run<forward_tiles<E, 128, 4, 2, 64>>(s, a, o, lse, qkv, positions);
    else
        run<forward_tiles<E, 256, 8, 1, 32>>(s, a, o, lse, qkv, positions);
}

bool attention_of_prompts(cudaStream_t s, const struct attention_cached *c, void *o,
                          const void *cache, const void *qkv, const int32_t *positions)
{
    struct attention a = {};
    a.dt = c->dt;
    a.batch = c->batch;
    a.seq = c->seq;
    a.heads = c->heads;
    a.kv_heads = c->kv_heads;
    a.head_dim = c->head_dim;
    a.scale = c->scale;
    a.forms = ATTENTION_SEPARATE | (c->window > 0 ? ATTENTION_WINDOW : 0);
    a.window = c->window;
    a.kv = (void *)cache;
    a.kv_seq = c->capacity;
    if (!attention_on_tensor_cores(&a) || !aligned16(o) || !aligned16(cache) || !aligned16(qkv))
        return false;
    if (a.dt == DTYPE_F16)
        run_type<fp16>(s, &a, o, NULL, qkv, positions);
    else
        run_type<bf16>(s, &a, o, NULL, qkv, positions);
    return true;
}

void cuda_own_attention(struct device *d, const struct attention *a, void *o, float *lse,
                        const void *qkv, void *scratch)
{
    cudaStream_t s = cuda_compute(d);
    (void)scratch;
    if (!attention_on_tensor_cores(a))
        attention_simt(s, a, o, lse, qkv);
    else if (a->dt == DTYPE_F16)
        run_type<fp16>(s, a, o, lse, qkv, NULL);
    else
        run_type<bf16>(s, a, o, lse, qkv, NULL);
}
