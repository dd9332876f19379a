/* tiles.cuh - tiles of 16-bit elements in shared memory, and the products of warps on tensor cores.
 *
 * A tile holds rows: elements [rows][dim], where dim is the length of a row in memory, rounded up,
 * with zeros from the end of each row on.  load_matrices() reads one 16-byte chunk of
 * each of eight rows at a time, all in the same column of chunks.  These lie in different banks,
 * because the chunks of a row are permuted: with dim a multiple of 64, chunk c of row r is at place
 * c ^ (r % 8) of its group of eight.  Copies touch whole rows, so that the permutation costs them
 * nothing.
 *
 *   row 0   chunks 0 1 2 3 4 5 6 7
 *   row 1          1 0 3 2 5 4 7 6
 *   row 2          2 3 0 1 6 7 4 5   (each column of the drawing is a bank group)
 *
 * uint16_t holds either 16-bit type, and the type itself is bf16 or fp16.
 */
#ifndef TRIREME_DEVICE_CUDA_TILES_CUH
#define TRIREME_DEVICE_CUDA_TILES_CUH

#include "device/cuda/pack.cuh"

static __device__ __forceinline__ unsigned lane_id()
{
    return threadIdx.x % 32;
}

/* By the shuffle the compiler knows that the number is the same in the whole warp. */
static __device__ __forceinline__ int warp_id()
{
    return __shfl_sync(ALL_LANES, (int)threadIdx.x / 32, 0);
}

/* The number of chunks in a group, within which chunks are permuted. */
template <int dim> constexpr int tile_period = dim % 64 == 0 ? 8 : 4;

/* Return the element at which chunk number chunk + step of a row begins.  step is a constant, and a
 * multiple of 2 where chunk is not 0.  Steps of tile_period and more only add a constant, so that
 * few addresses in registers serve all steps. */
template <int dim>
static __device__ __forceinline__ unsigned tile_at(unsigned row, unsigned chunk, unsigned step)
{
    constexpr unsigned period = tile_period<dim>;
    static_assert(dim % (8 * period) == 0, "whole groups of chunks");
    unsigned by = period == 8 ? row % 8 : row / 2 % 4;
    return row * dim + 8 * ((chunk ^ by) ^ step % period) + 8 * (step / period * period);
}

/* How threads copy a tile: `across` threads copy a row, and all copy `down` rows at a time.  The
 * permutation is the same in all rows of one thread, so that its addresses differ by constants. */
template <int dim, int threads> struct tile_threads {
    static constexpr int across = tile_period<dim>, down = threads / across;
    static_assert(down % 8 == 0, "rows that are permuted alike");
};

/* Return the address of the first chunk that this thread copies of rows that begin at `from`, `row`
 * elements apart. */
template <int dim, int threads>
static __device__ __forceinline__ const uint16_t *tile_source(const uint16_t *from, int row)
{
    constexpr int across = tile_threads<dim, threads>::across;
    return from + (int64_t)(threadIdx.x / across) * row + threadIdx.x % across * 8;
}

/* Begin to copy `rows` rows from a tile_source() to a tile, with zeros from row `valid` and from
 * column length on.  All threads call. */
template <int dim, int rows, int threads>
static __device__ __forceinline__ void tile_load(uint16_t *tile, const uint16_t *source, int row,
                                                 int valid, int length)
{
    constexpr int across = tile_threads<dim, threads>::across;
    constexpr int down = tile_threads<dim, threads>::down;
    int chunk = (int)threadIdx.x % across, r = (int)threadIdx.x / across;
    uint16_t *to = tile + tile_at<dim>(r, chunk, 0);
    valid -= r;
    length -= 8 * chunk;
#pragma unroll
    for (int i = 0; i < rows; i += down) {
#pragma unroll
        for (int column = 0; column < dim; column += 8 * across)
            if (rows % down == 0 || r + i < rows)
                async_copy16(to + i * dim + column, source + (int64_t)i * row + column,
                             i < valid && column < length);
    }
}

/* The fp32 sums of a warp, in registers: tall x 16 rows by n columns.  Element v[m][i][e] of a lane
 * is in row 16 m + lane / 4 (+ 8 where e is 2 or 3) and column 8 i + 2 (lane % 4) + e % 2. */
template <int tall, int n> struct warp_sums {
    float v[tall][n / 8][4];

    __device__ __forceinline__ void clear()
    {
#pragma unroll
        for (int m = 0; m < tall; m++)
#pragma unroll
            for (int i = 0; i < n / 8; i++)
#pragma unroll
                for (int e = 0; e < 4; e++)
                    v[m][i][e] = 0;
    }
};

/* The sums of a warp rounded to type E: the left operand of a product that sums over the columns.
 */
template <class E, int tall, int n> struct warp_operand {
    uint32_t v[tall][n / 16][4];

    __device__ __forceinline__ void round(const struct warp_sums<tall, n> &from)
    {
#pragma unroll
        for (int m = 0; m < tall; m++)
#pragma unroll
            for (int i = 0; i < n / 8; i++) {
                v[m][i / 2][i % 2 * 2] = pair_of(E(), from.v[m][i][0], from.v[m][i][1]);
                v[m][i / 2][i % 2 * 2 + 1] = pair_of(E(), from.v[m][i][2], from.v[m][i][3]);
            }
    }
};

/* c += a b^T, of 16 * tall rows of tile a, from `row` on, and n rows of tile b.  Only the steps of
 * one period of the permutation are unrolled: with all of them the registers would not suffice. */
template <class E, int dim, int tall, int n>
static __device__ __forceinline__ void product_of_rows(struct warp_sums<tall, n> &c,
                                                       const uint16_t *a, unsigned row,
                                                       const uint16_t *b)
{
    constexpr int period = tile_period<dim>;
    unsigned lane = lane_id();
#pragma unroll 1
    for (int column = 0; column < dim; column += 8 * period, a += 8 * period, b += 8 * period)
#pragma unroll
        for (int step = 0; step < period; step += 2) {
            uint32_t left[tall][4];
#pragma unroll
            for (int m = 0; m < tall; m++)
                load_matrices(left[m], a + tile_at<dim>(row + 16 * m + lane % 16, lane / 16, step));
#pragma unroll
            for (int i = 0; i < n / 16; i++) {
                uint32_t right[4];
                load_matrices(
                    right, b + tile_at<dim>(16 * i + lane / 16 * 8 + lane % 8, lane / 8 % 2, step));
#pragma unroll
                for (int m = 0; m < tall; m++) {
                    mma(E(), c.v[m][2 * i], left[m], right);
                    mma(E(), c.v[m][2 * i + 1], left[m], right + 2);
                }
            }
        }
}

/* c += a b: the n rows of tile b weighted by a, as many columns as c has. */
template <int dim, class E, int tall, int n, int cols>
static __device__ __forceinline__ void sum_of_rows(struct warp_sums<tall, cols> &c,
                                                   const struct warp_operand<E, tall, n> &a,
                                                   const uint16_t *b)
{
    unsigned lane = lane_id();
#pragma unroll
    for (int k = 0; k < n / 16; k++)
#pragma unroll
        for (int i = 0; i < cols / 16; i++) {
            uint32_t right[4];
            load_matrices_transposed(right, b + tile_at<dim>(16 * k + lane % 16, lane / 16, 2 * i));
#pragma unroll
            for (int m = 0; m < tall; m++) {
                mma(E(), c.v[m][2 * i], a.v[m][k], right);
                mma(E(), c.v[m][2 * i + 1], a.v[m][k], right + 2);
            }
        }
}

/* Store the sums times factor, rounded to E, to rows of `to` from `row` on, below row `valid` and
 * column length.  They go through the same rows of `tile`, which no other warp may use. */
template <class E, int dim, int tall, int cols>
static __device__ __forceinline__ void tile_store(uint16_t *to, int to_row,
                                                  const struct warp_sums<tall, cols> &c,
                                                  float factor, uint16_t *tile, int row, int valid,
                                                  int length)
{
    int lane = (int)lane_id();
#pragma unroll
    for (int m = 0; m < tall; m++)
#pragma unroll
        for (int i = 0; i < cols / 8; i++)
#pragma unroll
            for (int half = 0; half < 2; half++) {
                unsigned at = tile_at<dim>(row + 16 * m + lane / 4 + 8 * half, 0, i);
                const float *pair = &c.v[m][i][2 * half];
                *aligned<uint32_t>(tile + at + lane % 4 * 2) =
                    pair_of(E(), pair[0] * factor, pair[1] * factor);
            }
    __syncwarp();
    constexpr int across = tile_period<dim>, down = 32 / across;
    for (int r = row + lane / across; r < row + 16 * tall && r < valid; r += down)
#pragma unroll
        for (int step = 0; step < cols / 8; step += across)
            if (8 * (lane % across + step) < length)
                store16(to + (int64_t)r * to_row + 8 * (lane % across + step),
                        load16(tile + tile_at<dim>(r, lane % across, step)));
}

#endif
