/* gemm.h - what gemm.c, which multiplies, and gemm_tune.c, which times, share. */
#ifndef TRIREME_DEVICE_CUDA_GEMM_H
#define TRIREME_DEVICE_CUDA_GEMM_H

#include <cublasLt.h>

#include "device/cuda/fp8.h"
#include "device/product.h"

enum gemm_addend { GEMM_ADDEND_NONE, GEMM_ADDEND_SELF, GEMM_ADDEND_OTHER };

/* What makes two products the same; without padding, so that bytes compare.  Its members have the
 * order of product_shape_names. */
struct gemm_key {
    int64_t dt, dt_c, trans_a, trans_b, addend;
    int64_t m, n, k, lda, ldb, ldc;
    int64_t align_a, align_b, align_c, align_addend; /* bytes */
    int64_t fp8; /* enum gemm_fp8: then of the rounded operands, [m, k] and [n, k], k padded */
};

_Static_assert(sizeof(struct gemm_key) == PRODUCT_SHAPE * sizeof(int64_t), "product_shape_names");

struct gemm_product {
    struct gemm_key key;
    int plain; /* 1: the library has no algorithm, and another way is taken; all below is unused */
    cublasLtMatmulDesc_t op;
    cublasLtMatrixLayout_t a, b, c; /* of our a, b, c; the library's A is our b */
    cublasLtMatmulAlgo_t algo;
    size_t workspace_bytes;
    struct gemm_product *next; /* in its bucket */
};

/* A product as it was met, to be timed. */
struct gemm_noted {
    struct gemm g;
    void *scratch;
};

enum { GEMM_BUCKETS = 256 };

struct cuda_gemms {
    cublasLtHandle_t handle;
    int32_t sms;       /* multiprocessors that products are chosen and cut for; 0: all */
    int64_t wide_rows; /* cuda_gemm_set_wide_rows() */
    struct gemm_product *buckets[GEMM_BUCKETS];
    int noting; /* 1: products are noted, and not computed */
    struct gemm_noted *noted;
    int noted_count, noted_capacity;
};

/* What the library multiplies, and its workspace.  In fp8: a and b as they were rounded. */
struct gemm_operands {
    const void *a, *b;
    struct cuda_fp8 fp8_a, fp8_b;
    void *workspace;
};

struct gemm_key gemm_key_of(const struct gemm *g);

/* Set err to the shape and what cuBLASLt was asked to do; returns -1. */
int gemm_failed(cublasStatus_t status, const char *call, const struct gemm_key *key,
                struct error *err);

/* 0 where a call on a product of that key succeeded; else -1 with err set. */
static inline int gemm_checked(cublasStatus_t status, const char *call, const struct gemm_key *key,
                               struct error *err)
{
    return status == CUBLAS_STATUS_SUCCESS ? 0 : gemm_failed(status, call, key, err);
}

/* The same, of a call that is written out; err may be NULL. */
#define GEMM_CHECK(call, key, err) gemm_checked((call), #call, key, err)

/* Descriptors alone, without an algorithm: for gemm_product_free().  NULL with err set. */
struct gemm_product *gemm_product_describe(const struct cuda_gemms *s, const struct gemm_key *key,
                                           struct error *err);
void gemm_product_free(struct gemm_product *p); /* NULL allowed */

/* The library's suggestions for it, best first, `most` at most; p->plain where it has none.
 * Returns 0, or -1 with err set. */
int gemm_suggest(struct gemm_product *p, cublasLtHandle_t handle, int most,
                 cublasLtMatmulHeuristicResult_t *found, int *count, struct error *err);

/* Put p, which is from now on s's, in the place of that of its key. */
void gemm_put(struct cuda_gemms *s, struct gemm_product *p);

/* Where the operands of a product are; in fp8, enqueue what rounds them into the scratch. */
struct gemm_operands gemm_make_operands(struct device *d, const struct gemm *g, void *scratch);

/* Enqueue the product of its operands by its algorithm. */
int gemm_multiply(struct device *d, const struct gemm_product *p, const struct gemm *g,
                  const struct gemm_operands *of, struct error *err);

#endif
