/* embedding.cu - rows of a table, and the sum of gradients into them in the order of the rows.
 *
 * Must move, forward: each row in and out once.  A block copies a row with four 16-byte loads per
 * thread under way.
 * Backward: dy in once; the rows of the table that occur in and out, once for each 2048 rows of dy
 * in which they do (without accumulate the whole table is cleared first, which dominates).  Tokens
 * are dealt to blocks by a hash.  A block looks through all rows, 2048 at a time, lists those with
 * its tokens in ascending order, links the rows of each token, and adds each token's by a team of
 * its threads.  Every element is summed in the order of the rows, as the CPU does, without scratch
 * and atomics.  Of tokens whose rows are not in the table forward makes zeros, and backward adds
 * nothing. The search reads 4 bytes of each row in each block, up to 396 of them, from the L2.
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
    LOOKS = 8,               /* rows a thread looks at in one round, 32 apart */
    ROUND = THREADS * LOOKS, /* rows of a block in one round */
    MOST_BLOCKS = 396,       /* three on each multiprocessor of the largest GPUs: all at once */
    ROWS_OF_A_BLOCK = 8,     /* with few rows: so many per block, on average */
};

/* Rows of a round whose tokens are the block's, in ascending order. */
struct matches {
    int32_t token[ROUND]; /* from the first of the table */
    uint16_t offset[ROUND];
    int16_t next[ROUND]; /* the place here of the next row with the same token; -1: none */
    bool follows[ROUND]; /* an earlier row here has the same token */
    int count[2][WARPS]; /* of this round, and of the one before, which a warp may yet read */
};

/* Multiplicative hashing (Knuth): neighbours go to different blocks. */
static __device__ __forceinline__ bool is_mine(uint32_t token)
{
    return (uint64_t)(token * 2654435761u) * gridDim.x >> 32 == blockIdx.x;
}

/* All of the block: list the matches of the round that begins at row `round`; how many. */
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

/* All of the block: link the matches of each token. */
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

/* sum += dy of a token's matches, in order, at n columns; AHEAD rows are loaded before the first is
 * added. */
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

/* A token's sums are in memory between rounds. */
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
