/* attention_backward.cu - causal attention with grouped queries on tensor cores, backward.
 *
 * FlashAttention-2 (Dao 2023), in two passes that need no atomics, so that results are the same
 * from run to run.  With D = rowsum(dO O), for a tile of keys and a tile of queries,
 *   P = exp(Q K^T - lse);  dS = P (dO V^T - D);  dV += P^T dO;  dK += dS^T Q;  dQ += dS K
 *
 * The first pass (key_pass) has a thread block per tile of keys, with dK and dV in registers.  The
 * block goes over the queries from the diagonal on, for all query heads of the group, and computes
 * S^T and dP^T, because their registers can be the left operands of the sums as they are.  The
 * second pass (query_pass) has a thread block per tile of queries, with dQ in registers.  It
 * computes P and dS again, so that there are seven products in all instead of five.  dK and dQ are
 * multiplied by the scale of the scores once, in the end.
 *
 * With packed documents or a sliding window, both passes leave out the tiles in which no query sees
 * a key.  Dropout drops the same elements of P and of dO V^T; dV sums those of P that are left.
 */
#include "device/cuda/attention.cuh"

/* `split` warps share their keys: each has a part of the columns of dK and dV. */
template <class E_, int dim_, int warps, int tall_, int split_, int queries_> struct key_tiles {
    using E = E_; /* bf16 or fp16 */
    static constexpr int dim = dim_, tall = tall_, split = split_, queries = queries_;
    static constexpr int threads = 32 * warps, keys = 16 * tall * warps / split;
    static constexpr int part = dim / split;
    static constexpr size_t tile_elems = (size_t)queries * dim;
    static constexpr size_t shared_bytes =
        sizeof(uint16_t) * (2 * keys * dim + 4 * tile_elems) + sizeof(float) * 4 * queries;
    static_assert(keys % queries == 0 && 2 * queries <= threads, "see key_pass()");
};

template <class E_, int dim_, int warps, int tall_, int keys_> struct query_tiles {
    using E = E_;
    static constexpr int dim = dim_, tall = tall_, keys = keys_;
    static constexpr int threads = 32 * warps, rows = 16 * tall * warps;
    static constexpr size_t tile_elems = (size_t)keys * dim;
    static constexpr size_t shared_bytes = sizeof(uint16_t) * (2 * rows * dim + 4 * tile_elems);
};

struct backward_tensors {
    uint16_t *dq, *dk; /* dk and k: of the keys, after which lie values */
    const uint16_t *q, *k, *dout;
    const float *lse, *delta;
};

template <class T, int rows>
static __device__ __forceinline__ void load_rows(uint16_t *tile, const uint16_t *from, int row,
                                                 int valid, int head_dim)
{
    tile_load<T::dim, rows, T::threads>(tile, tile_source<T::dim, T::threads>(from, row), row,
                                        valid, head_dim);
}

/* ---- dK and dV ---- */

/* The n-th tile of the queries that see a block of keys, head by head: what this thread copies
 * first, where lse and delta begin, the first position, and how many there are. */
struct query_place {
    const uint16_t *q, *dout;
    const float *lse, *delta;
    int first, valid, head;
    int64_t query; /* the first one's row among those of all sequences */
};

template <class T>
static __device__ __forceinline__ struct query_place query_place_of(
    const struct attention_args &a, const struct backward_tensors &t, int kv_index,
    const struct attention_seers &seers, int n)
{
    int tiles = seers.tiles[0] + seers.tiles[1], batch = kv_index / a.kv_heads;
    const struct attention_queries tile = attention_seer_tile(a, seers, n % tiles, T::queries);
    int head = kv_index % a.kv_heads * a.group + n / tiles;
    int64_t query = (int64_t)batch * a.seq + tile.row, column = (int64_t)head * a.head_dim;
    int64_t row = ((int64_t)batch * a.heads + head) * a.seq + tile.row;
    const uint16_t *q = t.q + query * a.q_row + column;
    const uint16_t *dout = t.dout + query * a.o_row + column;
    return {tile_source<T::dim, T::threads>(q, a.q_row),
            tile_source<T::dim, T::threads>(dout, a.o_row),
            t.lse + row,
            t.delta + row,
            tile.position,
            tile.valid,
            head,
            query};
}

template <class T>
static __device__ __forceinline__ void load_queries(const struct attention_args &a,
                                                    const struct query_place &at, uint16_t *q,
                                                    uint16_t *dout)
{
    tile_load<T::dim, T::queries, T::threads>(q, at.q, a.q_row, at.valid, a.head_dim);
    tile_load<T::dim, T::queries, T::threads>(dout, at.dout, a.o_row, at.valid, a.head_dim);
    async_commit();
}

/* lse to base 2, more by what it and scores may have been rounded by: no weight is above 1, however
 * large the scores.  Of scores below 1000 weights change by less than their rounding. */
static __device__ __forceinline__ float lse_base2(float lse)
{
    return fmaf(fabsf(lse), 0x1p-21f, lse * LOG2_E);
}

/* dS of a weight, of which `by` is left where weights are dropped. */
template <bool drops>
static __device__ __forceinline__ float score_gradient(float p, float dp, float by, float delta)
{
    return p * (drops ? fmaf(dp, by, -delta) : dp - delta);
}

/* This thread's share of lse to base 2 and D of a tile's queries, 0 after the last. */
template <class T>
static __device__ __forceinline__ float load_statistic(const struct query_place &at)
{
    int i = (int)threadIdx.x % T::queries;
    if (threadIdx.x >= 2 * T::queries || i >= at.valid)
        return 0;
    return threadIdx.x < T::queries ? lse_base2(at.lse[i]) : at.delta[i];
}

/* Scores and dP, both transposed, become P and dS.  Row `key` and column `query` are the positions
 * of the lane's first element. */
template <class T, bool drops>
static __device__ __forceinline__ void key_gradients(struct warp_sums<T::tall, T::queries> &s,
                                                     struct warp_sums<T::tall, T::queries> &dp,
                                                     const float *lse, const float *delta,
                                                     const struct attention_args &a, uint2 sample,
                                                     int key, int query)
{
    const float scale = a.scale * LOG2_E;
#pragma unroll
    for (int i = 0; i < T::queries / 8; i++)
#pragma unroll
        for (int m = 0; m < T::tall; m++) {
            float by[4] = {1, 1, 1, 1};
            if (drops)
                kept_of_keys(by, a, sample, query + 8 * i, key + 16 * m);
#pragma unroll
            for (int e = 0; e < 4; e++) {
                float p = exp2_fast(fmaf(s.v[m][i][e], scale, -lse[8 * i + e % 2]));
                if (key + 16 * m + e / 2 * 8 > query + 8 * i + e % 2)
                    p = 0;
                s.v[m][i][e] = p * by[e];
                dp.v[m][i][e] =
                    score_gradient<drops>(p, dp.v[m][i][e], by[e], delta[8 * i + e % 2]);
            }
        }
}

/* Queries that do not see a key any more give it nothing; `limit` is the tile's, key and column are
 * those of the lane's first element. */
template <class T>
static __device__ __forceinline__ void hide_queries(struct warp_sums<T::tall, T::queries> &p,
                                                    struct warp_sums<T::tall, T::queries> &ds,
                                                    const struct attention_limit &limit, int key,
                                                    int column)
{
#pragma unroll
    for (int i = 0; i < T::queries / 8; i++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            int low = attention_low(limit, column + 8 * i + e % 2);
#pragma unroll
            for (int m = 0; m < T::tall; m++)
                if (key + 16 * m + e / 2 * 8 < low)
                    p.v[m][i][e] = ds.v[m][i][e] = 0;
        }
}

/* A tile of queries for the keys of a warp; its keys are rows of k and v from `row` on.  query: the
 * position of the first; limit: of the tile. */
template <class T, enum attention_kind kind>
static __device__ __forceinline__ void key_tile(
    struct warp_sums<T::tall, T::part> &dk, struct warp_sums<T::tall, T::part> &dv,
    const uint16_t *k, const uint16_t *v, int row, const uint16_t *q, const uint16_t *dout,
    const float *statistics, const struct attention_args &a, uint2 sample, int key, int query,
    const struct attention_limit &limit)
{
    constexpr bool limited = kind != ATTENTION_ALL;
    int lane = (int)lane_id(), column = warp_id() % T::split * T::part;
    struct warp_sums<T::tall, T::queries> s, dp;
    struct warp_operand<typename T::E, T::tall, T::queries> weights;
    s.clear();
    product_of_rows<typename T::E, T::dim>(s, k, row, q);
    dp.clear();
    product_of_rows<typename T::E, T::dim>(dp, v, row, dout);
    key_gradients<T, kind == ATTENTION_DROPPED>(s, dp, statistics + lane % 4 * 2,
                                                statistics + T::queries + lane % 4 * 2, a, sample,
                                                key + row + lane / 4, query + lane % 4 * 2);
    if (limited && key + row < attention_low(limit, T::queries - 1))
        hide_queries<T>(s, dp, limit, key + row + lane / 4, lane % 4 * 2);
    weights.round(s);
    sum_of_rows<T::dim>(dv, weights, dout + column);
    weights.round(dp);
    sum_of_rows<T::dim>(dk, weights, q + column);
}

template <class T, enum attention_kind kind>
__global__ void __launch_bounds__(T::threads)
    key_pass(struct attention_args a, struct backward_tensors t)
{
    constexpr bool limited = kind != ATTENTION_ALL, drops = kind == ATTENTION_DROPPED;
    DYNAMIC_SHARED(uint16_t, k);
    uint16_t *v = k + T::keys * T::dim, *q = v + T::keys * T::dim;
    uint16_t *dout = q + 2 * T::tile_elems; /* two tiles each, used alternately */
    float *statistics = reinterpret_cast<float *>(dout + 2 * T::tile_elems);
    struct attention_place at = attention_place_of(a, blockIdx.x);
    int first = at.rank * T::keys, valid = a.keys - first, kv = at.head % a.kv_heads;
    int row = warp_id() / T::split * 16 * T::tall; /* the warp's first key */
    int column = warp_id() % T::split * T::part;
    int64_t keys =
        ((int64_t)(at.head / a.kv_heads) * a.keys + first) * a.kv_row + (int64_t)kv * a.head_dim;
    int64_t values = keys + (int64_t)a.kv_heads * a.head_dim;
    struct attention_seers seers = attention_seers_of(a, first, T::queries);
    if (limited)
        attention_cut_seers(a, seers, at.head / a.kv_heads, first + T::keys - 1, T::queries);
    int last = (seers.tiles[0] + seers.tiles[1]) * a.group - 1; /* -1: no query sees these keys */
    struct query_place next = {};
    float statistic = 0;
    struct warp_sums<T::tall, T::part> dk, dv;
    dk.clear();
    dv.clear();
    load_rows<T, T::keys>(k, t.k + keys, a.kv_row, valid, a.head_dim);
    load_rows<T, T::keys>(v, t.k + values, a.kv_row, valid, a.head_dim);
    if (last >= 0) {
        next = query_place_of<T>(a, t, at.head, seers, 0);
        load_queries<T>(a, next, q, dout);
        statistic = load_statistic<T>(next);
    }
    if (threadIdx.x < 2 * T::queries)
        statistics[threadIdx.x] = statistic;
    for (int n = 0; n <= last; n++) {
        int now = n % 2, then = 1 - now, query = next.first;
        const struct attention_limit limit =
            attention_limit_of(a, next.query, next.first, next.valid);
        const uint2 sample =
            drops ? attention_sample(a, at.head / a.kv_heads, next.head) : make_uint2(0, 0);
        async_wait<0>();
        __syncthreads(); /* tile n is there, and nobody reads tile n - 1 any more */
        if (n < last) {
            next = query_place_of<T>(a, t, at.head, seers, n + 1);
            load_queries<T>(a, next, q + then * T::tile_elems, dout + then * T::tile_elems);
            statistic = load_statistic<T>(next);
            __syncwarp(); /* lanes went different ways; matrices want them together */
        }
        if (row < valid && first + row < query + T::queries)
            key_tile<T, kind>(dk, dv, k, v, row, q + now * T::tile_elems,
                              dout + now * T::tile_elems, statistics + now * 2 * T::queries, a,
                              sample, first, query, limit);
        if (threadIdx.x < 2 * T::queries)
            statistics[then * 2 * T::queries + threadIdx.x] = statistic;
    }
    async_wait<0>(); /* where no query was waited for */
    __syncthreads();
    tile_store<typename T::E, T::dim>(t.dk + keys + column, a.kv_row, dk, a.scale, k + column, row,
                                      valid, a.head_dim - column);
    tile_store<typename T::E, T::dim>(t.dk + values + column, a.kv_row, dv, 1.0f, v + column, row,
                                      valid, a.head_dim - column);
}

/* ---- dQ ---- */

/* lse to base 2 and D of a lane's rows, indexed as in warp_sums and 1 for the rows 8 below. */
template <class T> struct query_statistics {
    float lse[T::tall][2], delta[T::tall][2];

    __device__ __forceinline__ void load(const float *from_lse, const float *from_delta, int row,
                                         int valid)
    {
#pragma unroll
        for (int m = 0; m < T::tall; m++)
#pragma unroll
            for (int half = 0; half < 2; half++) {
                int r = row + 16 * m + 8 * half;
                lse[m][half] = r < valid ? lse_base2(from_lse[r]) : 0;
                delta[m][half] = r < valid ? from_delta[r] : 0;
            }
    }
};

/* Make dP dS, in place; row and key are those of the lane's element 0. */
template <class T, bool drops>
static __device__ __forceinline__ void query_gradients(struct warp_sums<T::tall, T::keys> &dp,
                                                       const struct warp_sums<T::tall, T::keys> &s,
                                                       const struct query_statistics<T> &of,
                                                       const struct attention_args &a, uint2 sample,
                                                       int row, int key)
{
    const float scale = a.scale * LOG2_E;
#pragma unroll
    for (int m = 0; m < T::tall; m++)
#pragma unroll
        for (int i = 0; i < T::keys / 8; i++) {
            float by[4] = {1, 1, 1, 1};
            if (drops)
                kept_of_queries(by, a, sample, row + 16 * m, key + 8 * i);
#pragma unroll
            for (int e = 0; e < 4; e++) {
                float p = exp2_fast(fmaf(s.v[m][i][e], scale, -of.lse[m][e / 2]));
                if (key + 8 * i + e % 2 > row + 16 * m + e / 2 * 8)
                    p = 0;
                dp.v[m][i][e] = score_gradient<drops>(p, dp.v[m][i][e], by[e], of.delta[m][e / 2]);
            }
        }
}

/* Clear dS of keys before the first one that their query sees.  `limit` is that of the tile; row
 * and key are those of the lane's element 0. */
template <class T>
static __device__ __forceinline__ void hide_keys(struct warp_sums<T::tall, T::keys> &ds,
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
                        ds.v[m][i][2 * half + e] = 0;
        }
}

/* Add to dq, for the queries of a warp (rows of q and dout from `row` on), the terms of a tile of
 * keys; `limit` is that of the tile of queries. */
template <class T, enum attention_kind kind>
static __device__ __forceinline__ void query_tile(struct warp_sums<T::tall, T::dim> &dq,
                                                  const struct query_statistics<T> &statistics,
                                                  const uint16_t *q, const uint16_t *dout, int row,
                                                  const uint16_t *k, const uint16_t *v,
                                                  const struct attention_args &a, uint2 sample,
                                                  int query, int key,
                                                  const struct attention_limit &limit)
{
    constexpr bool limited = kind != ATTENTION_ALL;
    int lane = (int)lane_id();
    struct warp_sums<T::tall, T::keys> s, dp;
    struct warp_operand<typename T::E, T::tall, T::keys> weights;
    s.clear();
    product_of_rows<typename T::E, T::dim>(s, q, row, k);
    dp.clear();
    product_of_rows<typename T::E, T::dim>(dp, dout, row, v);
    query_gradients<T, kind == ATTENTION_DROPPED>(dp, s, statistics, a, sample,
                                                  query + row + lane / 4, key + lane % 4 * 2);
    if (limited && key < attention_low(limit, T::rows - 1))
        hide_keys<T>(dp, limit, row + lane / 4, key + lane % 4 * 2);
    weights.round(dp);
    sum_of_rows<T::dim>(dq, weights, k);
}

/* Begin to copy the tile of keys whose tile_source() is `source`, and the tile of its values. */
template <class T>
static __device__ __forceinline__ void load_keys(const struct attention_args &a,
                                                 const uint16_t *source, int valid, uint16_t *k,
                                                 uint16_t *v)
{
    tile_load<T::dim, T::keys, T::threads>(k, source, a.kv_row, valid, a.head_dim);
    tile_load<T::dim, T::keys, T::threads>(v, source + (int64_t)a.kv_heads * a.head_dim, a.kv_row,
                                           valid, a.head_dim);
    async_commit();
}

template <class T, enum attention_kind kind>
__global__ void __launch_bounds__(T::threads)
    query_pass(struct attention_args a, struct backward_tensors t)
{
    constexpr bool limited = kind != ATTENTION_ALL, drops = kind == ATTENTION_DROPPED;
    DYNAMIC_SHARED(uint16_t, q);
    uint16_t *dout = q + T::rows * T::dim, *k = dout + T::rows * T::dim;
    uint16_t *v = k + 2 * T::tile_elems; /* two tiles each, used alternately */
    struct attention_place at = attention_place_of(a, blockIdx.x);
    const struct attention_queries tile = attention_query_tile(a, a.blocks - 1 - at.rank, T::rows);
    int batch = at.head / a.heads, head = at.head % a.heads, first = tile.position;
    int row = warp_id() * 16 * T::tall, last = first + row + 16 * T::tall - 1, valid = tile.valid;
    int end = first + (valid < T::rows ? valid : T::rows);
    int64_t query = (int64_t)batch * a.seq + tile.row;
    int64_t queries = query * a.q_row + (int64_t)head * a.head_dim;
    int64_t outputs = query * a.o_row + (int64_t)head * a.head_dim;
    int64_t rows = (int64_t)at.head * a.seq + tile.row;
    const struct attention_limit limit = attention_limit_of(a, query, first, valid);
    int first_low = limited ? attention_low(limit, 0) : 0;
    int begin = first_low > 0 ? first_low / T::keys * T::keys : 0;
    const uint16_t *keys =
        t.k + ((int64_t)batch * a.keys + begin) * a.kv_row + (int64_t)(head / a.group) * a.head_dim;
    const uint2 sample = drops ? attention_sample(a, batch, head) : make_uint2(0, 0);
    struct query_statistics<T> statistics;
    struct warp_sums<T::tall, T::dim> dq;
    dq.clear();
    load_rows<T, T::rows>(q, t.q + queries, a.q_row, valid, a.head_dim);
    load_rows<T, T::rows>(dout, t.dout + outputs, a.o_row, valid, a.head_dim);
    keys = tile_source<T::dim, T::threads>(keys, a.kv_row);
    load_keys<T>(a, keys, a.keys - begin, k, v);
    statistics.load(t.lse + rows, t.delta + rows, row + (int)lane_id() / 4, valid);
    for (int key = begin; key < end; key += T::keys) {
        int now = (key - begin) / T::keys % 2, then = 1 - now;
        async_wait<0>();
        __syncthreads(); /* this tile is there, and nobody reads the one before any more */
        keys += (int64_t)T::keys * a.kv_row;
        if (key + T::keys < end)
            load_keys<T>(a, keys, a.keys - key - T::keys, k + then * T::tile_elems,
                         v + then * T::tile_elems);
        if (row < valid && key <= last)
            query_tile<T, kind>(dq, statistics, q, dout, row, k + now * T::tile_elems,
                                v + now * T::tile_elems, a, sample, first, key, limit);
    }
    tile_store<typename T::E, T::dim>(t.dq + queries, a.q_row, dq, a.scale, q, row, valid,
                                      a.head_dim);
}

/* ---- launching ---- */

template <class K, class Q, enum attention_kind kind>
static void launch(cudaStream_t s, const struct attention *a, const struct backward_tensors *t)
{
    struct attention_args by_key = attention_key_args(a, K::keys);
    struct attention_args by_query = attention_query_args(a, Q::rows);
    ALLOW_SHARED((key_pass<K, kind>), K::shared_bytes);
    LAUNCH((key_pass<K, kind>), attention_grid(&by_key), K::threads, K::shared_bytes, s, by_key,
           *t);
    ALLOW_SHARED((query_pass<Q, kind>), Q::shared_bytes);
    LAUNCH((query_pass<Q, kind>), attention_grid(&by_query), Q::threads, Q::shared_bytes, s,
           by_query, *t);
}

template <class K, class Q>
static void run(cudaStream_t s, const struct attention *a, const struct backward_tensors *t)
{
    switch (attention_kind_of(a)) {
    case ATTENTION_ALL: launch<K, Q, ATTENTION_ALL>(s, a, t); break;
    case ATTENTION_LIMITED: launch<K, Q, ATTENTION_LIMITED>(s, a, t); break;
    case ATTENTION_DROPPED: launch<K, Q, ATTENTION_DROPPED>(s, a, t); break;
    }
}

template <class E>
static void run_type(cudaStream_t s, const struct attention *a, const struct backward_tensors *t)
{
    if (a->head_dim <= 64)
        run<key_tiles<E, 64, 4, 2, 1, 32>, query_tiles<E, 64, 4, 2, 32>>(s, a, t);
    else if (a->head_dim <= 96)
        run<key_tiles<E, 96, 8, 1, 1, 64>, query_tiles<E, 96, 4, 2, 32>>(s, a, t);
    else if (a->head_dim <= 128)
        run<key_tiles<E, 128, 8, 1, 1, 32>, query_tiles<E, 128, 4, 2, 32>>(s, a, t);
    else
        run<key_tiles<E, 256, 8, 1, 2, 16>, query_tiles<E, 256, 4, 1, 16>>(s, a, t);
}

void cuda_own_attention_backward(struct device *d, const struct attention *a, void *dqkv,
                                 const void *dout, const void *o, const float *lse, const void *qkv,
                                 void *scratch)
{
    cudaStream_t s = cuda_compute(d);
    float *delta = (float *)scratch;
    const uint16_t *q = (const uint16_t *)qkv;
    struct backward_tensors t = {(uint16_t *)dqkv,
                                 attention_keys_in(a, (uint16_t *)dqkv, (uint16_t *)a->dkv),
                                 q,
                                 attention_keys_in(a, q, (const uint16_t *)a->kv),
                                 (const uint16_t *)dout,
                                 lse,
                                 delta};
    attention_delta(s, a, delta, dout, o);
    if (!attention_on_tensor_cores(a))
        attention_simt_backward(s, a, dqkv, dout, lse, delta, qkv);
    else if (a->dt == DTYPE_F16)
        run_type<fp16>(s, a, &t);
    else
        run_type<bf16>(s, a, &t);
}
