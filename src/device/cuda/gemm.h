/* gemm.h - types and functions that gemm.c, which multiplies, and gemm_tune.c, which measures
 * algorithms, share. */
#ifndef TRIREME_DEVICE_CUDA_GEMM_H
#define TRIREME_DEVICE_CUDA_GEMM_H

#include <cublasLt.h>

#include "device/cuda/fp8.h"
#include "device/product.h"

/* c = a' b' alone; plus c itself (struct gemm's addend is c); or plus another matrix. */
enum gemm_addend { GEMM_ADDEND_NONE, GEMM_ADDEND_SELF, GEMM_ADDEND_OTHER };

/* The properties on which a product's algorithm depends: products with equal keys share one.
 * Without padding, so that memcmp() compares keys.  The members have the order of
 * product_shape_names. */
struct gemm_key {
    int64_t dt, dt_c, trans_a, trans_b, addend;
    int64_t m, n, k, lda, ldb, ldc;
    int64_t align_a, align_b, align_c, align_addend; /* bytes */
    int64_t fp8; /* enum gemm_fp8; if not 0, the key describes the rounded operands, [m, k] and
                    [n, k] with k padded */
};

_Static_assert(sizeof(struct gemm_key) == PRODUCT_SHAPE * sizeof(int64_t), "product_shape_names");

struct gemm_product {
    struct gemm_key key;
    int plain; /* 1: the library has no algorithm (gemm.c then multiplies otherwise), and the fields
                  below are unused */
    cublasLtMatmulDesc_t op;
    cublasLtMatrixLayout_t a, b, c; /* of our a, b, c; the library's A is our b */
    cublasLtMatmulAlgo_t algo;
    size_t workspace_bytes;
    int suggestion; /* which of the library's the algorithm is, from 0 on; 0 of measured ones, too
                     */
    struct gemm_product *next; /* in the bucket of a hash table */
};

/* A product that was requested while noting was on, to be measured later. */
struct gemm_noted {
    struct gemm g;
    void *scratch;
};

enum { GEMM_BUCKETS = 256 };

struct cuda_gemms {
    cublasLtHandle_t handle;
    int32_t sms;       /* multiprocessors that algorithms are chosen for; 0: all */
    int64_t wide_rows; /* of cuda_gemm_set_wide_rows(); 0: as planned */
    struct gemm_product *buckets[GEMM_BUCKETS];
    int noting; /* 1: products are noted, and not computed */
    struct gemm_noted *noted;
    int noted_count, noted_capacity;
};

/* Device addresses of the operands that the library multiplies, and of its workspace.  In fp8, a
 * and b are the codes of fp8_a and fp8_b. */
struct gemm_operands {
    const void *a, *b;
    struct cuda_fp8 fp8_a, fp8_b;
    void *workspace;
};

/* Return the key of a product. */
struct gemm_key gemm_key_of(const struct gemm *g);

/* Return 1 where an algorithm may split the sums of a product over thread blocks: where k is a
 * multiple of the largest block of k that an algorithm has.  Else some versions of cuBLASLt (12.8
 * and 13.1 on compute capabilities 9.0, 10.0 and 10.3) leave out the last k % block terms of every
 * sum, with success as the status. */
int gemm_may_split(const struct gemm_key *key);

/* Set err to the shape and what cuBLASLt was asked to do; returns -1. */
int gemm_failed(cublasStatus_t status, const char *call, const struct gemm_key *key,
                struct error *err);

/* Return 0 where a call for a product of this key succeeded, else -1 with err set. */
static inline int gemm_checked(cublasStatus_t status, const char *call, const struct gemm_key *key,
                               struct error *err)
{
    return status == CUBLAS_STATUS_SUCCESS ? 0 : gemm_failed(status, call, key, err);
}

/* Make a call of cuBLASLt and check its status as gemm_checked() does; err may be NULL. */
#define GEMM_CHECK(call, key, err) gemm_checked((call), #call, key, err)

/* Return the product of this key, or NULL where it was not asked for yet. */
const struct gemm_product *gemm_find(const struct cuda_gemms *s, const struct gemm_key *key);

/* Make a product's descriptors, without choosing an algorithm.  Returns the product, for
 * gemm_product_free() or gemm_put(), or NULL with err set. */
struct gemm_product *gemm_product_describe(const struct cuda_gemms *s, const struct gemm_key *key,
                                           struct error *err);
void gemm_product_free(struct gemm_product *p); /* NULL allowed */

/* Ask the library for up to `most` algorithms for p and store them in found, best first, and their
 * number in *count.  Sets p->plain where the library has none.  Returns 0, or -1 with err set. */
int gemm_suggest(struct gemm_product *p, cublasLtHandle_t handle, int most,
                 cublasLtMatmulHeuristicResult_t *found, int *count, struct error *err);

/* Return 1 where one thread block computes each sum whole, or where partial sums are added in order
 * and a product of this key may have them. */
int gemm_has_right_sums(const struct gemm_key *key, const cublasLtMatmulAlgo_t *algo);

/* Put p into the table of s, which owns it from now on, and free the product of the same key that
 * was there. */
void gemm_put(struct cuda_gemms *s, struct gemm_product *p);

/* Fill device memory with `have` bytes of host memory, over and over; both operands of a product
 * with random numbers from -1 to 1, which depend on each other in no sum of up to some 1.3e5 terms;
 * c and what is added with such numbers.  Return 0, or -1 with err set. */
int gemm_fill(struct device *d, void *to, size_t bytes, const void *pattern, size_t have,
              struct error *err);
int gemm_fill_operands(struct device *d, const struct gemm *g, struct error *err);
int gemm_fill_result(struct device *d, const struct gemm *g, struct error *err);

/* Return the addresses of a product's operands and workspace.  In fp8, also enqueue the kernels
 * that round the operands into scratch (sizes.h: cuda_gemm_scratch() bytes). */
struct gemm_operands gemm_make_operands(struct device *d, const struct gemm *g, void *scratch);

/* Enqueue the product g of the operands `of` by p's algorithm.  Returns 0, or -1 with err set. */
int gemm_multiply(struct device *d, const struct gemm_product *p, const struct gemm *g,
                  const struct gemm_operands *of, struct error *err);

/* gemm_fp8.c: enqueue `rows` rows of c, from `first` on, of a product in fp8 in bf16: multiply() is
 * called for products of the rounded operands, some rows of both at a time.  scratch:
 * cuda_gemm_scratch() bytes.  Returns 0, or -1 with err set by multiply(). */
typedef int gemm_function(struct device *d, const struct gemm *g, void *scratch, struct error *err);
int gemm_multiply_widened(struct device *d, const struct gemm *g, void *scratch, int64_t first,
                          int64_t rows, gemm_function *multiply, struct error *err);

#endif
