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
    uint8_t *code; /* device memory, as the head of this file says */
    float *scale;
    int64_t rows, k, padded;
    int64_t step; /* scales from one block of k (vectors) or of rows (squares) to the next */
    int squares;  /* 0: one scale for FP8_BLOCK elements of a row; 1: for a square of FP8_BLOCK rows
                   */
};

/* Enqueue the rounding of x, bf16 of any alignment, to codes and scales.  Element i of a row is
 * x[row * ld + i] where k_contiguous is 1, and x[i * ld + row] where it is 0. */
void cuda_fp8_round(struct device *d, const struct cuda_fp8 *to, const void *x, int64_t ld,
                    int k_contiguous);

/* Enqueue the conversion of codes and scales to bf16: `to` is [rows, k], aligned to 16 bytes, and k
 * a multiple of 8.  Every number is exact, except magnitudes above the largest bf16, which become
 * infinite; only the 8 largest finite bf16 numbers can have been rounded to such a magnitude. */
void cuda_fp8_widen(struct device *d, bf16 *to, const struct cuda_fp8 *x);

#ifdef __cplusplus
}
#endif

#endif
