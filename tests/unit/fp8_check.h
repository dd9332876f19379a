/* fp8_check.h - what the tests of products in fp8 on a GPU share: the GPU, and a reference of what
 * operands are rounded to, written from the definition and apart from base/fp8.h.
 */
#ifndef TRIREME_TESTS_UNIT_FP8_CHECK_H
#define TRIREME_TESTS_UNIT_FP8_CHECK_H

#include "ops_check.h"

struct gpu {
    struct device *d;
    struct mem mem;
};

/* Skips the test where there is none. */
struct gpu open_gpu(void);
void close_gpu(struct gpu *gpu);

/* Fail the test with err. */
void must(int failed, const struct error *err);

/* Memory of the GPU with a copy; off_gpu() copies it to `to` and frees it. */
void *on_gpu(struct gpu *gpu, const void *from, size_t bytes);
void off_gpu(struct gpu *gpu, void *to, size_t bytes, void *block);

/* For free(): all bits set, NaN in every format. */
void *poisoned(size_t bytes);

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
struct tensor tensor_of(const struct matrix *m, const struct lie *lie);

/* Run the tests, all skipped without a GPU; the exit status of the program. */
#define check_main(name, tests) check_group(name, tests, sizeof(tests) / sizeof(tests)[0])
int check_group(const char *name, const struct CMUnitTest *tests, size_t count);

#endif
