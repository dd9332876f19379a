/* attention_fp32.cu - causal attention with grouped queries without tensor cores: fp32, and the
 * 16-bit types where head_dim is no multiple of 8.
 *
 * The algorithms are those of attention.cu and attention_backward.cu, on fp32 tiles in shared
 * memory.  A thread block is 16 threads across (x) and 8 down (y).  Thread (x, y) computes these
 * elements, for all i, j and c:
 *
 *     of a b^T, the products of the rows of two tiles   rows y + 8 i, columns x + 16 j
 *     of a sum over rows, weights times a tile          rows y + 8 i, columns 4 x + 64 c + 0 to 3
 *
 * In shared memory rows are padded by 16 bytes, so that neighbouring rows lie in different banks.
 */
#include "device/cuda/attention.cuh"

enum { ACROSS = 16, DOWN = 8, THREADS = ACROSS * DOWN };

/* The sizes of a kernel's tiles.  E is the type of elements in global memory: float, bf16 or fp16;
 * tiles in shared memory are fp32, [rows][dim], and weights [rows][rows]. */
template <class E_, int dim_, int rows_> struct simt_tiles {
    using E = E_;
    static constexpr int dim = dim_, rows = rows_;
    /* A thread's elements: rows, columns of a product, groups of 4 columns of a sum. */
    static constexpr int high = rows / DOWN, wide = rows / ACROSS, parts = dim / 64;
    static constexpr int stride = dim + 4, weight_stride = rows + 4;
    static constexpr int tile_elems = rows * stride, weight_elems = rows * weight_stride;
    static constexpr size_t forward_bytes = sizeof(float) * (2 * tile_elems + weight_elems);
    static constexpr size_t key_bytes = sizeof(float) * (4 * tile_elems + 2 * weight_elems);
    static constexpr size_t query_bytes = sizeof(float) * (4 * tile_elems + weight_elems);
};

/* What backward reads and writes.  dk and k begin with the keys; the values lie after them. */
template <class E> struct simt_tensors {
    E *dq, *dk;
    const E *q, *k, *dout;
    const float *lse, *delta; /* [batch, heads, seq] */
};

static __device__ __forceinline__ int across()
{
    return (int)threadIdx.x % ACROSS;
}

static __device__ __forceinline__ int down()
{
    return (int)threadIdx.x / ACROSS;
}

/* Two neighbouring elements, read as fp32 or written from it. */
static __device__ __forceinline__ float2 pair_load(const float *from)
{
    return *aligned<const float2>(from);
}

template <class E> static __device__ __forceinline__ float2 pair_load(const E *from)
{
    float pair[2];
    widen_pair(E(), pair, *aligned<const uint32_t>(from));
    return make_float2(pair[0], pair[1]);
}

static __device__ __forceinline__ void pair_store(float *to, float low, float high)
{
    *aligned<float2>(to) = make_float2(low, high);
}

template <class E> static __device__ __forceinline__ void pair_store(E *to, float low, float high)
{
    *aligned<uint32_t>(to) = pair_of(E(), low, high);
}

static __device__ __forceinline__ void load4(float to[4], const float *from)
{
    float4 four = *aligned<const float4>(from);
    to[0] = four.x;
    to[1] = four.y;
    to[2] = four.z;
    to[3] = four.w;
}

/* Copy rows of one head into a tile, with zeros from row `valid` and from column head_dim on.  row:
 * elements from one row to the next at `from`. */
template <class T>
static __device__ __forceinline__ void simt_load(float *tile, const typename T::E *from, int row,
                                                 int valid, int head_dim)
{
    constexpr int pairs = T::dim / 2;
    for (int i = (int)threadIdx.x; i < T::rows * pairs; i += THREADS) {
        int r = i / pairs, column = 2 * (i % pairs);
        float2 pair = make_float2(0, 0);
        if (r < valid && column < head_dim)
            pair = pair_load(from + (int64_t)r * row + column);
        pair_store(tile + r * T::stride + column, pair.x, pair.y);
    }
}

/* s = this thread's elements of a b^T, a and b being tiles. */
template <class T>
static __device__ __forceinline__ void simt_product(float s[T::high][T::wide], const float *a,
                                                    const float *b)
{
    a += down() * T::stride;
    b += across() * T::stride;
    for (int i = 0; i < T::high; i++)
        for (int j = 0; j < T::wide; j++)
            s[i][j] = 0;
#pragma unroll 2
    for (int d = 0; d < T::dim; d += 4) {
        float left[T::high][4], right[T::wide][4];
        for (int i = 0; i < T::high; i++)
            load4(left[i], a + i * DOWN * T::stride + d);
        for (int j = 0; j < T::wide; j++)
            load4(right[j], b + j * ACROSS * T::stride + d);
        for (int i = 0; i < T::high; i++)
            for (int j = 0; j < T::wide; j++)
                for (int e = 0; e < 4; e++)
                    s[i][j] = fmaf(left[i][e], right[j][e], s[i][j]);
    }
}

/* A thread's elements of a sum over rows: v[i][c][e] is row y + 8 i, column 4 x + 64 c + e. */
template <class T> struct simt_sums {
    float v[T::high][T::parts][4];

    __device__ __forceinline__ void clear()
    {
        for (int i = 0; i < T::high; i++)
            for (int c = 0; c < T::parts; c++)
                for (int e = 0; e < 4; e++)
                    v[i][c][e] = 0;
    }

    __device__ __forceinline__ void multiply(int i, float by)
    {
        for (int c = 0; c < T::parts; c++)
            for (int e = 0; e < 4; e++)
                v[i][c][e] *= by;
    }

    /* Add weights [rows][rows] times tile b. */
    __device__ __forceinline__ void add(const float *weights, const float *b)
    {
        weights += down() * T::weight_stride;
        b += across() * 4;
        for (int k = 0; k < T::rows; k += 4) {
            float weight[T::high][4];
            for (int i = 0; i < T::high; i++)
                load4(weight[i], weights + i * DOWN * T::weight_stride + k);
            for (int e = 0; e < 4; e++)
                for (int c = 0; c < T::parts; c++) {
                    float right[4];
                    load4(right, b + (k + e) * T::stride + 64 * c);
                    for (int i = 0; i < T::high; i++)
                        for (int f = 0; f < 4; f++)
                            v[i][c][f] = fmaf(weight[i][e], right[f], v[i][c][f]);
                }
        }
    }

    /* Write the rows below `valid`, times factor. */
    __device__ __forceinline__ void store(typename T::E *to, int row, int valid, int head_dim,
                                          float factor) const
    {
        for (int i = 0; i < T::high; i++)
            for (int c = 0; c < T::parts; c++)
                for (int e = 0; e < 4; e += 2) {
                    int r = down() + DOWN * i, column = 4 * across() + 64 * c + e;
                    if (r < valid && column < head_dim)
                        pair_store(to + (int64_t)r * row + column, v[i][c][e] * factor,
                                   v[i][c][e + 1] * factor);
                }
    }
};

/* Write this thread's elements of a product to shared memory. */
template <class T>
static __device__ __forceinline__ void simt_put(float *weights, const float s[T::high][T::wide])
{
    for (int i = 0; i < T::high; i++)
        for (int j = 0; j < T::wide; j++)
            weights[(down() + DOWN * i) * T::weight_stride + across() + ACROSS * j] = s[i][j];
}

/* Forward */

/* Returns the maximum, and the sum, over the threads of a row. */
static __device__ __forceinline__ float max_across(float x)
{
    for (int step = ACROSS / 2; step > 0; step /= 2)
        x = fmaxf(x, __shfl_xor_sync(ALL_LANES, x, step));
    return x;
}

static __device__ __forceinline__ float sum_across(float x)
{
    for (int step = ACROSS / 2; step > 0; step /= 2)
        x += __shfl_xor_sync(ALL_LANES, x, step);
    return x;
}

/* Make weights of scores, in place, and go on with the online softmax: the largest score so far
 * (top), the sum of weights (sum) and the output (o) are scaled to the new largest score.  first,
 * key: the positions of the first query and of the first key; low: the first key that each query
 * sees.  As long as a query has seen no key, top is -infinity, and 0 is subtracted. */
template <class T>
static __device__ __forceinline__ void simt_softmax(float s[T::high][T::wide], float top[T::high],
                                                    float sum[T::high], struct simt_sums<T> &o,
                                                    const struct attention_args &a, uint2 sample,
                                                    int first, int key, const int low[T::high])
{
    const float scale = a.scale * LOG2_E;
    for (int i = 0; i < T::high; i++) {
        float old = top[i], most = old, total = 0;
        for (int j = 0; j < T::wide; j++) {
            int at = key + across() + ACROSS * j;
            if (at > first + down() + DOWN * i || at < low[i])
                s[i][j] = -INFINITY;
            most = fmaxf(most, s[i][j]);
        }
        top[i] = most = max_across(most);
        most = most == -INFINITY ? 0 : most;
        for (int j = 0; j < T::wide; j++) {
            s[i][j] = exp2_fast((s[i][j] - most) * scale); /* exact near 0, however large most */
            total += s[i][j];
            if (a.dropout.limit)
                s[i][j] *= attention_kept(a, sample, first + down() + DOWN * i,
                                          key + across() + ACROSS * j);
        }
        float shrink = exp2_fast((old - most) * scale);
        sum[i] = fmaf(sum[i], shrink, total);
        o.multiply(i, shrink);
    }
}

template <class T>
__global__ void __launch_bounds__(THREADS)
    simt_forward(struct attention_args a, typename T::E *out, float *lse,
                 const typename T::E *q_all, const typename T::E *k_all)
{
    DYNAMIC_SHARED(float, q);
    float *kv = q + T::tile_elems, *weights = kv + T::tile_elems;
    struct attention_place at = attention_place_of(a, blockIdx.x);
    const struct attention_queries tile = attention_query_tile(a, a.blocks - 1 - at.rank, T::rows);
    int first = tile.position, valid = tile.valid, head = at.head % a.heads;
    int end = first + (valid < T::rows ? valid : T::rows);
    int64_t batch = at.head / a.heads, query = batch * a.seq + tile.row;
    const typename T::E *queries = q_all + query * a.q_row + (int64_t)head * a.head_dim;
    const typename T::E *keys =
        k_all + batch * a.keys * a.kv_row + (int64_t)(head / a.group) * a.head_dim;
    const struct attention_limit limit = attention_limit_of(a, query, first, valid);
    int first_low = attention_low(limit, 0),
        begin = first_low > 0 ? first_low / T::rows * T::rows : 0;
    const uint2 sample = attention_sample(a, batch, head);
    struct simt_sums<T> o;
    float top[T::high], sum[T::high];
    int low[T::high];
    for (int i = 0; i < T::high; i++) {
        top[i] = -INFINITY;
        sum[i] = 0;
        low[i] = attention_low(limit, down() + DOWN * i);
    }
    o.clear();
    simt_load<T>(q, queries, a.q_row, valid, a.head_dim);
    for (int key = begin; key < end; key += T::rows) {
        const typename T::E *from = keys + (int64_t)key * a.kv_row;
        float s[T::high][T::wide];
        simt_load<T>(kv, from, a.kv_row, a.keys - key, a.head_dim);
        __syncthreads();
        simt_product<T>(s, q, kv);
        simt_softmax<T>(s, top, sum, o, a, sample, first, key, low);
        simt_put<T>(weights, s);
        __syncthreads();
        simt_load<T>(kv, from + (int64_t)a.kv_heads * a.head_dim, a.kv_row, a.keys - key,
                     a.head_dim);
        __syncthreads();
        o.add(weights, kv);
        __syncthreads();
    }
    for (int i = 0; i < T::high; i++) {
        int r = down() + DOWN * i;
        float total = sum_across(sum[i]);
        if (across() == 0 && r < valid)
            lse[(int64_t)at.head * a.seq + tile.row + r] = fmaf(top[i], a.scale, logf(total));
        o.multiply(i, 1.0f / total);
    }
    o.store(out + query * a.o_row + (int64_t)head * a.head_dim, a.o_row, valid, a.head_dim, 1.0f);
}

/* Backward */

/* Make P of scores (s), and dS of dP (dp), in place.  Element [i][j] is of a query and a key: with
 * rows_are_keys the rows are keys and the columns queries, else the other way round.  row, column:
 * the positions of the first ones; queries from position `end` on do not exist.  lse, delta and
 * limit begin at the first query.  Weights are cut to 1: where scores are huge, lse may have been
 * rounded to less than the largest one. */
template <class T, bool rows_are_keys>
static __device__ __forceinline__ void simt_gradients(float s[T::high][T::wide],
                                                      float dp[T::high][T::wide], const float *lse,
                                                      const float *delta,
                                                      const struct attention_limit &limit,
                                                      const struct attention_args &a, uint2 sample,
                                                      int row, int column, int end)
{
    const float scale = a.scale * LOG2_E;
    for (int i = 0; i < T::high; i++)
        for (int j = 0; j < T::wide; j++) {
            int r = down() + DOWN * i, c = across() + ACROSS * j, query = rows_are_keys ? c : r;
            int past = rows_are_keys ? (column + c) - (row + r) : (row + r) - (column + c);
            bool valid = (rows_are_keys ? column : row) + query < end;
            float power = fmaf(s[i][j], scale, valid ? -lse[query] * LOG2_E : 0);
            float p = exp2_fast(power > 0 ? 0 : power);
            int key = rows_are_keys ? row + r : column + c;
            int low = attention_low(limit, query);
            float by = a.dropout.limit ? attention_kept(a, sample, key + past, key) : 1;
            p = past < 0 || key < low ? 0 : p;
            s[i][j] = p * by;
            dp[i][j] = p * fmaf(dp[i][j], by, -(valid ? delta[query] : 0));
        }
}

/* Compute dk and dv: a block has a tile of keys, and goes over all tiles of queries that see them.
 */
template <class T>
__global__ void __launch_bounds__(THREADS)
    simt_key_pass(struct attention_args a, struct simt_tensors<typename T::E> t)
{
    DYNAMIC_SHARED(float, k);
    float *v = k + T::tile_elems, *q = v + T::tile_elems, *dout = q + T::tile_elems;
    float *weights = dout + T::tile_elems, *changes = weights + T::weight_elems;
    struct attention_place at = attention_place_of(a, blockIdx.x);
    int first = at.rank * T::rows, valid = a.keys - first, kv = at.head % a.kv_heads;
    struct attention_seers seers = attention_seers_of(a, first, T::rows);
    int64_t batch = at.head / a.kv_heads;
    attention_cut_seers(a, seers, batch, first + T::rows - 1, T::rows);
    int64_t keys = (batch * a.keys + first) * a.kv_row + (int64_t)kv * a.head_dim;
    int64_t values = keys + (int64_t)a.kv_heads * a.head_dim;
    struct simt_sums<T> dk, dv;
    dk.clear();
    dv.clear();
    simt_load<T>(k, t.k + keys, a.kv_row, valid, a.head_dim);
    simt_load<T>(v, t.k + values, a.kv_row, valid, a.head_dim);
    for (int head = kv * a.group; head < (kv + 1) * a.group; head++)
        for (int n = 0; n < seers.tiles[0] + seers.tiles[1]; n++) {
            const struct attention_queries tile = attention_seer_tile(a, seers, n, T::rows);
            int64_t query = batch * a.seq + tile.row, column = (int64_t)head * a.head_dim;
            int64_t row = (batch * a.heads + head) * a.seq + tile.row;
            float s[T::high][T::wide], dp[T::high][T::wide];
            __syncthreads();
            simt_load<T>(q, t.q + query * a.q_row + column, a.q_row, tile.valid, a.head_dim);
            simt_load<T>(dout, t.dout + query * a.o_row + column, a.o_row, tile.valid, a.head_dim);
            __syncthreads();
            simt_product<T>(s, k, q);
            simt_product<T>(dp, v, dout);
            simt_gradients<T, true>(s, dp, t.lse + row, t.delta + row,
                                    attention_limit_of(a, query, tile.position, tile.valid), a,
                                    attention_sample(a, batch, head), first, tile.position,
                                    tile.position + tile.valid);
            simt_put<T>(weights, s);
            simt_put<T>(changes, dp);
            __syncthreads();
            dv.add(weights, dout);
            dk.add(changes, q);
        }
    dk.store(t.dk + keys, a.kv_row, valid, a.head_dim, a.scale);
    dv.store(t.dk + values, a.kv_row, valid, a.head_dim, 1.0f);
}

/* Compute dq: a block has a tile of queries, and goes over all tiles of keys that they see. */
template <class T>
__global__ void __launch_bounds__(THREADS)
    simt_query_pass(struct attention_args a, struct simt_tensors<typename T::E> t)
{
    DYNAMIC_SHARED(float, q);
    float *dout = q + T::tile_elems, *k = dout + T::tile_elems, *v = k + T::tile_elems;
    float *changes = v + T::tile_elems;
    struct attention_place at = attention_place_of(a, blockIdx.x);
    const struct attention_queries tile = attention_query_tile(a, a.blocks - 1 - at.rank, T::rows);
    int first = tile.position, valid = tile.valid, head = at.head % a.heads;
    int end = first + (valid < T::rows ? valid : T::rows);
    int64_t batch = at.head / a.heads, column = (int64_t)head * a.head_dim;
    int64_t query = batch * a.seq + tile.row, queries = query * a.q_row + column;
    int64_t outputs = query * a.o_row + column;
    int64_t row = (int64_t)at.head * a.seq + tile.row;
    const typename T::E *keys =
        t.k + batch * a.keys * a.kv_row + (int64_t)(head / a.group) * a.head_dim;
    const struct attention_limit limit = attention_limit_of(a, query, first, valid);
    int first_low = attention_low(limit, 0);
    const uint2 sample = attention_sample(a, batch, head);
    struct simt_sums<T> dq;
    dq.clear();
    simt_load<T>(q, t.q + queries, a.q_row, valid, a.head_dim);
    simt_load<T>(dout, t.dout + outputs, a.o_row, valid, a.head_dim);
    for (int key = first_low > 0 ? first_low / T::rows * T::rows : 0; key < end; key += T::rows) {
        const typename T::E *from = keys + (int64_t)key * a.kv_row;
        float s[T::high][T::wide], dp[T::high][T::wide];
        __syncthreads();
        simt_load<T>(k, from, a.kv_row, a.keys - key, a.head_dim);
        simt_load<T>(v, from + (int64_t)a.kv_heads * a.head_dim, a.kv_row, a.keys - key,
                     a.head_dim);
        __syncthreads();
        simt_product<T>(s, q, k);
        simt_product<T>(dp, dout, v);
        simt_gradients<T, false>(s, dp, t.lse + row, t.delta + row, limit, a, sample, first, key,
                                 first + valid);
        simt_put<T>(changes, dp);
        __syncthreads();
        dq.add(changes, k);
    }
    dq.store(t.dq + queries, a.q_row, valid, a.head_dim, a.scale);
}

/* delta = the sum of dout o over a head, of each position.  A warp takes a head of a position; rows
 * of dout and o are the heads of all positions, one after the other. */
template <class E>
__global__ void __launch_bounds__(THREADS)
    delta_kernel(float *delta, const E *dout, const E *o, int64_t rows, int heads, int seq,
                 int head_dim)
{
    int64_t row = (int64_t)blockIdx.x * (THREADS / 32) + threadIdx.x / 32;
    if (row >= rows)
        return;
    float sum = 0;
    for (int i = 2 * (int)lane_id(); i < head_dim; i += 64) {
        float2 x = pair_load(dout + row * head_dim + i), y = pair_load(o + row * head_dim + i);
        sum = fmaf(x.x, y.x, fmaf(x.y, y.y, sum));
    }
    for (int step = 16; step > 0; step /= 2)
        sum += __shfl_xor_sync(ALL_LANES, sum, step);
    int64_t position = row / heads, batch = position / seq;
    if (lane_id() == 0)
        delta[(batch * heads + row % heads) * seq + position % seq] = sum;
}

/* Launching */

template <class T>
static void run_forward(cudaStream_t s, const struct attention *a, void *o, float *lse,
                        const void *qkv)
{
    struct attention_args args = attention_query_args(a, T::rows);
    ALLOW_SHARED(simt_forward<T>, T::forward_bytes);
    LAUNCH(simt_forward<T>, attention_grid(&args), THREADS, T::forward_bytes, s, args,
           (typename T::E *)o, lse, (const typename T::E *)qkv,
           attention_keys_in(a, (const typename T::E *)qkv, (const typename T::E *)a->kv));
}

template <class E>
static void forward(cudaStream_t s, const struct attention *a, void *o, float *lse, const void *qkv)
{
    if (a->head_dim <= 64)
        run_forward<simt_tiles<E, 64, 32>>(s, a, o, lse, qkv);
    else if (a->head_dim <= 128)
        run_forward<simt_tiles<E, 128, 32>>(s, a, o, lse, qkv);
    else
        run_forward<simt_tiles<E, 256, 32>>(s, a, o, lse, qkv);
}

void attention_simt(cudaStream_t s, const struct attention *a, void *o, float *lse, const void *qkv)
{
    by_type(a->dt, [&](auto type) { forward<decltype(type)>(s, a, o, lse, qkv); });
}

template <class T>
static void run_backward(cudaStream_t s, const struct attention *a,
                         const struct simt_tensors<typename T::E> *t)
{
    struct attention_args by_key = attention_key_args(a, T::rows);
    struct attention_args by_query = attention_query_args(a, T::rows);
    ALLOW_SHARED(simt_key_pass<T>, T::key_bytes);
    LAUNCH(simt_key_pass<T>, attention_grid(&by_key), THREADS, T::key_bytes, s, by_key, *t);
    ALLOW_SHARED(simt_query_pass<T>, T::query_bytes);
    LAUNCH(simt_query_pass<T>, attention_grid(&by_query), THREADS, T::query_bytes, s, by_query, *t);
}

template <class E>
static void backward(cudaStream_t s, const struct attention *a, void *dqkv, const void *dout,
                     const float *lse, const float *delta, const void *qkv)
{
    struct simt_tensors<E> t = {
        (E *)dqkv, attention_keys_in(a, (E *)dqkv, (E *)a->dkv), (const E *)qkv,
            attention_keys_in(a, (const E *)qkv, (const E *)a->kv), (const E *)dout, lse, delta
    };
    if (a->head_dim <= 64)
        run_backward<simt_tiles<E, 64, 32>>(s, a, &t);
    else if (a->head_dim <= 128)
        run_backward<simt_tiles<E, 128, 32>>(s, a, &t);
    else
        run_backward<simt_tiles<E, 256, 16>>(s, a, &t);
}

void attention_simt_backward(cudaStream_t s, const struct attention *a, void *dqkv,
                             const void *dout, const float *lse, const float *delta,
                             const void *qkv)
{
    by_type(a->dt, [&](auto type) { backward<decltype(type)>(s, a, dqkv, dout, lse, delta, qkv); });
}

void attention_delta(cudaStream_t s, const struct attention *a, float *delta, const void *dout,
                     const void *o)
{
    int64_t rows = a->batch * a->seq * a->heads, warps = THREADS / 32;
    unsigned grid = (unsigned)((rows + warps - 1) / warps);
    int heads = (int)a->heads, seq = (int)a->seq, dim = (int)a->head_dim;
    by_type(a->dt, [&](auto type) {
        using E = decltype(type);
        LAUNCH(delta_kernel<E>, grid, THREADS, 0, s, delta, (const E *)dout, (const E *)o, rows,
               heads, seq, dim);
    });
}
