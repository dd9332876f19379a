/* gemm_plain.c - matrix products without a library, where configure found none.
 *
 * Right and slow: for trying out, tests, and machines whose products are a GPU's.  For each panel
 * of b: lay it out dense as [k, n], then add its product with every row of a to c.  An element of
 * c is summed in the order of k by one thread, so the bits do not depend on their number.
 */
#include "device/cpu/gemm.h"
#include "device/cpu/work.h"

enum { PANEL_K = 128, PANEL_N = 512 };

static void start_rows(struct device *d, const struct gemm *g)
{
    if (g->addend == g->c)
        return;
#pragma omp parallel for num_threads(cpu_threads(d, g->m * g->n * 4))
    for (int64_t row = 0; row < g->m; row++) {
        float *c = (float *)g->c + row * g->ldc;
        if (g->addend)
            d->ops->copy(d, c, (const float *)g->addend + row * g->ldc, (size_t)g->n * sizeof *c);
        else
            d->ops->fill_zero(d, c, (size_t)g->n * sizeof *c);
    }
}

/* panel [k, n] = the part of b' from row l and column j on */
static void load_panel(struct device *d, const struct gemm *g, float *panel, int64_t l, int64_t j,
                       int64_t k, int64_t n)
{
    const float *b = g->b;
    int64_t down = g->trans_b ? 1 : g->ldb, across = g->trans_b ? g->ldb : 1;
#pragma omp parallel for num_threads(cpu_threads(d, k *n * 4))
    for (int64_t row = 0; row < k; row++)
        for (int64_t col = 0; col < n; col++)
            panel[row * n + col] = b[(l + row) * down + (j + col) * across];
}

/* c [n] += the k elements of a, `step` apart, times panel */
static void add_row(float *restrict c, const float *a, int64_t step, const float *restrict panel,
                    int64_t k, int64_t n)
{
    for (int64_t l = 0; l < k; l++) {
        float factor = a[l * step];
        const float *row = panel + l * n;
#pragma omp simd
        for (int64_t j = 0; j < n; j++)
            c[j] += factor * row[j];
    }
}

int gemm_library(struct device *d, const struct gemm *g, void *scratch, struct error *err)
{
    const float *a = g->a;
    int64_t down = g->trans_a ? 1 : g->lda, across = g->trans_a ? g->lda : 1;
    if (g->m == 0 || g->n == 0)
        return 0;
    if (g->dt != DTYPE_F32)
        return gemm_by_blocks(d, g, scratch, err);
    start_rows(d, g);
    for (int64_t l = 0; l < g->k; l += PANEL_K)
        for (int64_t j = 0; j < g->n; j += PANEL_N) {
            int64_t k = min_i64(PANEL_K, g->k - l), n = min_i64(PANEL_N, g->n - j);
            load_panel(d, g, scratch, l, j, k, n);
#pragma omp parallel for num_threads(cpu_threads(d, g->m *n *k))
            for (int64_t i = 0; i < g->m; i++)
                add_row((float *)g->c + i * g->ldc + j, a + i * down + l * across, across, scratch,
                        k, n);
        }
    return 0;
}

size_t gemm_library_scratch(struct device *d, const struct gemm *g)
{
    if (g->dt != DTYPE_F32)
        return gemm_by_blocks_scratch(d, g);
    return g->m && g->n && g->k ? PANEL_K * PANEL_N * sizeof(float) : 0;
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
    return "plain loops (slow)";
}
