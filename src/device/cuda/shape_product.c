/* shape_product.c - compare a product by cuBLASLt with trireme's own kernel, and replace it;
 * contracts in shape_check_private.h.
 *
 * c and what is added hold random numbers before, so that a sum without its addend, or with it
 * twice, is seen: it is about 2.7 % of a sum of 4096 products, and 0.5 % of one of 131072.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "device/cuda/shape_check_private.h"

enum { PRODUCT_ROWS = 16 };
static const double fp32_bound = 1e-4, tensor_core_bound = 5e-4,
                    bound_of_term = 4e-9; /* of results in fp32 */
static const double fp8_bound = 4e-3;
static const double product_bounds[DTYPE_COUNT] = {[DTYPE_BF16] = 2e-3, [DTYPE_F16] = 1e-3};

/* The rows of g from `first` on. */
static struct gemm rows_of(const struct gemm *g, int64_t first, int64_t rows)
{
    struct gemm part = *g;
    const size_t in = dtype_bytes(g->dt), out = dtype_bytes(g->dt_c);
    part.m = rows;
    part.a = (const char *)g->a + (size_t)(first * (g->trans_a ? 1 : g->lda)) * in;
    part.c = (char *)g->c + (size_t)(first * g->ldc) * out;
    if (g->addend)
        part.addend = (const char *)g->addend + (size_t)(first * g->ldc) * out;
    return part;
}

/* A gemm_function. */
static int by_own_kernel(struct device *d, const struct gemm *g, void *scratch, struct error *err)
{
    cuda_gemm_plain(d, g);
    return 0;
}

/* Compute the blocks by the own kernel.  rows_before: of c, block after block; becomes the
 * result.  Blocks of few rows overlap. */
static int multiply_blocks(struct device *d, const struct gemm_noted *n, int64_t rows,
                           void *rows_before, struct error *err)
{
    const struct gemm *g = &n->g;
    for (int block = 0; block < SHAPE_BLOCKS; block++) {
        const int64_t first = shape_compare_start(block, rows, g->m);
        const struct gemm part = rows_of(g, first, rows);
        char *at = (char *)rows_before + (size_t)(block * rows * g->n) * dtype_bytes(g->dt_c);
        if (shape_compare_rows_up(d, part.c, at, g->dt_c, rows, g->n, g->ldc, err))
            return -1;
        if (g->fp8)
            gemm_multiply_widened(d, g, n->scratch, first, rows, by_own_kernel, NULL);
        else
            cuda_gemm_plain(d, &part);
        if (shape_compare_rows_down(d, at, part.c, g->dt_c, rows, g->n, g->ldc, err))
            return -1;
    }
    return 0;
}

static double product_bound(const struct gemm *g)
{
    if (g->fp8)
        return fp8_bound;
    if (g->dt_c != DTYPE_F32)
        return product_bounds[g->dt_c];
    return g->dt == DTYPE_F32 ? fp32_bound : fmax(tensor_core_bound, bound_of_term * (double)g->k);
}

/* Multiply by the library, in all of c.  Returns 0; 1 where it was not the library; 2 where the
 * library refuses the product; or -1 with err set. */
static int by_library(struct device *d, const struct gemm_noted *n, struct error *err)
{
    const struct gemm_key key = gemm_key_of(&n->g);
    int rc = cuda_gemm(d, &n->g, n->scratch, err);
    const struct gemm_product *p = gemm_find(cuda_state(d)->gemms, &key);
    if (rc && p && !device_check(d, NULL))
        return 2;
    return rc ? -1 : p && p->plain;
}

int shape_product_check(struct device *d, const struct gemm_noted *n, struct shape_check *check,
                        struct error *err)
{
    const struct gemm *g = &n->g;
    const int64_t rows = g->m < PRODUCT_ROWS ? g->m : PRODUCT_ROWS,
                  elems = SHAPE_BLOCKS * rows * g->n;
    struct shape_compare sum = {0};
    snprintf(check->name, sizeof check->name, "product %s [%lld,%lld] x [%lld,%lld] to %s",
             g->fp8 ? "fp8" : dtype_name(g->dt), (long long)g->m, (long long)g->k, (long long)g->k,
             (long long)g->n, dtype_name(g->dt_c));
    check->bound = product_bound(g);
    check->off = NAN; /* of what is refused */
    void *got = array_make((size_t)elems, dtype_bytes(g->dt_c));
    void *want = array_make((size_t)elems, dtype_bytes(g->dt_c));
    int rc =
        gemm_fill_operands(d, g, err) || gemm_fill_result(d, g, err) ||
                shape_compare_blocks_down(d, want, g->c, g->dt_c, rows, g->m, g->n, g->ldc, err)
            ? -1
            : by_library(d, n, err);
    if (!rc && (shape_compare_blocks_down(d, got, g->c, g->dt_c, rows, g->m, g->n, g->ldc, err) ||
                multiply_blocks(d, n, rows, want, err)))
        rc = -1;
    if (!rc) {
        shape_compare_add(&sum, g->dt_c, got, want, 0, elems);
        check->off = shape_compare_share(&sum);
    }
    free(got);
    free(want);
    return rc == 2 ? 0 : rc;
}

/* Give p the library's next suggestion after that of `before` (NULL: after its first), whose sums
 * are right by their settings; p->plain where there is none. */
static int take_next(const struct cuda_gemms *s, struct gemm_product *p,
                     const struct gemm_product *before, struct error *err)
{
    cublasLtMatmulHeuristicResult_t found[PRODUCT_TRIED] = {0};
    int count;
    p->suggestion = before ? before->suggestion + 1 : 1;
    if (gemm_suggest(p, s->handle, PRODUCT_TRIED, found, &count, err))
        return -1;
    while (p->suggestion < count && (found[p->suggestion].state != CUBLAS_STATUS_SUCCESS ||
                                     !gemm_has_right_sums(&p->key, &found[p->suggestion].algo)))
        p->suggestion++;
    p->plain |= p->suggestion >= count;
    if (!p->plain) {
        p->algo = found[p->suggestion].algo;
        p->workspace_bytes = found[p->suggestion].workspaceSize;
    }
    return 0;
}

int shape_product_replace(struct device *d, const struct gemm_key *key, struct error *err)
{
    struct cuda_gemms *s = cuda_state(d)->gemms;
    const struct gemm_product *before = gemm_find(s, key);
    struct gemm_product *p = gemm_product_describe(s, key, err);
    if (!p)
        return -1;
    if (take_next(s, p, before, err)) {
        gemm_product_free(p);
        return -1;
    }
    gemm_put(s, p);
    if (!p->plain)
        return SHAPE_BY_OTHER_ALGORITHM;
    return key->fp8 ? SHAPE_IN_BF16 : SHAPE_BY_OWN_KERNELS;
}
