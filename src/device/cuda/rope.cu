/* rope.cu - rotary position embedding, half-split pairs.
 *
 * Least memory traffic: the rotated heads are read and written (all heads when not in place); the
 * table of cosines and sines is small and stays in cache.  A block takes a row.  A thread keeps its
 * columns of the table in registers and goes over heads, with a 16-byte access to each half of a
 * head: for 40 heads of 128 bf16 there are 160 threads with two heads each.
 */
#include "device/cuda/pack.cuh"

template <typename T> struct rotation {
    T *y;
    const T *x;
    const float *cos_sin;     /* [positions, 2 * half] */
    const int32_t *positions; /* of rows; NULL: within their sequences */
    int64_t rows, seq;
    int heads, rotated, half; /* heads: those to be written */
    int64_t width;            /* elements of a row */
    float sign;
};

/* (a, b) -> (a cos - b sin, b cos + a sin) */
template <typename T, int n>
static __device__ __forceinline__ void rotate(raw<T, n> &low, raw<T, n> &high,
                                              const float (&cosine)[n], const float (&sine)[n])
{
    float a[n], b[n];
    widen(a, low);
    widen(b, high);
#pragma unroll
    for (int i = 0; i < n; i++) {
        float first = fmaf(a[i], cosine[i], -(b[i] * sine[i]));
        b[i] = fmaf(b[i], cosine[i], a[i] * sine[i]);
        a[i] = first;
    }
    narrow(low, a);
    narrow(high, b);
}

/* Rotate, or copy, n columns of both halves of `count` heads that lie `step` elements apart. */
template <typename T, int n, bool rotates, int count>
static __device__ __forceinline__ void do_some(const rotation<T> &t, int64_t first, int64_t step,
                                               const float (&cosine)[n], const float (&sine)[n])
{
    using R = raw<T, n>;
    R low[count], high[count];
#pragma unroll
    for (int j = 0; j < count; j++) {
        low[j] = load<R>(t.x + first + j * step);
        high[j] = load<R>(t.x + first + j * step + t.half);
    }
#pragma unroll
    for (int j = 0; j < count; j++) {
        if (rotates)
            rotate<T, n>(low[j], high[j], cosine, sine);
        store(t.y + first + j * step, low[j]);
        store(t.y + first + j * step + t.half, high[j]);
    }
}

/* Rotate, or copy, n columns of every `step`-th of heads [begin, end), two heads at a time. */
template <typename T, int n, bool rotates>
static __device__ __forceinline__ void do_heads(const rotation<T> &t, int64_t row, int begin,
                                                int end, int step, const float (&cosine)[n],
                                                const float (&sine)[n])
{
    const int64_t dim = 2 * t.half;
    int head = begin;
#pragma unroll 1
    for (; head + step < end; head += 2 * step)
        do_some<T, n, rotates, 2>(t, row + head * dim, step * dim, cosine, sine);
    if (head < end)
        do_some<T, n, rotates, 1>(t, row + head * dim, 0, cosine, sine);
}

/* Rotate a row per block.  Its threads are `columns` groups of n columns of each half, by as many
 * heads at a time as fit in a block. */
template <typename T, int n>
__global__ void __launch_bounds__(256) rope_rows(rotation<T> t, int columns)
{
    const int step = (int)blockDim.x / columns, mine = (int)threadIdx.x / columns;
    const int64_t row = (int64_t)blockIdx.x * t.width;
    const int64_t position = t.positions ? t.positions[blockIdx.x] : (int64_t)blockIdx.x % t.seq;
    const float *table = t.cos_sin + position * 2 * t.half;
    for (int at = (int)threadIdx.x % columns * n; at < t.half; at += columns * n) {
        float cosine[n], sine[n];
        load_floats(cosine, table + at);
        load_floats(sine, table + t.half + at);
#pragma unroll
        for (int i = 0; i < n; i++)
            sine[i] *= t.sign;
        do_heads<T, n, true>(t, row + at, mine, t.rotated, step, cosine, sine);
        do_heads<T, n, false>(t, row + at, t.rotated + mine, t.heads, step, cosine, sine);
    }
}

template <typename T, int n> static void launch(cudaStream_t s, const rotation<T> &t)
{
    enum { THREADS = 256 };
    int columns = (int)min_i64(t.half / n, THREADS);
    int64_t passes = ceil_div(t.heads, THREADS / columns);
    int heads_at_once = (int)ceil_div(t.heads, passes);
    LAUNCH((rope_rows<T, n>), (unsigned)t.rows, columns * heads_at_once, 0, s, t, columns);
}

void cuda_rope(struct device *d, const struct rope *r, void *y, const void *x, const float *cos_sin,
               const int32_t *positions)
{
    int heads = (int)(y == x ? r->rotated : r->row_heads), half = (int)(r->head_dim / 2);
    if (r->rows == 0 || heads == 0)
        return;
    by_type(r->dt, [&](auto type) {
        using T = decltype(type);
        constexpr int n = LANES<T>;
        const rotation<T> t = {(T *)y,
                               (const T *)x,
                               cos_sin,
                               positions,
                               r->rows,
                               r->seq,
                               heads,
                               (int)r->rotated,
                               half,
                               r->row_heads * r->head_dim,
                               r->inverse ? -1.0f : 1.0f};
        if (half % n == 0 && aligned16(x) && aligned16(y) && aligned16(cos_sin))
            launch<T, n>(cuda_compute(d), t);
        else
            launch<T, 1>(cuda_compute(d), t);
    });
}
