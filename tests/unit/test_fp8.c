/* test_fp8.c - rounding to fp8 in blocks, and products of what is rounded so, against enumeration:
 * the nearest of all 256 codes, the least power of two that fits. */
#include "ops_check.h"

#include "base/fp8.h"
#include "base/philox.h"
#include "base/round.h"

/* ---- numbers ---- */

/* By the definition of the format. */
static double value_of(int code)
{
    int exponent = code >> 3 & 15, mantissa = code & 7;
    double size = exponent ? ldexp(8 + mantissa, exponent - 7 - 3) : ldexp(mantissa, -9);
    return code & 0x80 ? -size : size;
}

static int is_nan(int code)
{
    return (code & 0x7f) == 0x7f;
}

/* The nearest, of two the one whose last bit is 0. */
static double nearest(double x)
{
    int best = 0;
    for (int code = 0; code < 256; code++) {
        double off = fabs(value_of(code) - x), least = fabs(value_of(best) - x);
        if (!is_nan(code) && (off < least || (off == least && !(code & 1))))
            best = code;
    }
    return value_of(best);
}

static void codes_are_what_the_format_says(void **state)
{
    for (int code = 0; code < 256; code++) {
        float value = fp8_value((uint8_t)code);
        if (is_nan(code)) {
            assert_true(isnan(value));
            continue;
        }
        assert_true(value == value_of(code));
        assert_int_equal(fp8_code(value), code);
    }
    assert_int_equal(fp8_code(NAN) & 0x7f, 0x7f);
}

static void every_number_goes_to_the_nearest(void **state)
{
    int count = 0;
    for (int bits = 0; bits < 0x10000; bits++) {
        float x = bf16_to_f32((bf16)bits);
        if (!(fabsf(x) <= 448))
            continue;
        count++;
        if (fp8_round(x) != nearest(x))
            fail_msg("%g: %g, not %g", x, fp8_round(x), nearest(x));
    }
    assert_true(count > 30000);
    assert_true(isnan(fp8_round(NAN)));
}

static void scales_are_the_least_that_fit(void **state)
{
    for (uint32_t largest = 1; largest < 0x7f80; largest++) {
        double x = bf16_to_f32((bf16)largest), scale = fp8_scale(largest);
        assert_true(scale * fp8_inverse(largest) == 1);
        assert_true(x <= 448 * scale);
        assert_true(scale == ldexp(1, FP8_LEAST_EXPONENT) || x > 448 * scale / 2);
        /* what it stands for is a bf16 */
        float stands = (float)(fp8_round((float)(x / scale)) * scale);
        assert_true(isinf(stands) || bf16_to_f32(f32_to_bf16(stands)) == stands);
    }
    assert_true(fp8_scale(0) == 1);
    assert_true(isnan(fp8_scale(0x7f80)) && isnan(fp8_inverse(0x7fc0)));
}

/* ---- operands ---- */

/* A matrix of bf16 in memory, and the rows and columns of its blocks. */
struct matrix {
    struct tensor t;
    int64_t rows, columns, ld, block_rows, block_columns;
};

static double largest_of(const struct matrix *m, int64_t row, int64_t column)
{
    double largest = 0;
    for (int64_t r = row; r < min_i64(row + m->block_rows, m->rows); r++)
        for (int64_t c = column; c < min_i64(column + m->block_columns, m->columns); c++) {
            double x = fabs(tensor_get(&m->t, r * m->ld + c));
            largest = x > largest ? x : largest;
        }
    return largest;
}

/* nearest() of a number of bf16, remembered. */
static double nearest_again(double x)
{
    static double kept[0x10000];
    static char is_kept[0x10000];
    bf16 bits = f32_to_bf16((float)x);
    if (!is_kept[bits])
        kept[bits] = nearest(x);
    is_kept[bits] = 1;
    return kept[bits];
}

/* What the elements of a block stand for; element (row, column) to row * by_row + column *
 * by_column of all. */
static void block_stands_for(const struct matrix *m, int64_t row, int64_t column, double *all,
                             int64_t by_row, int64_t by_column)
{
    double largest = largest_of(m, row, column), scale = ldexp(1, -40);
    while (largest > 448 * scale)
        scale *= 2;
    for (int64_t r = row; r < min_i64(row + m->block_rows, m->rows); r++)
        for (int64_t c = column; c < min_i64(column + m->block_columns, m->columns); c++)
            all[r * by_row + c * by_column] =
                nearest_again(tensor_get(&m->t, r * m->ld + c) / scale) * scale;
}

enum { AHEAD = 5 };

/* A product in fp8: its operands, of which rows begin AHEAD elements apart more than they need. */
struct product {
    struct gemm g;
    struct matrix a, b;
    struct tensor c, addend;
};

static struct matrix matrix_of(int trans, int64_t rows, int64_t k, int is_square, uint64_t seed)
{
    int across = is_square ? FP8_BLOCK : 1;
    struct matrix m = trans ? (struct matrix){.rows = k, .columns = rows, .block_rows = FP8_BLOCK}
                            : (struct matrix){.rows = rows, .columns = k, .block_rows = across};
    m.block_columns = trans ? across : FP8_BLOCK;
    m.ld = m.columns + AHEAD;
    m.t = tensor_random(DTYPE_BF16, m.rows * m.ld, seed, 1);
    for (int64_t i = 0; i < m.t.elems; i++) /* blocks of several sizes */
        tensor_set(&m.t, i, tensor_get(&m.t, i) * ldexp(1, (int)(i / 700 % 9) - 4));
    return m;
}

/* kind: y, dx or dw of a linear layer, as op_linear.c has them. */
enum kind { Y, DX, DW, KINDS };

static struct product product_of(enum kind kind, int64_t m, int64_t n, int64_t k, enum dtype dt_c)
{
    struct product p = {.g = {.dt = DTYPE_BF16,
                              .dt_c = dt_c,
                              .trans_a = kind == DW,
                              .trans_b = kind == Y,
                              .m = m,
                              .n = n,
                              .k = k,
                              .ldc = n,
                              .fp8 = kind == DW ? GEMM_FP8_VECTORS : GEMM_FP8_SQUARES_OF_B}};
    p.a = matrix_of(p.g.trans_a, m, k, 0, 1);
    p.b = matrix_of(!p.g.trans_b, n, k, kind != DW, 2);
    p.c = tensor_poisoned(dt_c, m * n);
    p.addend = tensor_random(dt_c, m * n, 3, 1);
    p.g.lda = p.a.ld;
    p.g.ldb = p.b.ld;
    p.g.a = p.a.t.data;
    p.g.b = p.b.t.data;
    p.g.c = p.c.data;
    return p;
}

static void free_product(struct product *p)
{
    tensor_free(&p->a.t);
    tensor_free(&p->b.t);
    tensor_free(&p->c);
    tensor_free(&p->addend);
}

static void multiply(struct device *d, const struct product *p)
{
    struct error err = {0};
    int64_t floats = (int64_t)(d->ops->gemm_scratch(d, &p->g) + 3) / 4;
    struct tensor scratch = tensor_poisoned(DTYPE_F32, floats);
    if (d->ops->gemm(d, &p->g, scratch.data, &err))
        fail_msg("%s", err.text);
    tensor_free(&scratch);
}

/* What an operand stands for, [rows of a' or columns of b'][k]. */
static double *all_of(const struct matrix *m, int trans, int64_t k)
{
    double *all = calloc((size_t)(m->rows * m->columns), sizeof *all);
    for (int64_t r = 0; r < m->rows; r += m->block_rows)
        for (int64_t c = 0; c < m->columns; c += m->block_columns)
            block_stands_for(m, r, c, all, trans ? 1 : k, trans ? k : 1);
    return all;
}

static void check_product(const struct product *p)
{
    const struct gemm *g = &p->g;
    double *a = all_of(&p->a, g->trans_a, g->k), *b = all_of(&p->b, !g->trans_b, g->k);
    double tolerance = tolerance_of(g->dt_c);
    for (int64_t i = 0; i < g->m; i++)
        for (int64_t j = 0; j < g->n; j++) {
            double want = g->addend ? tensor_get(&p->addend, i * g->n + j) : 0, size = 0;
            for (int64_t l = 0; l < g->k; l++) {
                double term = a[i * g->k + l] * b[j * g->k + l];
                want += term;
                size += term * term;
            }
            double got = tensor_get(&p->c, i * g->n + j);
            if (!(fabs(got - want) <= tolerance * (fabs(want) + sqrt(size))))
                fail_msg("c[%lld,%lld] of %lldx%lldx%lld trans %d%d: got %.9g, want %.9g",
                         (long long)i, (long long)j, (long long)g->m, (long long)g->n,
                         (long long)g->k, g->trans_a, g->trans_b, got, want);
        }
    free(a);
    free(b);
}

/* One block, several, and parts of blocks; products of a level's own kernels and of the library. */
static const int64_t sizes[][3] = {{1, 1, 1},      {3, 5, 7},      {16, 32, 128}, {17, 129, 127},
                                   {130, 40, 300}, {64, 144, 256}, {400, 96, 272}};

enum { SIZES = sizeof sizes / sizeof sizes[0] };

static uint64_t multiply_all(struct device *d, enum dtype dt_c)
{
    uint64_t hash = 0;
    for (int i = 0; i < SIZES * KINDS * 2; i++) {
        const int64_t *s = sizes[i / KINDS / 2];
        struct product p = product_of((enum kind)(i / 2 % KINDS), s[0], s[1], s[2], dt_c);
        p.g.addend = i % 2 ? p.addend.data : NULL;
        multiply(d, &p);
        if (d->threads == 1)
            check_product(&p);
        hash = hash * 31 + tensor_hash(&p.c);
        free_product(&p);
    }
    return hash;
}

static uint64_t products_at(struct device *d, enum dtype dt)
{
    return dt == DTYPE_F16 ? 0 : multiply_all(d, dt);
}

static void products_are_of_rounded_operands(void **state)
{
    for_each_setting(products_at);
}

/* Into what is there, as gradients of weights add up. */
static void products_add_up(void **state)
{
    struct device *d = open_device(NULL, 2);
    struct product p = product_of(DW, 144, 80, 256, DTYPE_F32);
    memcpy(p.c.data, p.addend.data, (size_t)p.c.elems * sizeof(float));
    p.g.addend = p.c.data;
    multiply(d, &p);
    check_product(&p);
    free_product(&p);
    device_close(d);
}

/* An infinity or a NaN shows in every element that its block is a factor of, and in no other. */
static void what_is_not_finite_shows(void **state)
{
    const float bad[] = {INFINITY, -INFINITY, NAN};
    struct device *d = open_device(NULL, 1);
    for (int kind = 0; kind < KINDS; kind++)
        for (int i = 0; i < 3; i++) {
            struct product p = product_of((enum kind)kind, 20, 300, 256, DTYPE_F32);
            int64_t row = p.g.trans_a ? 130 : 7, column = p.g.trans_a ? 7 : 130;
            tensor_set(&p.a.t, row * p.a.ld + column, bad[i]);
            multiply(d, &p);
            for (int64_t c = 0; c < p.c.elems; c++)
                assert_int_equal(isnan(tensor_get(&p.c, c)), c / 300 == 7);
            free_product(&p);
        }
    struct product p = product_of(Y, 20, 300, 256, DTYPE_F32);
    tensor_set(&p.b.t, 140 * p.b.ld + 3, NAN); /* the second of three squares of columns */
    multiply(d, &p);
    for (int64_t c = 0; c < p.c.elems; c++)
        assert_int_equal(isnan(tensor_get(&p.c, c)), c % 300 / FP8_BLOCK == 1);
    free_product(&p);
    device_close(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(codes_are_what_the_format_says),
        cmocka_unit_test(every_number_goes_to_the_nearest),
        cmocka_unit_test(scales_are_the_least_that_fit),
        cmocka_unit_test(products_are_of_rounded_operands),
        cmocka_unit_test(products_add_up),
        cmocka_unit_test(what_is_not_finite_shows),
    };
    return cmocka_run_group_tests_name("fp8", tests, NULL, NULL);
}
