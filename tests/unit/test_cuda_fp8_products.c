/* test_cuda_fp8_products.c - products in fp8 on a GPU, by cuBLASLt and in bf16 of rounded operands,
 * against sums in double of operands that the reference rounded; and what the self-check finds of
 * them.
 *
 * Built twice: for real GPUs, of which those of compute capability 9.0 have such products, and for
 * the emulated one, which is another or has another library where TRIREME_EMULATE_ settings say so.
 */
#include "fp8_check.h"

#include "device/cuda/fp8.h"
#include "device/product.h"
#include "device/self_check_private.h"

enum addend { NONE, SELF, OTHER, ADDENDS };
enum { A, B, C, ADDEND, OPERANDS };

/* Those of a step, by what they make: activations, their gradient, a weight's; and one that does
 * not occur. */
static const struct {
    int trans_a, trans_b;
    enum gemm_fp8 fp8;
    enum dtype dt_c;
    enum addend addend;
} kinds[] = {
    {0, 1, GEMM_FP8_SQUARES_OF_B, DTYPE_BF16, NONE},
    {0, 1, GEMM_FP8_SQUARES_OF_B, DTYPE_BF16, OTHER},
    {0, 0, GEMM_FP8_SQUARES_OF_B, DTYPE_BF16, NONE},
    {0, 0, GEMM_FP8_SQUARES_OF_B, DTYPE_BF16, SELF},
    {0, 0, GEMM_FP8_SQUARES_OF_B, DTYPE_F32, OTHER},
    {1, 0, GEMM_FP8_VECTORS, DTYPE_F32, NONE},
    {1, 0, GEMM_FP8_VECTORS, DTYPE_F32, SELF},
    {1, 1, GEMM_FP8_VECTORS, DTYPE_BF16, OTHER},
};
enum { KINDS = sizeof kinds / sizeof kinds[0] };

static const int64_t shapes[][3] = {{16, 16, 16},    {32, 144, 48}, {144, 32, 272},
                                    {272, 144, 144}, {48, 16, 656}, {128, 256, 128}};
enum { SHAPES = sizeof shapes / sizeof shapes[0] };

struct problem {
    struct gemm g;
    enum addend addend;
    struct matrix a, b;
    struct tensor t[OPERANDS];
    void *at[OPERANDS];
};

static size_t bytes_of(const struct tensor *t)
{
    return (size_t)t->elems * dtype_bytes(t->dt);
}

static struct problem make_problem(struct gpu *gpu, int kind, const int64_t mnk[3])
{
    struct problem p = {.addend = kinds[kind].addend};
    p.g = gemm_dense((struct gemm){.dt = DTYPE_BF16,
                                   .dt_c = kinds[kind].dt_c,
                                   .trans_a = kinds[kind].trans_a,
                                   .trans_b = kinds[kind].trans_b,
                                   .fp8 = kinds[kind].fp8,
                                   .m = mnk[0],
                                   .n = mnk[1],
                                   .k = mnk[2]});
    p.a = make_matrix(p.g.m, p.g.k, 0);
    p.b = make_matrix(p.g.n, p.g.k, p.g.fp8 == GEMM_FP8_SQUARES_OF_B);
    fill_matrix(&p.a, 1);
    fill_matrix(&p.b, 2);
    p.t[A] = tensor_of(&p.a, &(struct lie){!p.g.trans_a, 0, 0});
    p.t[B] = tensor_of(&p.b, &(struct lie){p.g.trans_b, 0, 0});
    p.t[ADDEND] = tensor_random(p.g.dt_c, p.g.m * p.g.n, 3, 1);
    p.t[C] =
        p.addend == SELF ? tensor_copy(&p.t[ADDEND]) : tensor_poisoned(p.g.dt_c, p.g.m * p.g.n);
    for (int i = 0; i < OPERANDS; i++)
        p.at[i] = on_gpu(gpu, p.t[i].data, bytes_of(&p.t[i]));
    p.g.a = p.at[A];
    p.g.b = p.at[B];
    p.g.c = p.at[C];
    p.g.addend = p.addend == NONE ? NULL : p.addend == SELF ? p.at[C] : p.at[ADDEND];
    return p;
}

static void free_problem(struct gpu *gpu, struct problem *p)
{
    for (int i = 0; i < OPERANDS; i++) {
        off_gpu(gpu, p->t[i].data, bytes_of(&p->t[i]), p->at[i]);
        tensor_free(&p->t[i]);
    }
    free_matrix(&p->a);
    free_matrix(&p->b);
}

/* Scratch of exactly the bytes planned, less aligned than the library asks. */
struct scratch {
    size_t bytes;
    char *block;
};

static struct scratch make_scratch(struct gpu *gpu, const struct gemm *g)
{
    struct scratch s = {gpu->d->ops->gemm_scratch(gpu->d, g) + 64};
    void *from = poisoned(s.bytes);
    s.block = on_gpu(gpu, from, s.bytes);
    free(from);
    return s;
}

static void free_scratch(struct gpu *gpu, struct scratch *s)
{
    device_free(gpu->d, &gpu->mem, POOL_WORKSPACE, s->bytes, s->block);
}

/* The product, as it comes back; c on the GPU is as before again. */
static struct tensor multiply(struct gpu *gpu, const struct problem *p)
{
    struct error err = {0};
    struct tensor c = tensor_copy(&p->t[C]);
    struct scratch s = make_scratch(gpu, &p->g);
    must(gpu->d->ops->gemm(gpu->d, &p->g, s.block + 64, &err), &err);
    must(device_download(gpu->d, c.data, p->at[C], bytes_of(&c), &err), &err);
    must(device_upload(gpu->d, p->at[C], p->t[C].data, bytes_of(&c), &err), &err);
    free_scratch(gpu, &s);
    return c;
}

/* Tensor cores of compute capability 9.0 keep about 14 bits of a block's sum. */
static const double of_tensor_cores = 2e-3;

/* rows: cuda_gemm_set_wide_rows() */
static void check_all(unsigned replaced, int64_t rows)
{
    struct gpu gpu = open_gpu();
    if (!replaced && device_check_fp8(gpu.d, NULL)) {
        device_close(gpu.d);
        skip();
    }
    gpu.d->replaced = replaced;
    cuda_gemm_set_wide_rows(gpu.d, rows);
    for (int i = 0; i < KINDS * SHAPES; i++) {
        struct problem p = make_problem(&gpu, i % KINDS, shapes[i / KINDS]);
        struct tensor one = multiply(&gpu, &p), two = multiply(&gpu, &p);
        round_matrix(&p.a);
        round_matrix(&p.b);
        check_product(&p.g, &p.a, &p.b, p.addend ? &p.t[ADDEND] : NULL, &one,
                      tolerance_of(p.g.dt_c) + (replaced ? 0 : of_tensor_cores));
        assert_int_equal(tensor_hash(&one), tensor_hash(&two));
        tensor_free(&one);
        tensor_free(&two);
        free_problem(&gpu, &p);
    }
    close_gpu(&gpu);
}

static void products_are_of_rounded_operands(void **state)
{
    check_all(0, 0);
}

static void products_in_bf16_too(void **state)
{
    check_all(DEVICE_FP8_FAMILY, 0);
    check_all(DEVICE_FP8_FAMILY, FP8_BLOCK); /* some of both operands' rows at a time */
}

/* ---- without the library's products in fp8 ---- */

/* The product of p's operands rounded in place, by cuda_gemm() of bf16. */
static struct tensor multiply_rounded(struct gpu *gpu, struct problem *p)
{
    static const struct lie dense = {1, 0, 0};
    struct problem of = *p;
    round_matrix(&p->a);
    round_matrix(&p->b);
    struct tensor a = tensor_of(&p->a, &dense), b = tensor_of(&p->b, &dense);
    void *at_a = on_gpu(gpu, a.data, bytes_of(&a)), *at_b = on_gpu(gpu, b.data, bytes_of(&b));
    of.g.fp8 = GEMM_FP8_NONE;
    of.g.trans_a = 0;
    of.g.trans_b = 1;
    of.g.lda = of.g.ldb = of.g.k;
    of.g.a = at_a;
    of.g.b = at_b;
    struct tensor c = multiply(gpu, &of);
    off_gpu(gpu, a.data, bytes_of(&a), at_a);
    off_gpu(gpu, b.data, bytes_of(&b), at_b);
    tensor_free(&a);
    tensor_free(&b);
    return c;
}

/* The bits are those of the product in bf16 of operands that were rounded in place. */
static void check_as_bf16(struct gpu *gpu)
{
    for (int i = 0; i < KINDS * SHAPES; i++) {
        struct problem p = make_problem(gpu, i % KINDS, shapes[i / KINDS]);
        struct tensor got = multiply(gpu, &p), want = multiply_rounded(gpu, &p);
        assert_memory_equal(got.data, want.data, bytes_of(&want));
        tensor_free(&got);
        tensor_free(&want);
        free_problem(gpu, &p);
    }
}

static const unsigned all_products = (1u << DEVICE_PRODUCT_FAMILIES) - 1;

/* Where products of cuBLASLt were found wrong, and on GPUs for which it has none. */
static void without_fp8_they_are_those_of_bf16(void **state)
{
    struct gpu gpu = open_gpu();
    const char *level = gpu.d->level;
    gpu.d->replaced = DEVICE_FP8_FAMILY;
    check_as_bf16(&gpu);
    gpu.d->replaced = all_products; /* those of bf16, too */
    check_as_bf16(&gpu);
    gpu.d->replaced = 0;
    gpu.d->level = "sm_80";
    check_as_bf16(&gpu);
    gpu.d->level = level;
    close_gpu(&gpu);
}

/* Note p's product and time it: the shape that was noted, and what device_product_tune() says. */
static int tune(struct gpu *gpu, struct problem *p, int64_t shape[PRODUCT_SHAPE])
{
    struct product_choice choice;
    struct error err = {0};
    struct scratch s = make_scratch(gpu, &p->g);
    device_products_note(gpu->d, 1);
    must(gpu->d->ops->gemm(gpu->d, &p->g, s.block + 64, &err), &err);
    device_products_note(gpu->d, 0);
    assert_int_equal(device_products_noted(gpu->d), 1);
    device_product_shape(gpu->d, 0, shape);
    int rc = device_product_tune(gpu->d, 0, &choice, &err);
    must(rc < 0, &err);
    if (!rc)
        must(device_product_take(gpu->d, &choice, &err), &err);
    free_scratch(gpu, &s);
    return rc;
}

static int64_t member_of(const int64_t shape[PRODUCT_SHAPE], const char *name)
{
    int i = 0;
    while (strcmp(product_shape_names[i], name) != 0)
        i++;
    return shape[i];
}

/* They are the library's products in bf16, whose algorithms are timed as ever. */
static void without_fp8_those_of_bf16_are_timed(void **state)
{
    struct gpu gpu = open_gpu();
    int64_t shape[PRODUCT_SHAPE];
    struct problem p = make_problem(&gpu, 0, shapes[3]);
    gpu.d->replaced = DEVICE_FP8_FAMILY;
    assert_int_equal(tune(&gpu, &p, shape), 0);
    assert_int_equal(member_of(shape, "fp8"), GEMM_FP8_NONE);
    assert_int_equal(member_of(shape, "m"), p.g.m);
    assert_int_equal(member_of(shape, "k"), p.g.k);
    free_problem(&gpu, &p);
    close_gpu(&gpu);
}

/* With a setting of the emulated machine, what it says of products in fp8. */
static struct gpu open_emulated(const char *name, const char *value)
{
    struct gpu gpu = open_gpu();
    if (!strstr(gpu.d->name, "mulated")) {
        device_close(gpu.d);
        skip();
    }
    device_close(gpu.d);
    assert_int_equal(setenv(name, value, 1), 0);
    return open_gpu();
}

static void close_emulated(struct gpu *gpu, const char *name)
{
    unsetenv(name);
    close_gpu(gpu);
}

/* A library that is of the right version may have none all the same; 15: not supported, 7: an
 * invalid value. */
static void a_library_without_them_is_helped(void **state)
{
    static const char *const name = "TRIREME_EMULATE_FP8_STATUS", *const statuses[] = {"15", "7"};
    for (int i = 0; i < 2; i++) {
        struct gpu gpu = open_emulated(name, statuses[i]);
        assert_int_equal(device_check_fp8(gpu.d, NULL), 0);
        struct problem p = make_problem(&gpu, 0, shapes[3]);
        int64_t shape[PRODUCT_SHAPE];
        assert_int_equal(tune(&gpu, &p, shape), 0); /* the product in bf16 that helps */
        assert_int_equal(member_of(shape, "fp8"), GEMM_FP8_NONE);
        free_problem(&gpu, &p);
        check_as_bf16(&gpu);
        close_emulated(&gpu, name);
    }
}

static void check_lacking(const char *name, const char *value, const char *text)
{
    struct gpu gpu = open_emulated(name, value);
    struct device_gpu described;
    struct error err = {0}, unopened = {0};
    assert_int_equal(device_check_fp8(gpu.d, &err), -1);
    assert_string_equal(err.text, text);
    must(device_gpu_describe(0, &described, &unopened), &unopened);
    assert_int_equal(device_gpu_check_fp8(&described, &unopened), -1);
    assert_string_equal(unopened.text, text);
    check_as_bf16(&gpu);
    close_emulated(&gpu, name);
}

static void what_is_lacking_is_said(void **state)
{
    check_lacking("TRIREME_EMULATE_LEVEL", "80",
                  "an H100 or H200 (compute capability 9.0), for which trireme has its products, "
                  "and this is emulated (8.0)");
    check_lacking("TRIREME_EMULATE_LEVEL", "120",
                  "an H100 or H200 (compute capability 9.0), for which trireme has its products, "
                  "and this is emulated (12.0)");
    check_lacking("TRIREME_EMULATE_CUBLASLT", "120405",
                  "cuBLASLt 12.9 or newer, and this is cuBLASLt 12.4.5");
}

/* ---- recordings, rare numbers, alignment ---- */

/* One product in two scratches, the first of them in a recording that is replayed last. */
static void a_recording_keeps_its_scratch(void **state)
{
    struct gpu gpu = open_gpu();
    struct error err = {0};
    for (int i = 0; i < 2 * KINDS; i++) {
        gpu.d->replaced = i < KINDS ? 0 : DEVICE_FP8_FAMILY;
        struct problem p = make_problem(&gpu, i % KINDS, shapes[2]);
        struct tensor want = multiply(&gpu, &p), got = tensor_copy(&want);
        struct scratch s = make_scratch(&gpu, &p.g);
        must(device_record_begin(gpu.d, &err), &err);
        must(gpu.d->ops->gemm(gpu.d, &p.g, s.block, &err), &err);
        struct device_recording *recording = device_record_end(gpu.d, &err);
        must(recording == NULL, &err);
        struct tensor other = multiply(&gpu, &p);
        must(device_replay(gpu.d, recording, &err), &err);
        must(device_download(gpu.d, got.data, p.at[C], bytes_of(&got), &err), &err);
        assert_int_equal(tensor_hash(&got), tensor_hash(&want));
        assert_int_equal(tensor_hash(&other), tensor_hash(&want));
        device_recording_destroy(gpu.d, recording);
        free_scratch(&gpu, &s);
        tensor_free(&want);
        tensor_free(&got);
        tensor_free(&other);
        free_problem(&gpu, &p);
    }
    close_gpu(&gpu);
}

/* A number that is none makes those sums that are of its block none, and no others. */
static void what_is_no_number_is_seen(void **state)
{
    struct gpu gpu = open_gpu();
    struct error err = {0};
    for (int in_bf16 = 0; in_bf16 < 2; in_bf16++) {
        struct problem p = make_problem(&gpu, 0, shapes[2]);
        gpu.d->replaced = in_bf16 ? DEVICE_FP8_FAMILY : 0;
        tensor_set(&p.t[A], 5 * p.g.k + 130, INFINITY);
        must(device_upload(gpu.d, p.at[A], p.t[A].data, bytes_of(&p.t[A]), &err), &err);
        struct tensor c = multiply(&gpu, &p);
        for (int64_t e = 0; e < c.elems; e++)
            assert_int_equal(isnan(tensor_get(&c, e)) != 0, e / p.g.n == 5);
        tensor_free(&c);
        free_problem(&gpu, &p);
    }
    close_gpu(&gpu);
}

/* The library takes no c in fp8 that is not aligned to 16 bytes. */
static void a_result_of_any_alignment_is_right(void **state)
{
    struct gpu gpu = open_gpu();
    for (int i = 0; i < KINDS; i++) {
        struct problem p = make_problem(&gpu, i, shapes[2]);
        p.g.m -= 16; /* what c has behind it */
        p.g.c = (char *)p.g.c + dtype_bytes(p.g.dt_c);
        p.g.addend = p.addend == SELF ? p.g.c : p.g.addend;
        struct tensor got = multiply(&gpu, &p);
        gpu.d->replaced = DEVICE_FP8_FAMILY;
        struct tensor wide = multiply(&gpu, &p);
        gpu.d->replaced = 0;
        for (int64_t e = 1; e <= p.g.m * p.g.n; e++) {
            const double want = tensor_get(&wide, e);
            assert_true(fabs(tensor_get(&got, e) - want) <= 0.01 * (1 + fabs(want)));
        }
        tensor_free(&got);
        tensor_free(&wide);
        free_problem(&gpu, &p);
    }
    close_gpu(&gpu);
}

static void other_sizes_are_refused(void **state)
{
    struct gpu gpu = open_gpu();
    for (int i = 0; i < 3; i++) {
        struct error err = {0};
        int64_t mnk[] = {32, 32, 32};
        mnk[i] = 24;
        struct problem p = make_problem(&gpu, 0, mnk);
        struct scratch s = make_scratch(&gpu, &p.g);
        assert_int_equal(gpu.d->ops->gemm(gpu.d, &p.g, s.block, &err), -1);
        assert_non_null(strstr(err.text, "multiples of 16"));
        free_scratch(&gpu, &s);
        free_problem(&gpu, &p);
    }
    close_gpu(&gpu);
}

/* ---- the self-check ---- */

/* cuBLASLt, off by a little in the products that make a weight's gradient. */
static int wrong_gemm(struct device *d, const struct gemm *g, void *scratch, struct error *err)
{
    float *c = g->c;
    if (cuda_gemm(d, g, scratch, err))
        return -1;
    if (g->fp8 == GEMM_FP8_VECTORS && !(d->replaced & DEVICE_FP8_FAMILY))
        cuda_scale(d, g->dt_c, c, c, 1.05f, g->n);
    return 0;
}

static enum self_check_verdict verdict_of(struct gpu *gpu, struct device *cpu, const char *family,
                                          int is_wrong)
{
    struct device_ops ops = cuda_ops;
    struct self_check_row row;
    struct error err = {0};
    int i = 0;
    while (strcmp(self_check_families[i].name, family) != 0)
        i++;
    ops.gemm = is_wrong ? wrong_gemm : cuda_gemm;
    gpu->d->ops = &ops;
    must(self_check_family(&row, i, gpu->d, cpu, &gpu->mem, &err), &err);
    gpu->d->ops = &cuda_ops;
    assert_int_equal(row.bit, strstr(family, "own") ? 0 : DEVICE_FP8_FAMILY);
    return row.verdict;
}

static void wrong_products_are_replaced(void **state)
{
    struct gpu gpu = open_gpu();
    struct device *cpu = open_device(NULL, 1);
    const char *level = gpu.d->level;
    if (!device_check_fp8(gpu.d, NULL)) {
        assert_int_equal(verdict_of(&gpu, cpu, "products fp8", 1), SELF_CHECK_REPLACED);
        assert_int_equal(verdict_of(&gpu, cpu, "products fp8", 0), SELF_CHECK_RIGHT);
    }
    assert_int_equal(verdict_of(&gpu, cpu, "products, own kernel", 1), SELF_CHECK_RIGHT);
    gpu.d->level = "sm_80"; /* which lacks them */
    assert_int_equal(verdict_of(&gpu, cpu, "products fp8", 0), SELF_CHECK_UNUSED);
    gpu.d->level = level;
    device_close(cpu);
    close_gpu(&gpu);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_are_of_rounded_operands),
        cmocka_unit_test(products_in_bf16_too),
        cmocka_unit_test(without_fp8_they_are_those_of_bf16),
        cmocka_unit_test(without_fp8_those_of_bf16_are_timed),
        cmocka_unit_test(a_library_without_them_is_helped),
        cmocka_unit_test(what_is_lacking_is_said),
        cmocka_unit_test(a_recording_keeps_its_scratch),
        cmocka_unit_test(what_is_no_number_is_seen),
        cmocka_unit_test(a_result_of_any_alignment_is_right),
        cmocka_unit_test(other_sizes_are_refused),
        cmocka_unit_test(wrong_products_are_replaced),
    };
    return check_main("cuda fp8 products", tests);
}
