/* nf4.c - weights of 4 bits (base/nf4.h) to the format that they are computed with.
 *
 * The 16 numbers that a block can have are computed once, rounded, and looked up by code.  Of 16
 * bits they lie in two vectors of 16 bytes, the lower and the upper bytes, so that one shuffle of
 * each looks up 16 numbers:
 *
 *   codes          c0 c1 ...          interleaved from the halves of 8 bytes
 *   lower, upper   l[c0] l[c1] ...    u[c0] u[c1] ...
 *   numbers        l[c0] u[c0] l[c1] u[c1] ...
 */
#include "base/nf4.h"

#include "device/cpu/kernels.h"
#include "device/cpu/simd.h"

/* Blocks a thread takes at a time. */
enum { CHUNK = 256 };

typedef unsigned char bytes16 __attribute__((vector_size(16)));

/* The bytes of two vectors alternately: the first halves of both, or the second ones. */
SIMD_INLINE bytes16 interleave(bytes16 a, bytes16 b, int second)
{
    const bytes16 first_halves = {0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23};
    const bytes16 at = second ? first_halves + 8 : first_halves;
    return simd_shuffle_two(a, b, at);
}

/* The 16 numbers of a block with this largest magnitude, from element 0 of `number` on. */
SIMD_INLINE void numbers_of(enum dtype dt, void *number, float largest)
{
    static const float share[NF4_SHARES] = NF4_TABLE;
    for (int i = 0; i < NF4_SHARES; i += CPU_LANES)
        vf_put(dt, number, i, vf_get(DTYPE_F32, share, i) * vf_set(largest));
}

/* Look up 32 codes of 16 bytes. */
SIMD_INLINE void look_up_16_bits(uint16_t *y, const unsigned char *codes, bytes16 lower,
                                 bytes16 upper)
{
    bytes16 both;
    memcpy(&both, codes, sizeof both);
    const bytes16 high = both >> 4, low = both & 15;
    for (int half = 0; half < 2; half++) {
        const bytes16 code = interleave(high, low, half);
        const bytes16 l = simd_shuffle(lower, code), u = simd_shuffle(upper, code);
        const bytes16 first = interleave(l, u, 0), second = interleave(l, u, 1);
        memcpy(y + 16 * half, &first, sizeof first);
        memcpy(y + 16 * half + 8, &second, sizeof second);
    }
}

SIMD_INLINE void decode_16_bits(enum dtype dt, uint16_t *y, const unsigned char *record)
{
    uint16_t number[NF4_SHARES];
    bytes16 lower, upper;
    float largest;
    memcpy(&largest, record, sizeof largest);
    numbers_of(dt, number, largest);
    for (int i = 0; i < NF4_SHARES; i++) {
        lower[i] = (unsigned char)number[i];
        upper[i] = (unsigned char)(number[i] >> 8);
    }
    for (int i = 0; i < NF4_BLOCK; i += 32)
        look_up_16_bits(y + i, record + NF4_CODES + i / 2, lower, upper);
}

SIMD_INLINE void decode_fp32(float *y, const unsigned char *record)
{
    float number[NF4_SHARES], largest;
    memcpy(&largest, record, sizeof largest);
    numbers_of(DTYPE_F32, number, largest);
    for (int i = 0; i < NF4_BLOCK; i += 2) {
        y[i] = number[record[NF4_CODES + i / 2] >> 4];
        y[i + 1] = number[record[NF4_CODES + i / 2] & 15];
    }
}

SIMD_INLINE void decode_chunk(enum dtype dt, void *y, const unsigned char *records, int64_t begin,
                              int64_t end)
{
    for (int64_t b = begin; b < end; b++)
        if (dt == DTYPE_F32)
            decode_fp32((float *)y + b * NF4_BLOCK, records + b * NF4_BYTES);
        else
            decode_16_bits(dt, (uint16_t *)y + b * NF4_BLOCK, records + b * NF4_BYTES);
}

void CPU(decode_nf4)(struct device *d, enum dtype dt, void *y, const void *records, int64_t elems)
{
    const int64_t blocks = elems / NF4_BLOCK;
#pragma omp parallel for num_threads(cpu_threads(d, elems *(int64_t)dtype_bytes(dt)))
    for (int64_t begin = 0; begin < blocks; begin += CHUNK) {
        int64_t end = min_i64(begin + CHUNK, blocks);
        WITH_DTYPE(decode_chunk, dt, y, records, begin, end);
    }
}
