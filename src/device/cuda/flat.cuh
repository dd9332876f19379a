/* flat.cuh - ops on the elements of flat tensors, one tile per block.
 *
 * A tile is `accesses` groups of n elements for each thread.  The first tile begins `shift`
 * elements before element 0, so that each group begins where memory is aligned.  A tile that lies
 * wholly inside the tensor is worked on in groups; the first and the last one, where they reach
 * beyond the tensor, by single elements.  An op is a struct with its tensors and two functions:
 *   read<n>(at)          n elements of each input from element `at` on, as they lie in memory;
 *                        a thread reads all its groups before it uses the first
 *   write<n>(group, at)  what becomes of them
 */
#ifndef TRIREME_DEVICE_CUDA_FLAT_CUH
#define TRIREME_DEVICE_CUDA_FLAT_CUH

#include "device/cuda/pack.cuh"

enum { FLAT_THREADS = 256 };

/* The result of read() in an op that reads nothing ahead, because it reads where it writes. */
struct flat_nothing {
};

template <int accesses, int n, typename Op>
__global__ void __launch_bounds__(FLAT_THREADS) flat_tile(Op op, int64_t elems, int shift)
{
    constexpr int step = FLAT_THREADS * n, size = step * accesses;
    const int64_t first = (int64_t)blockIdx.x * size - shift;
    const int64_t begin = first + (int)threadIdx.x * n;
    decltype(op.template read<n>(0)) groups[accesses];
    if (first < 0 || first + size > elems) {
        for (int64_t i = first + (int)threadIdx.x; i < first + size && i < elems; i += FLAT_THREADS)
            if (i >= 0)
                op.template write<1>(op.template read<1>(i), i);
        return;
    }
#pragma unroll
    for (int j = 0; j < accesses; j++)
        groups[j] = op.template read<n>(begin + j * step);
#pragma unroll
    for (int j = 0; j < accesses; j++)
        op.template write<n>(groups[j], begin + j * step);
}

/* Start an op on `elems` elements.  alike: all its tensors have the same phase() `shift` of n, so
 * that groups of n can be accessed; otherwise it works by single elements. */
template <int accesses, int n, typename Op>
static void launch_flat(cudaStream_t s, const Op &op, int64_t elems, int shift, bool alike)
{
    constexpr int size = FLAT_THREADS * accesses;
    if (elems && alike)
        LAUNCH((flat_tile<accesses, n, Op>), (unsigned)ceil_div(elems + shift, size * n),
               FLAT_THREADS, 0, s, op, elems, shift);
    else if (elems)
        LAUNCH((flat_tile<accesses, 1, Op>), (unsigned)ceil_div(elems, size), FLAT_THREADS, 0, s,
               op, elems, 0);
}

#endif
