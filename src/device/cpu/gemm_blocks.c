/* gemm_blocks.c - 16-bit products made of fp32 ones, for libraries or chips without their own.
 *
 * For each block of c: convert the blocks of a and b that it needs to dense fp32, multiply
 * and sum onto the addend in fp32, and round once.  Blocks are wide enough that the
 * conversions (some B^2 elements) vanish beside the product (B^3).
 */
#include "device/cpu/gemm.h"
#include "device/cpu/work.h"

enum { BLOCK_M = 512, BLOCK_N = 512, BLOCK_K = 1024 };

/* The fp32 product of a block that is m x n x k, over the buffers in scratch. */
static struct gemm block_product(const struct gemm *g, int64_t m, int64_t n, int64_t k,
                                 float *scratch)
{
    float *a = scratch, *b = a + BLOCK_M * BLOCK_K, *c = b + BLOCK_K * BLOCK_N;
    return (struct gemm){
        .dt = DTYPE_F32,
        .dt_c = DTYPE_F32,
        .trans_a = g->trans_a,
        .trans_b = g->trans_b,
        .m = m,
        .n = n,
        .k = k,
        .lda = g->trans_a ? m : k,
        .ldb = g->trans_b ? k : n,
        .ldc = n,
        .a = a,
        .b = b,
        .c = c,
    };
}

enum { BUFFERS = BLOCK_M * BLOCK_K + BLOCK_K * BLOCK_N + BLOCK_M * BLOCK_N };

/* to [rows, cols] dense fp32 = from [rows, cols] of row stride ld, from element first */
static void to_f32(struct device *d, const void *to, enum dtype dt, const void *from, int64_t first,
                   int64_t ld, int64_t rows, int64_t cols)
{
    size_t size = dtype_bytes(dt);
#pragma omp parallel for num_threads(cpu_threads(d, rows *cols * 4))
    for (int64_t row = 0; row < rows; row++)
        d->ops->cast(d, DTYPE_F32, (float *)to + row * cols, dt,
                     (const char *)from + (size_t)(first + row * ld) * size, cols);
}

static int sum_block(struct device *d, const struct gemm *g, int64_t i, int64_t j, int64_t m,
                     int64_t n, float *scratch, struct error *err)
{
    if (g->addend)
        to_f32(d, block_product(g, m, n, 0, scratch).c, g->dt_c, g->addend, i * g->ldc + j, g->ldc,
               m, n);
    for (int64_t l = 0; l < g->k; l += BLOCK_K) {
        int64_t k = min_i64(BLOCK_K, g->k - l);
        struct gemm p = block_product(g, m, n, k, scratch);
        if (g->trans_a)
            to_f32(d, p.a, g->dt, g->a, l * g->lda + i, g->lda, k, m);
        else
            to_f32(d, p.a, g->dt, g->a, i * g->lda + l, g->lda, m, k);
        if (g->trans_b)
            to_f32(d, p.b, g->dt, g->b, j * g->ldb + l, g->ldb, n, k);
        else
            to_f32(d, p.b, g->dt, g->b, l * g->ldb + j, g->ldb, k, n);
        p.addend = l > 0 || g->addend ? p.c : NULL;
        if (d->ops->gemm(d, &p, scratch + BUFFERS, err))
            return -1;
    }
    return 0;
}

int gemm_by_blocks(struct device *d, const struct gemm *g, void *scratch, struct error *err)
{
    for (int64_t i = 0; i < g->m; i += BLOCK_M)
        for (int64_t j = 0; j < g->n; j += BLOCK_N) {
            int64_t m = min_i64(BLOCK_M, g->m - i), n = min_i64(BLOCK_N, g->n - j);
            if (sum_block(d, g, i, j, m, n, scratch, err))
                return -1;
            size_t size = dtype_bytes(g->dt_c);
            const float *sum = block_product(g, m, n, 0, scratch).c;
#pragma omp parallel for num_threads(cpu_threads(d, m *n * 4))
            for (int64_t row = 0; row < m; row++)
                d->ops->cast(d, g->dt_c, (char *)g->c + (size_t)((i + row) * g->ldc + j) * size,
                             DTYPE_F32, sum + row * n, n);
        }
    return 0;
}

/* Scratch for the largest of the library's products: whole blocks, and what is left at the edges.
 */
size_t gemm_by_blocks_scratch(struct device *d, const struct gemm *g)
{
    const int64_t ms[] = {min_i64(BLOCK_M, g->m), g->m % BLOCK_M};
    const int64_t ns[] = {min_i64(BLOCK_N, g->n), g->n % BLOCK_N};
    const int64_t ks[] = {min_i64(BLOCK_K, g->k), g->k % BLOCK_K};
    size_t most = 0;
    for (int edge = 0; edge < 8; edge++) {
        int64_t m = ms[edge & 1], n = ns[edge >> 1 & 1], k = ks[edge >> 2];
        if (!m || !n || !k)
            continue;
        struct gemm p = block_product(g, m, n, k, NULL);
        size_t bytes = d->ops->gemm_scratch(d, &p);
        most = max_bytes(most, bytes);
    }
    return BUFFERS * sizeof(float) + most;
}
