/* fault_kernels.cu - kernels that are wrong, each in its own way. */
#include "device/cuda/pack.cuh"
#include "fault_kernels.h"

enum { COUNT = 128 };

static __device__ void deep(volatile char *from, int depth)
{
    volatile char frame[1024];
    frame[depth % 1024] = *from;
    if (depth)
        deep(frame, depth - 1);
    frame[0] = frame[1];
}

/* What reads shared memory too early, or writes it too early. */
static __device__ float early(enum fault fault, int count, float *cell)
{
    int i = (int)threadIdx.x;
    float value = 0;
    cell[i] = (float)i;
    if (fault == FAULT_NO_SYNCWARP)
        return cell[i / 32 * 32 + 31 - i % 32] + (float)(count - 32 - i / 32 * 64);
    if (fault != FAULT_NO_BARRIER)
        __syncthreads();
    value = cell[count - 1 - i];
    if (fault != FAULT_NO_SECOND)
        __syncthreads();
    cell[i] = -1;
    return value;
}

/* Thread i < count / 4 copies four numbers, in two groups; each reads other threads' ones. */
static __device__ float copied(enum fault fault, int count, const float *in, float *cell)
{
    int i = (int)threadIdx.x, half = count / 8;
    if (i < half)
        async_copy16(cell + 4 * i, in + 4 * i, true);
    async_commit();
    if (i >= half && i < count / 4)
        async_copy16(cell + 4 * i, in + 4 * i, true);
    async_commit();
    if (fault == FAULT_ASYNC_COUNT)
        async_wait<1>();
    else if (fault != FAULT_NO_ASYNC_WAIT)
        async_wait<0>();
    if (fault != FAULT_ASYNC_OWN)
        __syncthreads();
    return cell[count - 1 - i];
}

static __device__ void meet_wrongly(enum fault fault)
{
    int i = (int)threadIdx.x;
    uint32_t a[4] = {}, b[2] = {};
    float d[4] = {};
    if (fault == FAULT_SOME_BARRIER && i >= 3)
        __syncthreads();
    else if (fault == FAULT_SOME_BARRIER)
        __shfl_sync(ALL_LANES, i, 0);
    if (fault == FAULT_TWO_BARRIERS && i % 2)
        __syncthreads();
    else if (fault == FAULT_TWO_BARRIERS)
        __syncthreads();
    if (fault == FAULT_SHUFFLE_ABSENT && i != 5)
        __shfl_sync(ALL_LANES, i, 0);
    if (fault == FAULT_SHUFFLE_SELF)
        __shfl_sync(0xffu, i, 0);
    if (fault == FAULT_HALF_PRODUCT && i % 32 >= 16)
        return;
    if (fault == FAULT_HALF_PRODUCT)
        mma(bf16(), d, a, b);
    __syncthreads();
}

static __device__ void touch(enum fault fault, int count, float *out, float *cell, float *dynamic)
{
    uint32_t r[4];
    if (fault == FAULT_MISALIGNED_LOAD)
        load16(out + 1);
    if (fault == FAULT_MISALIGNED_STORE)
        store16(out + 2, uint4());
    if (fault == FAULT_MISALIGNED_PAIR)
        load<uint2>(out + 1);
    if (fault == FAULT_MISALIGNED_ASYNC)
        async_copy16(cell + 2, out, true);
    if (fault == FAULT_MISALIGNED_MATRICES)
        load_matrices(r, cell + 1);
    if (fault == FAULT_MATRICES_GLOBAL)
        load_matrices(r, out);
    if (fault == FAULT_PAST_END)
        out[2 * COUNT] = 1;
    if (fault == FAULT_PAST_SHARED)
        dynamic[COUNT] = 1;
    if (fault == FAULT_NULL)
        *(volatile float *)nullptr = 1;
    if (fault == FAULT_STACK && threadIdx.x == 7)
        deep((const char *)out == nullptr ? nullptr : (char *)cell, 200);
}

static __global__ void faulty(enum fault fault, int count, const float *in, float *out)
{
    __shared__ __align__(16) float cell[COUNT], never[COUNT];
    DYNAMIC_SHARED(float, dynamic);
    int i = (int)threadIdx.x;
    if (count > COUNT)
        never[i] = 1;
    if (fault == FAULT_UNINITIALIZED)
        out[i] = never[i] + (float)(count - 1 - i);
    else if (fault >= FAULT_NO_ASYNC_WAIT && fault <= FAULT_ASYNC_OWN)
        out[i] = copied(fault, count, in, cell);
    else
        out[i] = early(fault, count, cell);
    __syncthreads();
    meet_wrongly(fault);
    touch(fault, count, out, cell, dynamic);
}

static __global__ void set(float *x, int count, float value)
{
    for (int i = (int)threadIdx.x; i < count; i += (int)blockDim.x)
        x[i] = value;
}

static __global__ void number(float *x)
{
    x[threadIdx.x] = (float)threadIdx.x;
}

void fault_run(cudaStream_t s, enum fault fault, int count, float *out)
{
    float *in = out + COUNT;
    LAUNCH(number, 1, count, 0, s, in);
    LAUNCH(faulty, 1, count, COUNT * sizeof(float), s, fault, count, in, out);
}

void fault_refused(cudaStream_t s, enum refused refused)
{
    float *x = nullptr;
    if (refused == REFUSED_THREADS)
        LAUNCH(set, 1, 1025, 0, s, x, 1, 0);
    if (refused == REFUSED_NO_THREADS)
        LAUNCH(set, 1, 0, 0, s, x, 1, 0);
    if (refused == REFUSED_NO_BLOCKS)
        LAUNCH(set, dim3(1, 0), 32, 0, s, x, 1, 0);
    if (refused == REFUSED_GRID_Y)
        LAUNCH(set, dim3(1, 65536), 32, 0, s, x, 1, 0);
    if (refused == REFUSED_GRID_Z)
        LAUNCH(set, dim3(1, 1, 65536), 32, 0, s, x, 1, 0);
    if (refused == REFUSED_SHARED)
        LAUNCH(set, 1, 32, 48 * 1024 + 1, s, x, 1, 0);
}

void fault_set(cudaStream_t s, float *x, int count, float value)
{
    LAUNCH(set, 1, 64, 0, s, x, count, value);
}

static __global__ void next(float *y, const float *x, int count)
{
    for (int i = (int)threadIdx.x; i < count; i += (int)blockDim.x)
        y[i] = x[i] + 1;
}

void fault_next(cudaStream_t s, float *y, const float *x, int count)
{
    LAUNCH(next, 1, 64, 0, s, y, x, count);
}
