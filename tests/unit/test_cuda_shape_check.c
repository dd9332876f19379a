/* test_cuda_shape_check.c - the shapes of a run by libraries against trireme's own kernels: what is
 * right passes, one wrong term or number is found, and what is replaced is right.
 *
 * Built twice: for real GPUs, and for the emulated one, whose cuBLASLt leaves out a term where it
 * is told to.  cuDNN's attention is played by trireme's own kernels.
 */
#include "ops_check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/fp8.h"
#include "device/cuda/state.h"
#include "device/shape_check.h"

enum { SKIPPED = 77, BLOCKS = 8 };

/* ---- a cuDNN that can be wrong ---- */

enum wrong { NOTHING, LAST_ROW, ONE_HEAD, LSE, NAN_WHERE_LOW, LAST_KEYS, KEY_OF_LOW_HEAD };

static struct {
    int is_there;
    enum wrong wrong;
} library;

static void scale_by(struct device *d, enum dtype dt, void *y, int64_t at, int64_t elems, float by)
{
    char *from = (char *)y + (size_t)at * dtype_bytes(dt);
    cuda_scale(d, dt, from, from, by, elems);
}

static void spoil(struct device *d, const struct attention *a, void *y, int64_t row, float *lse)
{
    const int64_t last = a->batch * a->seq - 1, dim = a->head_dim;
    if (library.wrong == LAST_ROW)
        scale_by(d, a->dt, y, last * row, row, 3);
    if (library.wrong == ONE_HEAD)
        for (int64_t r = 0; r <= last; r++)
            scale_by(d, a->dt, y, r * row + row - dim, dim, 1.15f);
    if (library.wrong == LSE && lse)
        scale_by(d, DTYPE_F32, lse, a->seq - 1, 1, 1.01f);
    if (library.wrong == NAN_WHERE_LOW) /* the first head's scores are */
        scale_by(d, a->dt, y, last * row, 1, NAN);
}

/* What only gradients can have: those of the last keys and values missing, which are small beside
 * the first ones; or all elements of the key's in the head of low scores but for element 0, which
 * is large. */
static void spoil_gradients(struct device *d, const struct attention *a, void *dqkv)
{
    const int64_t all = a->batch * a->seq, dim = a->head_dim, keys = a->heads * dim;
    const int64_t row = keys + 2 * a->kv_heads * dim;
    if (library.wrong == LAST_KEYS)
        for (int64_t r = all - 64; r < all; r++)
            scale_by(d, a->dt, dqkv, r * row + keys, row - keys, 0);
    if (library.wrong == KEY_OF_LOW_HEAD)
        for (int64_t r = 0; r < all; r++)
            scale_by(d, a->dt, dqkv, r * row + keys + 1, dim - 1, 0);
}

int __wrap_cuda_sdpa_forward(struct device *d, const struct attention *a, void *o, float *lse,
                             const void *qkv, void *scratch, size_t scratch_bytes);
int __wrap_cuda_sdpa_backward(struct device *d, const struct attention *a, void *dqkv,
                              const void *dout, const void *o, const float *lse, const void *qkv,
                              void *scratch, size_t scratch_bytes);
void __wrap_cuda_sdpa_refuse(struct device *d, const struct attention *a, enum device_pass pass,
                             const char *why);

int __wrap_cuda_sdpa_forward(struct device *d, const struct attention *a, void *o, float *lse,
                             const void *qkv, void *scratch, size_t scratch_bytes)
{
    if (!library.is_there)
        return 0;
    cuda_own_attention(d, a, o, lse, qkv, scratch);
    spoil(d, a, o, a->heads * a->head_dim, lse);
    return 1;
}

int __wrap_cuda_sdpa_backward(struct device *d, const struct attention *a, void *dqkv,
                              const void *dout, const void *o, const float *lse, const void *qkv,
                              void *scratch, size_t scratch_bytes)
{
    if (!library.is_there)
        return 0;
    cuda_own_attention_backward(d, a, dqkv, dout, o, lse, qkv, scratch);
    spoil(d, a, dqkv, (a->heads + 2 * a->kv_heads) * a->head_dim, NULL);
    spoil_gradients(d, a, dqkv);
    return 1;
}

void __wrap_cuda_sdpa_refuse(struct device *d, const struct attention *a, enum device_pass pass,
                             const char *why)
{
    assert_non_null(why);
    library.is_there = 0;
}

/* ---- a device with some memory ---- */

struct rig {
    struct device *d;
    struct mem mem;
    void *block[BLOCKS];
    size_t bytes[BLOCKS];
    int blocks;
};

static void must(int rc, const struct error *err)
{
    if (rc)
        fail_msg("%s", err->text);
}

static struct rig open_rig(void)
{
    struct rig r = {0};
    struct error err = {0};
    must(device_open(&r.d, &(struct device_request){.kind = DEVICE_CUDA}, &err), &err);
    return r;
}

static void close_rig(struct rig *r)
{
    while (r->blocks--)
        device_free(r->d, &r->mem, POOL_WORKSPACE, r->bytes[r->blocks], r->block[r->blocks]);
    device_close(r->d);
    assert_int_equal(r->mem.blocks, 0);
}

/* As much as is asked for and no more, full of NaN. */
static void *alloc(struct rig *r, int64_t elems, enum dtype dt)
{
    struct error err = {0};
    const size_t bytes = (size_t)elems * dtype_bytes(dt);
    void *block = device_alloc(r->d, &r->mem, POOL_WORKSPACE, bytes, &err);
    must(block ? 0 : -1, &err);
    assert_int_equal(cudaMemset(block, 0xff, bytes), 0);
    assert_int_equal(cudaDeviceSynchronize(), 0); /* its stream is another one */
    r->block[r->blocks] = block;
    r->bytes[r->blocks++] = bytes;
    return block;
}

static int is_emulated(const struct device *d)
{
    return strstr(d->name, "mulated") != NULL;
}

/* ---- products ---- */

static const struct {
    enum dtype dt, dt_c;
    int64_t m, n, k, pad; /* pad: elements between rows of c */
    enum gemm_fp8 fp8;
} products[] = {{DTYPE_BF16, DTYPE_BF16, 64, 48, 120, 0},
                {DTYPE_BF16, DTYPE_F32, 7, 33, 264, 0},
                {DTYPE_F16, DTYPE_F16, 130, 24, 56, 0},
                {DTYPE_F32, DTYPE_F32, 1, 5, 9, 0},
                {DTYPE_BF16, DTYPE_BF16, 40, 16, 1000, 8},
                {DTYPE_BF16, DTYPE_F32, 16, 8, 1 << 18, 0},
                {DTYPE_F16, DTYPE_F16, 16, 8, 1 << 18, 0},
                {DTYPE_BF16, DTYPE_BF16, 32, 32, 4096, 0},
                {DTYPE_BF16, DTYPE_BF16, 144, 176, 256, 0, GEMM_FP8_SQUARES_OF_B},
                {DTYPE_BF16, DTYPE_F32, 176, 144, 384, 0, GEMM_FP8_VECTORS},
                {DTYPE_BF16, DTYPE_F32, 16, 16, 4096, 0, GEMM_FP8_VECTORS}};
enum { LONG = 10000 }; /* terms; more need tensor cores to be of interest, and to end soon */
enum { PRODUCTS = sizeof products / sizeof products[0], ADDENDS = 3, KINDS = 4 * ADDENDS };

/* A product whose operands are transposed, and to which something is added, as `kind` says. */
static struct gemm make_product(struct rig *r, int i, int kind)
{
    struct gemm g = {.dt = products[i].dt,
                     .dt_c = products[i].dt_c,
                     .trans_a = kind % 2,
                     .trans_b = kind / 2 % 2,
                     .m = products[i].m,
                     .n = products[i].n,
                     .k = products[i].k,
                     .ldc = products[i].n + products[i].pad,
                     .fp8 = products[i].fp8};
    g = gemm_dense(g);
    const int64_t elems = (g.m - 1) * g.ldc + g.n;
    g.a = alloc(r, g.m * g.k, g.dt);
    g.b = alloc(r, g.k * g.n, g.dt);
    g.c = alloc(r, elems, g.dt_c);
    if (kind / 4)
        g.addend = kind / 4 == 1 ? g.c : alloc(r, elems, g.dt_c);
    return g;
}

static void note_product(struct rig *r, const struct gemm *g, void *scratch)
{
    struct error err = {0};
    device_products_note(r->d, 1);
    must(r->d->ops->gemm(r->d, g, scratch, &err), &err);
    device_products_note(r->d, 0);
    assert_int_equal(device_shapes_noted(r->d), 1);
}

/* Play a fault of the emulated library in products of k terms; NULL: no more. */
static void play(const char *fault, int64_t k, const char *algorithm)
{
    char terms[24];
    snprintf(terms, sizeof terms, "%lld", (long long)(fault ? k : 0));
    setenv("TRIREME_EMULATE_WRONG_K", terms, 1);
    setenv("TRIREME_EMULATE_WRONG", fault ? fault : "", 1);
    setenv("TRIREME_EMULATE_WRONG_ALGORITHM", fault && algorithm ? algorithm : "", 1);
}

/* Each fault is found, and what replaces the first algorithm is right where the fault is that
 * one's.
 */
static void find_faults(struct rig *r, const struct gemm *g)
{
    static const char *const faults[] = {"term", "refusal", "addend"};
    for (int i = 0; i < (g->addend ? 3 : 2); i++) {
        struct error err = {0};
        struct shape_check check;
        play(faults[i], g->k, NULL);
        must(device_shape_check(r->d, 0, &check, &err), &err);
        play(NULL, 0, NULL);
        if (!check.is_wrong || isnan(check.off) != (i == 1))
            fail_msg("%s: fault of %s, and off is %g", check.name, faults[i], check.off);
    }
}

static void products_are_right_or_replaced(void **state)
{
    for (int i = 0; i < PRODUCTS * KINDS; i++) {
        struct rig r = open_rig();
        struct error err = {0};
        struct shape_check check;
        const int is_fp8 = products[i / KINDS].fp8 != GEMM_FP8_NONE;
        if ((products[i / KINDS].k > LONG && is_emulated(r.d)) ||
            (is_fp8 && device_check_fp8(r.d, NULL))) {
            close_rig(&r);
            continue;
        }
        struct gemm g = make_product(&r, i / KINDS, i % KINDS);
        cuda_gemm_set_wide_rows(r.d, i % 2 ? FP8_BLOCK : 0); /* of fp8: in pieces, too */
        void *scratch = alloc(&r, (int64_t)r.d->ops->gemm_scratch(r.d, &g) / 4 + 1, DTYPE_F32);
        note_product(&r, &g, scratch);
        int tries = 0, by = SHAPE_BY_OTHER_ALGORITHM;
        for (; by == SHAPE_BY_OTHER_ALGORITHM && tries <= PRODUCT_TRIED; tries++) {
            must(device_shape_check(r.d, 0, &check, &err), &err);
            if (check.is_wrong || !(check.off >= 0) || (is_fp8 && !strstr(check.name, "fp8")))
                fail_msg("%s, %d: off by %g of %g", check.name, i % KINDS, check.off, check.bound);
            if (is_emulated(r.d) && !tries)
                find_faults(&r, &g);
            by = device_shape_replace(r.d, check.shape, &err);
            must(by < 0, &err);
        }
        assert_int_equal(by, is_fp8 ? SHAPE_IN_BF16 : SHAPE_BY_OWN_KERNELS);
        if (is_emulated(r.d))
            assert_in_range(tries, 2, PRODUCT_TRIED); /* its library has several algorithms */
        assert_int_equal(device_shape_check(r.d, 0, &check, &err), 1); /* by the own kernel */
        close_rig(&r);
    }
}

static void a_wrong_algorithm_is_replaced_by_the_next(void **state)
{
    struct rig r = open_rig();
    struct error err = {0};
    struct shape_check check;
    struct gemm g = make_product(&r, 0, 0);
    void *scratch = alloc(&r, (int64_t)r.d->ops->gemm_scratch(r.d, &g) / 4 + 1, DTYPE_F32);
    note_product(&r, &g, scratch);
    if (is_emulated(r.d)) {
        play("term", g.k, "1"); /* its first one that may compute 120 terms */
        must(device_shape_check(r.d, 0, &check, &err), &err);
        assert_int_equal(check.is_wrong, 1);
        assert_int_equal(device_shape_replace(r.d, check.shape, &err), SHAPE_BY_OTHER_ALGORITHM);
        must(device_shape_check(r.d, 0, &check, &err), &err);
        assert_int_equal(check.is_wrong, 0);
        play(NULL, 0, NULL);
    }
    close_rig(&r);
}

/* ---- attention ---- */

static const struct attention attentions[] = {
    {DTYPE_BF16, 1, 64, 4, 2, 64, 0.125f},
    {DTYPE_BF16, 3, 70, 2, 1, 128, 0.088f},
    {DTYPE_F16, 2, 131, 3, 3, 16, 0.25f},
    {DTYPE_BF16, 2, 3, 2, 2, 16, 0.25f},
};
enum { ATTENTIONS = sizeof attentions / sizeof attentions[0] };

static void note_attention(struct rig *r, const struct attention *a)
{
    const int64_t tokens = a->batch * a->seq, out = tokens * a->heads * a->head_dim;
    const int64_t in = tokens * (a->heads + 2 * a->kv_heads) * a->head_dim;
    const size_t scratch = r->d->ops->attention_scratch(r->d, a, DEVICE_BACKWARD);
    void *qkv = alloc(r, in, a->dt), *o = alloc(r, out, a->dt);
    float *lse = alloc(r, tokens * a->heads, DTYPE_F32);
    void *dqkv = alloc(r, in, a->dt), *dout = alloc(r, out, a->dt);
    void *memory = alloc(r, (int64_t)scratch / 4 + 1, DTYPE_F32);
    device_products_note(r->d, 1);
    r->d->ops->attention(r->d, a, o, lse, qkv, memory);
    r->d->ops->attention_backward(r->d, a, dqkv, dout, o, lse, qkv, memory);
    device_products_note(r->d, 0);
}

/* What is wrong of forward and of backward. */
static void check_both(struct rig *r, int forward, int backward)
{
    for (int i = 0; i < 2; i++) {
        struct error err = {0};
        struct shape_check check;
        must(device_shape_check(r->d, i, &check, &err), &err);
        if (check.is_wrong != (i ? backward : forward))
            fail_msg("%s: off by %g of %g, with fault %d", check.name, check.off, check.bound,
                     (int)library.wrong);
    }
}

static void attentions_are_right_or_found(void **state)
{
    for (int i = 0; i < ATTENTIONS; i++) {
        struct rig r = open_rig();
        library.is_there = 1;
        library.wrong = NOTHING;
        note_attention(&r, &attentions[i]);
        assert_int_equal(device_shapes_noted(r.d), 2);
        check_both(&r, 0, 0);
        for (library.wrong = LAST_ROW; i % 2 == 0 && library.wrong <= NAN_WHERE_LOW;
             library.wrong++)
            check_both(&r, 1, library.wrong != LSE);
        library.wrong = NOTHING;
        close_rig(&r);
    }
}

/* 512 tokens: the gradients of the last 64 keys and values are 4 % of their head's. */
static void wrong_gradients_of_few_are_found(void **state)
{
    static const struct attention long_one = {DTYPE_BF16, 1, 512, 2, 1, 16, 0.25f};
    struct rig r = open_rig();
    library.is_there = 1;
    library.wrong = NOTHING;
    note_attention(&r, &long_one);
    check_both(&r, 0, 0);
    for (library.wrong = LAST_KEYS; library.wrong <= KEY_OF_LOW_HEAD; library.wrong++)
        check_both(&r, 0, 1);
    library.wrong = NOTHING;
    close_rig(&r);
}

static void a_wrong_attention_is_asked_for_no_more(void **state)
{
    struct rig r = open_rig();
    struct error err = {0};
    struct shape_check check;
    library.is_there = 1;
    library.wrong = ONE_HEAD;
    note_attention(&r, &attentions[0]);
    must(device_shape_check(r.d, 1, &check, &err), &err);
    assert_int_equal(check.is_wrong, 1);
    must(device_shape_replace(r.d, check.shape, &err), &err);
    assert_int_equal(library.is_there, 0);
    assert_int_equal(device_shape_check(r.d, 1, &check, &err), 1);
    library.wrong = NOTHING;
    close_rig(&r);
}

/* Which a library may make of sums that are 0 but for roundings. */
static void gradients_of_a_single_token_are_not_compared(void **state)
{
    static const struct attention single = {DTYPE_BF16, 2, 1, 2, 2, 16, 0.25f};
    struct rig r = open_rig();
    struct error err = {0};
    struct shape_check check;
    library.is_there = 1;
    note_attention(&r, &single);
    must(device_shape_check(r.d, 0, &check, &err), &err);
    assert_int_equal(check.is_wrong, 0);
    assert_int_equal(device_shape_check(r.d, 1, &check, &err), 1);
    close_rig(&r);
}

/* What own kernels do is not noted: there is nothing to compare it with. */
static void own_attention_is_not_noted(void **state)
{
    struct rig r = open_rig();
    library.is_there = 0;
    note_attention(&r, &attentions[0]);
    assert_int_equal(device_shapes_noted(r.d), 0);
    close_rig(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_are_right_or_replaced),
        cmocka_unit_test(a_wrong_algorithm_is_replaced_by_the_next),
        cmocka_unit_test(attentions_are_right_or_found),
        cmocka_unit_test(wrong_gradients_of_few_are_found),
        cmocka_unit_test(a_wrong_attention_is_asked_for_no_more),
        cmocka_unit_test(gradients_of_a_single_token_are_not_compared),
        cmocka_unit_test(own_attention_is_not_noted),
    };
    char why[128];
    if (!device_gpu_count(why)) {
        printf("skipped: no GPU: %s\n", why);
        return SKIPPED;
    }
    return cmocka_run_group_tests_name("shapes of a run", tests, NULL, NULL);
}
