/* fp8.h - an operand of a product as a GPU rounds it to fp8 (base/fp8.h): codes and scales, laid
 * out as cuBLASLt takes them on Hopper.
 *
 * Of an operand of `rows` rows, which are summed over k (rows of a', columns of b'), with
 * padded = k rounded up to FP8_BLOCK:
 *   codes   [rows, padded], k contiguous; what lies beyond k counts as zeros
 *   scales  of vectors [padded / FP8_BLOCK, rows]
 *           of squares [ceil(rows / FP8_BLOCK), step], step = padded / FP8_BLOCK rounded up to a
 *           multiple of 4; zeros where there is no square
 * The library takes vectors where rows is a multiple of 4.
 */
#ifndef TRIREME_DEVICE_CUDA_FP8_H
#define TRIREME_DEVICE_CUDA_FP8_H

#include "base/fp8.h"
#include "device/cuda/state.h"

#ifdef __cplusplus
extern "C" {
#endif

struct cuda_fp8 {
    uint8_t *code;
    float *scale;
    int64_t rows, k, padded;
    int64_t step; /* of vectors rows, from one block of k to the next; of squares: see above */
    int squares;  /* 0: a scale has a vector of FP8_BLOCK; 1: a square */
};

/* Fill codes and scales from x, bf16 of any alignment: element (row, i) of k is
 * x[row * ld + i] where k is contiguous in x too (1), else x[i * ld + row] (0). */
void cuda_fp8_round(struct device *d, const struct cuda_fp8 *to, const void *x, int64_t ld,
                    int k_contiguous);

/* What codes and scales stand for, as bf16: to [rows, k], aligned to 16 bytes, k a multiple of 8.
 * Every number is exact, but for magnitudes above the largest bf16, which become infinite: those to
 * which the 8 largest ones that are finite may be rounded. */
void cuda_fp8_widen(struct device *d, bf16 *to, const struct cuda_fp8 *x);

#ifdef __cplusplus
}
#endif

#endif
