/* loss.cu - softmax cross-entropy of a row of logits and its gradient; the sum of losses.
 *
 * A block takes a row.  Its first pass (read_row()) keeps for each thread the largest logit m so
 * far and the sum of e^(x - m) (Milakov and Gimelshein 2018), and puts these of all threads
 * together. The second (write_row()) writes the gradient, e^(x - m) / sum * scale, less scale at
 * the target.
 *
 * Least memory traffic: the logits are read (4 bytes each, or 2), the gradient is written (2 or 4).
 * But a row of 128256 fp32 columns has 513 KB, more than a multiprocessor holds, and all rows at
 * work have more than the L2 holds.  So a block of 512 threads, alone on its multiprocessor, keeps
 * 128 KB of its row in registers and 96 KB in shared memory, and reads only the rest (38 MB over
 * all blocks) again, from the L2.  Rows of up to 32768 fp32 columns are kept whole in half of that,
 * so that two blocks share a multiprocessor, and one reads while the other writes.
 *
 * The gradient may lie in the memory of its row of logits: in the same format element e has the
 * place of logit e; a 16-bit gradient of fp32 logits lies in the row's first half, element e in the
 * place of logit e / 2.  This is safe: all reads of the first pass are done before anything is
 * written, and what the second pass reads again, it reads in batches.  All threads have read a
 * batch before any of them writes its gradient, which never reaches past the end of the batch.
 */
#include "device/cuda/pack.cuh"
#include "device/cuda/reduce.cuh"

enum {
    THREADS = 512,
    STAGED_BYTES = 96 << 10, /* of a row, in shared memory: every supported GPU has so much */
    /* Loads of a thread that it keeps in registers: where one block runs on a multiprocessor (of
     * 64 K registers), and where two do. */
    MANY_KEPT = 16,
    FEW_KEPT = 4,
};

/* Most columns of logits of type L of a row that is kept whole where two blocks run. */
template <typename L>
constexpr int FEW_COLUMNS = FEW_KEPT *THREADS *LANES<L> + STAGED_BYTES / (int)sizeof(L);

static constexpr float LOWEST = -3.4e38f; /* below every logit, and finite */

static __device__ __forceinline__ float exp_of(float x)
{
    const float log2_e = 1.44269504f;
    return exp2_fast(x * log2_e);
}

/* Of the logits seen so far: the largest one, and the sum of e^(x - top). */
struct running {
    float top, sum;
};

/* Take `count` loads of n logits each into r. */
template <typename R, int n, int count>
static __device__ __forceinline__ void absorb(running &r, const R *bits)
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

/* Return r of the whole warp, and of the whole block, in every thread. */
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

/* A row as a block sees it, logits of type L and a gradient of type T: whole groups of n columns,
 * then `tail` columns more.  Of its groups a thread keeps the first `kept` in registers and the
 * next `staged` in shared memory; it reads the others twice. */
template <typename L, typename T, int n, int kept> struct row {
    static constexpr int staged = STAGED_BYTES / (THREADS * n * (int)sizeof(L));
    /* Groups of a thread that are loaded at a time, of those read twice and of those in shared
     * memory: fewer with 16-bit columns, which take twice the registers when widened. */
    static constexpr int batch = (kept == MANY_KEPT ? 32 : 16) / (n == 8 ? 8 : 4);
    static constexpr int staged_batch = n == 8 ? 2 : 4;
    const L *x; /* the logits */
    T *dx;      /* the gradient; NULL: none */
    L *stage;   /* shared memory of the block */
    int groups, tail;
    int target; /* column */
};

/* Returns n columns that change no maximum and no sum: LOWEST, in bf16 -infinity. */
template <typename L, int n> static __device__ __forceinline__ raw<L, n> nothing()
{
    raw<L, n> bits;
    float v[n];
#pragma unroll
    for (int i = 0; i < n; i++)
        v[i] = LOWEST;
    narrow(bits, v);
    return bits;
}

template <typename L> static __device__ __forceinline__ float number(L x)
{
    float v[1];
    widen(v, x);
    return v[0];
}

/* Returns the group that this thread's access number `access` has. */
static __device__ __forceinline__ int group_of(int access)
{
    return access * (int)blockDim.x + (int)threadIdx.x;
}

/* Returns where a group lies in shared memory. */
template <typename L, typename T, int n, int kept>
static __device__ __forceinline__ L *stage_of(const row<L, T, n, kept> &r, int group)
{
    return r.stage + (group - kept * (int)blockDim.x) * n;
}

/* Start to copy this thread's groups of the row to shared memory; no other thread reads them. */
template <typename L, typename T, int n, int kept>
static __device__ __forceinline__ void stage_row(const row<L, T, n, kept> &r)
{
#pragma unroll 4
    for (int j = kept; j < kept + r.staged; j++) {
        int group = group_of(j);
        if (group >= r.groups)
            break;
        if constexpr (n * sizeof(L) == 16)
            async_copy16(stage_of(r, group), r.x + group * n, true);
        else
            *stage_of(r, group) = r.x[group];
    }
    async_commit();
}

/* First pass: fill held and the stage.  Returns the maximum and the sum of this thread's groups. */
template <typename L, typename T, int n, int kept>
static __device__ __forceinline__ running read_row(const row<L, T, n, kept> &r,
                                                   raw<L, n> (&held)[kept])
{
    using R = raw<L, n>;
    R bits[r.batch];
    running seen = {LOWEST, 0.0f};
    stage_row(r);
#pragma unroll
    for (int j = 0; j < kept; j++)
        held[j] = group_of(j) < r.groups ? load_once<R>(r.x + group_of(j) * n) : nothing<L, n>();
#pragma unroll
    for (int j = 0; j < kept; j += 2)
        absorb<R, n, 2>(seen, &held[j]);
    for (int j = kept + r.staged; j * (int)blockDim.x < r.groups; j += r.batch) {
#pragma unroll
        for (int k = 0; k < r.batch; k++) {
            int group = group_of(j + k);
            bits[k] = group < r.groups ? load<R>(r.x + group * n) : nothing<L, n>();
        }
        absorb<R, n, r.batch>(seen, bits);
    }
    async_wait<0>();
    for (int j = kept; j < kept + r.staged && j * (int)blockDim.x < r.groups; j += r.staged_batch) {
#pragma unroll
        for (int k = 0; k < r.staged_batch; k++) {
            int group = group_of(j + k);
            bits[k] = group < r.groups ? load<R>(stage_of(r, group)) : nothing<L, n>();
        }
        absorb<R, n, r.staged_batch>(seen, bits);
    }
    return seen;
}

/* Write the gradient of n columns from `column` on, whose logits are bits. */
template <typename L, typename T, int n, int kept>
static __device__ __forceinline__ void put(const row<L, T, n, kept> &r, int column, raw<L, n> bits,
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

/* Second pass: write the gradient of this thread's groups. */
template <typename L, typename T, int n, int kept>
static __device__ __forceinline__ void write_row(const row<L, T, n, kept> &r,
                                                 const raw<L, n> (&held)[kept], float top,
                                                 float factor, float scale)
{
    using R = raw<L, n>;
#pragma unroll
    for (int j = 0; j < kept; j++)
        if (group_of(j) < r.groups)
            put(r, group_of(j) * n, held[j], top, factor, scale);
#pragma unroll 4
    for (int j = kept; j < kept + r.staged; j++) {
        int group = group_of(j);
        if (group >= r.groups)
            break;
        put(r, group * n, load<R>(stage_of(r, group)), top, factor, scale);
    }
    for (int j = kept + r.staged; j * (int)blockDim.x < r.groups; j += r.batch) {
        R bits[r.batch];
#pragma unroll
        for (int k = 0; k < r.batch; k++)
            if (group_of(j + k) < r.groups)
                bits[k] = load_once<R>(r.x + group_of(j + k) * n);
        __syncthreads();
#pragma unroll
        for (int k = 0; k < r.batch; k++)
            if (group_of(j + k) < r.groups)
                put(r, group_of(j + k) * n, bits[k], top, factor, scale);
    }
}

template <typename L, typename T, int n, int kept>
static __device__ __forceinline__ void clear_row(const row<L, T, n, kept> &r)
{
    float zeros[n] = {}, zero[1] = {};
    raw<T, n> bits;
    narrow(bits, zeros);
    for (int j = 0; group_of(j) < r.groups; j++)
        store(r.dx + group_of(j) * n, bits);
    if ((int)threadIdx.x < r.tail)
        narrow(r.dx[r.groups * n + (int)threadIdx.x], zero);
}

template <typename L, typename T> struct losses {
    float *row_loss;
    T *dlogits;
    int64_t ld_d;
    const L *logits;
    int64_t ld;
    const int32_t *targets;
    int vocab;
    float scale;
    const double *loss_scale;
};

template <typename L, typename T, int n, int kept>
static __device__ __forceinline__ void whole_row(const losses<L, T> &t)
{
    DYNAMIC_SHARED(L, stage);
    __shared__ running partial[32];
    const int64_t which = blockIdx.x;
    const int target = t.targets[which], groups = t.vocab / n;
    const int last = groups * n + (int)threadIdx.x;
    T *dx = t.dlogits ? t.dlogits + which * t.ld_d : NULL;
    row<L, T, n, kept> r = {t.logits + which * t.ld, dx, stage, groups, t.vocab % n, target};
    if (target < 0) {
        if (threadIdx.x == 0)
            t.row_loss[which] = 0;
        if (dx)
            clear_row(r);
        return;
    }
    const float at_target = number(r.x[target]);
    raw<L, n> held[kept];
    running seen = read_row(r, held);
    float odd[1] = {LOWEST};
    if (last < t.vocab)
        odd[0] = number(r.x[last]);
    absorb<float, 1, 1>(seen, odd);
    seen = block_running(seen, partial);
    if (threadIdx.x == 0)
        t.row_loss[which] = (float)(log((double)seen.sum) + (double)seen.top - (double)at_target);
    if (!dx)
        return;
    const float scale = t.loss_scale ? (float)(t.scale * *t.loss_scale) : t.scale;
    const float factor = scale / seen.sum;
    write_row(r, held, seen.top, factor, scale);
    __syncthreads();
    if (last < t.vocab) {
        row<float, T, 1, 0> one = {NULL, dx, NULL, 0, 0, target};
        put(one, last, odd[0], seen.top, factor, scale);
    }
}

template <typename L, typename T, int n>
__global__ void __launch_bounds__(THREADS, 2) cross_entropy_short(losses<L, T> t)
{
    whole_row<L, T, n, FEW_KEPT>(t);
}

template <typename L, typename T, int n>
__global__ void __launch_bounds__(THREADS, 1) cross_entropy_long(losses<L, T> t)
{
    whole_row<L, T, n, MANY_KEPT>(t);
}

/* f(gradient's type, logits' type): the latter is fp32 or the same. */
template <typename F> static void by_formats(enum dtype dt, enum dtype dt_x, F f)
{
    by_type(dt, [&](auto type) {
        if (dt_x == DTYPE_F32)
            f(type, float());
        else if constexpr (sizeof type == 2)
            f(type, type);
    });
}

template <int n, typename L, typename T>
static void launch(cudaStream_t s, losses<L, T> t, int64_t rows)
{
    int groups = t.vocab / n, threads = (int)min_i64(THREADS, whole_warps(groups > 0 ? groups : 1));
    int staged = groups - (t.vocab > FEW_COLUMNS<L> ? MANY_KEPT : FEW_KEPT) * threads;
    size_t staged_bytes = (size_t)(staged > 0 ? staged : 0) * n * sizeof(L);
    if (staged_bytes > STAGED_BYTES)
        staged_bytes = STAGED_BYTES;
    if (t.vocab > FEW_COLUMNS<L>) {
        ALLOW_SHARED((cross_entropy_long<L, T, n>), STAGED_BYTES);
        LAUNCH((cross_entropy_long<L, T, n>), (unsigned)rows, threads, staged_bytes, s, t);
    } else {
        ALLOW_SHARED((cross_entropy_short<L, T, n>), STAGED_BYTES);
        LAUNCH((cross_entropy_short<L, T, n>), (unsigned)rows, threads, staged_bytes, s, t);
    }
}

template <typename L, typename T>
static void launch_widest(cudaStream_t s, losses<L, T> t, int64_t rows)
{
    constexpr int n = LANES<L>;
    if (t.ld % n == 0 && aligned16(t.logits) && (!t.dlogits || t.ld_d % n == 0) &&
        phase(t.dlogits, n) == 0)
        launch<n>(s, t, rows);
    else
        launch<1>(s, t, rows);
}

void cuda_cross_entropy(struct device *d, enum dtype dt, float *row_loss, void *dlogits,
                        int64_t ld_d, enum dtype dt_x, const void *logits, int64_t ld,
                        const int32_t *targets, int64_t rows, int64_t vocab, float scale,
                        const double *loss_scale)
{
    if (rows == 0)
        return;
    by_formats(dt, dt_x, [&](auto type, auto type_x) {
        using T = decltype(type);
        using L = decltype(type_x);
        const losses<L, T> t = {row_loss, (T *)dlogits, ld_d,  (const L *)logits, ld,
                                targets,  (int)vocab,   scale, loss_scale};
        launch_widest(cuda_compute(d), t, rows);
    });
}

/* ---- columns divided among ranks: a row's numbers of some columns, and its gradient there ---- */

template <typename L> struct part {
    const L *logits;
    int64_t ld;
    const int32_t *targets;
    int vocab, first;
};

/* The column of this part that is the row's target, or one that no thread has. */
template <typename L> static __device__ __forceinline__ int column_of(const part<L> &p, int target)
{
    return target >= p.first && target - p.first < p.vocab ? target - p.first : -1;
}

enum { PART_BATCH = 8 }; /* accesses of a thread that are under way at a time */

/* Those of this thread from access j on; groups after the row are as if they were not. */
template <int n, typename L>
static __device__ __forceinline__ void load_batch(raw<L, n> (&bits)[PART_BATCH], const L *x, int j,
                                                  int groups)
{
#pragma unroll
    for (int k = 0; k < PART_BATCH; k++) {
        int group = group_of(j + k);
        bits[k] = group < groups ? load_once<raw<L, n>>(x + group * n) : nothing<L, n>();
    }
}

template <typename L, int n>
__global__ void __launch_bounds__(THREADS) softmax_part(part<L> p, float *top, float *sums)
{
    __shared__ running partial[32];
    const int64_t which = blockIdx.x;
    const int target = p.targets[which], column = column_of(p, target), groups = p.vocab / n;
    const int last = groups * n + (int)threadIdx.x;
    const L *x = p.logits + which * p.ld;
    running seen = {LOWEST, 0.0f};
    for (int j = 0; target >= 0 && j * (int)blockDim.x < groups; j += PART_BATCH) {
        raw<L, n> bits[PART_BATCH];
        load_batch<n>(bits, x, j, groups);
        absorb<raw<L, n>, n, PART_BATCH>(seen, bits);
    }
    float odd[1] = {LOWEST};
    if (last < p.vocab)
        odd[0] = number(x[last]);
    absorb<float, 1, 1>(seen, odd);
    seen = block_running(seen, partial);
    if (threadIdx.x)
        return;
    bool empty = target < 0 || p.vocab == 0;
    top[which] = target < 0 ? 0.0f : p.vocab == 0 ? -INFINITY : seen.top;
    sums[2 * which] = empty ? 0.0f : seen.sum;
    sums[2 * which + 1] = column < 0 ? 0.0f : number(x[column]);
}

static __global__ void __launch_bounds__(THREADS)
    softmax_term(float *terms, const float *sums, const float *top, const float *all_top,
                 int64_t rows)
{
    const int64_t row = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows)
        return;
    const float sum = sums[2 * row];
    terms[2 * row] = sum == 0 ? 0.0f : sum * expf(top[row] - all_top[row]);
    terms[2 * row + 1] = sums[2 * row + 1];
}

static __global__ void __launch_bounds__(THREADS)
    softmax_loss(float *row_loss, const float *all_top, const float *all_sums,
                 const int32_t *targets, int64_t rows)
{
    const int64_t row = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows)
        return;
    const double sum = all_sums[2 * row], at_target = all_sums[2 * row + 1];
    row_loss[row] = targets[row] < 0 ? 0.0f : (float)(log(sum) + (double)all_top[row] - at_target);
}

/* Batch by batch: all threads have read one before any of them writes it. */
template <typename L, typename T, int n>
__global__ void __launch_bounds__(THREADS)
    softmax_gradient(part<L> p, const float *all_top, const float *all_sums, T *dlogits,
                     int64_t ld_d, float mean, const double *loss_scale)
{
    const int64_t which = blockIdx.x;
    const int target = p.targets[which], groups = p.vocab / n;
    const int last = groups * n + (int)threadIdx.x;
    row<L, T, n, FEW_KEPT> r = {
        p.logits + which * p.ld, dlogits + which * ld_d, NULL, groups, p.vocab % n,
        column_of(p, target)};
    if (target < 0) {
        clear_row(r);
        return;
    }
    const float top = all_top[which], scale = loss_scale ? (float)(mean * *loss_scale) : mean;
    const float factor = scale / all_sums[2 * which];
    const float odd = last < p.vocab ? number(r.x[last]) : 0.0f;
    for (int j = 0; j * (int)blockDim.x < groups; j += PART_BATCH) {
        raw<L, n> bits[PART_BATCH];
        load_batch<n>(bits, r.x, j, groups);
        __syncthreads();
#pragma unroll
        for (int k = 0; k < PART_BATCH; k++)
            if (group_of(j + k) < groups)
                put(r, group_of(j + k) * n, bits[k], top, factor, scale);
    }
    __syncthreads();
    if (last < p.vocab) {
        row<float, T, 1, 0> one = {NULL, r.dx, NULL, 0, 0, r.target};
        put(one, last, odd, top, factor, scale);
    }
}

template <typename L> static int part_threads(int64_t vocab)
{
    int64_t groups = ceil_div(vocab, LANES<L>);
    return (int)min_i64(THREADS, whole_warps(groups > 0 ? groups : 1));
}

template <typename L> static bool is_wide(const part<L> &p)
{
    return p.ld % LANES<L> == 0 && aligned16(p.logits);
}

template <typename L>
static void launch_part(cudaStream_t s, const part<L> &p, float *top, float *sums, int64_t rows)
{
    if (rows && is_wide(p))
        LAUNCH((softmax_part<L, LANES<L>>), (unsigned)rows, part_threads<L>(p.vocab), 0, s, p, top,
               sums);
    else if (rows)
        LAUNCH((softmax_part<L, 1>), (unsigned)rows, part_threads<L>(p.vocab), 0, s, p, top, sums);
}

void cuda_softmax_part(struct device *d, float *top, float *sums, enum dtype dt_x,
                       const void *logits, int64_t ld, const int32_t *targets, int64_t rows,
                       int64_t vocab, int64_t first)
{
    by_type(dt_x, [&](auto type) {
        using L = decltype(type);
        const part<L> p = {(const L *)logits, ld, targets, (int)vocab, (int)first};
        launch_part(cuda_compute(d), p, top, sums, rows);
    });
}

void cuda_softmax_term(struct device *d, float *terms, const float *sums, const float *top,
                       const float *all_top, int64_t rows)
{
    if (rows)
        LAUNCH(softmax_term, (unsigned)ceil_div(rows, THREADS), THREADS, 0, cuda_compute(d), terms,
               sums, top, all_top, rows);
}

void cuda_softmax_loss(struct device *d, float *row_loss, const float *all_top,
                       const float *all_sums, const int32_t *targets, int64_t rows)
{
    if (rows)
        LAUNCH(softmax_loss, (unsigned)ceil_div(rows, THREADS), THREADS, 0, cuda_compute(d),
               row_loss, all_top, all_sums, targets, rows);
}

void cuda_softmax_gradient(struct device *d, enum dtype dt, void *dlogits, int64_t ld_d,
                           enum dtype dt_x, const void *logits, int64_t ld, const int32_t *targets,
                           const float *all_top, const float *all_sums, int64_t rows, int64_t vocab,
                           int64_t first, float scale, const double *loss_scale)
{
    cudaStream_t s = cuda_compute(d);
    if (rows == 0 || vocab == 0)
        return;
    by_formats(dt, dt_x, [&](auto type, auto type_x) {
        using T = decltype(type);
        using L = decltype(type_x);
        constexpr int n = LANES<L>;
        const part<L> p = {(const L *)logits, ld, targets, (int)vocab, (int)first};
        T *to = (T *)dlogits;
        if (is_wide(p) && ld_d % n == 0 && phase(to, n) == 0)
            LAUNCH((softmax_gradient<L, T, n>), (unsigned)rows, part_threads<L>(vocab), 0, s, p,
                   all_top, all_sums, to, ld_d, scale, loss_scale);
        else
            LAUNCH((softmax_gradient<L, T, 1>), (unsigned)rows, part_threads<L>(vocab), 0, s, p,
                   all_top, all_sums, to, ld_d, scale, loss_scale);
    });
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

void cuda_loss_sum(struct device *d, double *out, const float *row_loss, const int32_t *targets,
                   int64_t rows)
{
    LAUNCH(sum_losses, 1, 1024, 0, cuda_compute(d), out, row_loss, targets, rows);
}
