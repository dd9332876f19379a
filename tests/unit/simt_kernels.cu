/* simt_kernels.cu - one small kernel for each word of simt.cuh. */
#include "device/cuda/simt.cuh"
#include "simt_kernels.h"

template <typename E, bool transposed>
static __global__ void product(float *d, const uint16_t *a, const uint16_t *b)
{
    __shared__ __align__(16) uint16_t left[16][16], right[16][16];
    int lane = (int)threadIdx.x, row = lane % 16, half = lane / 16 * 8, g = lane / 4;
    uint32_t ra[4], rb[4];
    float rd[4];
    store16(&left[row][half], load16(a + row * 16 + half));
    if (!transposed && lane < 16) /* [k][n] */
        store16(right[row], load16(b + row * 8));
    else if (transposed && row < 8) /* [n][k] */
        store16(&right[row][half], load16(b + row * 16 + half));
    __syncwarp();
    load_matrices(ra, &left[row][half]);
    if (transposed)
        load_matrices(rb, &right[lane % 8][lane / 8 % 2 * 8]);
    else
        load_matrices_transposed(rb, right[row]);
    for (int i = 0; i < 4; i++)
        rd[i] = d[(g + i / 2 * 8) * 8 + lane % 4 * 2 + i % 2];
    mma(E(), rd, ra, rb);
    for (int i = 0; i < 4; i++)
        d[(g + i / 2 * 8) * 8 + lane % 4 * 2 + i % 2] = rd[i];
}

void simt_product(cudaStream_t s, enum dtype dt, float *d, const uint16_t *a, const uint16_t *b,
                  int transposed)
{
    if (dt == DTYPE_F16 && transposed)
        LAUNCH((product<fp16, true>), 1, 32, 0, s, d, a, b);
    else if (dt == DTYPE_F16)
        LAUNCH((product<fp16, false>), 1, 32, 0, s, d, a, b);
    else if (transposed)
        LAUNCH((product<bf16, true>), 1, 32, 0, s, d, a, b);
    else
        LAUNCH((product<bf16, false>), 1, 32, 0, s, d, a, b);
}

static __global__ void shuffles(int width, int lane, int32_t *out)
{
    int i = (int)threadIdx.x, n = (int)blockDim.x;
    out[i] = __shfl_sync(ALL_LANES, i, lane, width);
    out[n + i] = (int32_t)__shfl_xor_sync(ALL_LANES, (float)i, lane, width);
    out[2 * n + i] = (int32_t)__shfl_down_sync(ALL_LANES, (uint32_t)i, lane, width);
    int64_t both = __shfl_sync(ALL_LANES, (int64_t)i << 32 | i, lane, width);
    out[3 * n + i] = both >> 32 == (int32_t)both ? (int32_t)both : -1;
}

void simt_shuffles(cudaStream_t s, int threads, int width, int lane, int32_t *out)
{
    LAUNCH(shuffles, 1, threads, 0, s, width, lane, out);
}

static __global__ void ballots(int lanes, uint32_t *out)
{
    int i = (int)threadIdx.x, lane = i % 32;
    uint32_t mask = lanes == 32 ? ALL_LANES : (1u << lanes) - 1, votes = 0;
    if (lane < lanes)
        votes = __ballot_sync(mask, lane % 2);
    out[i] = votes;
}

void simt_ballots(cudaStream_t s, int threads, int lanes, uint32_t *out)
{
    LAUNCH(ballots, 1, threads, 0, s, lanes, out);
}

static __global__ void early_exit(int live, int64_t *out)
{
    __shared__ int64_t given[1024];
    int i = (int)threadIdx.x;
    int64_t sum = 0;
    if (i >= live)
        return;
    for (int round = 0; round < 3; round++) {
        given[i] = i + round;
        __syncthreads();
        for (int j = 0; j < live; j++)
            sum += given[j] - round;
        __syncthreads();
    }
    out[i] = sum / 3;
}

void simt_early_exit(cudaStream_t s, int threads, int live, int64_t *out)
{
    LAUNCH(early_exit, 1, threads, 0, s, live, out);
}

/* Thread i copies 16 bytes, and adds up another thread's. */
template <int stages>
static __global__ void pipeline(int rows, int cols, const float *in, float *out)
{
    __shared__ __align__(16) float ring[stages][32];
    int i = (int)threadIdx.x;
    float sums[4] = {};
    for (int k = 0; k < rows + stages - 1; k++) {
        __syncthreads();
        if (k < rows)
            async_copy16(&ring[k % stages][4 * i], in + (int64_t)k * cols + 4 * i, 4 * i < cols);
        async_commit();
        async_wait<stages - 1>();
        __syncthreads();
        int from = k - stages + 1;
        for (int j = 0; j < 4 && from >= 0; j++)
            sums[j] += ring[from % stages][31 - 4 * i - j];
    }
    for (int j = 0; j < 4; j++)
        out[31 - 4 * i - j] = sums[j];
}

void simt_pipeline(cudaStream_t s, int stages, int rows, int cols, const float *in, float *out)
{
    if (stages == 1)
        LAUNCH(pipeline<1>, 1, 8, 0, s, rows, cols, in, out);
    else if (stages == 2)
        LAUNCH(pipeline<2>, 1, 8, 0, s, rows, cols, in, out);
    else
        LAUNCH(pipeline<4>, 1, 8, 0, s, rows, cols, in, out);
}

static __global__ void narrow(enum dtype dt, int pairs, const float *in, uint32_t *out)
{
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < pairs && dt == DTYPE_F16)
        out[i] = pair_of(fp16(), in[2 * i], in[2 * i + 1]);
    else if (i < pairs)
        out[i] = pair_of(bf16(), in[2 * i], in[2 * i + 1]);
}

void simt_narrow(cudaStream_t s, enum dtype dt, int pairs, const float *in, uint32_t *out)
{
    LAUNCH(narrow, (pairs + 255) / 256, 256, 0, s, dt, pairs, in, out);
}

static __global__ void widen(int pairs, const uint32_t *in, float *out)
{
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i >= pairs)
        return;
    out[2 * i] = float_of(fp16(), (uint16_t)in[i]);
    out[2 * i + 1] = float_of(fp16(), (uint16_t)(in[i] >> 16));
}

void simt_widen(cudaStream_t s, int pairs, const uint32_t *in, float *out)
{
    LAUNCH(widen, (pairs + 255) / 256, 256, 0, s, pairs, in, out);
}

static __global__ void exponentials(int count, const float *in, float *out)
{
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < count)
        out[i] = exp2_fast(in[i]);
}

void simt_exp2(cudaStream_t s, int count, const float *in, float *out)
{
    LAUNCH(exponentials, (count + 255) / 256, 256, 0, s, count, in, out);
}

static __global__ void reverse(int count, const float *in, float *out)
{
    DYNAMIC_SHARED(float, all);
    for (int i = (int)threadIdx.x; i < count; i += (int)blockDim.x)
        all[i] = in[i];
    __syncthreads();
    for (int i = (int)threadIdx.x; i < count; i += (int)blockDim.x)
        out[i] = all[count - 1 - i];
}

int simt_reverse(cudaStream_t s, int count, const float *in, float *out)
{
    size_t bytes = (size_t)count * sizeof(float);
    int code = (int)ALLOW_SHARED(reverse, bytes);
    LAUNCH(reverse, 1, 96, bytes, s, count, in, out);
    return code;
}

static __global__ void number(int32_t *out)
{
    unsigned x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    unsigned z = blockIdx.z * blockDim.z + threadIdx.z;
    unsigned i = (z * gridDim.y * blockDim.y + y) * gridDim.x * blockDim.x + x;
    out[i] = (int32_t)i;
}

void simt_number(cudaStream_t s, const int grid[3], const int block[3], int32_t *out)
{
    dim3 blocks(grid[0], grid[1], grid[2]), threads(block[0], block[1], block[2]);
    LAUNCH(number, blocks, threads, 0, s, out);
}

static __global__ void copy(int count, const uint4 *in, uint4 *out)
{
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < count)
        store16_once(out + i, load16_once(in + i));
}

void simt_copy(cudaStream_t s, int count, const void *in, void *out)
{
    LAUNCH(copy, (count + 63) / 64, 64, 0, s, count, (const uint4 *)in, (uint4 *)out);
}
