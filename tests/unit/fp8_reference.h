/* fp8_reference.h - what operands of products are rounded to in fp8, and their products: a
 * reference for the tests of CPUs and GPUs, written from the definition and apart from base/fp8.h.
 */
#ifndef TRIREME_TESTS_UNIT_FP8_REFERENCE_H
#define TRIREME_TESTS_UNIT_FP8_REFERENCE_H

#include "ops_check.h"

/* What 8 bits of E4M3 stand for; 0x7f and 0xff: NaN. */
double reference_value(int code);

/* The nearest of all codes to a number of bf16, of two that are as near the even one. */
int reference_code(double x);

/* An operand of a product as a matrix [rows, k], and how it is rounded. */
struct matrix {
    int64_t rows, k;
    int squares;
    double *x;     /* numbers of bf16; when rounded, what codes and scales stand for */
    double *scale; /* of each element */
    int *code;
};

struct matrix make_matrix(int64_t rows, int64_t k, int squares);
void free_matrix(struct matrix *m);
void round_matrix(struct matrix *m);

/* Normal deviates of another size in each row and block, so that no two scales that might be taken
 * for one another are the same. */
void fill_matrix(struct matrix *m, uint64_t seed);

/* How it lies in memory: [rows, ld] or [k, ld], behind so many elements. */
struct lie {
    int k_contiguous;
    int64_t padding, offset;
};

int64_t ld_of(const struct matrix *m, const struct lie *lie);
int64_t place_of(const struct matrix *m, const struct lie *lie, int64_t row, int64_t k);
struct tensor tensor_of(const struct matrix *m, const struct lie *lie);

/* Is c, dense, the product of a and b, which are rounded, and an addend (NULL: none)?  Off by at
 * most so much of its size and of the root of its terms' squares; with an addend in 16 bits of the
 * product's size too, which cuBLASLt may round before it adds. */
void check_product(const struct gemm *g, const struct matrix *a, const struct matrix *b,
                   const struct tensor *addend, const struct tensor *c, double tolerance);

#endif
