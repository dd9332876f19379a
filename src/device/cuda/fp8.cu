/* fp8.cu - an operand of bf16 rounded to codes and scales, and back; see fp8.h.
 *
 * A block of 256 threads rounds a tile of 128 rows by 128 of k: one square, or a vector of each
 * row.  A thread has 8 lines of 8 elements, as they lie in memory, in registers from the first
 * read to the last write; lane l of half-warp h has elements 8 l to 8 l + 7 of lines 8 h to
 * 8 h + 7:
 *
 *   k contiguous      a line is a row; a vector is what a half-warp has of a line
 *   rows contiguous   a line is one of k; a vector is what 16 threads, one of each half-warp, have
 *                     at one place of their lines; codes change places in shared memory
 *
 * Magnitudes are compared as the integers that their bits are: NaN is the largest, then infinity.
 */
#include "device/cuda/fp8.h"

#include "device/cuda/pack.cuh"

constexpr int SIDE = FP8_BLOCK, EACH = 8, GROUPS = SIDE / EACH, THREADS = GROUPS * GROUPS;
constexpr int WARPS = THREADS / 32;

/* A thread's lines, two elements in a word. */
struct lines {
    uint32_t of[EACH][EACH / 2];
};

/* A tile of a matrix. */
struct tile {
    int64_t row, k;      /* where it begins */
    int64_t rows, depth; /* rows and elements of k that the matrix has from there on */
};

static __device__ __forceinline__ uint32_t larger(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

/* Returns the larger magnitude of the first elements of two pairs, and that of the second ones. */
static __device__ __forceinline__ uint32_t larger_pair(uint32_t a, uint32_t b)
{
    return larger_halves(a & 0x7fff7fff, b & 0x7fff7fff);
}

/* Returns the larger magnitude of a pair. */
static __device__ __forceinline__ uint32_t largest_of_pair(uint32_t pair)
{
    return larger(pair & 0x7fff, pair >> 16 & 0x7fff);
}

/* Returns, in each lane, the largest x of the 2 * distance lanes whose numbers differ only in their
 * lower bits. */
static __device__ __forceinline__ uint32_t largest_of_lanes(uint32_t x, int distance)
{
    for (; distance; distance /= 2)
        x = larger(x, __shfl_xor_sync(ALL_LANES, x, distance));
    return x;
}

/* Read a line of 8 elements, of which `count` exist; the others become 0. */
static __device__ __forceinline__ void read_line(uint32_t (&to)[EACH / 2], const bf16 *from,
                                                 int64_t count, bool is_aligned)
{
    if (is_aligned && count >= EACH) {
        uint4 all = load16(from);
        memcpy(to, &all, sizeof to);
        return;
    }
#pragma unroll
    for (int i = 0; i < EACH / 2; i++) {
        uint32_t low = 2 * i < count ? from[2 * i] : 0;
        uint32_t high = 2 * i + 1 < count ? from[2 * i + 1] : 0;
        to[i] = low | high << 16;
    }
}

/* Returns this thread's lines of a tile that begins at x and has `count` lines of `elems` elements.
 */
static __device__ __forceinline__ struct lines read_lines(const bf16 *x, int64_t ld, int64_t count,
                                                          int64_t elems, bool is_aligned)
{
    const int first = (int)threadIdx.x / GROUPS * EACH, at = (int)threadIdx.x % GROUPS * EACH;
    struct lines got;
#pragma unroll
    for (int i = 0; i < EACH; i++)
        read_line(got.of[i], x + (first + i) * ld + at, first + i < count ? elems - at : 0,
                  is_aligned);
    return got;
}

/* Returns the codes of four elements of a line.  inverse: 1 / scale; if it is a NaN, so are the
 * codes.
 */
static __device__ __forceinline__ uint32_t codes_of(const uint32_t *pairs, float inverse)
{
    float x[4];
    widen_pair(bf16(), x, pairs[0]);
    widen_pair(bf16(), x + 2, pairs[1]);
    return e4m3_pair_of(x[0] * inverse, x[1] * inverse) |
           e4m3_pair_of(x[2] * inverse, x[3] * inverse) << 16;
}

/* Returns the codes of elements j of two successive lines. */
static __device__ __forceinline__ uint32_t codes_at(const struct lines &x, int line, int j,
                                                    float inverse)
{
    float of_line[2], of_next[2];
    widen_pair(bf16(), of_line, x.of[line][j / 2]);
    widen_pair(bf16(), of_next, x.of[line + 1][j / 2]);
    return e4m3_pair_of(of_line[j % 2] * inverse, of_next[j % 2] * inverse);
}

/* largest = the largest magnitude of each element of a line, over this thread's lines. */
static __device__ __forceinline__ void largest_of_lines(uint32_t (&largest)[EACH / 2],
                                                        const struct lines &x)
{
#pragma unroll
    for (int j = 0; j < EACH / 2; j++) {
        largest[j] = 0;
#pragma unroll
        for (int i = 0; i < EACH; i++)
            largest[j] = larger_pair(largest[j], x.of[i][j]);
    }
}

/* Returns the largest magnitude of the block's tile, in every thread. */
static __device__ __forceinline__ uint32_t largest_of_tile(const struct lines &x)
{
    __shared__ uint32_t of_warp[WARPS];
    uint32_t pairs[EACH / 2], largest = 0;
    largest_of_lines(pairs, x);
#pragma unroll
    for (int j = 0; j < EACH / 2; j++)
        largest = larger(largest, largest_of_pair(pairs[j]));
    largest = largest_of_lanes(largest, 16);
    if (threadIdx.x % 32 == 0)
        of_warp[threadIdx.x / 32] = largest;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < WARPS; i++)
        largest = larger(largest, of_warp[i]);
    return largest;
}

/* The largest at each of SIDE places, over all lines of the tile. */
static __device__ __forceinline__ void largest_of_places(uint32_t (&largest)[SIDE],
                                                         const struct lines &x)
{
    __shared__ uint32_t of_warp[WARPS][SIDE];
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, place = (int)threadIdx.x;
    uint32_t pairs[EACH / 2];
    largest_of_lines(pairs, x);
#pragma unroll
    for (int j = 0; j < EACH / 2; j++) { /* with those of the warp's other half */
        uint32_t both = larger_pair(pairs[j], __shfl_xor_sync(ALL_LANES, pairs[j], GROUPS));
        if (lane < GROUPS) {
            of_warp[warp][lane * EACH + 2 * j] = both & 0x7fff;
            of_warp[warp][lane * EACH + 2 * j + 1] = both >> 16;
        }
    }
    __syncthreads();
    if (place < SIDE) {
        uint32_t one = 0;
#pragma unroll
        for (int i = 0; i < WARPS; i++)
            one = larger(one, of_warp[i][place]);
        largest[place] = one;
    }
    __syncthreads();
}

/* Write the scale of a square tile, and, after the last tile of a row of tiles, zeros up to
 * to.step.
 */
static __device__ __forceinline__ void write_square_scale(const struct cuda_fp8 &to,
                                                          const struct tile &t, uint32_t largest)
{
    const int64_t at = t.k / SIDE, after = at + 1 + (int)threadIdx.x;
    float *row = to.scale + t.row / SIDE * to.step;
    if (threadIdx.x == 0)
        row[at] = fp8_scale(largest);
    if (t.k + SIDE == to.padded && after < to.step)
        row[after] = 0;
}

/* Round a tile whose lines are rows. */
template <bool squares>
static __device__ __forceinline__ void round_rows(const struct cuda_fp8 &to, const struct tile &t,
                                                  const struct lines &x)
{
    const int first = (int)threadIdx.x / GROUPS * EACH, at = (int)threadIdx.x % GROUPS * EACH;
    uint32_t largest = 0;
    if (squares) {
        largest = largest_of_tile(x);
        write_square_scale(to, t, largest);
    }
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        const uint32_t(&line)[EACH / 2] = x.of[i];
        const int64_t row = t.row + first + i;
        if (!squares)
            largest = largest_of_lanes(largest_of_pair(larger_pair(larger_pair(line[0], line[1]),
                                                                   larger_pair(line[2], line[3]))),
                                       GROUPS / 2);
        if (first + i >= t.rows)
            continue;
        if (!squares && at == 0)
            to.scale[t.k / SIDE * to.step + row] = fp8_scale(largest);
        const float inverse = fp8_inverse(largest);
        *aligned<uint2>(to.code + row * to.padded + t.k + at) =
            make_uint2(codes_of(line, inverse), codes_of(line + 2, inverse));
    }
}

/* Codes of a row are 16 groups of 8; group h of row r lies at h ^ r / 8, so that threads that write
 * the same group of rows 8 apart, as those that read a row, are at different banks. */
static __device__ __forceinline__ int group_of(int h, int row)
{
    return h ^ row / EACH;
}

/* Round a tile whose lines are of k: codes are exchanged in shared memory, and written row by row.
 */
template <bool squares>
static __device__ __forceinline__ void round_columns(const struct cuda_fp8 &to,
                                                     const struct tile &t, const struct lines &x)
{
    __shared__ uint2 codes[SIDE][GROUPS];
    __shared__ uint32_t of_row[SIDE];
    const int group = (int)threadIdx.x / GROUPS, at = (int)threadIdx.x % GROUPS;
    uint32_t largest = 0;
    if (squares) {
        largest = largest_of_tile(x);
        write_square_scale(to, t, largest);
    } else {
        largest_of_places(of_row, x);
        if ((int)threadIdx.x < SIDE && (int)threadIdx.x < t.rows)
            to.scale[t.k / SIDE * to.step + t.row + (int)threadIdx.x] =
                fp8_scale(of_row[threadIdx.x]);
    }
#pragma unroll
    for (int j = 0; j < EACH; j++) {
        const int row = at * EACH + j;
        const float inverse = fp8_inverse(squares ? largest : of_row[row]);
        uint32_t code[2] = {0, 0};
#pragma unroll
        for (int i = 0; i < EACH; i += 2)
            code[i / 4] |= codes_at(x, i, j, inverse) << 8 * (i % 4);
        codes[row][group_of(group, row)] = make_uint2(code[0], code[1]);
    }
    __syncthreads();
#pragma unroll
    for (int row = group; row < SIDE; row += GROUPS)
        if (row < t.rows)
            *aligned<uint2>(to.code + (t.row + row) * to.padded + t.k + at * EACH) =
                codes[row][group_of(at, row)];
}

template <bool k_contiguous, bool squares>
__global__ void __launch_bounds__(THREADS)
    round_tile(struct cuda_fp8 to, const bf16 *x, int64_t ld, bool is_aligned)
{
    const int64_t tiles = to.padded / SIDE;
    struct tile t;
    t.row = (int64_t)blockIdx.x / tiles * SIDE;
    t.k = (int64_t)blockIdx.x % tiles * SIDE;
    t.rows = to.rows - t.row;
    t.depth = to.k - t.k;
    if constexpr (k_contiguous)
        round_rows<squares>(to, t,
                            read_lines(x + t.row * ld + t.k, ld, t.rows, t.depth, is_aligned));
    else
        round_columns<squares>(to, t,
                               read_lines(x + t.k * ld + t.row, ld, t.depth, t.rows, is_aligned));
}

void cuda_fp8_round(struct device *d, const struct cuda_fp8 *to, const void *x, int64_t ld,
                    int k_contiguous)
{
    const bool is_aligned = (uintptr_t)x % 16 == 0 && ld % EACH == 0;
    const auto kernel = k_contiguous
                            ? (to->squares ? round_tile<true, true> : round_tile<true, false>)
                        : to->squares ? round_tile<false, true>
                                      : round_tile<false, false>;
    LAUNCH(kernel, (unsigned)(ceil_div(to->rows, SIDE) * (to->padded / SIDE)), THREADS, 0,
           cuda_compute(d), *to, (const bf16 *)x, ld, is_aligned);
}

/* Element k of a row and those after it share a scale, as EACH divides SIDE. */
__global__ void __launch_bounds__(THREADS) widen_codes(bf16 *to, struct cuda_fp8 x)
{
    const int64_t groups = x.k / EACH, at = (int64_t)blockIdx.x * THREADS + (int64_t)threadIdx.x;
    const int64_t row = at / groups, k = at % groups * EACH, block = k / SIDE;
    if (row >= x.rows)
        return;
    const float scale = x.scale[x.squares ? row / SIDE * x.step + block : block * x.step + row];
    const uint2 codes = *aligned<const uint2>(x.code + row * x.padded + k);
    float values[EACH];
#pragma unroll
    for (int i = 0; i < EACH; i++)
        values[i] = fp8_value((uint8_t)((i < 4 ? codes.x : codes.y) >> 8 * (i % 4))) * scale;
    raw<bf16, EACH> narrowed;
    narrow(narrowed, values);
    store(to + row * x.k + k, narrowed);
}

void cuda_fp8_widen(struct device *d, bf16 *to, const struct cuda_fp8 *x)
{
    LAUNCH(widen_codes, (unsigned)ceil_div(x->rows * (x->k / EACH), THREADS), THREADS, 0,
           cuda_compute(d), to, *x);
}
