/* attention.cuh - types and functions that the attention kernels share: the problem, the order of
 * thread blocks, and dropout.
 *
 * Tiles of heads, for tensor cores, are in tiles.cuh: a row of a tile is a row of a head.
 */
#ifndef TRIREME_DEVICE_CUDA_ATTENTION_CUH
#define TRIREME_DEVICE_CUDA_ATTENTION_CUH

#include "device/cuda/dropout.cuh"
#include "device/cuda/tiles.cuh"

constexpr float LOG2_E = 1.44269504f;
constexpr int ATTENTION_NO_WINDOW = 0x7fffffff;

/* The arguments of the attention kernels: the problem of struct attention, and the order of blocks.
 */
struct attention_args {
    int seq, keys;                        /* rows of queries and of keys that a sequence has */
    int heads, kv_heads, group, head_dim; /* group: query heads that share a key/value head */
    int q_row, kv_row, o_row;             /* elements from one row to the next */
    int chunks, chunk, first[2];          /* chunks of queries, their rows, their first positions */
    float scale;                          /* positive */
    const int32_t *positions;       /* over a cache: of each sequence's first row; else NULL */
    const int32_t *documents;       /* as in struct attention; NULL: each sequence is one */
    int window;                     /* as in struct attention, or ATTENTION_NO_WINDOW */
    struct dropout_mask dropout;    /* limit 0: none are dropped */
    int first_head;                 /* as in struct attention */
    int blocks, section, all_heads; /* blocks of a head, heads of a section, heads of the batch */
};

/* Return where keys (or their gradients) begin: after the queries of packed projections, or in a
 * tensor apart. */
template <class T>
static inline T *attention_keys_in(const struct attention *a, T *packed, T *apart)
{
    return a->forms & ATTENTION_SEPARATE ? apart : packed + a->heads * a->head_dim;
}

/* Return the arguments for kernels that work on `all_heads` heads; the caller sets the blocks of a
 * head.  The heads of a section are worked on together: it has so many that what their blocks read
 * again and again, `head_bytes` for each head, stays in the L2 cache. */
static inline struct attention_args attention_make_args(const struct attention *a,
                                                        int64_t all_heads, int64_t head_bytes)
{
    const int64_t cache_bytes = 16 << 20;
    const bool apart = a->forms & ATTENTION_SEPARATE;
    int64_t kv_heads = 2 * a->kv_heads, section = cache_bytes / head_bytes;
    struct attention_args args = {};
    args.seq = (int)a->seq;
    args.keys = (int)attention_keys(a);
    args.chunks = a->part.chunk ? 2 : 1;
    args.chunk = (int)a->seq / args.chunks;
    args.first[0] = (int)a->part.first[0];
    args.first[1] = (int)a->part.first[1];
    args.heads = (int)a->heads;
    args.kv_heads = (int)a->kv_heads;
    args.group = (int)(a->heads / a->kv_heads);
    args.head_dim = (int)a->head_dim;
    args.q_row = (int)((a->heads + (apart ? 0 : kv_heads)) * a->head_dim);
    args.kv_row = (int)((kv_heads + (apart ? 0 : a->heads)) * a->head_dim);
    args.o_row = (int)(a->heads * a->head_dim);
    args.scale = a->scale;
    args.documents = a->forms & ATTENTION_DOCUMENTS ? a->documents : NULL;
    args.window = a->forms & ATTENTION_WINDOW ? (int)a->window : ATTENTION_NO_WINDOW;
    if (a->forms & ATTENTION_DROPOUT)
        args.dropout = a->dropout;
    args.first_head = (int)a->first_head;
    args.section = (int)(section < 1 ? 1 : section < all_heads ? section : all_heads);
    args.all_heads = (int)all_heads;
    return args;
}

/* Return the arguments for one thread block per query head and up to `rows` queries of a chunk. Its
 * blocks read keys and values again and again. */
static inline struct attention_args attention_query_args(const struct attention *a, int rows)
{
    int64_t kv_bytes = 2 * attention_keys(a) * a->head_dim * (a->dt == DTYPE_F32 ? 4 : 2);
    int64_t group = a->heads / a->kv_heads;
    struct attention_args args =
        attention_make_args(a, a->batch * a->heads, (kv_bytes + group - 1) / group);
    args.blocks = args.chunks * ((args.chunk + rows - 1) / rows);
    return args;
}

/* Return the arguments for one thread block per key/value head and `rows` keys.  Its blocks read
 * queries and dO again and again. */
static inline struct attention_args attention_key_args(const struct attention *a, int rows)
{
    int64_t head_bytes = 2 * a->seq * a->head_dim * (a->dt == DTYPE_F32 ? 4 : 2);
    struct attention_args args =
        attention_make_args(a, a->batch * a->kv_heads, head_bytes * (a->heads / a->kv_heads));
    args.blocks = (args.keys + rows - 1) / rows;
    return args;
}

static inline unsigned attention_grid(const struct attention_args *args)
{
    return (unsigned)args->blocks * (unsigned)args->all_heads;
}

/* The part of the work that a thread block does: block number `rank` of its head.  Within a
 * section, blocks of rank 0 of all heads come first, then those of rank 1. */
struct attention_place {
    int rank, head;
};

static __device__ __forceinline__ struct attention_place attention_place_of(
    const struct attention_args &a, unsigned index)
{
    unsigned per_section = (unsigned)a.section * (unsigned)a.blocks;
    unsigned section = index / per_section, rest = index % per_section;
    unsigned left = (unsigned)a.all_heads - section * (unsigned)a.section;
    unsigned heads = left < (unsigned)a.section ? left : (unsigned)a.section;
    return {(int)(rest / heads), (int)(section * (unsigned)a.section + rest % heads)};
}

/* Consecutive queries of a chunk: the row of the first one in its sequence; its position, up to
 * which it sees keys; and the number of queries from it to the end of the chunk. */
struct attention_queries {
    int row, position, valid;
};

/* Return the n-th tile of `rows` queries; later tiles see more keys.  a.first is read by constant
 * indices, because with a variable one the compiler would copy all arguments to local memory. */
static __device__ __forceinline__ struct attention_queries attention_query_tile(
    const struct attention_args &a, int n, int rows)
{
    int each = (a.chunk + rows - 1) / rows, chunk = n / each, start = n % each * rows;
    return {chunk * a.chunk + start, (chunk ? a.first[1] : a.first[0]) + start, a.chunk - start};
}

/* The queries that see a key or a later one: in each chunk those from row `start` on, in `tiles`
 * tiles.
 */
struct attention_seers {
    int start[2], tiles[2];
};

static __device__ __forceinline__ struct attention_seers attention_seers_of(
    const struct attention_args &a, int key, int rows)
{
    struct attention_seers s;
#pragma unroll
    for (int c = 0; c < 2; c++) {
        int before = key - a.first[c];
        s.start[c] = before < 0 ? 0 : before < a.chunk ? before : a.chunk;
        s.tiles[c] = c < a.chunks ? (a.chunk - s.start[c] + rows - 1) / rows : 0;
    }
    return s;
}

/* The variants of the kernels on tensor cores.  ALL: a query sees all keys up to its own.  LIMITED:
 * it may not see the first of them, by documents or a window.  DROPPED: as LIMITED, with dropout.
 */
enum attention_kind { ATTENTION_ALL, ATTENTION_LIMITED, ATTENTION_DROPPED };

static inline enum attention_kind attention_kind_of(const struct attention *a)
{
    return a->forms & ATTENTION_DROPOUT                          ? ATTENTION_DROPPED
           : a->forms & (ATTENTION_DOCUMENTS | ATTENTION_WINDOW) ? ATTENTION_LIMITED
                                                                 : ATTENTION_ALL;
}

/* What limits the keys that consecutive queries see: `valid` queries, the first one at `position`.
 */
struct attention_limit {
    const int32_t *documents; /* of these queries; NULL: the sequence is one document */
    int position, valid, window;
};

/* Return the limit of `valid` queries; `query` is the row of the first one in the whole batch. */
static __device__ __forceinline__ struct attention_limit attention_limit_of(
    const struct attention_args &a, int64_t query, int position, int valid)
{
    return {a.documents ? a.documents + query : NULL, position, valid, a.window};
}

/* Return the position of the first key that the r-th query sees, which never falls from one query
 * to the next.  For rows from `valid` on, whose results are not used, it is that of the last query.
 */
static __device__ __forceinline__ int attention_low(const struct attention_limit &limit, int r)
{
    int at = r < limit.valid ? r : limit.valid - 1;
    int document = limit.documents ? limit.documents[at] : 0;
    int start = limit.position + at - limit.window + 1;
    return document > start ? document : start;
}

/* Take from s the queries that see only keys after key `last` of sequence `batch`.  They are the
 * last queries of each chunk; a binary search finds the first of them. */
static __device__ __forceinline__ void attention_cut_seers(const struct attention_args &a,
                                                           struct attention_seers &s, int64_t batch,
                                                           int last, int rows)
{
#pragma unroll
    for (int c = 0; c < 2; c++) {
        int from = s.start[c], to = c < a.chunks ? a.chunk : s.start[c];
        const struct attention_limit limit =
            attention_limit_of(a, batch * a.seq + c * a.chunk, a.first[c], a.chunk);
        while (from < to) {
            int middle = (from + to) / 2;
            if (attention_low(limit, middle) <= last)
                from = middle + 1;
            else
                to = middle;
        }
        s.tiles[c] = c < a.chunks ? (from - s.start[c] + rows - 1) / rows : 0;
    }
}

/* Return the n-th tile of the queries in s. */
static __device__ __forceinline__ struct attention_queries attention_seer_tile(
    const struct attention_args &a, const struct attention_seers &s, int n, int rows)
{
    int chunk = n >= s.tiles[0];
    int start = chunk ? s.start[1] + (n - s.tiles[0]) * rows : s.start[0] + n * rows;
    return {chunk * a.chunk + start, (chunk ? a.first[1] : a.first[0]) + start, a.chunk - start};
}

/* Return the upper words of dropout's counter for a head of a sequence; zeros without dropout. */
static __device__ __forceinline__ uint2 attention_sample(const struct attention_args &a,
                                                         int64_t batch, int head)
{
    return a.dropout.limit ? dropout_sample(a.dropout, batch, a.first_head + head)
                           : make_uint2(0, 0);
}

/* Return the factor of the weight of a query and key under dropout: 0 where it is dropped. */
static __device__ __forceinline__ float attention_kept(const struct attention_args &a, uint2 sample,
                                                       int query, int key)
{
    uint4 words = dropout_words(a.dropout, sample, (uint32_t)query, (uint32_t)key / 4);
    return word_of(words, key % 4) < a.dropout.limit ? 0.0f : a.dropout.factor;
}

/* Kernels without tensor cores: fp32, and the others where rows of a head are not 16-byte
 * aligned. */
void attention_simt(cudaStream_t s, const struct attention *a, void *o, float *lse,
                    const void *qkv);
void attention_simt_backward(cudaStream_t s, const struct attention *a, void *dqkv,
                             const void *dout, const float *lse, const float *delta,
                             const void *qkv);
/* delta[batch, heads, seq] = the sum of dout * o over a head; all types */
void attention_delta(cudaStream_t s, const struct attention *a, float *delta, const void *dout,
                     const void *o);

/* Enqueue attention of prompts over a cache, which holds their own keys and values already
 * (attention_cached.cu).  Returns false, with nothing enqueued, where tensor cores cannot do it. */
bool attention_of_prompts(cudaStream_t s, const struct attention_cached *a, void *o,
                          const void *cache, const void *qkv, const int32_t *positions);

static inline bool attention_on_tensor_cores(const struct attention *a)
{
    return a->dt != DTYPE_F32 && a->head_dim % 8 == 0;
}

/* ---- dropout of weights in registers ---- */

/* Compute by[e], dropout's factor of element v[m][i][e] of warp_sums whose rows are queries and
 * whose columns are keys.  query and key are the positions of the lane's element 0; key - 2 (lane %
 * 4) is a multiple of 8.  Four keys share a block of random words, and two lanes have these keys:
 * each lane draws the block of one of its two queries and gives the other lane its half.  A whole
 * warp calls. */
static __device__ __forceinline__ void kept_of_queries(float (&by)[4],
                                                       const struct attention_args &a, uint2 sample,
                                                       int query, int key)
{
    bool odd = lane_id() % 2;
    uint4 own =
        dropout_words(a.dropout, sample, (uint32_t)(query + (odd ? 8 : 0)), (uint32_t)key / 4);
    uint32_t low = __shfl_xor_sync(ALL_LANES, odd ? own.x : own.z, 1);
    uint32_t high = __shfl_xor_sync(ALL_LANES, odd ? own.y : own.w, 1);
    const uint32_t words[4] = {odd ? low : own.x, odd ? high : own.y, odd ? own.z : low,
                               odd ? own.w : high};
#pragma unroll
    for (int e = 0; e < 4; e++)
        by[e] = words[e] < a.dropout.limit ? 0.0f : a.dropout.factor;
}

/* Compute dropout's factors where rows are keys and columns are queries; key - lane / 4 is a
 * multiple of 8.  Four lanes have the keys of a block of random words: lane j of them draws the
 * block of element j and gives word k of it to lane k.  A whole warp calls. */
static __device__ __forceinline__ void kept_of_keys(float (&by)[4], const struct attention_args &a,
                                                    uint2 sample, int query, int key)
{
    int j = (int)lane_id() / 4 % 4;
    uint4 own = dropout_words(a.dropout, sample, (uint32_t)(query + j % 2),
                              (uint32_t)(key + j / 2 * 8) / 4);
    uint4 got; /* of lanes j, j ^ 1, j ^ 2 and j ^ 3 */
    got.x = word_of(own, j);
    got.y = __shfl_xor_sync(ALL_LANES, word_of(own, j ^ 1), 4);
    got.z = __shfl_xor_sync(ALL_LANES, word_of(own, j ^ 2), 8);
    got.w = __shfl_xor_sync(ALL_LANES, word_of(own, j ^ 3), 12);
#pragma unroll
    for (int e = 0; e < 4; e++)
        by[e] = word_of(got, e ^ j) < a.dropout.limit ? 0.0f : a.dropout.factor;
}

#endif
