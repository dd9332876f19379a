/* experts.cu - the rows that go to experts and come back, and gates of rows that count by a weight.
 *
 * Least memory traffic: dispatch reads each row once and writes each slot once; combine reads each
 * slot once, and writes each row once.  So a block takes a row, not a slot, of which it would read
 * the same row several times, long after one another.  Each thread has several 16-byte loads under
 * way: four of dispatch, eight of combine, four of a gate and six of its backward.
 *
 *   dispatch   row 5 -> slots 3, 17      combine   slots 3, 17 -> row 5
 *
 * A row of gates has a block, too, because backward sums over all of it: the gradient of the row's
 * weight.  Each thread adds up its own columns, and then the block the sums of threads, in an order
 * that is always the same.
 */
#include "device/cuda/gate.cuh"
#include "device/cuda/pack.cuh"
#include "device/cuda/reduce.cuh"

enum { ROW_THREADS = 128, DISPATCH_AHEAD = 4, COMBINE_AHEAD = 8 };

/* A row has `accesses` elements of type R. */
template <typename R>
__global__ void __launch_bounds__(ROW_THREADS)
    dispatch_row(R *y, const R *x, const int32_t *slot, int accesses, int chosen)
{
    const R *from = x + (int64_t)blockIdx.x * accesses;
    slot += (int64_t)blockIdx.x * chosen;
    for (int begin = (int)threadIdx.x; begin < accesses;
         begin += DISPATCH_AHEAD * (int)blockDim.x) {
        R bits[DISPATCH_AHEAD] = {};
#pragma unroll
        for (int i = 0; i < DISPATCH_AHEAD; i++)
            if (begin + i * (int)blockDim.x < accesses)
                bits[i] = load<R>(from + begin + i * (int)blockDim.x);
        for (int j = 0; j < chosen; j++) {
            R *to = y + (int64_t)slot[j] * accesses;
#pragma unroll
            for (int i = 0; i < DISPATCH_AHEAD; i++)
                if (begin + i * (int)blockDim.x < accesses)
                    store(to + begin + i * (int)blockDim.x, bits[i]);
        }
    }
}

template <typename R>
static void dispatch(cudaStream_t s, const struct experts_rows *r, void *y, const void *x,
                     const int32_t *slot, int64_t row_bytes)
{
    const int accesses = (int)(row_bytes / (int64_t)sizeof(R));
    LAUNCH(dispatch_row<R>, (unsigned)r->rows, (int)min_i64(ROW_THREADS, whole_warps(accesses)), 0,
           s, (R *)y, (const R *)x, slot, accesses, (int)r->chosen);
}

void cuda_dispatch(struct device *d, const struct experts_rows *r, void *y, const void *x,
                   const int32_t *routes)
{
    cudaStream_t s = cuda_compute(d);
    const int32_t *slot = routes_of(routes, r->rows, r->experts, r->chosen).slot;
    const int64_t row_bytes = r->columns * (r->dt == DTYPE_F32 ? 4 : 2);
    if (r->rows == 0)
        return;
    if (row_bytes % 16 == 0 && aligned16(y) && aligned16(x))
        dispatch<uint4>(s, r, y, x, slot, row_bytes);
    else if (r->dt != DTYPE_F32)
        dispatch<uint16_t>(s, r, y, x, slot, row_bytes);
    else
        dispatch<float>(s, r, y, x, slot, row_bytes);
}

/* ---- combine ---- */

/* sum += n columns of the slots of a row, in their order; x: the first of these columns of slot 0.
 */
template <typename T, int n>
static __device__ __forceinline__ void add_slots(float (&sum)[n], const T *x, const int32_t *slot,
                                                 int columns, int chosen)
{
    using R = raw<T, n>;
    for (int begin = 0; begin < chosen; begin += COMBINE_AHEAD) {
        R bits[COMBINE_AHEAD];
#pragma unroll
        for (int j = 0; j < COMBINE_AHEAD; j++)
            if (begin + j < chosen)
                bits[j] = load_once<R>(x + (int64_t)slot[begin + j] * columns);
#pragma unroll
        for (int j = 0; j < COMBINE_AHEAD; j++) {
            float v[n];
            if (begin + j >= chosen)
                break;
            widen(v, bits[j]);
#pragma unroll
            for (int i = 0; i < n; i++)
                sum[i] += v[i];
        }
    }
}

/* Read and write n sums, which are in fp32 or in 16 bits. */
template <typename S, int n>
static __device__ __forceinline__ void get_sums(float (&to)[n], const S *from)
{
    if constexpr (sizeof(S) == sizeof(float))
        load_floats(to, from);
    else
        get(to, from);
}

template <typename S, int n>
static __device__ __forceinline__ void put_sums(S *to, const float (&from)[n])
{
    if constexpr (sizeof(S) == sizeof(float)) {
        store_floats(to, from);
    } else {
        raw<S, n> bits;
        narrow(bits, from);
        store(to, bits);
    }
}

/* Of x in T, y and addend in S. */
template <typename T, typename S, int n>
__global__ void __launch_bounds__(ROW_THREADS)
    combine_row(S *y, const T *x, const S *addend, const int32_t *slot, int columns, int chosen)
{
    const int64_t row = (int64_t)blockIdx.x * columns;
    slot += (int64_t)blockIdx.x * chosen;
    for (int at = (int)threadIdx.x * n; at < columns; at += (int)blockDim.x * n) {
        float sum[n] = {};
        if (addend)
            get_sums(sum, addend + row + at);
        add_slots<T, n>(sum, x + at, slot, columns, chosen);
        put_sums(y + row + at, sum);
    }
}

template <typename T, typename S, int n>
static void combine(cudaStream_t s, const struct experts_rows *r, void *y, const void *x,
                    const void *addend, const int32_t *slot)
{
    const int threads = (int)min_i64(ROW_THREADS, whole_warps(ceil_div(r->columns, n)));
    LAUNCH((combine_row<T, S, n>), (unsigned)r->rows, threads, 0, s, (S *)y, (const T *)x,
           (const S *)addend, slot, (int)r->columns, (int)r->chosen);
}

template <typename T, int n>
static void combine_to(cudaStream_t s, const struct experts_rows *r, void *y, const void *x,
                       const void *addend, const int32_t *slot)
{
    if (r->dt_sum == DTYPE_F32)
        combine<T, float, n>(s, r, y, x, addend, slot);
    else
        combine<T, T, n>(s, r, y, x, addend, slot);
}

void cuda_combine(struct device *d, const struct experts_rows *r, void *y, const void *x,
                  const void *addend, const int32_t *routes)
{
    cudaStream_t s = cuda_compute(d);
    const int32_t *slot = routes_of(routes, r->rows, r->experts, r->chosen).slot;
    if (r->rows == 0)
        return;
    by_type(r->dt, [&](auto type) {
        using T = decltype(type);
        constexpr int n = LANES<T>;
        if (r->columns % n == 0 && aligned16(y) && aligned16(x) && aligned16(addend))
            combine_to<T, n>(s, r, y, x, addend, slot);
        else
            combine_to<T, 1>(s, r, y, x, addend, slot);
    });
}

/* ---- gates ---- */

enum { GATE_THREADS = 256, GATE_ACCESSES = 2 };

template <typename T> struct gate_rows {
    T *to;
    const T *gate_up, *dy;
    const float *factors;
    float *dfactors;
    int ffn;
};

/* Forward: g = silu(g) u f.  Backward, with s = sigmoid(g): g = d f u s (1 + g (1 - s)), u = d f g
 * s; returns the sum of d g s u. */
template <bool backward, int n>
static __device__ __forceinline__ float gate(float (&g)[n], float (&u)[n], const float (&d)[n],
                                             float factor)
{
    float dot = 0;
#pragma unroll
    for (int i = 0; i < n; i++) {
        const float s = sigmoid(g[i]), silu = g[i] * s;
        if (backward) {
            const float df = d[i] * factor;
            dot = fmaf(d[i], silu * u[i], dot);
            g[i] = df * u[i] * s * fmaf(g[i], 1.0f - s, 1.0f);
            u[i] = df * silu;
        } else {
            g[i] = silu * u[i] * factor;
        }
    }
    return dot;
}

/* t.to: y [rows, ffn] or, backward, the gradient of gate_up [rows, 2 ffn]. */
template <bool backward, typename T, int n>
__global__ void __launch_bounds__(GATE_THREADS) scaled_gate_row(gate_rows<T> t)
{
    using R = raw<T, n>;
    __shared__ float partial[32];
    const int64_t row = blockIdx.x;
    const T *gates = t.gate_up + row * 2 * t.ffn, *ups = gates + t.ffn;
    T *to = t.to + row * (backward ? 2 : 1) * t.ffn;
    const float factor = t.factors[row];
    const int step = (int)blockDim.x * n;
    float dot = 0;
    for (int begin = (int)threadIdx.x * n; begin < t.ffn; begin += GATE_ACCESSES * step) {
        R gate_bits[GATE_ACCESSES], up_bits[GATE_ACCESSES], dy_bits[GATE_ACCESSES];
#pragma unroll
        for (int j = 0; j < GATE_ACCESSES; j++) {
            const int at = begin + j * step;
            if (at < t.ffn) {
                gate_bits[j] = load_once<R>(gates + at);
                up_bits[j] = load_once<R>(ups + at);
                if (backward)
                    dy_bits[j] = load_once<R>(t.dy + row * t.ffn + at);
            }
        }
#pragma unroll
        for (int j = 0; j < GATE_ACCESSES; j++) {
            const int at = begin + j * step;
            float g[n], u[n], d[n] = {};
            if (at >= t.ffn)
                continue;
            widen(g, gate_bits[j]);
            widen(u, up_bits[j]);
            if (backward)
                widen(d, dy_bits[j]);
            dot += gate<backward>(g, u, d, factor);
            narrow(gate_bits[j], g);
            store(to + at, gate_bits[j]);
            if (backward) {
                narrow(up_bits[j], u);
                store(to + t.ffn + at, up_bits[j]);
            }
        }
    }
    if (backward) {
        dot = block_sum(dot, partial);
        if (threadIdx.x == 0)
            t.dfactors[row] = dot;
    }
}

template <bool backward, typename T, int n>
static void launch_gates(cudaStream_t s, const gate_rows<T> &t, int64_t rows)
{
    const int pieces = (int)ceil_div(t.ffn, n * GATE_ACCESSES);
    LAUNCH((scaled_gate_row<backward, T, n>), (unsigned)rows,
           (int)min_i64(GATE_THREADS, whole_warps(pieces)), 0, s, t);
}

template <bool backward>
static void scaled_gates(struct device *d, enum dtype dt, void *to, float *dfactors, const void *dy,
                         const void *gate_up, const float *factors, int64_t rows, int64_t ffn)
{
    cudaStream_t s = cuda_compute(d);
    if (rows == 0)
        return;
    by_type(dt, [&](auto type) {
        using T = decltype(type);
        constexpr int n = LANES<T>;
        const gate_rows<T> t = {(T *)to, (const T *)gate_up, (const T *)dy,
                                factors, dfactors,           (int)ffn};
        if (ffn % n == 0 && aligned16(to) && aligned16(dy) && aligned16(gate_up))
            launch_gates<backward, T, n>(s, t, rows);
        else
            launch_gates<backward, T, 1>(s, t, rows);
    });
}

void cuda_swiglu_scaled(struct device *d, enum dtype dt, void *y, const void *gate_up,
                        const float *factors, int64_t rows, int64_t ffn)
{
    scaled_gates<false>(d, dt, y, NULL, NULL, gate_up, factors, rows, ffn);
}

void cuda_swiglu_scaled_backward(struct device *d, enum dtype dt, void *dgate_up, float *dfactors,
                                 const void *dy, const void *gate_up, const float *factors,
                                 int64_t rows, int64_t ffn)
{
    scaled_gates<true>(d, dt, dgate_up, dfactors, dy, gate_up, factors, rows, ffn);
}
