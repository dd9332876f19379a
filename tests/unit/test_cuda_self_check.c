/* test_cuda_self_check.c - the self-check finds every family right, and each fault that is put into
 * one: an op that does nothing, a number that is off, a library that is wrong.
 *
 * Built twice: for real GPUs, and for the emulated one.  cuDNN's attention is played by trireme's
 * own kernels: the linker has calls of cuda_sdpa_forward() come here (--wrap).
 */
#include "cuda_check.h"

#include <stdio.h>

#include "device/cuda/state.h"
#include "device/self_check_private.h"

/* ---- a cuDNN that can be wrong ---- */

static struct {
    int is_there, ran; /* 1: it does attention; calls */
    int spoils[2];     /* forward, backward: it puts one number off */
    /* Where scores are far below 0, backward has a NaN, or is off in elements 0 of each query and
     * key, which are sums of large terms, or in elements 1. */
    int spoils_low, rounds_low, bends_low;
} library;

/* The number at an index is 5 % too large. */
static void spoil(struct device *d, enum dtype dt, void *y, int64_t index)
{
    char *at = (char *)y + (size_t)index * dtype_bytes(dt);
    cuda_scale(d, dt, at, at, 1.05f, 1);
}

/* Of some numbers, as one alone may be near 0. */
static void spoil_some(struct device *d, enum dtype dt, void *y, int64_t elems)
{
    for (int64_t i = 0; i < elems && i < 8; i++)
        spoil(d, dt, y, i);
}

static int is_low(const float *lse)
{
    float first;
    assert_int_equal(cudaMemcpy(&first, lse, sizeof first, cudaMemcpyDeviceToHost), cudaSuccess);
    return first < -88;
}

/* From an element on, and by a quarter: more is allowed of attention. */
static void spoil_more(struct device *d, enum dtype dt, void *y, int64_t first)
{
    for (int i = 0; i < 5; i++)
        spoil_some(d, dt, (char *)y + (size_t)first * dtype_bytes(dt), 8);
}

int __wrap_cuda_sdpa_forward(struct device *d, const struct attention *a, void *o, float *lse,
                             const void *qkv, void *scratch, size_t scratch_bytes);
int __wrap_cuda_sdpa_backward(struct device *d, const struct attention *a, void *dqkv,
                              const void *dout, const void *o, const float *lse, const void *qkv,
                              void *scratch, size_t scratch_bytes);
void __wrap_cuda_sdpa_report(const struct device *d, struct device_attention *a);

/* Element `which` of all queries' and keys' gradients, by as much as roundings may make of sums of
 * large terms. */
static void spoil_elements(struct device *d, const struct attention *a, void *dqkv, int64_t which)
{
    const int64_t slots = a->heads + 2 * a->kv_heads;
    for (int64_t i = 0; i < a->batch * a->seq * slots; i++)
        if (i % slots < a->heads + a->kv_heads)
            for (int k = 0; k < 4; k++)
                spoil(d, a->dt, dqkv, i * a->head_dim + which);
}

int __wrap_cuda_sdpa_forward(struct device *d, const struct attention *a, void *o, float *lse,
                             const void *qkv, void *scratch, size_t scratch_bytes)
{
    if (!library.is_there)
        return 0;
    library.ran++;
    cuda_own_attention(d, a, o, lse, qkv, scratch);
    if (library.spoils[DEVICE_FORWARD])
        spoil_more(d, a->dt, o, 0);
    return 1;
}

int __wrap_cuda_sdpa_backward(struct device *d, const struct attention *a, void *dqkv,
                              const void *dout, const void *o, const float *lse, const void *qkv,
                              void *scratch, size_t scratch_bytes)
{
    if (!library.is_there)
        return 0;
    library.ran++;
    cuda_own_attention_backward(d, a, dqkv, dout, o, lse, qkv, scratch);
    if (library.spoils[DEVICE_BACKWARD])
        spoil_more(d, a->dt, dqkv, a->seq / 2 * (a->heads + 2 * a->kv_heads) * a->head_dim);
    if (library.spoils_low && is_low(lse))
        cuda_scale(d, a->dt, dqkv, dqkv, NAN, 1);
    if (library.rounds_low && is_low(lse))
        spoil_elements(d, a, dqkv, 0);
    if (library.bends_low && is_low(lse))
        spoil_elements(d, a, dqkv, 1);
    return 1;
}

void __wrap_cuda_sdpa_report(const struct device *d, struct device_attention *a)
{
    *a = (struct device_attention){.by_library = library.ran, .has_library = 1};
}

/* ---- checking one family, with a table of ops in which one is wrong ---- */

static int family_named(const char *name)
{
    for (int i = 0; self_check_families[i].name; i++)
        if (!strcmp(self_check_families[i].name, name))
            return i;
    fail_msg("no family %s", name);
    return -1;
}

static struct self_check_row check_with(struct check *c, const char *family,
                                        const struct device_ops *ops)
{
    struct self_check_row row;
    struct error err = {0};
    const struct device_ops *right = c->gpu->ops;
    char text[400];
    c->gpu->ops = ops;
    if (self_check_family(&row, family_named(family), c->gpu, c->cpu, &c->mem, &err))
        fail_msg("%s", err.text);
    c->gpu->ops = right;
    printf("%s\n", self_check_line(&row, text));
    return row;
}

static void families_are_right(void **state)
{
    struct self_check check;
    struct error err = {0};
    struct check c = check_open();
    char text[400];
    if (self_check_run(&check, &(struct device_request){.threads = 2}, &c.mem, &err))
        fail_msg("%s", err.text);
    for (int i = 0; i < check.rows; i++)
        printf("%s\n", self_check_line(&check.row[i], text));
    printf("%.2f s\n", check.seconds);
    assert_int_equal(check.wrong, 0);
    assert_int_equal(check.replaced, 0);
    assert_true(check.rows > 30);
    for (int i = 0; i < check.rows; i++)
        if (check.row[i].bit >> DEVICE_PRODUCT_FAMILIES ||
            (check.row[i].bit == DEVICE_FP8_FAMILY && device_check_fp8(c.gpu, NULL)))
            assert_int_equal(check.row[i].verdict, SELF_CHECK_UNUSED);
        else
            assert_int_equal(check.row[i].verdict, SELF_CHECK_RIGHT);
    check_close_devices(&c);
}

/* ---- an op that does nothing ---- */

static int nothing(void)
{
    return 0;
}

/* Every op but those that size scratch, and the family that must miss it. */
#define DOES_NOTHING(op) [(offsetof(struct device_ops, op)) / sizeof(void *)]
static const struct {
    const char *family;
} of_op[sizeof(struct device_ops) / sizeof(void *)] = {
    DOES_NOTHING(embedding) = {"embedding"},
    DOES_NOTHING(embedding_backward) = {"embedding"},
    DOES_NOTHING(rmsnorm) = {"rmsnorm"},
    DOES_NOTHING(rmsnorm_backward) = {"rmsnorm"},
    DOES_NOTHING(layernorm) = {"layernorm"},
    DOES_NOTHING(layernorm_backward) = {"layernorm"},
    DOES_NOTHING(bias) = {"bias"},
    DOES_NOTHING(bias_backward) = {"bias"},
    DOES_NOTHING(row_squares) = {"magnitudes of adapters"},
    DOES_NOTHING(scale_columns) = {"magnitudes of adapters"},
    DOES_NOTHING(scale_columns_backward) = {"magnitudes of adapters"},
    DOES_NOTHING(gelu) = {"gelu"},
    DOES_NOTHING(gelu_backward) = {"gelu"},
    DOES_NOTHING(qk_norm) = {"qk_norm"},
    DOES_NOTHING(qk_norm_backward) = {"qk_norm"},
    DOES_NOTHING(rope) = {"rope"},
    DOES_NOTHING(pack_heads) = {"packed heads"},
    DOES_NOTHING(pack_heads_backward) = {"packed heads"},
    DOES_NOTHING(order_chunks) = {"chunks of sequences"},
    DOES_NOTHING(dropout) = {"dropout"},
    DOES_NOTHING(attention) = {"attention, own kernels, fp32"},
    DOES_NOTHING(attention_backward) = {"attention, own kernels, bf16"},
    DOES_NOTHING(attention_cached) = {"attention over a cache"},
    DOES_NOTHING(swiglu) = {"swiglu"},
    DOES_NOTHING(swiglu_backward) = {"swiglu"},
    DOES_NOTHING(swiglu_scaled) = {"swiglu"},
    DOES_NOTHING(swiglu_scaled_backward) = {"swiglu"},
    DOES_NOTHING(route) = {"routes of experts"},
    DOES_NOTHING(route_backward) = {"routes of experts"},
    DOES_NOTHING(route_load) = {"routes of experts"},
    DOES_NOTHING(dispatch) = {"routes of experts"},
    DOES_NOTHING(combine) = {"routes of experts"},
    DOES_NOTHING(experts_gemm) = {"products of experts"},
    DOES_NOTHING(cross_entropy) = {"cross-entropy"},
    DOES_NOTHING(loss_sum) = {"cross-entropy"},
    DOES_NOTHING(add) = {"add, scale, cast, decode, copy"},
    DOES_NOTHING(scale) = {"add, scale, cast, decode, copy"},
    DOES_NOTHING(cast) = {"add, scale, cast, decode, copy"},
    DOES_NOTHING(decode_nf4) = {"add, scale, cast, decode, copy"},
    DOES_NOTHING(fill_zero) = {"add, scale, cast, decode, copy"},
    DOES_NOTHING(copy) = {"add, scale, cast, decode, copy"},
    DOES_NOTHING(set) = {"sums and factors"},
    DOES_NOTHING(sumsq) = {"sums and factors"},
    DOES_NOTHING(sum_from_last) = {"sums and factors"},
    DOES_NOTHING(update_factor) = {"sums and factors"},
    DOES_NOTHING(adamw) = {"adamw with bf16 state"},
    DOES_NOTHING(sgd) = {"sgd"},
    DOES_NOTHING(momentum) = {"muon"},
    DOES_NOTHING(muon) = {"muon"},
    DOES_NOTHING(normalize) = {"muon"},
    DOES_NOTHING(polynomial) = {"muon"},
    DOES_NOTHING(softmax_part) = {"cross-entropy in parts"},
    DOES_NOTHING(softmax_term) = {"cross-entropy in parts"},
    DOES_NOTHING(softmax_loss) = {"cross-entropy in parts"},
    DOES_NOTHING(softmax_gradient) = {"cross-entropy in parts"},
};

/* A new op without a row above, and so perhaps without a family, fails here. */
static void an_op_that_does_nothing_is_found(void **state)
{
    struct check c = check_open();
#define ONE_OP(op)                                                                           \
    if (!strstr(#op, "_scratch")) {                                                          \
        struct device_ops ops = cuda_ops;                                                    \
        const char *family = of_op[offsetof(struct device_ops, op) / sizeof(void *)].family; \
        assert_non_null(family);                                                             \
        ops.op = (__typeof__(ops.op))(void (*)(void))nothing;                                \
        struct self_check_row row = check_with(&c, family, &ops);                            \
        assert_int_equal(row.verdict, SELF_CHECK_WRONG);                                     \
        assert_non_null(strstr(row.of, #op));                                                \
    }
    DEVICE_OPS(ONE_OP)
    check_close_devices(&c);
}

/* ---- a number that is off ---- */

static void off_rmsnorm_backward(struct device *d, enum dtype dt, void *dx, float *dw,
                                 const void *dy, const void *dsum, const void *x, const void *w,
                                 const float *rstd, int64_t rows, int64_t hidden, int accumulate,
                                 void *scratch)
{
    cuda_rmsnorm_backward(d, dt, dx, dw, dy, dsum, x, w, rstd, rows, hidden, accumulate, scratch);
    spoil_some(d, DTYPE_F32, dw, hidden);
}

static void off_swiglu(struct device *d, enum dtype dt, void *y, const void *gate_up, int64_t rows,
                       int64_t ffn)
{
    cuda_swiglu(d, dt, y, gate_up, rows, ffn);
    if (dt == DTYPE_BF16)
        spoil_some(d, dt, y, ffn);
}

static void off_route(struct device *d, const struct route *r, float *weights, int32_t *routes,
                      const float *logits)
{
    cuda_route(d, r, weights, routes, logits);
    if (r->experts > 64)
        spoil_some(d, DTYPE_F32, weights, r->rows);
}

/* The second expert has the first row of the third. */
static int off_experts_gemm(struct device *d, const struct experts_gemm *g, void *c, const void *a,
                            const void *b, const int32_t *first, void *scratch, struct error *err)
{
    int32_t other[4];
    assert_int_equal(g->experts, 3);
    assert_int_equal(device_download(d, other, first, sizeof other, err), 0);
    other[2]++;
    assert_int_equal(device_upload(d, (int32_t *)first, other, sizeof other, err), 0);
    cuda_experts_gemm(d, g, c, a, b, first, scratch, err);
    other[2]--;
    return device_upload(d, (int32_t *)first, other, sizeof other, err);
}

static void off_gelu(struct device *d, enum dtype dt, void *y, const void *x, const void *b,
                     int64_t rows, int64_t cols)
{
    cuda_gelu(d, dt, y, x, b, rows, cols);
    if (dt == DTYPE_F16)
        spoil_some(d, dt, y, cols);
}

static void off_rope(struct device *d, const struct rope *r, void *y, const void *x,
                     const float *cos_sin, const int32_t *positions)
{
    cuda_rope(d, r, y, x, cos_sin, positions);
    if (positions) /* of generation alone */
        spoil_some(d, r->dt, y, r->head_dim);
}

static void off_cross_entropy(struct device *d, enum dtype dt, float *row_loss, void *dlogits,
                              int64_t ld_d, enum dtype dt_x, const void *logits, int64_t ld,
                              const int32_t *targets, int64_t rows, int64_t vocab, float scale,
                              const double *loss_scale)
{
    cuda_cross_entropy(d, dt, row_loss, dlogits, ld_d, dt_x, logits, ld, targets, rows, vocab,
                       scale, loss_scale);
    if (vocab > 30000)
        spoil(d, DTYPE_F32, row_loss, 0);
}

static void off_adamw(struct device *d, const struct adamw *a, const double *factor,
                      const struct adamw_state *s, const struct rounding *r, int64_t elems)
{
    struct adamw other = *a;
    other.bias2 *= 1.001f;
    cuda_adamw(d, &other, factor, s, r, elems);
}

/* With codes of the square of gradients a level too high, as if rounded up. */
static void off_adamw_codes(struct device *d, const struct adamw *a, const double *factor,
                            const struct adamw_state *s, const struct rounding *r, int64_t elems)
{
    enum { MOST = 8192 };
    uint8_t codes[MOST];
    struct error err;
    cuda_adamw(d, a, factor, s, r, elems);
    assert_in_range(elems, 1, MOST);
    assert_int_equal(device_download(d, codes, s->v, (size_t)elems, &err), 0);
    for (int64_t i = 0; i < elems; i++)
        codes[i] += codes[i] < 255;
    assert_int_equal(device_upload(d, s->v, codes, (size_t)elems, &err), 0);
}

static void off_muon(struct device *d, const struct muon *rule, const double *factor, float *p,
                     const float *u, enum dtype dt_copy, void *copy, int64_t elems)
{
    struct muon other = *rule;
    other.weight_decay = 0;
    cuda_muon(d, &other, factor, p, u, dt_copy, copy, elems);
}

/* The last mask but for one word. */
static void off_dropout(struct device *d, const struct dropout *p, void *y, const void *x,
                        const void *addend)
{
    struct dropout other = *p;
    other.mask.limit += 1u << 26;
    cuda_dropout(d, &other, y, x, addend);
}

static void off_attention_backward(struct device *d, const struct attention *a, void *dqkv,
                                   const void *dout, const void *o, const float *lse,
                                   const void *qkv, void *scratch)
{
    struct attention other = *a;
    if (a->forms & ATTENTION_WINDOW)
        other.window++;
    cuda_attention_backward(d, &other, dqkv, dout, o, lse, qkv, scratch);
}

static void off_embedding(struct device *d, enum dtype dt, void *y, const void *table,
                          const int32_t *tokens, int64_t rows, int64_t hidden, int64_t first,
                          int64_t vocab)
{
    cuda_embedding(d, dt, y, table, tokens, rows, hidden, first, vocab - 1);
}

/* Right, and then right but for a number that is only read. */
static void writes_elsewhere(struct device *d, enum dtype dt, void *y, const void *x, const void *b,
                             int64_t rows, int64_t cols)
{
    cuda_bias(d, dt, y, x, b, rows, cols);
    cuda_scale(d, dt, (char *)y + (size_t)(rows * cols) * dtype_bytes(dt), b, 1, 1);
}

static int calls;

static void changes(struct device *d, enum dtype dt, void *y, const void *x, const void *b,
                    int64_t rows, int64_t cols)
{
    const float least = 1 + 0x1p-23f; /* within the bound of fp32 */
    cuda_bias(d, dt, y, x, b, rows, cols);
    if (dt == DTYPE_F32 && ++calls % 2)
        cuda_scale(d, dt, y, y, least, 1);
}

static void a_number_that_is_off_is_found(void **state)
{
    const struct {
        const char *family, *of, *why;
        struct device_ops ops;
    } faults[] = {
#define OFF(text, op, where)                                  \
    {                                                         \
        .family = text, .of = where, .ops = {.op = off_##op } \
    }
        OFF("rmsnorm", rmsnorm_backward, "rmsnorm_backward"),
        OFF("swiglu", swiglu, "swiglu bf16"),
        OFF("routes of experts", route, "route"),
        OFF("products of experts", experts_gemm, "experts_gemm"),
        OFF("gelu", gelu, "gelu fp16"),
        OFF("rope", rope, "rope"),
        OFF("cross-entropy", cross_entropy, "cross_entropy"),
        OFF("adamw", adamw, "adamw fp32"),
        {.family = "adamw with 8-bit state", .of = "adamw u8", .ops = {.adamw = off_adamw_codes}},
        OFF("muon", muon, "muon"),
        OFF("dropout", dropout, "dropout"),
        OFF("attention, own kernels, bf16", attention_backward, "attention_backward bf16"),
        OFF("attention, own kernels, fp32", attention_backward, "attention_backward fp32"),
        OFF("embedding", embedding, "embedding"),
        {.family = "bias", .why = "outside", .ops = {.bias = writes_elsewhere}},
        {.family = "bias", .why = "second time", .ops = {.bias = changes}},
    };
    struct check c = check_open();
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
        struct device_ops ops = cuda_ops;
#define PUT(op) ops.op = faults[i].ops.op ? faults[i].ops.op : ops.op;
        DEVICE_OPS(PUT)
        struct self_check_row row = check_with(&c, faults[i].family, &ops);
        assert_int_equal(row.verdict, SELF_CHECK_WRONG);
        if (faults[i].of)
            assert_non_null(strstr(row.of, faults[i].of));
        if (faults[i].why)
            assert_non_null(strstr(row.why, faults[i].why));
        row = check_with(&c, faults[i].family, &cuda_ops);
        assert_int_equal(row.verdict, SELF_CHECK_RIGHT);
    }
    check_close_devices(&c);
}

/* ---- libraries that are wrong, and what takes their place ---- */

static enum dtype wrong_dt;
static int wrong_trans, library_fails;

/* cuBLASLt, where it is asked. */
static int wrong_gemm(struct device *d, const struct gemm *g, void *scratch, struct error *err)
{
    int is_wrong = !g->fp8 && g->dt == wrong_dt && g->trans_a == wrong_trans / 2 &&
                   g->trans_b == wrong_trans % 2 &&
                   !(d->replaced & device_product_family(g->dt, g->trans_a, g->trans_b));
    if (is_wrong && library_fails)
        return error_set(err, "cuBLASLt: no such kernel");
    if (cuda_gemm(d, g, scratch, err))
        return -1;
    if (is_wrong)
        spoil_some(d, g->dt_c, g->c, g->n);
    return 0;
}

static void wrong_products_are_replaced(void **state)
{
    struct check c = check_open();
    struct device_ops ops = cuda_ops;
    ops.gemm = wrong_gemm;
    for (int i = 0; i < 2 * 4 * TYPES; i++) {
        wrong_dt = op_types[i / 8];
        wrong_trans = i / 2 % 4;
        library_fails = i % 2;
        for (int f = 0; self_check_families[f].kind == KIND_PRODUCT && i % 5 == 0; f++) {
            struct self_check_row row = check_with(&c, self_check_families[f].name, &ops);
            int hit = row.bit == device_product_family(wrong_dt, wrong_trans / 2, wrong_trans % 2);
            assert_int_equal(row.verdict, hit ? SELF_CHECK_REPLACED : SELF_CHECK_RIGHT);
            if (hit && library_fails)
                assert_non_null(strstr(row.why, "no such kernel"));
        }
    }
    assert_int_equal(check_with(&c, "products, own kernel", &ops).verdict, SELF_CHECK_RIGHT);
    assert_int_equal(c.gpu->replaced, 0);
    check_close_devices(&c);
}

/* Which of cuDNN's families are found wrong. */
static unsigned wrong_of_cudnn(struct check *c)
{
    unsigned wrong = 0;
    for (int f = 0; self_check_families[f].name; f++) {
        if (self_check_families[f].kind != KIND_ATTENTION)
            continue;
        struct self_check_row row = check_with(c, self_check_families[f].name, &cuda_ops);
        assert_int_not_equal(row.verdict, SELF_CHECK_UNUSED);
        wrong |= row.verdict == SELF_CHECK_REPLACED ? row.bit : 0;
    }
    return wrong;
}

static void a_wrong_cudnn_is_replaced(void **state)
{
    const unsigned forward = device_attention_family(DTYPE_BF16, DEVICE_FORWARD) |
                             device_attention_family(DTYPE_F16, DEVICE_FORWARD);
    struct check c = check_open();
    library.is_there = 1;
    assert_int_equal(wrong_of_cudnn(&c), 0);
    library.spoils[DEVICE_FORWARD] = 1;
    assert_int_equal(wrong_of_cudnn(&c), forward);
    library.spoils[DEVICE_FORWARD] = 0;
    library.spoils[DEVICE_BACKWARD] = 1;
    assert_int_equal(wrong_of_cudnn(&c), forward << 1);
    library.spoils[DEVICE_BACKWARD] = 0;
    library.spoils_low = 1;
    assert_int_equal(wrong_of_cudnn(&c), forward << 1);
    library.spoils_low = 0;
    library.rounds_low = 1;
    assert_int_equal(wrong_of_cudnn(&c), 0);
    library.rounds_low = 0;
    library.bends_low = 1;
    assert_int_equal(wrong_of_cudnn(&c), forward << 1);
    library.is_there = library.bends_low = 0;
    check_close_devices(&c);
}

/* A device that was opened without a part does not ask the library, computes the right thing, and
 * says so. */
static void what_is_replaced_is_not_asked(void **state)
{
    struct error err = {0};
    struct device_attention met;
    struct check c = check_open();
    const unsigned replaced = device_attention_family(DTYPE_BF16, DEVICE_FORWARD);
    device_close(c.gpu);
    if (device_open(&c.gpu, &(struct device_request){.kind = DEVICE_CUDA, .replaced = replaced},
                    &err))
        fail_msg("%s", err.text);
    library.is_there = library.spoils[DEVICE_FORWARD] = library.spoils[DEVICE_BACKWARD] = 1;
    library.ran = 0;
    struct self_check_row row = check_with(&c, "attention by cuDNN bf16, forward", &cuda_ops);
    assert_int_equal(row.verdict, SELF_CHECK_UNUSED);
    assert_int_equal(library.ran, 0);
    device_attention(c.gpu, &met);
    assert_int_equal(met.by_own, 1);
    assert_non_null(strstr(met.why, "self-check"));
    assert_string_equal(device_attention_name(c.gpu), "own");
    row = check_with(&c, "attention by cuDNN bf16, backward", &cuda_ops);
    assert_int_equal(row.verdict, SELF_CHECK_REPLACED);
    assert_string_equal(device_attention_name(c.gpu), "cudnn+own");
    library.is_there = library.spoils[DEVICE_FORWARD] = library.spoils[DEVICE_BACKWARD] = 0;
    check_close_devices(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(families_are_right),
        cmocka_unit_test(an_op_that_does_nothing_is_found),
        cmocka_unit_test(a_number_that_is_off_is_found),
        cmocka_unit_test(wrong_products_are_replaced),
        cmocka_unit_test(a_wrong_cudnn_is_replaced),
        cmocka_unit_test(what_is_replaced_is_not_asked),
    };
    return check_main("self-check of the GPU", tests);
}
