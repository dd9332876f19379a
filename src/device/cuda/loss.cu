/* loss.cu - softmax cross-entropy of a row of logits and its gradient; the sum of losses.
 *
 * Must move: logits in (4 bytes), the gradient out (2 or 4).  A row of 128256 columns is 513 KB,
 * too much for one multiprocessor, and the rows under way together are more than the L2 holds; so
 * what can stay on the chip does: a block of 1024 threads keeps 96 KB of its row in registers and
 * 160 KB in shared memory, and only the rest (34 MB over all blocks) is read again, from the L2.
 * Rows up to 40960 columns take 512 threads, so that two blocks share a multiprocessor and one
 * reads while the other writes.
 *
 * The first pass keeps for each thread a running maximum m and the sum of e^(x - m) (Milakov and
 * Gimelshein 2018); the second writes e^(x - m) / sum * scale.  A bf16 gradient may lie in the
 * first half of its own fp32 row: element e takes the place of logit e / 2.  All reads of the first
 * pass are over before anything is written; what is read again is read a batch at a time by all
 * threads before one of them writes into it or before it, and the writes of a batch never pass its
 * end.
 */
#include "device/cuda/pack.cuh"
#include "device/cuda/reduce.cuh"

enum {
    MOST_THREADS = 1024,
    BATCH = 4,                     /* accesses of a thread under way */
    KEPT = 6,                      /* accesses of a thread kept in registers */
    MOST_STAGED_BYTES = 160 << 10, /* of a row in shared memory */
    TWO_BLOCKS_COLUMNS = 40960,
};

static constexpr float LOWEST = -3.4e38f; /* below every logit, and finite */

static __device__ __forceinline__ float exp_of(float x)
{
    const float log2_e = 1.44269504f;
    return exp2_fast(x * log2_e);
}

/* sum = sum of e^(x - top) over what was seen */
struct running {
    float top, sum;
};

template <typename R, int n, int count>
static __device__ __forceinline__ void absorb(running &r, const R (&bits)[count])
{
    float v[n], top = r.top, sum = 0;
#pragma unroll
    for (int j = 0; j < count; j++) {
        widen(v, bits[j]);
#pragma unroll
        for (int i = 0; i < n; i++)
            top = fmaxf(top, v[i]);
    }
#pragma unroll
    for (int j = 0; j < count; j++) {
        widen(v, bits[j]);
#pragma unroll
        for (int i = 0; i < n; i++)
            sum += exp_of(v[i] - top);
    }
    r.sum = fmaf(r.sum, exp_of(r.top - top), sum);
    r.top = top;
}

/* Of a warp, then of the block; every thread gets it. */
static __device__ __forceinline__ running warp_running(running r)
{
    float top = warp_max(r.top);
    return {top, warp_sum(r.sum * exp_of(r.top - top))};
}

static __device__ __forceinline__ running block_running(running r, running (&partial)[32])
{
    int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    r = warp_running(r);
    if (lane == 0)
        partial[warp] = r;
    __syncthreads();
    if (lane < (int)blockDim.x / 32)
        r = partial[lane];
    else
        r = {LOWEST, 0.0f};
    return warp_running(r);
}

/* A row as a block sees it: whole groups of n columns, then `tail` more. */
template <typename T, int n> struct row {
    const float *x;
    T *dx;
    float *stage; /* groups [KEPT * threads, staged) */
    int groups, staged, tail, target;
};

template <int n> static __device__ __forceinline__ raw<float, n> nothing()
{
    raw<float, n> bits;
    float v[n];
#pragma unroll
    for (int i = 0; i < n; i++)
        v[i] = LOWEST;
    narrow(bits, v);
    return bits;
}

/* Group of this thread's access number `access`. */
static __device__ __forceinline__ int group_of(int access)
{
    return access * (int)blockDim.x + (int)threadIdx.x;
}

template <typename T, int n>
static __device__ __forceinline__ float *stage_of(const row<T, n> &r, int group)
{
    return r.stage + (group - KEPT * (int)blockDim.x) * n;
}

/* First pass: kept, stage and the running sum. */
template <typename T, int n>
static __device__ __forceinline__ running read_row(const row<T, n> &r, raw<float, n> (&kept)[KEPT])
{
    using R = raw<float, n>;
    running seen = {LOWEST, 0.0f};
#pragma unroll
    for (int j = 0; j < KEPT; j++)
        kept[j] = group_of(j) < r.groups ? load_once<R>(r.x + group_of(j) * n) : nothing<n>();
    absorb<R, n>(seen, kept);
    for (int j = KEPT; j * (int)blockDim.x < r.groups; j += BATCH) {
        R bits[BATCH];
#pragma unroll
        for (int k = 0; k < BATCH; k++) {
            int group = group_of(j + k);
            if (group < r.staged)
                bits[k] = load_once<R>(r.x + group * n);
            else
                bits[k] = group < r.groups ? load<R>(r.x + group * n) : nothing<n>();
        }
#pragma unroll
        for (int k = 0; k < BATCH; k++)
            if (group_of(j + k) < r.staged)
                store(stage_of(r, group_of(j + k)), bits[k]);
        absorb<R, n>(seen, bits);
    }
    return seen;
}

/* The gradient of n columns from `column` on. */
template <typename T, int n>
static __device__ __forceinline__ void put(const row<T, n> &r, int column, raw<float, n> bits,
                                           float top, float factor, float scale)
{
    float v[n];
    raw<T, n> out;
    widen(v, bits);
#pragma unroll
    for (int i = 0; i < n; i++) {
        v[i] = exp_of(v[i] - top) * factor;
        if (column + i == r.target)
            v[i] -= scale;
    }
    narrow(out, v);
    store_once(r.dx + column, out);
}

/* Second pass. */
template <typename T, int n>
static __device__ __forceinline__ void write_row(const row<T, n> &r,
                                                 const raw<float, n> (&kept)[KEPT], float top,
                                                 float factor, float scale)
{
    using R = raw<float, n>;
#pragma unroll
    for (int j = 0; j < KEPT; j++)
        if (group_of(j) < r.groups)
            put(r, group_of(j) * n, kept[j], top, factor, scale);
    for (int j = KEPT; j * (int)blockDim.x < r.groups; j += BATCH) {
        R bits[BATCH];
#pragma unroll
        for (int k = 0; k < BATCH; k++) {
            int group = group_of(j + k);
            if (group < r.staged)
                bits[k] = load<R>(stage_of(r, group));
            else if (group < r.groups)
                bits[k] = load_once<R>(r.x + group * n);
        }
        __syncthreads();
#pragma unroll
        for (int k = 0; k < BATCH; k++)
            if (group_of(j + k) < r.groups)
                put(r, group_of(j + k) * n, bits[k], top, factor, scale);
    }
}

template <typename T, int n> static __device__ __forceinline__ void clear_row(const row<T, n> &r)
{
    float zeros[n] = {}, zero[1] = {};
    raw<T, n> bits;
    narrow(bits, zeros);
    for (int j = 0; group_of(j) < r.groups; j++)
        store(r.dx + group_of(j) * n, bits);
    if ((int)threadIdx.x < r.tail)
        narrow(r.dx[r.groups * n + (int)threadIdx.x], zero);
}

template <typename T> struct losses {
    float *row_loss;
    T *dlogits;
    int64_t ld_d;
    const float *logits;
    int64_t ld;
    const int32_t *targets;
    int vocab, staged;
    float scale;
};

template <typename T, int n>
__global__ void __launch_bounds__(MOST_THREADS, 1) cross_entropy_row(losses<T> t)
{
    DYNAMIC_SHARED(float, stage);
    __shared__ running partial[32];
    const int64_t which = blockIdx.x;
    const int target = t.targets[which];
    row<T, n> r = {t.logits + which * t.ld,
                   t.dlogits ? t.dlogits + which * t.ld_d : NULL,
                   stage,
                   t.vocab / n,
                   t.staged,
                   t.vocab % n,
                   target};
    const int last = r.groups * n + (int)threadIdx.x;
    if (target < 0) {
        if (threadIdx.x == 0)
            t.row_loss[which] = 0;
        if (r.dx)
            clear_row(r);
        return;
    }
    const float at_target = r.x[target];
    raw<float, n> kept[KEPT];
    running seen = read_row(r, kept);
    float odd[1] = {LOWEST};
    if (last < t.vocab)
        odd[0] = r.x[last];
    absorb<float, 1>(seen, odd);
    seen = block_running(seen, partial);
    if (threadIdx.x == 0)
        t.row_loss[which] = (float)(log((double)seen.sum) + (double)seen.top - (double)at_target);
    if (!r.dx)
        return;
    const float factor = t.scale / seen.sum;
    write_row(r, kept, seen.top, factor, t.scale);
    __syncthreads();
    if (last < t.vocab) {
        row<T, 1> one = {r.x, r.dx, stage, 0, 0, 0, target};
        put(one, last, odd[0], seen.top, factor, t.scale);
    }
}

template <typename T, int n> static void launch(cudaStream_t s, losses<T> t, int64_t rows)
{
    int most = t.vocab > TWO_BLOCKS_COLUMNS ? MOST_THREADS : MOST_THREADS / 2;
    int groups = t.vocab / n, threads = (int)least(most, whole_warps(groups > 0 ? groups : 1));
    int kept = KEPT * threads;
    t.staged = (int)least(groups, kept + MOST_STAGED_BYTES / (n * (int)sizeof(float)));
    size_t staged_bytes = t.staged > kept ? (size_t)(t.staged - kept) * n * sizeof(float) : 0;
    ALLOW_SHARED((cross_entropy_row<T, n>), staged_bytes);
    LAUNCH((cross_entropy_row<T, n>), (unsigned)rows, threads, staged_bytes, s, t);
}

template <typename T> static void cross_entropy(cudaStream_t s, const losses<T> &t, int64_t rows)
{
    const int64_t n = 4;
    if (t.ld % n == 0 && aligned16(t.logits) && (!t.dlogits || t.ld_d % n == 0) &&
        phase(t.dlogits, (int)n) == 0)
        launch<T, 4>(s, t, rows);
    else
        launch<T, 1>(s, t, rows);
}

void cuda_cross_entropy(cudaStream_t s, enum dtype dt, float *row_loss, void *dlogits, int64_t ld_d,
                        const float *logits, int64_t ld, const int32_t *targets, int64_t rows,
                        int64_t vocab, float scale)
{
    if (rows == 0)
        return;
    if (dt == DTYPE_BF16)
        cross_entropy<bf16>(
            s, {row_loss, (bf16 *)dlogits, ld_d, logits, ld, targets, (int)vocab, 0, scale}, rows);
    else
        cross_entropy<float>(
            s, {row_loss, (float *)dlogits, ld_d, logits, ld, targets, (int)vocab, 0, scale}, rows);
}

/* One block: the order of the sum depends on rows alone. */
static __global__ void __launch_bounds__(1024)
    sum_losses(double *out, const float *row_loss, const int32_t *targets, int64_t rows)
{
    __shared__ double sums[32], counts[32];
    double sum = 0, count = 0;
#pragma unroll 4
    for (int64_t i = threadIdx.x; i < rows; i += blockDim.x) {
        sum += row_loss[i];
        count += targets[i] >= 0;
    }
    sum = block_sum(sum, sums);
    count = block_sum(count, counts);
    if (threadIdx.x == 0) {
        out[0] += sum;
        out[1] += count;
    }
}

void cuda_loss_sum(cudaStream_t s, double *out, const float *row_loss, const int32_t *targets,
                   int64_t rows)
{
    LAUNCH(sum_losses, 1, 1024, 0, s, out, row_loss, targets, rows);
}
