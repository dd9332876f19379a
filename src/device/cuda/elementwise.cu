/* elementwise.cu - ops that touch each element once.
 *
 * Least memory traffic: every input is read and every output written once.  Each thread starts
 * several independent 16-byte loads before it uses the first: four for swiglu (two pieces of gate
 * and two of up), six for its backward, eight for add.  A block takes one tile, so that blocks go
 * through memory in order, and multiprocessors that are done early take the blocks that are left.
 */
#include "device/cuda/flat.cuh"
#include "device/cuda/gate.cuh"

/* ---- gates: a row is [gate, up]; a tile is TILE accesses of one row ---- */

enum { GATE_THREADS = 128, GATE_ACCESSES = 2, GATE_TILE = GATE_THREADS * GATE_ACCESSES };

template <typename T> struct gate_rows {
    T *to;
    const T *gate_up, *dy;
    int64_t rows;
    int ffn;
};

/* Forward: g = silu(g) u.  Backward, with s = sigmoid(g): u = dy g s, g = dy u s (1 + g (1 - s)).
 */
template <bool backward, int n>
static __device__ __forceinline__ void gate(float (&g)[n], float (&u)[n], const float (&d)[n])
{
#pragma unroll
    for (int i = 0; i < n; i++) {
        float s = sigmoid(g[i]), ds = d[i] * s;
        float dgate = ds * u[i] * fmaf(g[i], 1.0f - s, 1.0f);
        if (backward)
            u[i] = ds * g[i];
        g[i] = backward ? dgate : g[i] * s * u[i];
    }
}

/* Compute a tile of rows.  t.to: y [rows, ffn] or, backward, the gradient of gate_up [rows, 2 ffn].
 */
template <bool backward, typename T, int n>
__global__ void __launch_bounds__(GATE_THREADS) swiglu_tile(gate_rows<T> t)
{
    using R = raw<T, n>;
    const int begin = ((int)blockIdx.x * GATE_TILE + (int)threadIdx.x) * n;
    for (int64_t row = blockIdx.y; row < t.rows; row += gridDim.y) {
        const T *gates = t.gate_up + row * 2 * t.ffn, *ups = gates + t.ffn;
        T *to = t.to + row * (backward ? 2 : 1) * t.ffn;
        R gate_bits[GATE_ACCESSES], up_bits[GATE_ACCESSES], dy_bits[GATE_ACCESSES];
        float g[n], u[n], d[n] = {};
#pragma unroll
        for (int j = 0; j < GATE_ACCESSES; j++) {
            int at = begin + j * GATE_THREADS * n;
            if (at < t.ffn) {
                gate_bits[j] = load_once<R>(gates + at);
                up_bits[j] = load_once<R>(ups + at);
                if (backward)
                    dy_bits[j] = load_once<R>(t.dy + row * t.ffn + at);
            }
        }
#pragma unroll
        for (int j = 0; j < GATE_ACCESSES; j++) {
            int at = begin + j * GATE_THREADS * n;
            if (at >= t.ffn)
                continue;
            widen(g, gate_bits[j]);
            widen(u, up_bits[j]);
            if (backward)
                widen(d, dy_bits[j]);
            gate<backward>(g, u, d);
            narrow(gate_bits[j], g);
            store(to + at, gate_bits[j]);
            if (backward) {
                narrow(up_bits[j], u);
                store(to + t.ffn + at, up_bits[j]);
            }
        }
    }
}

template <int n> static dim3 gate_grid(int64_t rows, int64_t ffn)
{
    return dim3((unsigned)ceil_div(ffn, GATE_TILE * n), (unsigned)min_i64(rows, 65535));
}

template <bool backward>
static void swiglu(struct device *d, enum dtype dt, void *to, const void *dy, const void *gate_up,
                   int64_t rows, int64_t ffn)
{
    cudaStream_t s = cuda_compute(d);
    if (rows == 0)
        return;
    by_type(dt, [&](auto type) {
        using T = decltype(type);
        constexpr int n = LANES<T>;
        const gate_rows<T> t = {(T *)to, (const T *)gate_up, (const T *)dy, rows, (int)ffn};
        if (ffn % n == 0 && aligned16(to) && aligned16(dy) && aligned16(gate_up))
            LAUNCH((swiglu_tile<backward, T, n>), gate_grid<n>(rows, ffn), GATE_THREADS, 0, s, t);
        else
            LAUNCH((swiglu_tile<backward, T, 1>), gate_grid<1>(rows, ffn), GATE_THREADS, 0, s, t);
    });
}

void cuda_swiglu(struct device *d, enum dtype dt, void *y, const void *gate_up, int64_t rows,
                 int64_t ffn)
{
    swiglu<false>(d, dt, y, NULL, gate_up, rows, ffn);
}

void cuda_swiglu_backward(struct device *d, enum dtype dt, void *dgate_up, const void *dy,
                          const void *gate_up, int64_t rows, int64_t ffn)
{
    swiglu<true>(d, dt, dgate_up, dy, gate_up, rows, ffn);
}

/* ---- flat tensors ---- */

enum { FLAT_ACCESSES = 4 };

template <typename T> struct add_op {
    T *y;
    const T *a, *b;
    template <int n> struct group {
        raw<T, n> left, right;
    };
    template <int n> __device__ __forceinline__ group<n> read(int64_t at) const
    {
        return {load_once<raw<T, n>>(a + at), load_once<raw<T, n>>(b + at)};
    }
    template <int n> __device__ __forceinline__ void write(const group<n> &g, int64_t at) const
    {
        store(y + at, sum_of<raw<T, n>, n>(g.left, g.right));
    }
};

void cuda_add(struct device *d, enum dtype dt, void *y, const void *a, const void *b, int64_t elems)
{
    by_type(dt, [&](auto type) {
        using T = decltype(type);
        constexpr int n = LANES<T>;
        const add_op<T> op = {(T *)y, (const T *)a, (const T *)b};
        int shift = phase(op.y, n);
        bool alike = phase(op.a, n) == shift && phase(op.b, n) == shift;
        launch_flat<FLAT_ACCESSES, n>(cuda_compute(d), op, elems, shift, alike);
    });
}

template <typename T> struct scale_op {
    T *y;
    const T *x;
    float factor;
    template <int n> __device__ __forceinline__ raw<T, n> read(int64_t at) const
    {
        return load_once<raw<T, n>>(x + at);
    }
    template <int n> __device__ __forceinline__ void write(raw<T, n> bits, int64_t at) const
    {
        float v[n];
        widen(v, bits);
#pragma unroll
        for (int i = 0; i < n; i++)
            v[i] *= factor;
        narrow(bits, v);
        store(y + at, bits);
    }
};

void cuda_scale(struct device *d, enum dtype dt, void *y, const void *x, float factor,
                int64_t elems)
{
    by_type(dt, [&](auto type) {
        using T = decltype(type);
        constexpr int n = LANES<T>;
        const scale_op<T> op = {(T *)y, (const T *)x, factor};
        int shift = phase(op.y, n);
        launch_flat<FLAT_ACCESSES, n>(cuda_compute(d), op, elems, shift, phase(op.x, n) == shift);
    });
}

template <int n, typename To, typename From>
static __device__ __forceinline__ void convert(To &to, From from)
{
    float v[n];
    widen(v, from);
    narrow(to, v);
}

/* To the same type: copy the bits. */
template <int n, typename T> static __device__ __forceinline__ void convert(T &to, T from)
{
    to = from;
}

/* Convert From to To, four elements at a time: 16 bytes on the fp32 side, so that neighbouring
 * threads touch neighbouring bytes on both sides.  Every number keeps its bits or is rounded to
 * nearest even, denormals included; a NaN made narrower stays a NaN but loses its payload. */
template <typename To, typename From> struct cast_op {
    To *y;
    const From *x;
    template <int n> __device__ __forceinline__ raw<From, n> read(int64_t at) const
    {
        return load_once<raw<From, n>>(x + at);
    }
    template <int n> __device__ __forceinline__ void write(raw<From, n> bits, int64_t at) const
    {
        raw<To, n> out;
        convert<n>(out, bits);
        store(y + at, out);
    }
};

void cuda_cast_on(struct device *d, enum device_stream stream, enum dtype to, void *y,
                  enum dtype from, const void *x, int64_t elems)
{
    cudaStream_t s = cuda_stream(d, stream);
    by_type(to, [&](auto type) {
        using To = decltype(type);
        by_type(from, [&](auto other) {
            const cast_op<To, decltype(other)> op = {(To *)y, (const decltype(other) *)x};
            int shift = phase(op.y, 4);
            launch_flat<FLAT_ACCESSES, 4>(s, op, elems, shift, phase(op.x, 4) == shift);
        });
    });
}

void cuda_cast(struct device *d, enum dtype to, void *y, enum dtype from, const void *x,
               int64_t elems)
{
    cuda_cast_on(d, DEVICE_COMPUTE, to, y, from, x, elems);
}
