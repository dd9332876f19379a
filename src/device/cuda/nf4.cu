/* nf4.cu - weights of 4 bits (base/nf4.h) to the format that they are computed with.
 *
 * A thread takes words of eight codes, with the largest magnitude of their block, and writes eight
 * numbers; the eight threads of a block of 64 read one record of nine words:
 *
 *   record   largest  codes 0-7  codes 8-15  ...  codes 56-63
 *   thread   all      0          1                7
 *
 * Least memory traffic: 0.56 bytes read for each number, and the number written.  Each thread
 * starts the loads of four words before it uses the first.  Shares are looked up in shared memory,
 * where the 16 of them lie in 16 banks, so that no two lanes wait for each other.
 */
#include "base/nf4.h"
#include "device/cuda/pack.cuh"

enum { THREADS = 256, WORDS_EACH = 4, TILE = THREADS * WORDS_EACH };
enum { CODES = 8, BLOCK_WORDS = NF4_BLOCK / CODES, RECORD_WORDS = NF4_BYTES / 4 };

/* The first two codes are in the lowest byte, the first of them in its upper half. */
static __device__ __forceinline__ uint32_t code_of(uint32_t word, int i)
{
    return word >> (4 * (i ^ 1)) & 15u;
}

template <typename T>
static __device__ __forceinline__ void put(T *to, const float (&share)[NF4_SHARES], uint32_t word,
                                           float largest)
{
    constexpr int n = LANES<T>;
#pragma unroll
    for (int first = 0; first < CODES; first += n) {
        float values[n];
        raw<T, n> bits;
#pragma unroll
        for (int i = 0; i < n; i++)
            values[i] = share[code_of(word, first + i)] * largest;
        narrow(bits, values);
        store(to + first, bits);
    }
}

template <typename T>
__global__ void __launch_bounds__(THREADS) decode_tile(T *y, const uint32_t *records, int64_t words)
{
    __shared__ float share[NF4_SHARES];
    const int64_t begin = (int64_t)blockIdx.x * TILE + (int)threadIdx.x;
    uint32_t codes[WORDS_EACH];
    float largest[WORDS_EACH];
    if (threadIdx.x < NF4_SHARES) {
        const float table[NF4_SHARES] = NF4_TABLE;
        share[threadIdx.x] = table[threadIdx.x];
    }
#pragma unroll
    for (int j = 0; j < WORDS_EACH; j++) {
        const int64_t at = begin + j * THREADS;
        const uint32_t *record = records + at / BLOCK_WORDS * RECORD_WORDS;
        if (at < words) {
            codes[j] = load_once<uint32_t>(record + 1 + at % BLOCK_WORDS);
            largest[j] = __uint_as_float(load<uint32_t>(record));
        }
    }
    __syncthreads();
#pragma unroll
    for (int j = 0; j < WORDS_EACH; j++) {
        const int64_t at = begin + j * THREADS;
        if (at < words)
            put(y + at * CODES, share, codes[j], largest[j]);
    }
}

void cuda_decode_nf4(struct device *d, enum dtype dt, void *y, const void *records, int64_t elems)
{
    const int64_t words = elems / CODES;
    if (words == 0)
        return;
    by_type(dt, [&](auto type) {
        using T = decltype(type);
        LAUNCH(decode_tile<T>, (unsigned)ceil_div(words, TILE), THREADS, 0, cuda_compute(d), (T *)y,
               (const uint32_t *)records, words);
    });
}
