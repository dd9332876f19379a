/* norm_backward.cu - gradients of RMSNorm and LayerNorm.  With n = x rstd, or (x - mean) rstd:
 *   RMSNorm    dx = dsum + rstd (dy w - x rstd^2 mean(dy w x)),  dw (+)= sum over rows of dy n
 *   LayerNorm  dx = dsum + rstd (dy w - mean(dy w) - n mean(dy w n)),  dw as above,
 *              db (+)= sum over rows of dy
 *
 * Least memory traffic: dy, dsum and x are read and dx is written, rows * hidden elements each.
 *
 * Row r belongs to block r % CUDA_NORM_GROUPS of CUDA_NORM_GROUPS blocks, on every GPU, so that
 * sums have the same order everywhere.  A block keeps its parts of dw and db in registers over all
 * its rows, and a second kernel adds the parts of all blocks in order (CUDA_NORM_GROUPS * hidden
 * floats of each are written and read, mostly within the L2).
 *
 * For RMSNorm of 4096 bf16 two blocks of 512 threads run on a multiprocessor, and a thread holds 16
 * bytes of each tensor's row.  The next row is loaded before the reduction of this one, so that
 * about 48 KB per multiprocessor are always being loaded.  Of shorter rows a block takes several at
 * a time, each by a team of its threads; the teams' sums are added in order when all rows are done.
 */
#include "device/cuda/add_parts.cuh"
#include "device/cuda/pack.cuh"
#include "device/cuda/reduce.cuh"

/* The tensors of a call.  centered: LayerNorm; else RMSNorm. */
template <typename T> struct norm_gradient {
    T *dx;
    const T *dy, *dsum, *x, *w; /* dsum NULL: none */
    const float *stats;         /* [rows] rstd; centered: [rows, 2] mean and rstd */
    float *parts; /* [groups, hidden] of dw; centered: [groups, 2, hidden] of dw, db */
    int64_t rows; /* of a micro-batch: far less than 2^31 */
    int hidden;
    bool w_aligned; /* 16-byte loads of w are allowed */
};

/* mean: 0 for RMSNorm. */
struct norm_stats {
    float mean, rstd;
};

/* Sums over a row, or means of them as dx has them in the formulas above: `product` of dy w x, or
 * (centered) of dy w n; `plain` of dy w (centered alone). */
struct norm_sums {
    float plain, product;
};

template <bool centered, typename T>
static __device__ __forceinline__ norm_stats stats_of(const norm_gradient<T> &t, int64_t row)
{
    if (centered)
        return {t.stats[2 * row], t.stats[2 * row + 1]};
    return {0, t.stats[row]};
}

/* Returns the means over a row from the sums of each thread of its team, of `warps` warps; partial
 * as in team_sum(). */
template <bool centered>
static __device__ __forceinline__ norm_sums means_of(norm_sums p, norm_stats s, int hidden,
                                                     int warps, float (&partial)[2][32])
{
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    if (!centered)
        return {0, team_sum(p.product, warps, partial[0]) / (float)hidden * s.rstd * s.rstd};
    p.plain = warp_sum(p.plain);
    p.product = warp_sum(p.product);
    if (warps > 1) {
        if (lane == 0) {
            partial[0][warp] = p.plain;
            partial[1][warp] = p.product;
        }
        __syncthreads();
        const int first = warp / warps * warps;
        p.plain = warp_sum(lane < warps ? partial[0][first + lane] : 0.0f);
        p.product = warp_sum(lane < warps ? partial[1][first + lane] : 0.0f);
    }
    return {p.plain / (float)hidden, p.product / (float)hidden};
}

/* Add n elements of a row to the thread's sums, to dw and to db. */
template <bool centered, int n>
static __device__ __forceinline__ void collect(norm_sums &p, float (&dw)[n], float (&db)[n],
                                               const float (&dy)[n], const float (&w)[n],
                                               const float (&x)[n], norm_stats s)
{
    float sum = centered ? p.product : 0.0f;
#pragma unroll
    for (int i = 0; i < n; i++) {
        float product = dy[i] * (centered ? (x[i] - s.mean) * s.rstd : x[i]);
        sum = fmaf(product, w[i], sum);
        if (centered) {
            p.plain = fmaf(dy[i], w[i], p.plain);
            dw[i] += product;
            db[i] += dy[i];
        } else {
            dw[i] = fmaf(product, s.rstd, dw[i]);
        }
    }
    p.product = centered ? sum : p.product + sum;
}

/* Make dx of dsum, in place. */
template <bool centered, int n>
static __device__ __forceinline__ void add_gradient(float (&dsum)[n], const float (&dy)[n],
                                                    const float (&w)[n], const float (&x)[n],
                                                    norm_sums m, norm_stats s)
{
#pragma unroll
    for (int i = 0; i < n; i++) {
        float dn = centered
                       ? fmaf(-(x[i] - s.mean) * s.rstd, m.product, fmaf(dy[i], w[i], -m.plain))
                       : fmaf(-x[i], m.product, dy[i] * w[i]);
        dsum[i] = fmaf(s.rstd, dn, dsum[i]);
    }
}

/* The threads of a block that take a row together, and this thread's place among them. */
struct norm_team {
    int threads, place;
};

/* Returns the first column of piece j of this thread. */
template <typename T> static __device__ __forceinline__ int column_of(norm_team team, int j)
{
    return (team.place + j * team.threads) * LANES<T>;
}

/* w of a thread's columns: kept in registers (held_w), or read where it is used (it stays in
 * cache).
 */
template <typename T, int count, bool held_w> struct norm_weights {
    raw<T, LANES<T>> bits[held_w ? count : 1] = {};
    __device__ __forceinline__ void begin(const norm_gradient<T> &t, norm_team team)
    {
        float w[LANES<T>];
#pragma unroll
        for (int j = 0; held_w && j < count; j++) {
            if (column_of<T>(team, j) < t.hidden) {
                load_param(w, t.w + column_of<T>(team, j), t.w_aligned);
                narrow(bits[j], w);
            }
        }
    }
    __device__ __forceinline__ void get(float (&w)[LANES<T>], const norm_gradient<T> &t,
                                        norm_team team, int j) const
    {
        widen(w, held_w ? bits[held_w ? j : 0] : raw<T, LANES<T>>{});
        if (!held_w && column_of<T>(team, j) < t.hidden)
            load_param(w, t.w + column_of<T>(team, j), t.w_aligned);
    }
};

/* A thread's part of a row: `count` pieces of 16 bytes of each tensor. */
template <typename T, int count> struct norm_held {
    raw<T, LANES<T>> dy[count], dsum[count], x[count];
    norm_stats stats;
};

/* Load this thread's part of a row; nothing after the last row. */
template <bool centered, typename T, int count>
static __device__ __forceinline__ void hold(norm_held<T, count> &h, const norm_gradient<T> &t,
                                            norm_team team, int64_t row)
{
    using R = raw<T, LANES<T>>;
    if (row >= t.rows)
        return;
    h.stats = stats_of<centered>(t, row);
#pragma unroll
    for (int j = 0; j < count; j++) {
        int at = column_of<T>(team, j);
        int64_t from = row * t.hidden + at;
        if (at < t.hidden) {
            h.dy[j] = load_once<R>(t.dy + from);
            h.x[j] = load_once<R>(t.x + from);
            if (t.dsum)
                h.dsum[j] = load_once<R>(t.dsum + from);
        }
    }
}

enum {
    NORM_THREADS = 512,     /* most threads of a block */
    CENTERED_THREADS = 320, /* the same for LayerNorm, so that two blocks fit on a multiprocessor */
};

/* In the threads of the first team, add to sum the other teams' sums of the same columns.  others:
 * [threads of the block] in shared memory.  All threads of the block call it. */
template <int n>
static __device__ __forceinline__ void add_teams(float (&sum)[n], float (*others)[n], int threads)
{
    store_floats(others[threadIdx.x], sum);
    __syncthreads();
    for (int at = (int)threadIdx.x + threads; (int)threadIdx.x < threads && at < (int)blockDim.x;
         at += threads) {
        float more[n];
        load_floats(more, others[at]);
#pragma unroll
        for (int i = 0; i < n; i++)
            sum[i] += more[i];
    }
    __syncthreads();
}

/* Store the block's parts of dw and db, by the first team. */
template <bool centered, typename T, int count>
static __device__ __forceinline__ void put_parts(const norm_gradient<T> &t, norm_team team,
                                                 const float (&dw)[count][LANES<T>],
                                                 const float (&db)[centered ? count : 1][LANES<T>])
{
    float *part = t.parts + (int64_t)blockIdx.x * (centered ? 2 : 1) * t.hidden;
#pragma unroll
    for (int j = 0; j < count; j++) {
        int at = column_of<T>(team, j);
        if ((int)threadIdx.x < team.threads && at < t.hidden) {
            store_floats(part + at, dw[j]);
            if (centered)
                store_floats(part + t.hidden + at, db[centered ? j : 0]);
        }
    }
}

/* Rows of at most `count` pieces a thread, several at a time where a thread has one; with up to two
 * pieces the next row is loaded ahead. */
template <bool centered, typename T, int count>
__global__ void __launch_bounds__(NORM_THREADS, count == 1 && !centered ? 2 : 1)
    norm_backward_kept(norm_gradient<T> t, int threads)
{
    constexpr int n = LANES<T>;
    constexpr bool ahead = count <= 2;
    __shared__ float partial[2][2][32];
    __shared__ __align__(16) float others[count == 1 ? NORM_THREADS : 1][n];
    const norm_team team = {threads, (int)threadIdx.x % threads};
    const int step = (int)gridDim.x * ((int)blockDim.x / threads);
    /* rows of the first team; no other has more */
    int left = (int)((t.rows - blockIdx.x + step - 1) / step);
    float dw[count][n] = {}, db[centered ? count : 1][n] = {}, dy[n], x[n], w[n], dsum[n];
    norm_weights<T, count, ahead && !centered> all_w;
    norm_held<T, count> now = {}, next = {};
    int row = (int)(blockIdx.x + gridDim.x * (threadIdx.x / threads));
    hold<centered>(now, t, team, row);
    all_w.begin(t, team);
    int slot = 0;
    for (; left > 0; left--, row += step, slot ^= 1) {
        const bool live = row < (int)t.rows;
        norm_sums p = {0, 0};
#pragma unroll
        for (int j = 0; j < count; j++) {
            widen(dy, now.dy[j]);
            all_w.get(w, t, team, j);
            widen(x, now.x[j]);
            if (live)
                collect<centered>(p, dw[j], db[centered ? j : 0], dy, w, x, now.stats);
        }
        if (ahead)
            hold<centered>(next, t, team, row + step);
        p = means_of<centered>(p, now.stats, t.hidden, threads / 32, partial[slot]);
#pragma unroll
        for (int j = 0; j < count; j++) {
            widen(dy, now.dy[j]);
            all_w.get(w, t, team, j);
            widen(x, now.x[j]);
            widen(dsum, now.dsum[j]); /* zero where there is none */
            add_gradient<centered>(dsum, dy, w, x, p, now.stats);
            raw<T, n> bits;
            narrow(bits, dsum);
            if (live && column_of<T>(team, j) < t.hidden)
                store(t.dx + (int64_t)row * t.hidden + column_of<T>(team, j), bits);
        }
        if (ahead)
            now = next;
        else
            hold<centered>(now, t, team, row + step);
    }
    if (count == 1 && (int)blockDim.x > threads) {
        add_teams(dw[0], others, threads);
        if (centered)
            add_teams(db[0], others, threads);
    }
    put_parts<centered, T, count>(t, team, dw, db);
}

/* to = the n floats at from, or (zero) zeros. */
template <int n>
static __device__ __forceinline__ void get_sums(float (&to)[n], const float *from, bool zero)
{
    for (int i = 0; i < n; i++)
        to[i] = 0;
    if (!zero)
        load_floats(to, from);
}

/* Any length, n elements per access: rows are read twice; dw and db are summed where they are
 * written. */
template <bool centered, typename T, int n>
__global__ void __launch_bounds__(1024) norm_backward_reread(norm_gradient<T> t)
{
    __shared__ float partial[2][2][32];
    float *part = t.parts + (int64_t)blockIdx.x * (centered ? 2 : 1) * t.hidden;
    const int begin = (int)threadIdx.x * n, step = (int)blockDim.x * n;
    float dy[n], x[n], w[n], dsum[n], dw[n], db[n] = {};
    int slot = 0;
    for (int64_t row = blockIdx.x; row < t.rows; row += gridDim.x, slot ^= 1) {
        const int64_t first = row * t.hidden;
        const norm_stats stats = stats_of<centered>(t, row);
        norm_sums p = {0, 0};
        for (int at = begin; at < t.hidden; at += step) {
            get(dy, t.dy + first + at);
            get(x, t.x + first + at);
            load_param(w, t.w + at, t.w_aligned);
            get_sums(dw, part + at, row == blockIdx.x);
            if (centered)
                get_sums(db, part + t.hidden + at, row == blockIdx.x);
            collect<centered>(p, dw, db, dy, w, x, stats);
            store_floats(part + at, dw);
            if (centered)
                store_floats(part + t.hidden + at, db);
        }
        p = means_of<centered>(p, stats, t.hidden, (int)blockDim.x / 32, partial[slot]);
        for (int at = begin; at < t.hidden; at += step) {
            get(dy, t.dy + first + at);
            get(x, t.x + first + at);
            load_param(w, t.w + at, t.w_aligned);
            for (int i = 0; i < n; i++)
                dsum[i] = 0;
            if (t.dsum)
                get(dsum, t.dsum + first + at);
            add_gradient<centered>(dsum, dy, w, x, p, stats);
            raw<T, n> bits;
            narrow(bits, dsum);
            store(t.dx + first + at, bits);
        }
    }
}

/* Where a thread has one piece, as many teams in a block as there are rows for, while two blocks
 * fit on a multiprocessor. */
template <bool centered, typename T, int count>
static void launch_kept(cudaStream_t s, const norm_gradient<T> &t, int groups, int accesses)
{
    const int threads = whole_warps(ceil_div(accesses, count));
    const int fit = (centered ? CENTERED_THREADS : NORM_THREADS) / threads;
    const int teams = count > 1 || fit < 1 ? 1 : (int)min_i64(fit, ceil_div(t.rows, groups));
    LAUNCH((norm_backward_kept<centered, T, count>), groups, threads * teams, 0, s, t, threads);
}

template <bool centered, typename T> static void launch(cudaStream_t s, norm_gradient<T> t)
{
    constexpr int n = LANES<T>;
    bool whole = t.hidden % n == 0 && aligned16(t.dx) && aligned16(t.dy) && aligned16(t.dsum) &&
                 aligned16(t.x) && aligned16(t.parts);
    int accesses = t.hidden / n, groups = cuda_norm_groups(t.rows);
    t.w_aligned = !whole || aligned16(t.w); /* an element at a time always is */
    if (!whole)
        LAUNCH((norm_backward_reread<centered, T, 1>), groups,
               (int)min_i64(1024, whole_warps(t.hidden)), 0, s, t);
    else if (accesses <= NORM_THREADS)
        launch_kept<centered, T, 1>(s, t, groups, accesses);
    else if (accesses <= 2 * NORM_THREADS)
        launch_kept<centered, T, 2>(s, t, groups, accesses);
    else if (accesses <= 4 * NORM_THREADS && !centered)
        launch_kept<false, T, 4>(s, t, groups, accesses);
    else
        LAUNCH((norm_backward_reread<centered, T, n>), groups, 1024, 0, s, t);
}

template <bool centered>
static void backward(cudaStream_t s, enum dtype dt, void *dx, const void *dy, const void *dsum,
                     const void *x, const void *w, const float *stats, int64_t rows, int64_t hidden,
                     void *scratch)
{
    if (rows == 0)
        return;
    by_type(dt, [&](auto type) {
        using T = decltype(type);
        launch<centered, T>(s, {(T *)dx, (const T *)dy, (const T *)dsum, (const T *)x, (const T *)w,
                                stats, (float *)scratch, rows, (int)hidden, false});
    });
}

void cuda_rmsnorm_backward(struct device *d, enum dtype dt, void *dx, float *dw, const void *dy,
                           const void *dsum, const void *x, const void *w, const float *rstd,
                           int64_t rows, int64_t hidden, int accumulate, void *scratch)
{
    cudaStream_t s = cuda_compute(d);
    backward<false>(s, dt, dx, dy, dsum, x, w, rstd, rows, hidden, scratch);
    launch_add_parts(s, dw, (const float *)scratch, cuda_norm_groups(rows), hidden, hidden,
                     accumulate);
}

void cuda_layernorm_backward(struct device *d, enum dtype dt, void *dx, float *dw, float *db,
                             const void *dy, const void *dsum, const void *x, const void *w,
                             const float *stats, int64_t rows, int64_t hidden, int accumulate,
                             void *scratch)
{
    cudaStream_t s = cuda_compute(d);
    const float *parts = (const float *)scratch;
    int groups = cuda_norm_groups(rows);
    backward<true>(s, dt, dx, dy, dsum, x, w, stats, rows, hidden, scratch);
    launch_add_parts(s, dw, parts, groups, 2 * hidden, hidden, accumulate);
    launch_add_parts(s, db, parts + hidden, groups, 2 * hidden, hidden, accumulate);
}
