/* gemm_fp8.c - the operands of products in fp8, and such products without the library's: the
 * rounded operands are multiplied as the bf16 numbers that the codes stand for, which bf16 holds
 * exactly.
 *
 *   a, b in bf16 -> codes and scales -> fp8 by the library (gemm.c) -> c
 *                                    -> bf16, dense -> cuda_gemm() of bf16 -> c
 *                                                   -> own kernels, some rows of c (shape_check.c)
 *
 * The scratch holds the bf16 numbers of some rows of a and some of b' at a time (sizes.h).
 */
#include "device/cuda/gemm.h"

/* Return a rounded operand whose codes and scales are at these offsets of the scratch. */
static struct cuda_fp8 fp8_operand(char *start, size_t codes, size_t scales, int64_t rows,
                                   int64_t k, int squares)
{
    const int64_t blocks = ceil_div(k, FP8_BLOCK);
    return (struct cuda_fp8){
        .code = (uint8_t *)start + codes,
        .scale = (float *)(start + scales),
        .rows = rows,
        .k = k,
        .padded = blocks * FP8_BLOCK,
        .step = squares ? round_up(blocks, CUDA_FP8_STEP) : rows,
        .squares = squares,
    };
}

struct gemm_operands gemm_make_operands(struct device *d, const struct gemm *g, void *scratch)
{
    struct gemm_operands of = {.a = g->a, .b = g->b};
    char *start = (char *)round_up_bytes((size_t)scratch, CUDA_WORKSPACE_ALIGN);
    of.workspace = start;
    if (!g->fp8)
        return of;
    const struct cuda_fp8_places at = cuda_fp8_places_of(g);
    of.fp8_a = fp8_operand(start, at.a, at.a_scales, g->m, g->k, 0);
    of.fp8_b = fp8_operand(start, at.b, at.b_scales, g->n, g->k, g->fp8 == GEMM_FP8_SQUARES_OF_B);
    of.a = of.fp8_a.code;
    of.b = of.fp8_b.code;
    of.workspace = start + at.workspace;
    cuda_fp8_round(d, &of.fp8_a, g->a, g->lda, !g->trans_a);
    cuda_fp8_round(d, &of.fp8_b, g->b, g->ldb, g->trans_b);
    return of;
}

void cuda_gemm_set_wide_rows(struct device *d, int64_t rows)
{
    cuda_state(d)->gemms->wide_rows = rows;
}

/* Return how many rows of an operand are widened to bf16 at a time. */
static int64_t wide_rows(const struct device *d, int64_t rows, int64_t k)
{
    const int64_t planned = cuda_fp8_wide_rows(rows, k), asked = cuda_state(d)->gemms->wide_rows;
    return asked ? min_i64(planned, asked) : planned;
}

/* Return up to `count` rows of an operand from `first` on; of one with squares, a multiple of
 * FP8_BLOCK. */
static struct cuda_fp8 rows_of(const struct cuda_fp8 *x, int64_t first, int64_t count)
{
    struct cuda_fp8 part = *x;
    part.code += first * x->padded;
    part.scale += x->squares ? first / FP8_BLOCK * x->step : first;
    part.rows = min_i64(count, x->rows - first);
    return part;
}

/* Return the address of an element of c or of the addend; NULL where c is NULL. */
static void *from_place(const struct gemm *g, const void *c, int64_t row, int64_t column)
{
    return c ? (char *)c + (size_t)(row * g->ldc + column) * dtype_bytes(g->dt_c) : NULL;
}

int gemm_multiply_widened(struct device *d, const struct gemm *g, void *scratch, int64_t first,
                          int64_t count, gemm_function *multiply, struct error *err)
{
    const struct cuda_fp8_places at = cuda_fp8_places_of(g);
    const struct gemm_operands of = gemm_make_operands(d, g, scratch);
    char *start = (char *)of.workspace - at.workspace;
    bf16 *a = (bf16 *)(start + at.wide_a), *b = (bf16 *)(start + at.wide_b);
    struct gemm wide = *g;
    const int64_t rows = min_i64(wide_rows(d, g->m, g->k), count),
                  columns = wide_rows(d, g->n, g->k), end = first + count;
    wide.fp8 = GEMM_FP8_NONE;
    wide.trans_a = 0;
    wide.trans_b = 1;
    wide.a = a;
    wide.b = b;
    wide.lda = wide.ldb = g->k;
    for (int64_t column = 0; column < g->n; column += columns) {
        const struct cuda_fp8 of_b = rows_of(&of.fp8_b, column, columns);
        cuda_fp8_widen(d, b, &of_b);
        for (int64_t row = first; row < end; row += rows) {
            const struct cuda_fp8 of_a = rows_of(&of.fp8_a, row, min_i64(rows, end - row));
            if (rows < count || column == 0)
                cuda_fp8_widen(d, a, &of_a);
            wide.m = of_a.rows;
            wide.n = of_b.rows;
            wide.c = from_place(g, g->c, row, column);
            wide.addend = from_place(g, g->addend, row, column);
            if (multiply(d, &wide, of.workspace, err))
                return -1;
        }
    }
    return 0;
}
