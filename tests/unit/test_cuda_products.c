/* test_cuda_products.c - products by algorithms that were chosen by time: the fastest is taken, its
 * result is right and repeats bit by bit, nothing is timed while ops are recorded, and what is not
 * an algorithm of the product is refused.
 *
 * Built twice: for real GPUs, and for the emulated one, where TRIREME_EMULATE_FASTEST says which
 * algorithm takes the least of the emulated time, and each adds up in an order of its own.
 */
#include "ops_check.h"

#include <stdio.h>

#include "base/philox.h"
#include "device/product.h"

enum { SKIPPED = 77, A = 0, B, C, OPERANDS };

static char no_gpu[128]; /* why, or "" */

/* A product on the GPU, with its operands as they were made. */
struct problem {
    struct device *d;
    struct mem mem;
    struct gemm g;
    struct tensor t[OPERANDS];
    void *at[OPERANDS], *scratch;
    size_t scratch_bytes;
};

static void must(int rc, const struct error *err)
{
    if (rc)
        fail_msg("%s", err->text);
}

static size_t bytes_of(const struct tensor *t)
{
    return (size_t)t->elems * dtype_bytes(t->dt);
}

/* Whole numbers from -4 to 4, which fp8 holds. */
static void make_whole(struct tensor *t, uint64_t seed)
{
    for (int64_t i = 0; i < t->elems; i++)
        tensor_set(t, i, (double)(philox_u64(seed, (uint64_t)i) % 9) - 4);
}

static struct problem open_problem(enum dtype dt, enum dtype dt_c, int64_t m, int64_t n, int64_t k,
                                   enum gemm_fp8 fp8)
{
    struct problem p = {.g = {.dt = dt, .dt_c = dt_c, .trans_b = 1, .m = m, .n = n, .k = k}};
    struct error err = {0};
    p.g.fp8 = fp8;
    must(device_open(&p.d, &(struct device_request){.kind = DEVICE_CUDA}, &err), &err);
    p.g = gemm_dense(p.g);
    p.t[A] = tensor_random(dt, m * k, 1, 1);
    p.t[B] = tensor_random(dt, n * k, 2, 1);
    p.t[C] = tensor_poisoned(dt_c, m * n);
    for (int i = A; i <= B && fp8; i++)
        make_whole(&p.t[i], (uint64_t)i);
    for (int i = 0; i < OPERANDS; i++)
        p.at[i] = device_alloc(p.d, &p.mem, POOL_WORKSPACE, bytes_of(&p.t[i]), &err);
    p.g.a = p.at[A];
    p.g.b = p.at[B];
    p.g.c = p.at[C];
    p.scratch_bytes = p.d->ops->gemm_scratch(p.d, &p.g);
    p.scratch = device_alloc(p.d, &p.mem, POOL_WORKSPACE, p.scratch_bytes, &err);
    return p;
}

static void close_problem(struct problem *p)
{
    for (int i = 0; i < OPERANDS; i++) {
        device_free(p->d, &p->mem, POOL_WORKSPACE, bytes_of(&p->t[i]), p->at[i]);
        tensor_free(&p->t[i]);
    }
    device_free(p->d, &p->mem, POOL_WORKSPACE, p->scratch_bytes, p->scratch);
    device_close(p->d);
    assert_int_equal(p->mem.blocks, 0);
}

static void upload(struct problem *p)
{
    struct error err = {0};
    for (int i = 0; i < OPERANDS; i++)
        must(device_upload(p->d, p->at[i], p->t[i].data, bytes_of(&p->t[i]), &err), &err);
}

/* The product, as it comes back. */
static struct tensor multiply(struct problem *p)
{
    struct error err = {0};
    struct tensor c = tensor_copy(&p->t[C]);
    upload(p);
    must(p->d->ops->gemm(p->d, &p->g, p->scratch, &err), &err);
    must(device_download(p->d, c.data, p->at[C], bytes_of(&c), &err), &err);
    return c;
}

static void note(struct problem *p, int times)
{
    struct error err = {0};
    device_products_note(p->d, 1);
    for (int i = 0; i < times; i++)
        must(p->d->ops->gemm(p->d, &p->g, p->scratch, &err), &err);
    device_products_note(p->d, 0);
}

static struct product_choice tune(struct problem *p)
{
    struct product_choice choice;
    struct error err = {0};
    note(p, 1);
    assert_int_equal(device_products_noted(p->d), 1);
    must(device_product_tune(p->d, 0, &choice, &err), &err);
    return choice;
}

static void check_product(const struct problem *p, const struct tensor *c)
{
    double *want = malloc((size_t)c->elems * sizeof *want);
    for (int64_t i = 0; i < p->g.m; i++)
        for (int64_t j = 0; j < p->g.n; j++) {
            double sum = 0;
            for (int64_t l = 0; l < p->g.k; l++)
                sum += tensor_get(&p->t[A], i * p->g.k + l) * tensor_get(&p->t[B], j * p->g.k + l);
            want[i * p->g.n + j] = sum;
        }
    check_terms("c", c, want, tolerance_of(c->dt), sqrt((double)p->g.k));
    free(want);
}

static void setup_fastest(int id)
{
    char text[16];
    snprintf(text, sizeof text, "%d", id);
    assert_int_equal(setenv("TRIREME_EMULATE_FASTEST", text, 1), 0);
}

/* Is this the emulated GPU, whose times are made? */
static int is_emulated(const struct device *d)
{
    return strstr(d->name, "mulated") != NULL;
}

static const struct {
    enum dtype dt, dt_c;
    int64_t m, n, k;
    enum gemm_fp8 fp8;
} cases[] = {
    {DTYPE_F32, DTYPE_F32, 7, 5, 3},
    {DTYPE_BF16, DTYPE_F32, 64, 72, 80},
    {DTYPE_BF16, DTYPE_BF16, 65, 128, 96},
    {DTYPE_F16, DTYPE_F16, 33, 40, 136},
    {DTYPE_BF16, DTYPE_F32, 128, 192, 256},
    {DTYPE_BF16, DTYPE_BF16, 64, 48, 144, GEMM_FP8_SQUARES_OF_B},
    {DTYPE_BF16, DTYPE_F32, 96, 80, 272, GEMM_FP8_VECTORS},
};
enum { CASES = sizeof cases / sizeof cases[0] };

static struct problem open_case(int i)
{
    return open_problem(cases[i].dt, cases[i].dt_c, cases[i].m, cases[i].n, cases[i].k,
                        cases[i].fp8);
}

/* Of the emulated GPU's six algorithms two add partial sums in order, which are right only where k
 * is whole blocks, and one adds in any order, which is faster than all. */
static void check_choice(int i, int fastest, const struct product_choice *choice)
{
    const int is_split = fastest == 0 || fastest == 3;
    const int may_split = cases[i].fp8 || cases[i].k % 128 == 0;
    assert_int_equal(choice->tried, may_split ? 5 : 3);
    if (is_split && !may_split) {
        assert_int_equal(choice->setting[2], 1);
        return;
    }
    assert_int_equal(choice->setting[0], fastest);
    assert_in_range(choice->ns, 100000000, 200000000); /* and what emulating it takes */
}

static void the_fastest_is_chosen(void **state)
{
    if (no_gpu[0])
        skip();
    for (int i = 0; i < CASES * 5; i++) {
        setup_fastest(i % 5);
        struct problem p = open_case(i / 5);
        struct product_choice choice = tune(&p);
        assert_true(choice.tried >= 1 && choice.tried <= PRODUCT_TRIED);
        assert_true(choice.ns > 0 && choice.ns <= choice.first_ns);
        assert_true(choice.workspace_bytes <= (int64_t)p.scratch_bytes);
        if (is_emulated(p.d))
            check_choice(i / 5, i % 5, &choice);
        close_problem(&p);
    }
}

static void what_is_taken_is_used_and_repeats(void **state)
{
    if (no_gpu[0])
        skip();
    int changed = 0;
    for (int i = 0; i < CASES; i++) {
        setup_fastest(3);
        struct error err = {0};
        struct problem p = open_case(i);
        struct tensor first = multiply(&p); /* by the library's first suggestion */
        struct product_choice choice = tune(&p);
        must(device_product_take(p.d, &choice, &err), &err);
        struct tensor one = multiply(&p), two = multiply(&p);
        check_product(&p, &first);
        check_product(&p, &one);
        assert_int_equal(tensor_hash(&one), tensor_hash(&two));
        changed += tensor_hash(&one) != tensor_hash(&first);
        int emulated = is_emulated(p.d);
        tensor_free(&first);
        tensor_free(&one);
        close_problem(&p);
        p = open_case(i); /* another start: the choice comes from a file */
        must(device_product_take(p.d, &choice, &err), &err);
        struct tensor again = multiply(&p);
        assert_int_equal(tensor_hash(&two), tensor_hash(&again));
        tensor_free(&two);
        tensor_free(&again);
        close_problem(&p);
        assert_true(i < CASES - 1 || changed > 0 || !emulated);
    }
}

static void products_are_noted_once_and_not_computed(void **state)
{
    if (no_gpu[0])
        skip();
    struct problem p = open_case(1);
    struct error err = {0};
    int64_t shape[PRODUCT_SHAPE];
    upload(&p);
    note(&p, 3);
    assert_int_equal(device_products_noted(p.d), 1);
    device_product_shape(p.d, 0, shape);
    assert_int_equal(shape[5], p.g.m);
    assert_int_equal(shape[6], p.g.n);
    assert_int_equal(shape[7], p.g.k);
    struct tensor c = tensor_random(p.t[C].dt, p.t[C].elems, 7, 1);
    must(device_download(p.d, c.data, p.at[C], bytes_of(&c), &err), &err);
    assert_int_equal(tensor_hash(&c), tensor_hash(&p.t[C])); /* still poisoned */
    tensor_free(&c);
    note(&p, 0);
    assert_int_equal(device_products_noted(p.d), 0);
    close_problem(&p);
}

static void nothing_is_timed_while_ops_are_recorded(void **state)
{
    if (no_gpu[0])
        skip();
    struct problem p = open_case(1);
    struct product_choice choice;
    struct error err = {0};
    note(&p, 1);
    must(device_record_begin(p.d, &err), &err);
    assert_int_equal(device_product_tune(p.d, 0, &choice, &err), -1);
    assert_non_null(strstr(err.text, "recorded"));
    device_recording_destroy(p.d, device_record_end(p.d, &err));
    must(device_product_tune(p.d, 0, &choice, &err), &err);
    close_problem(&p);
}

static void refused(struct problem *p, struct product_choice choice)
{
    struct error err = {0};
    assert_int_equal(device_product_take(p->d, &choice, &err), -1);
    assert_true(err.text[0]);
    assert_null(strchr(err.text, '\n'));
}

static void what_is_no_algorithm_of_the_product_is_refused(void **state)
{
    if (no_gpu[0])
        skip();
    setup_fastest(3);
    struct problem p = open_case(1);
    struct product_choice good = tune(&p), bad;
    for (int i = 0; i < PRODUCT_SETTINGS; i++) {
        bad = good;
        bad.setting[i]++;
        refused(&p, bad);
    }
    bad = good;
    memset(bad.word, 0xff, sizeof bad.word);
    refused(&p, bad);
    const int64_t formats[] = {-1, DTYPE_F64, DTYPE_COUNT, INT64_MAX};
    for (int i = 0; i < 4; i++) {
        bad = good;
        bad.shape[i % 2] = formats[i];
        refused(&p, bad);
    }
    for (int i = 0; i < 2; i++) { /* no kind of fp8 */
        bad = good;
        bad.shape[15] = i ? -1 : 3;
        refused(&p, bad);
    }
    for (int i = 5; i < 11; i++) { /* m to ldc */
        bad = good;
        bad.shape[i] = i % 2 ? 0 : -5;
        refused(&p, bad);
    }
    must(device_product_take(p.d, &good, &(struct error){0}), &(struct error){0});
    close_problem(&p);
}

static void a_cpu_has_no_choice(void **state)
{
    struct device *d = open_device(NULL, 1);
    struct error err = {0};
    char text[192];
    assert_string_equal(device_products_library(d, text), "");
    device_products_note(d, 1);
    assert_int_equal(device_products_noted(d), 0);
    assert_int_equal(device_product_take(d, &(struct product_choice){0}, &err), -1);
    device_close(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_fastest_is_chosen),
        cmocka_unit_test(what_is_taken_is_used_and_repeats),
        cmocka_unit_test(products_are_noted_once_and_not_computed),
        cmocka_unit_test(nothing_is_timed_while_ops_are_recorded),
        cmocka_unit_test(what_is_no_algorithm_of_the_product_is_refused),
        cmocka_unit_test(a_cpu_has_no_choice),
    };
    if (device_gpu_count(no_gpu) == 0)
        printf("what needs a GPU is skipped: %s\n", no_gpu);
    int failed = cmocka_run_group_tests_name("cuda products", tests, NULL, NULL);
    return failed ? failed : no_gpu[0] ? SKIPPED : 0;
}
