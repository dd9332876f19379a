/* shape_check_private.h - what shape_check.c, shape_compare.c, shape_product.c and
 * shape_attention.c share. */
#ifndef TRIREME_DEVICE_CUDA_SHAPE_CHECK_PRIVATE_H
#define TRIREME_DEVICE_CUDA_SHAPE_CHECK_PRIVATE_H

#include "device/cuda/gemm.h"
#include "device/cuda/sdpa.h"
#include "device/shape_check.h"

/* Blocks of rows that are compared: the first ones, some in the middle, the last ones. */
enum { SHAPE_BLOCKS = 3 };

/* An attention that a library computed while shapes were noted, with its memory. */
struct shape_attention {
    struct attention a;
    enum device_pass pass;
    struct cuda_attention_memory at;
};

/* shape_product.c, shape_attention.c: compare one that was noted.  Return 0 with check's name, off,
 * and bound set; 1 where there is nothing to compare; or -1 with err set. */
int shape_product_check(struct device *d, const struct gemm_noted *n, struct shape_check *check,
                        struct error *err);
int shape_attention_check(struct device *d, const struct shape_attention *n,
                          struct shape_check *check, struct error *err);

/* Let another algorithm of the library compute a product; where it has no other, trireme's own
 * kernel, or in fp8 the library in bf16.  Returns one of enum shape_check_replaced, or -1 with err
 * set. */
int shape_product_replace(struct device *d, const struct gemm_key *key, struct error *err);

/* ---- shape_compare.c ---- */

/* Sums of squares of what is right and of the difference. */
struct shape_compare {
    double right, wrong;
};

/* Add `elems` elements from number `first` on. */
void shape_compare_add(struct shape_compare *sum, enum dtype dt, const void *got, const void *want,
                       int64_t first, int64_t elems);

/* The norm of the difference as a share of the right one's.  NaN where one of the numbers was, or
 * both were infinite. */
double shape_compare_share(const struct shape_compare *sum);

/* The larger one; NaN where one of them is. */
double shape_compare_larger(double a, double b);

/* The first row of a block of `rows` rows of `all`. */
int64_t shape_compare_start(int block, int64_t rows, int64_t all);

/* Copy `rows` rows of `width` elements, one after the other at `to` in the host's memory, from or
 * to rows that lie `stride` elements apart in the device's.  Return 0, or -1 with err set. */
int shape_compare_rows_down(struct device *d, void *to, const void *from, enum dtype dt,
                            int64_t rows, int64_t width, int64_t stride, struct error *err);
int shape_compare_rows_up(struct device *d, void *to, const void *from, enum dtype dt, int64_t rows,
                          int64_t width, int64_t stride, struct error *err);

/* Copy all blocks of `rows` rows of a matrix of `all` rows to the host, one after the other. */
int shape_compare_blocks_down(struct device *d, void *to, const void *from, enum dtype dt,
                              int64_t rows, int64_t all, int64_t width, int64_t stride,
                              struct error *err);

#endif
