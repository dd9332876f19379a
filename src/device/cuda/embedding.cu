/* embedding.cu - rows of a table, and the sum of gradients into them in the order of the rows.
 *
 * Forward.  Least memory traffic: each row is read and written once.  A block copies a row; each
 * thread loads four times 16 bytes before it stores the first.
 *
 * Backward.  Least memory traffic: dy is read once; a row of the gradient of the table is read and
 * written once in each round, 2048 rows of dy, in which its token occurs (without accumulate the
 * whole gradient is cleared first, which takes most of the time).  Each token belongs to one block,
 * by a hash.  In a round a block
 *
 *   1. looks at all tokens, and lists the rows with tokens of its own in ascending order (find())
 *   2. links the rows that have the same token (link())
 *   3. adds the rows of each token by a team of its threads (add_matches())
 *
 * So every element is summed in the order of the rows, as on the CPU, without scratch memory and
 * atomics.  Every block, of up to 396, reads all tokens, 4 bytes each, from the L2.  For a token
 * that is not in this rank's part of the table forward writes zeros, and backward adds nothing.
 */
#include "device/cuda/pack.cuh"

template <typename R>
__global__ void __launch_bounds__(128)
    gather_rows(R *y, const R *table, const int32_t *tokens, int accesses, int first, int vocab)
{
    enum { AHEAD = 4 };
    const unsigned token = (unsigned)(tokens[blockIdx.x] - first);
    const bool inside = token < (unsigned)vocab;
    const R *from = table + (int64_t)token * accesses;
    R *to = y + (int64_t)blockIdx.x * accesses;
    for (int begin = (int)threadIdx.x; begin < accesses; begin += AHEAD * (int)blockDim.x) {
        R bits[AHEAD] = {};
#pragma unroll
        for (int j = 0; j < AHEAD; j++)
            if (inside && begin + j * (int)blockDim.x < accesses)
                bits[j] = load<R>(from + begin + j * (int)blockDim.x);
#pragma unroll
        for (int j = 0; j < AHEAD; j++)
            if (begin + j * (int)blockDim.x < accesses)
                store(to + begin + j * (int)blockDim.x, bits[j]);
    }
}

template <typename R>
static void gather(cudaStream_t s, void *y, const void *table, const int32_t *tokens, int64_t rows,
                   int64_t row_bytes, int64_t first, int64_t vocab)
{
    int accesses = (int)(row_bytes / (int64_t)sizeof(R));
    LAUNCH(gather_rows<R>, (unsigned)rows, (int)min_i64(128, whole_warps(accesses)), 0, s, (R *)y,
           (const R *)table, tokens, accesses, (int)first, (int)vocab);
}

void cuda_embedding(struct device *d, enum dtype dt, void *y, const void *table,
                    const int32_t *tokens, int64_t rows, int64_t hidden, int64_t first,
                    int64_t vocab)
{
    cudaStream_t s = cuda_compute(d);
    int64_t row_bytes = hidden * (dt == DTYPE_F32 ? 4 : 2);
    if (rows == 0)
        return;
    if (row_bytes % 16 == 0 && aligned16(y) && aligned16(table))
        gather<uint4>(s, y, table, tokens, rows, row_bytes, first, vocab);
    else if (dt != DTYPE_F32)
        gather<uint16_t>(s, y, table, tokens, rows, row_bytes, first, vocab);
    else
        gather<float>(s, y, table, tokens, rows, row_bytes, first, vocab);
}

enum {
    WARPS = 8,
    THREADS = WARPS * 32,
    LOOKS = 8,               /* rows that a thread looks at in a round, 32 apart */
    ROUND = THREADS * LOOKS, /* rows of a round */
    MOST_BLOCKS = 396,       /* three on each multiprocessor of the largest GPUs: all at once */
    ROWS_OF_A_BLOCK = 8,     /* rows for each block, on average, where rows are few */
};

/* The rows of a round whose tokens belong to the block (matches), in ascending order. */
struct matches {
    int32_t token[ROUND];   /* counted from the first of the table */
    uint16_t offset[ROUND]; /* the row, counted from the first of the round */
    int16_t next[ROUND]; /* index in these arrays of the next row with the same token; -1: none */
    bool follows[ROUND]; /* an earlier row here has the same token */
    int count[2][WARPS]; /* matches of each warp, of this round and of the one before, which
                          * another warp may still be reading */
};

/* Returns whether a token belongs to this block: multiplicative hashing (Knuth), by which
 * neighbouring tokens belong to different blocks. */
static __device__ __forceinline__ bool is_mine(uint32_t token)
{
    return (uint64_t)(token * 2654435761u) * gridDim.x >> 32 == blockIdx.x;
}

/* List the matches of the round that begins at row `round`.  All threads of the block call it.
 * Returns how many there are. */
static __device__ __forceinline__ int find(matches &m, const int32_t *tokens, int64_t round,
                                           int64_t rows, int first, int vocab)
{
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    const unsigned before = (1u << lane) - 1;
    int32_t token[LOOKS];
    unsigned all[LOOKS];
    const int slot = (int)(round / ROUND % 2);
    int count = 0, at = 0, total = 0;
#pragma unroll
    for (int i = 0; i < LOOKS; i++) {
        const int64_t row = round + (warp * LOOKS + i) * 32 + lane;
        token[i] = row < rows ? tokens[row] - first : -1;
    }
#pragma unroll
    for (int i = 0; i < LOOKS; i++) {
        all[i] = __ballot_sync(ALL_LANES,
                               (unsigned)token[i] < (unsigned)vocab && is_mine((uint32_t)token[i]));
        count += __popc(all[i]);
    }
    if (lane == 0)
        m.count[slot][warp] = count;
    __syncthreads();
    for (int i = 0; i < WARPS; i++) {
        at += i < warp ? m.count[slot][i] : 0;
        total += m.count[slot][i];
    }
#pragma unroll
    for (int i = 0; i < LOOKS; i++) {
        const int place = at + __popc(all[i] & before);
        if (all[i] >> lane & 1) {
            m.token[place] = token[i];
            m.offset[place] = (uint16_t)((warp * LOOKS + i) * 32 + lane);
            m.follows[place] = false;
        }
        at += __popc(all[i]);
    }
    return total;
}

/* Set next and follows of all matches.  All threads of the block call it. */
static __device__ __forceinline__ void link(matches &m, int total)
{
    __syncthreads();
    for (int i = (int)threadIdx.x; i < total; i += THREADS) {
        int next = i + 1;
        while (next < total && m.token[next] != m.token[i])
            next++;
        m.next[i] = (int16_t)(next < total ? next : -1);
        if (next < total)
            m.follows[next] = true;
    }
    __syncthreads();
}

/* Add to sum the n columns of dy of a token's matches, in order, from match `at` on.  AHEAD rows
 * are loaded before the first is added. */
template <typename T, int n>
static __device__ __forceinline__ void add_matches(float (&sum)[n], const matches &m, int at,
                                                   const T *dy, int hidden)
{
    using R = raw<T, n>;
    enum { AHEAD = 8 };
    while (at >= 0) {
        R bits[AHEAD];
        int count = 0;
#pragma unroll
        for (int j = 0; j < AHEAD; j++)
            if (at >= 0) {
                bits[j] = load_once<R>(dy + (int64_t)m.offset[at] * hidden);
                at = m.next[at];
                count = j + 1;
            }
#pragma unroll
        for (int j = 0; j < AHEAD; j++) {
            float v[n];
            if (j >= count)
                break;
            widen(v, bits[j]);
#pragma unroll
            for (int i = 0; i < n; i++)
                sum[i] += v[i];
        }
    }
}

/* Add dy to the gradient of the table.  Between rounds a token's sum is in memory. */
template <typename T, int n>
__global__ void __launch_bounds__(THREADS, 3)
    scatter_rows(float *dtable, const T *dy, const int32_t *tokens, int64_t rows, int hidden,
                 int first, int vocab, int width)
{
    __shared__ matches m;
    const int teams = THREADS / width, team = (int)threadIdx.x / width;
    const int begin = (int)threadIdx.x % width * n;
    for (int64_t round = 0; round < rows; round += ROUND) {
        const int total = find(m, tokens, round, rows, first, vocab);
        int tokens_met = 0;
        if (total > 0) /* alike for all of the block */
            link(m, total);
        for (int i = 0; i < total; i++) {
            if (m.follows[i] || tokens_met++ % teams != team)
                continue;
            float *to = dtable + (int64_t)m.token[i] * hidden;
            for (int at = begin; at < hidden; at += width * n) {
                float sum[n];
                load_floats(sum, to + at);
                add_matches<T, n>(sum, m, i, dy + round * hidden + at, hidden);
                store_floats(to + at, sum);
            }
        }
    }
}

/* n elements per access */
template <typename T, int n>
static void scatter(cudaStream_t s, float *dtable, const T *dy, const int32_t *tokens, int64_t rows,
                    int64_t hidden, int64_t first, int64_t vocab)
{
    const int width = (int)min_i64(THREADS, whole_warps(ceil_div(hidden, n)));
    const int64_t blocks = min_i64(MOST_BLOCKS, ceil_div(rows, ROWS_OF_A_BLOCK));
    LAUNCH((scatter_rows<T, n>), (unsigned)blocks, THREADS, 0, s, dtable, dy, tokens, rows,
           (int)hidden, (int)first, (int)vocab, width);
}

void cuda_embedding_backward(struct device *d, enum dtype dt, float *dtable, const void *dy,
                             const int32_t *tokens, int64_t rows, int64_t hidden, int64_t first,
                             int64_t vocab, int accumulate)
{
    cudaStream_t s = cuda_compute(d);
    if (!accumulate)
        cuda_fill_zero(d, dtable, (size_t)(vocab * hidden) * sizeof *dtable);
    if (rows == 0)
        return;
    by_type(dt, [&](auto type) {
        using T = decltype(type);
        const T *from = (const T *)dy;
        if (hidden % LANES<T> == 0 && aligned16(dtable) && aligned16(dy))
            scatter<T, LANES<T>>(s, dtable, from, tokens, rows, hidden, first, vocab);
        else
            scatter<T, 1>(s, dtable, from, tokens, rows, hidden, first, vocab);
    });
}
