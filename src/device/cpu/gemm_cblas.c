/* gemm_cblas.c - matrix products by a CBLAS, where there is no oneDNN.
 *
 * fp32 products are the library's; 16-bit ones are made of them by gemm_blocks.c.  The library
 * chooses its number of threads itself (OPENBLAS_NUM_THREADS and the like).
 */
#include <cblas.h>
#include <limits.h>

#include "device/cpu/gemm.h"
#include "device/cpu/work.h"

static int fits(const struct gemm *g)
{
    const int64_t sizes[] = {g->m, g->n, g->k, g->lda, g->ldb, g->ldc};
    for (int i = 0; i < 6; i++)
        if (sizes[i] > INT_MAX)
            return 0;
    return 1;
}

static void copy_addend(struct device *d, const struct gemm *g)
{
#pragma omp parallel for num_threads(cpu_threads(d, g->m * g->n * 4))
    for (int64_t row = 0; row < g->m; row++)
        d->ops->copy(d, (float *)g->c + row * g->ldc, (const float *)g->addend + row * g->ldc,
                     (size_t)g->n * sizeof(float));
}

int gemm_library(struct device *d, const struct gemm *g, void *scratch, struct error *err)
{
    if (g->m == 0 || g->n == 0)
        return 0;
    if (g->dt != DTYPE_F32)
        return gemm_by_blocks(d, g, scratch, err);
    if (!fits(g))
        return error_set(err, "a matrix of more than %d rows or columns: use oneDNN", INT_MAX);
    if (g->addend && g->addend != g->c)
        copy_addend(d, g);
    cblas_sgemm(CblasRowMajor, g->trans_a ? CblasTrans : CblasNoTrans,
                g->trans_b ? CblasTrans : CblasNoTrans, (int)g->m, (int)g->n, (int)g->k, 1.0f, g->a,
                (int)g->lda, g->b, (int)g->ldb, g->addend ? 1.0f : 0.0f, g->c, (int)g->ldc);
    return 0;
}

size_t gemm_library_scratch(struct device *d, const struct gemm *g)
{
    return g->dt != DTYPE_F32 ? gemm_by_blocks_scratch(d, g) : 0;
}

int gemm_open(struct device *d, struct error *err)
{
    return 0;
}

void gemm_close(struct device *d)
{
}

const char *device_gemm_library(void)
{
    return "CBLAS";
}
