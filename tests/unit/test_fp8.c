/* test_fp8.c - rounding to fp8 in blocks, and products of what is rounded so, against enumeration:
 * the nearest of all 256 codes, the least power of two that fits. */
#include "fp8_reference.h"

#include "base/fp8.h"

/* ---- numbers ---- */

static void codes_are_what_the_format_says(void **state)
{
    for (int code = 0; code < 256; code++) {
        float value = fp8_value((uint8_t)code);
        if ((code & 0x7f) == 0x7f) {
            assert_true(isnan(value));
            continue;
        }
        assert_true(value == reference_value(code));
    }
}

static void every_number_goes_to_the_nearest(void **state)
{
    int count = 0;
    for (int bits = 0; bits < 0x10000; bits++) {
        float x = bf16_to_f32((bf16)bits);
        if (!(fabsf(x) <= 448))
            continue;
        count++;
        double nearest = reference_value(reference_code(x));
        if (fp8_round(x) != nearest)
            fail_msg("%g: %g, not %g", x, fp8_round(x), nearest);
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

/* ---- products ---- */

enum { AHEAD = 5 };

/* A product in fp8: its operands, of which rows begin AHEAD elements apart more than they need. */
struct product {
    struct gemm g;
    struct matrix a, b;
    struct lie lie_a, lie_b;
    struct tensor in_a, in_b, c, addend;
};

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
    p.a = make_matrix(m, k, 0);
    p.b = make_matrix(n, k, kind != DW);
    fill_matrix(&p.a, 1);
    fill_matrix(&p.b, 2);
    p.lie_a = (struct lie){!p.g.trans_a, AHEAD, 0};
    p.lie_b = (struct lie){p.g.trans_b, AHEAD, 0};
    p.in_a = tensor_of(&p.a, &p.lie_a);
    p.in_b = tensor_of(&p.b, &p.lie_b);
    p.c = tensor_poisoned(dt_c, m * n);
    p.addend = tensor_random(dt_c, m * n, 3, 1);
    p.g.lda = ld_of(&p.a, &p.lie_a);
    p.g.ldb = ld_of(&p.b, &p.lie_b);
    p.g.a = p.in_a.data;
    p.g.b = p.in_b.data;
    p.g.c = p.c.data;
    return p;
}

static void free_product(struct product *p)
{
    free_matrix(&p->a);
    free_matrix(&p->b);
    tensor_free(&p->in_a);
    tensor_free(&p->in_b);
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

static void check(struct product *p)
{
    round_matrix(&p->a);
    round_matrix(&p->b);
    check_product(&p->g, &p->a, &p->b, p->g.addend ? &p->addend : NULL, &p->c,
                  tolerance_of(p->g.dt_c));
}

/* One block, several, and parts of blocks; products of a level's own kernels and of the library. */
static const int64_t sizes[][3] = {{1, 1, 1},      {3, 5, 7},      {16, 32, 128}, {17, 129, 127},
                                   {130, 40, 300}, {64, 144, 256}, {400, 96, 272}};

enum { SIZES = sizeof sizes / sizeof sizes[0] };

/* The bits are those of any number of threads where sums are short; longer ones the library may
 * divide among them (gemm_onednn.c), as it does with AVX2. */
static uint64_t multiply_all(struct device *d, enum dtype dt_c)
{
    uint64_t hash = 0;
    for (int i = 0; i < SIZES * KINDS * 2; i++) {
        const int64_t *s = sizes[i / KINDS / 2];
        struct product p = product_of((enum kind)(i / 2 % KINDS), s[0], s[1], s[2], dt_c);
        p.g.addend = i % 2 ? p.addend.data : NULL;
        multiply(d, &p);
        check(&p);
        if (p.g.k <= FP8_BLOCK)
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
    check(&p);
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
            tensor_set(&p.in_a, place_of(&p.a, &p.lie_a, 7, 130), bad[i]);
            multiply(d, &p);
            for (int64_t c = 0; c < p.c.elems; c++)
                assert_int_equal(isnan(tensor_get(&p.c, c)), c / 300 == 7);
            free_product(&p);
        }
    struct product p = product_of(Y, 20, 300, 256, DTYPE_F32);
    tensor_set(&p.in_b, place_of(&p.b, &p.lie_b, 140, 3),
               NAN); /* the second of three squares of columns */
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
