/* fp8_reference.h - rounding operands of products to fp8, and checking products: a reference for
 * the tests of CPUs and GPUs, written from the definition and apart from base/fp8.h. */
#ifndef TRIREME_TESTS_UNIT_FP8_REFERENCE_H
#define TRIREME_TESTS_UNIT_FP8_REFERENCE_H

#include "ops_check.h"

/* Return the number that a code, 8 bits of E4M3, stands for; NaN for 0x7f and 0xff. */
double reference_value(int code);

/* Return the code nearest to a number of bf16; of two that are equally near the even one. */
int reference_code(double x);

/* An operand of a product as a matrix [rows, k], and how it is rounded. */
struct matrix {
    int64_t rows, k;
    int squares;   /* 1: a scale for 128 rows and 128 of k; 0: for a row and 128 of k */
    double *x;     /* [rows, k] numbers of bf16; after round_matrix() those of codes and scales */
    double *scale; /* [rows, k] of each element */
    int *code;     /* [rows, k] of each element */
};

struct matrix make_matrix(int64_t rows, int64_t k, int squares);
void free_matrix(struct matrix *m);
void round_matrix(struct matrix *m);

/* Fill a matrix with normal deviates whose size differs from row to row and from block to block, so
 * that a scale taken from the wrong place is found. */
void fill_matrix(struct matrix *m, uint64_t seed);

/* How a matrix lies in memory. */
struct lie {
    int k_contiguous; /* 1: [rows, ld]; 0: [k, ld] */
    int64_t padding;  /* elements behind each row or column, which ld includes */
    int64_t offset;   /* elements before the first one */
};

int64_t ld_of(const struct matrix *m, const struct lie *lie);
int64_t place_of(const struct matrix *m, const struct lie *lie, int64_t row, int64_t k);
struct tensor tensor_of(const struct matrix *m, const struct lie *lie);

/* Check that c, dense, is the product of a and b, which are rounded, plus an addend (NULL: none).
 * The error may be tolerance times its size and the root of the sum of its terms' squares; with an
 * addend in 16 bits also times the product's size, as cuBLASLt may round the product before it
 * adds. */
void check_product(const struct gemm *g, const struct matrix *a, const struct matrix *b,
                   const struct tensor *addend, const struct tensor *c, double tolerance);

#endif
