/* embedding.cu - rows of a table, and the sum of gradients into them in the order of the rows.
 *
 * Must move, forward: each row in and out once.  A block copies a row with four 16-byte loads per
 * thread under way.
 * Backward: dy in once; the rows of the table that occur in and out (out only without accumulate,
 * but then the whole table is cleared first, which dominates).  The block of row r owns the token
 * if no earlier row has it, else it leaves; it then looks through the later rows, 512 of them per
 * warp at a time, lists those with its token in ascending order, and adds them.  Every element is
 * summed by one thread in the order of the rows, as the CPU does, without scratch and atomics.
 * Of tokens whose rows are not in the table forward makes zeros, and backward leaves.
 * The search costs rows^2 comparisons in cache: 15 us at 8192 rows, beside 80 us of moving.
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
    PER_WARP = 512,           /* rows a warp looks at in one round */
    ROUND = WARPS * PER_WARP, /* rows of a block in one round */
};

/* Rows of a round that have the token, as offsets in the round: each warp's in ascending order. */
struct matches {
    uint16_t offset[WARPS][PER_WARP];
    int count[WARPS];
};

/* Is the token in tokens[0..end)?  All threads get the same answer; flags are 0 before. */
static __device__ __forceinline__ bool occurs(const int32_t *tokens, int64_t end, int32_t token,
                                              int (&flags)[2])
{
    enum { AHEAD = 8 };
    int slot = 0; /* a flag is not written again before all have read it */
    for (int64_t begin = 0; begin < end; begin += AHEAD * THREADS, slot ^= 1) {
        bool found = false;
#pragma unroll
        for (int j = 0; j < AHEAD; j++) {
            int64_t row = begin + j * THREADS + threadIdx.x;
            if (row < end && tokens[row] == token)
                found = true;
        }
        if (found)
            flags[slot] = 1;
        __syncthreads();
        if (flags[slot])
            return true;
    }
    return false;
}

/* One warp: the matches among its rows of the round that begins at row `round`. */
static __device__ __forceinline__ void find(matches &m, const int32_t *tokens, int64_t round,
                                            int64_t rows, int32_t token)
{
    int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32, count = 0;
    unsigned before = (1u << lane) - 1;
#pragma unroll 8
    for (int i = 0; i < PER_WARP && round + warp * PER_WARP + i < rows; i += 32) {
        int offset = warp * PER_WARP + i + lane;
        bool same = round + offset < rows && tokens[round + offset] == token;
        unsigned all = __ballot_sync(ALL_LANES, same);
        if (same)
            m.offset[warp][count + __popc(all & before)] = (uint16_t)offset;
        count += __popc(all);
    }
    if (lane == 0)
        m.count[warp] = count;
}

/* sum += dy of the matches, in order, at n columns; AHEAD rows are loaded before the first is
 * added. */
template <typename T, int n>
static __device__ __forceinline__ void add_matches(float (&sum)[n], const matches &m, const T *dy,
                                                   int hidden)
{
    using R = raw<T, n>;
    enum { AHEAD = 8 };
    for (int warp = 0; warp < WARPS; warp++) {
        const int count = m.count[warp];
        for (int begin = 0; begin < count; begin += AHEAD) {
            R bits[AHEAD];
#pragma unroll
            for (int j = 0; j < AHEAD; j++)
                if (begin + j < count)
                    bits[j] = load_once<R>(dy + (int64_t)m.offset[warp][begin + j] * hidden);
#pragma unroll
            for (int j = 0; j < AHEAD; j++) {
                float v[n];
                if (begin + j >= count)
                    break;
                widen(v, bits[j]);
#pragma unroll
                for (int i = 0; i < n; i++)
                    sum[i] += v[i];
            }
        }
    }
}

template <typename T, int n>
__global__ void __launch_bounds__(THREADS, 3)
    scatter_rows(float *dtable, const T *dy, const int32_t *tokens, int64_t rows, int hidden,
                 int first, int vocab, int accumulate)
{
    __shared__ matches m;
    __shared__ int earlier[2];
    const int64_t mine = blockIdx.x;
    const int32_t token = tokens[mine];
    float *to = dtable + (int64_t)(token - first) * hidden;
    if ((unsigned)(token - first) >= (unsigned)vocab)
        return;
    if (threadIdx.x < 2)
        earlier[threadIdx.x] = 0;
    __syncthreads();
    if (occurs(tokens, mine, token, earlier))
        return;
    for (int64_t round = mine; round < rows; round += ROUND) {
        find(m, tokens, round, rows, token);
        __syncthreads();
        int total = 0;
        for (int warp = 0; warp < WARPS; warp++)
            total += m.count[warp];
        bool from_memory = accumulate || round > mine;
        for (int at = (int)threadIdx.x * n; total && at < hidden; at += THREADS * n) {
            float sum[n] = {};
            if (from_memory)
                load_floats(sum, to + at);
            add_matches<T, n>(sum, m, dy + round * hidden + at, hidden);
            store_floats(to + at, sum);
        }
        __syncthreads();
    }
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
            LAUNCH((scatter_rows<T, LANES<T>>), (unsigned)rows, THREADS, 0, s, dtable, from, tokens,
                   rows, (int)hidden, (int)first, (int)vocab, accumulate);
        else
            LAUNCH((scatter_rows<T, 1>), (unsigned)rows, THREADS, 0, s, dtable, from, tokens, rows,
                   (int)hidden, (int)first, (int)vocab, accumulate);
    });
}
