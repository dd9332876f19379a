/* fp8.c - operands of products rounded to fp8 (base/fp8.h), in bf16.
 *
 * A rounded number is a bf16 again, so the product of the rounded operands is an ordinary one.  A
 * matrix is rounded in pieces of FP8_BLOCK columns by the rows of a block, 1 or FP8_BLOCK:
 *
 *   1. the largest magnitude of each column of the piece
 *   2. where a block is as wide as the piece, the largest of these, for all columns
 *   3. a scale for each column, and the rounding
 *
 * Step 2 is left out where k lies down the rows: then each column is a block of its own.
 */
#include "base/fp8.h"
#include "base/round.h"
#include "device/cpu/fp8.h"
#include "device/cpu/simd.h"

/* An operand in memory, and the rows and columns of its blocks: 1 or FP8_BLOCK. */
struct fp8_operand {
    const bf16 *base;
    int64_t ld, rows, columns;
    int64_t block_rows, block_columns;
};

static struct fp8_operand operand_a(const struct gemm *g)
{
    if (g->trans_a)
        return (struct fp8_operand){g->a, g->lda, g->k, g->m, FP8_BLOCK, 1};
    return (struct fp8_operand){g->a, g->lda, g->m, g->k, 1, FP8_BLOCK};
}

static struct fp8_operand operand_b(const struct gemm *g)
{
    int is_square = g->fp8 == GEMM_FP8_SQUARES_OF_B;
    if (g->trans_b)
        return (struct fp8_operand){g->b, g->ldb, g->n, g->k, is_square ? FP8_BLOCK : 1, FP8_BLOCK};
    return (struct fp8_operand){g->b, g->ldb, g->k, g->n, FP8_BLOCK, is_square ? FP8_BLOCK : 1};
}

/* Find the bits of the largest magnitude of each column of a block or, if is_wide, set all of them
 * to that of the whole block. */
SIMD_INLINE void find_largest(uint32_t largest[FP8_BLOCK], const bf16 *from, int64_t ld,
                              int64_t rows, int64_t columns, int is_wide)
{
    uint32_t all = 0;
    memset(largest, 0, FP8_BLOCK * sizeof *largest);
    for (int64_t r = 0; r < rows; r++)
#pragma omp simd
        for (int64_t c = 0; c < columns; c++) {
            uint32_t bits = from[r * ld + c] & 0x7fffu;
            largest[c] = bits > largest[c] ? bits : largest[c];
        }
    for (int64_t c = 0; c < columns && is_wide; c++)
        all = largest[c] > all ? largest[c] : all;
    for (int64_t c = 0; c < columns && is_wide; c++)
        largest[c] = all;
}

/* Round a block (or the columns of it that are blocks of their own) into `to`, whose rows are as
 * long as the operand's. */
SIMD_INLINE void round_block(bf16 *to, const bf16 *from, const struct fp8_operand *o, int64_t rows,
                             int64_t columns)
{
    uint32_t largest[FP8_BLOCK];
    float scale[FP8_BLOCK], inverse[FP8_BLOCK];
    find_largest(largest, from, o->ld, rows, columns, o->block_columns > 1);
    for (int64_t c = 0; c < columns; c++) {
        scale[c] = fp8_scale(largest[c]);
        inverse[c] = fp8_inverse(largest[c]);
    }
    for (int64_t r = 0; r < rows; r++)
#pragma omp simd
        for (int64_t c = 0; c < columns; c++) {
            float x = fp8_of_bits((uint32_t)from[r * o->ld + c] << 16);
            to[r * o->columns + c] = (bf16)(fp8_bits(fp8_round(x * inverse[c]) * scale[c]) >> 16);
        }
}

/* Round an operand into to [rows, columns], dense. */
static void round_operand(struct device *d, bf16 *to, const struct fp8_operand *o)
{
    int64_t across = ceil_div(o->columns, FP8_BLOCK), down = ceil_div(o->rows, o->block_rows);
#pragma omp parallel for num_threads(cpu_threads(d, o->rows * o->columns * 4))
    for (int64_t i = 0; i < across * down; i++) {
        int64_t row = i / across * o->block_rows, column = i % across * FP8_BLOCK;
        round_block(to + row * o->columns + column, o->base + row * o->ld + column, o,
                    min_i64(o->block_rows, o->rows - row), min_i64(FP8_BLOCK, o->columns - column));
    }
}

static size_t operand_bytes(const struct fp8_operand *o)
{
    return round_up_bytes((size_t)(o->rows * o->columns) * sizeof(bf16), 64);
}

struct gemm CPU(gemm_rounded)(struct device *d, const struct gemm *g, void *scratch)
{
    const struct fp8_operand a = operand_a(g), b = operand_b(g);
    struct gemm p = *g;
    p.fp8 = GEMM_FP8_NONE;
    p.lda = a.columns;
    p.ldb = b.columns;
    if (!scratch)
        return p;
    p.a = scratch;
    p.b = (char *)scratch + operand_bytes(&a);
    round_operand(d, scratch, &a);
    round_operand(d, (bf16 *)((char *)scratch + operand_bytes(&a)), &b);
    return p;
}

size_t CPU(gemm_rounded_bytes)(const struct gemm *g)
{
    const struct fp8_operand a = operand_a(g), b = operand_b(g);
    return operand_bytes(&a) + operand_bytes(&b);
}
