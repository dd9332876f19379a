/* parts.cu - the sum of the ranks' parts of a reduction, in the order of the ranks.
 *
 * Least memory traffic: every part is read once, and recv is written (and read, when the sum is
 * added to it).  A group is four elements, 16 bytes in fp32.  A thread has two groups, and loads up
 * to four parts of each before it adds the first.
 */
#include "device/cuda/flat.cuh"

template <typename T> struct sum_op {
    float *recv;
    const T *parts;
    int count, accumulate;
    int64_t stride;

    template <int n> __device__ __forceinline__ flat_nothing read(int64_t) const
    {
        return {};
    }

    template <int n> __device__ __forceinline__ void write(flat_nothing, int64_t at) const
    {
        using R = raw<T, n>;
        enum { AHEAD = 4 };
        float total[n] = {}, v[n];
        if (accumulate)
            load_floats(total, recv + at);
        for (int begin = 0; begin < count; begin += AHEAD) {
            R bits[AHEAD];
#pragma unroll
            for (int j = 0; j < AHEAD; j++)
                if (begin + j < count)
                    bits[j] = load_once<R>(parts + (begin + j) * stride + at);
#pragma unroll
            for (int j = 0; j < AHEAD; j++) {
                if (begin + j >= count)
                    break;
                widen(v, bits[j]);
#pragma unroll
                for (int i = 0; i < n; i++)
                    total[i] += v[i];
            }
        }
        store_floats(recv + at, total);
    }
};

void cuda_sum_parts(struct device *d, enum device_stream stream, float *recv, enum dtype dt,
                    const void *parts, int count, int64_t stride, int64_t elems, int accumulate)
{
    cudaStream_t s = cuda_stream(d, stream);
    by_type(dt, [&](auto type) {
        using T = decltype(type);
        const sum_op<T> op = {recv, (const T *)parts, count, accumulate, stride};
        int shift = phase(recv, 4);
        bool alike = phase(op.parts, 4) == shift && (count < 2 || stride % 4 == 0);
        launch_flat<2, 4>(s, op, elems, shift, alike);
    });
}
