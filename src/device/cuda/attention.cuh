/* attention.cuh - types and functions that the attention kernels share: the problem, the order of
 * thread blocks, and tiles for tensor cores.
 *
 * A tile holds rows of one head in shared memory: 16-bit elements [rows][dim], where dim is
 * head_dim rounded up, with zeros from head_dim on.  load_matrices() reads one 16-byte chunk of
 * each of eight rows at a time, all in the same column of chunks.  These lie in different banks,
 * because the chunks of a row are permuted: with dim a multiple of 64, chunk c of row r is at place
 * c ^ (r % 8) of its group of eight.  Copies touch whole rows, so that the permutation costs them
 * nothing.
 *
 *   row 0   chunks 0 1 2 3 4 5 6 7
 *   row 1          1 0 3 2 5 4 7 6
 *   row 2          2 3 0 1 6 7 4 5   (each column of the drawing is a bank group)
 */
#ifndef TRIREME_DEVICE_CUDA_ATTENTION_CUH
#define TRIREME_DEVICE_CUDA_ATTENTION_CUH

#include "device/cuda/dropout.cuh"
#include "device/cuda/pack.cuh"

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

/* Return where keys (or their gradients) begin: behind the queries of packed projections, or in a
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

/* Take from s the queries that see only keys behind key `last` of sequence `batch`.  They are the
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

/* ---- tiles; uint16_t holds either 16-bit type, and the type itself is bf16 or fp16 ---- */

static __device__ __forceinline__ unsigned lane_id()
{
    return threadIdx.x % 32;
}

/* By the shuffle the compiler knows that the number is the same in the whole warp. */
static __device__ __forceinline__ int warp_id()
{
    return __shfl_sync(ALL_LANES, (int)threadIdx.x / 32, 0);
}

/* The number of chunks in a group, within which chunks are permuted. */
template <int dim> constexpr int tile_period = dim % 64 == 0 ? 8 : 4;

/* Return the element at which chunk number chunk + step of a row begins.  step is a constant, and a
 * multiple of 2 where chunk is not 0.  Steps of tile_period and more only add a constant, so that
 * few addresses in registers serve all steps. */
template <int dim>
static __device__ __forceinline__ unsigned tile_at(unsigned row, unsigned chunk, unsigned step)
{
    constexpr unsigned period = tile_period<dim>;
    static_assert(dim % (8 * period) == 0, "whole groups of chunks");
    unsigned by = period == 8 ? row % 8 : row / 2 % 4;
    return row * dim + 8 * ((chunk ^ by) ^ step % period) + 8 * (step / period * period);
}

/* How threads copy a tile: `across` threads copy a row, and all copy `down` rows at a time.  The
 * permutation is the same in all rows of one thread, so that its addresses differ by constants. */
template <int dim, int threads> struct tile_threads {
    static constexpr int across = tile_period<dim>, down = threads / across;
    static_assert(down % 8 == 0, "rows that are permuted alike");
};

/* Return the address of the first chunk that this thread copies of rows that begin at `from`, `row`
 * elements apart. */
template <int dim, int threads>
static __device__ __forceinline__ const uint16_t *tile_source(const uint16_t *from, int row)
{
    constexpr int across = tile_threads<dim, threads>::across;
    return from + (int64_t)(threadIdx.x / across) * row + threadIdx.x % across * 8;
}

/* Begin to copy `rows` rows from a tile_source() to a tile, with zeros from row `valid` and from
 * column head_dim on.  All threads call. */
template <int dim, int rows, int threads>
static __device__ __forceinline__ void tile_load(uint16_t *tile, const uint16_t *source, int row,
                                                 int valid, int head_dim)
{
    constexpr int across = tile_threads<dim, threads>::across;
    constexpr int down = tile_threads<dim, threads>::down;
    int chunk = (int)threadIdx.x % across, r = (int)threadIdx.x / across;
    uint16_t *to = tile + tile_at<dim>(r, chunk, 0);
    valid -= r;
    head_dim -= 8 * chunk;
#pragma unroll
    for (int i = 0; i < rows; i += down) {
#pragma unroll
        for (int column = 0; column < dim; column += 8 * across)
            if (rows % down == 0 || r + i < rows)
                async_copy16(to + i * dim + column, source + (int64_t)i * row + column,
                             i < valid && column < head_dim);
    }
}

/* The fp32 sums of a warp, in registers: tall x 16 rows by n columns.  Element v[m][i][e] of a lane
 * is in row 16 m + lane / 4 (+ 8 where e is 2 or 3) and column 8 i + 2 (lane % 4) + e % 2. */
template <int tall, int n> struct warp_sums {
    float v[tall][n / 8][4];

    __device__ __forceinline__ void clear()
    {
#pragma unroll
        for (int m = 0; m < tall; m++)
#pragma unroll
            for (int i = 0; i < n / 8; i++)
#pragma unroll
                for (int e = 0; e < 4; e++)
                    v[m][i][e] = 0;
    }
};

/* The sums of a warp rounded to type E: the left operand of a product that sums over the columns.
 */
template <class E, int tall, int n> struct warp_operand {
    uint32_t v[tall][n / 16][4];

    __device__ __forceinline__ void round(const struct warp_sums<tall, n> &from)
    {
#pragma unroll
        for (int m = 0; m < tall; m++)
#pragma unroll
            for (int i = 0; i < n / 8; i++) {
                v[m][i / 2][i % 2 * 2] = pair_of(E(), from.v[m][i][0], from.v[m][i][1]);
                v[m][i / 2][i % 2 * 2 + 1] = pair_of(E(), from.v[m][i][2], from.v[m][i][3]);
            }
    }
};

/* c += a b^T, of 16 * tall rows of tile a, from `row` on, and n rows of tile b.  Only the steps of
 * one period of the permutation are unrolled: with all of them the registers would not suffice. */
template <class E, int dim, int tall, int n>
static __device__ __forceinline__ void product_of_rows(struct warp_sums<tall, n> &c,
                                                       const uint16_t *a, unsigned row,
                                                       const uint16_t *b)
{
    constexpr int period = tile_period<dim>;
    unsigned lane = lane_id();
#pragma unroll 1
    for (int column = 0; column < dim; column += 8 * period, a += 8 * period, b += 8 * period)
#pragma unroll
        for (int step = 0; step < period; step += 2) {
            uint32_t left[tall][4];
#pragma unroll
            for (int m = 0; m < tall; m++)
                load_matrices(left[m], a + tile_at<dim>(row + 16 * m + lane % 16, lane / 16, step));
#pragma unroll
            for (int i = 0; i < n / 16; i++) {
                uint32_t right[4];
                load_matrices(
                    right, b + tile_at<dim>(16 * i + lane / 16 * 8 + lane % 8, lane / 8 % 2, step));
#pragma unroll
                for (int m = 0; m < tall; m++) {
                    mma(E(), c.v[m][2 * i], left[m], right);
                    mma(E(), c.v[m][2 * i + 1], left[m], right + 2);
                }
            }
        }
}

/* c += a b: the n rows of tile b weighted by a, as many columns as c has. */
template <int dim, class E, int tall, int n, int cols>
static __device__ __forceinline__ void sum_of_rows(struct warp_sums<tall, cols> &c,
                                                   const struct warp_operand<E, tall, n> &a,
                                                   const uint16_t *b)
{
    unsigned lane = lane_id();
#pragma unroll
    for (int k = 0; k < n / 16; k++)
#pragma unroll
        for (int i = 0; i < cols / 16; i++) {
            uint32_t right[4];
            load_matrices_transposed(right, b + tile_at<dim>(16 * k + lane % 16, lane / 16, 2 * i));
#pragma unroll
            for (int m = 0; m < tall; m++) {
                mma(E(), c.v[m][2 * i], a.v[m][k], right);
                mma(E(), c.v[m][2 * i + 1], a.v[m][k], right + 2);
            }
        }
}

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

/* Store the sums times factor, rounded to E, to rows of `to` from `row` on, below row `valid` and
 * column head_dim.  They go through the same rows of `tile`, which no other warp may use. */
template <class E, int dim, int tall, int cols>
static __device__ __forceinline__ void tile_store(uint16_t *to, int to_row,
                                                  const struct warp_sums<tall, cols> &c,
                                                  float factor, uint16_t *tile, int row, int valid,
                                                  int head_dim)
{
    int lane = (int)lane_id();
#pragma unroll
    for (int m = 0; m < tall; m++)
#pragma unroll
        for (int i = 0; i < cols / 8; i++)
#pragma unroll
            for (int half = 0; half < 2; half++) {
                unsigned at = tile_at<dim>(row + 16 * m + lane / 4 + 8 * half, 0, i);
                const float *pair = &c.v[m][i][2 * half];
                *aligned<uint32_t>(tile + at + lane % 4 * 2) =
                    pair_of(E(), pair[0] * factor, pair[1] * factor);
            }
    __syncwarp();
    constexpr int across = tile_period<dim>, down = 32 / across;
    for (int r = row + lane / across; r < row + 16 * tall && r < valid; r += down)
#pragma unroll
        for (int step = 0; step < cols / 8; step += across)
            if (8 * (lane % across + step) < head_dim)
                store16(to + (int64_t)r * to_row + 8 * (lane % across + step),
                        load16(tile + tile_at<dim>(r, lane % across, step)));
}

#endif
