/* parts.cu - the sum of the ranks' parts of a reduction, in the order of the ranks.
 *
 * Must move: every part in once, recv out (and in, when it is added to).  Four elements a group, 16
 * bytes on the fp32 side; a thread has two groups and loads up to four parts of each before it adds
 * the first.
 */
#include "device/cuda/pack.cuh"

enum { THREADS = 256, ACCESSES = 2, TILE = THREADS * ACCESSES, AHEAD = 4 };

template <typename T> struct sum {
    float *recv;
    const T *parts;
    int count, accumulate;
    int64_t stride, elems;
};

template <typename T, int n>
static __device__ __forceinline__ void add_parts(const sum<T> &t, int64_t at)
{
    using R = raw<T, n>;
    float total[n] = {}, v[n];
    if (t.accumulate)
        load_floats(total, t.recv + at);
    for (int begin = 0; begin < t.count; begin += AHEAD) {
        R bits[AHEAD];
#pragma unroll
        for (int j = 0; j < AHEAD; j++)
            if (begin + j < t.count)
                bits[j] = load_once<R>(t.parts + (begin + j) * t.stride + at);
#pragma unroll
        for (int j = 0; j < AHEAD; j++) {
            if (begin + j >= t.count)
                break;
            widen(v, bits[j]);
#pragma unroll
            for (int i = 0; i < n; i++)
                total[i] += v[i];
        }
    }
    store_floats(t.recv + at, total);
}

template <typename T, int n>
__global__ void __launch_bounds__(THREADS) sum_tile(sum<T> t, int shift)
{
    const struct pack_span tile = tile_span(TILE * n, t.elems, shift);
    if (!tile.whole) {
        for (int64_t i = tile.begin + (int)threadIdx.x; i < tile.end; i += THREADS)
            add_parts<T, 1>(t, i);
        return;
    }
#pragma unroll
    for (int j = 0; j < ACCESSES; j++)
        add_parts<T, n>(t, tile.begin + (j * THREADS + (int)threadIdx.x) * n);
}

template <typename T> static void sum_parts(cudaStream_t s, const sum<T> &t)
{
    int shift = phase(t.recv, 4);
    if (phase(t.parts, 4) == shift && (t.count < 2 || t.stride % 4 == 0))
        LAUNCH((sum_tile<T, 4>), (unsigned)ceil_div(t.elems + shift, TILE * 4), THREADS, 0, s, t,
               shift);
    else
        LAUNCH((sum_tile<T, 1>), (unsigned)ceil_div(t.elems, TILE), THREADS, 0, s, t, 0);
}

void cuda_sum_parts(struct device *d, enum device_stream stream, float *recv, enum dtype dt,
                    const void *parts, int count, int64_t stride, int64_t elems, int accumulate)
{
    cudaStream_t s = cuda_state(d)->stream[stream];
    if (elems == 0)
        return;
    by_type(dt, [&](auto type) {
        using T = decltype(type);
        sum_parts<T>(s, {recv, (const T *)parts, count, accumulate, stride, elems});
    });
}
