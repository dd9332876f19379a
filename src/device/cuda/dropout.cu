/* dropout.cu - numbers dropped at random; see struct dropout_mask in device/ops.h.
 *
 * Least memory traffic: x and the addend are read, y is written.  Ten rounds of Philox make the
 * random words of a block of four columns.  A thread takes 16 bytes of a row if rows consist of
 * whole blocks; else it takes one number, and three of the four words that it makes are not used.
 */
#include "device/cuda/dropout.cuh"
#include "device/cuda/pack.cuh"

enum { THREADS = 128 };

template <typename T> struct dropout_rows {
    T *y;
    const T *x, *addend; /* addend NULL: none */
    struct dropout p;
};

/* The sequence of a row, and the row's position in that, as dropout_row() and sequence_position()
 * find them. */
struct dropout_place {
    int64_t sequence, position;
};

static __device__ __forceinline__ struct dropout_place place_of(const struct dropout &p, int64_t r)
{
    int64_t each = p.rows / p.row_chunks, last = p.batch * p.seq - 1;
    int64_t row = (r / each * p.ranks + p.rank) * each + r % each;
    row = row < last ? row : last;
    int64_t at = row % p.seq, chunk = p.part.chunk;
    if (chunk)
        at = at < chunk ? p.part.first[0] + at : p.part.first[1] + at - chunk;
    return {row / p.seq, at};
}

/* Make the random words of columns [column, column + n): one column alone, or whole blocks of four.
 */
template <int n>
static __device__ __forceinline__ void words_of(uint32_t (&words)[n], const struct dropout_mask &m,
                                                uint2 sample, int64_t position, int64_t column)
{
    if constexpr (n == 1) {
        words[0] = word_of(dropout_words(m, sample, (uint32_t)position, (uint32_t)(column / 4)),
                           (int)(column % 4));
    } else {
#pragma unroll
        for (int i = 0; i < n / 4; i++) {
            uint4 drawn = dropout_words(m, sample, (uint32_t)position, (uint32_t)(column / 4 + i));
            words[4 * i] = drawn.x, words[4 * i + 1] = drawn.y;
            words[4 * i + 2] = drawn.z, words[4 * i + 3] = drawn.w;
        }
    }
}

/* y = addend + drop(x), n columns per thread, every gridDim.y-th row. */
template <typename T, int n>
__global__ void __launch_bounds__(THREADS) dropout_tile(dropout_rows<T> t)
{
    const int64_t column = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * n;
    if (column >= t.p.cols)
        return;
    for (int64_t r = blockIdx.y; r < t.p.rows; r += gridDim.y) {
        const int64_t at = r * t.p.cols + column;
        struct dropout_place place = place_of(t.p, r);
        uint2 sample = dropout_sample(t.p.mask, place.sequence, 0);
        float x[n], base[n] = {};
        uint32_t words[n];
        get(x, t.x + at);
        if (t.addend)
            get(base, t.addend + at);
        words_of<n>(words, t.p.mask, sample, place.position, t.p.first + column);
#pragma unroll
        for (int i = 0; i < n; i++)
            x[i] = (words[i] < t.p.mask.limit ? 0.0f : x[i] * t.p.mask.factor) + base[i];
        raw<T, n> bits;
        narrow(bits, x);
        store(t.y + at, bits);
    }
}

template <typename T, int n> static void launch(cudaStream_t s, const dropout_rows<T> &t)
{
    dim3 grid((unsigned)ceil_div(t.p.cols, THREADS * n), (unsigned)min_i64(t.p.rows, 65535));
    LAUNCH((dropout_tile<T, n>), grid, THREADS, 0, s, t);
}

void cuda_dropout(struct device *d, const struct dropout *p, void *y, const void *x,
                  const void *addend)
{
    cudaStream_t s = cuda_compute(d);
    if (p->rows == 0 || p->cols == 0)
        return;
    by_type(p->dt, [&](auto type) {
        using T = decltype(type);
        const dropout_rows<T> t = {(T *)y, (const T *)x, (const T *)addend, *p};
        if (p->cols % LANES<T> == 0 && p->first % 4 == 0 && aligned16(y) && aligned16(x) &&
            aligned16(addend))
            launch<T, LANES<T>>(s, t);
        else
            launch<T, 1>(s, t);
    });
}
