/* nf4.h - numbers of 4 bits that frozen weights are kept in: shares of the largest magnitude of a
 * block.
 *
 * The numbers of a block of NF4_BLOCK share that magnitude, in fp32; each is a code, an index into
 * 16 shares in ascending order, to each of which as many numbers of a normal distribution are
 * nearest (NormalFloat: Dettmers et al. 2023, arXiv 2305.14314; shares, rounding and the order of
 * codes are those of bitsandbytes).  A block is a record:
 *
 *   byte   0 1 2 3              4           5          ...   35
 *          largest magnitude    codes 0, 1  codes 2, 3 ...   codes 62, 63
 *
 * The first of two codes is in the upper half of its byte.  So 64 numbers take 36 bytes, 4.5 bits
 * each, and any run of blocks is a run of bytes.  Numbers that are decoded to fp32 and coded again
 * become the same records: the largest magnitude keeps its bits, as the shares -1 and 1 are exact.
 *
 * Made of C that C++ and CUDA read too.
 */
#ifndef TRIREME_BASE_NF4_H
#define TRIREME_BASE_NF4_H

#include <stddef.h>
#include <stdint.h>

/* Numbers and bytes of a block; where in these its codes begin; shares. */
enum { NF4_BLOCK = 64, NF4_BYTES = 36, NF4_CODES = 4, NF4_SHARES = 16 };

/* The shares, for an initialiser. */
/* clang-format off */
#define NF4_TABLE                                                                            \
    {-1.0f, -0.6961928009986877f, -0.5250730514526367f, -0.39491748809814453f,               \
     -0.28444138169288635f, -0.18477343022823334f, -0.09105003625154495f, 0.0f,              \
     0.07958029955625534f, 0.16093020141124725f, 0.24611230194568634f, 0.33791524171829224f, \
     0.44070982933044434f, 0.5626170039176941f, 0.7229568362236023f, 1.0f}
/* clang-format on */

/* Bytes of so many numbers, which are whole blocks. */
static inline size_t nf4_bytes(int64_t elems)
{
    return (size_t)(elems / NF4_BLOCK) * NF4_BYTES;
}

/* Make records of numbers, which are finite and whole blocks: each number becomes the code of the
 * share that is nearest to its share of its block's largest magnitude, the lower one of two.
 * Records may be made in the place of their numbers: a block is read before its record is written.
 */
void nf4_encode(void *records, const float *values, int64_t elems);

/* The numbers of records, which are whole blocks: share times largest magnitude, rounded to fp32.
 */
void nf4_decode(float *values, const void *records, int64_t elems);

#endif
