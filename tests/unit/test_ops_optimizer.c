/* test_ops_optimizer.c - AdamW, SGD and the sum of squares, of gradients in fp32 and in bf16. */
#include "ops_check.h"

#include "base/hash.h"

/* State of a reference AdamW in double precision. */
struct reference {
    double *p, *m, *v;
};

static const double beta1 = 0.9, beta2 = 0.95;

/* The rule of a step, without weight decay. */
static struct adamw rule_of(int step)
{
    return (struct adamw){.lr = 0.01f,
                          .beta2 = (float)beta2,
                          .eps = 1e-8f,
                          .one_minus_beta1 = (float)(1 - beta1),
                          .one_minus_beta2 = (float)(1 - beta2),
                          .bias1 = (float)(1 - pow(beta1, step)),
                          .bias2 = (float)(1 - pow(beta2, step))};
}

static void step_reference(struct reference *r, const struct adamw *a, double factor,
                           const struct tensor *g)
{
    for (int64_t i = 0; i < g->elems; i++) {
        double grad = tensor_get(g, i) * factor;
        r->m[i] = beta1 * r->m[i] + (1 - beta1) * grad;
        r->v[i] = beta2 * r->v[i] + (1 - beta2) * grad * grad;
        r->p[i] -= (double)a->lr * (double)a->weight_decay * r->p[i];
        r->p[i] -= (double)a->lr * (r->m[i] / (double)a->bias1) /
                   (sqrt(r->v[i] / (double)a->bias2) + (double)a->eps);
    }
}

/* copy is p rounded. */
static void check_copy(const struct tensor *copy, const struct tensor *p)
{
    for (int64_t i = 0; i < p->elems; i++) {
        float x = ((float *)p->data)[i];
        uint16_t want = copy->dt == DTYPE_F16 ? f32_to_f16(x) : f32_to_bf16(x);
        assert_int_equal(((uint16_t *)copy->data)[i], want);
    }
}

/* dt_copy fp32: no copy */
static uint64_t adamw_case(struct device *d, int64_t elems, enum dtype dt_copy)
{
    struct tensor p = tensor_random(DTYPE_F32, elems, 1, 1);
    struct tensor m = tensor_random(DTYPE_F32, elems, 2, 0);
    struct tensor v = tensor_random(DTYPE_F32, elems, 2, 0);
    int copies = dt_copy != DTYPE_F32;
    struct tensor copy = tensor_poisoned(dt_copy, elems);
    size_t bytes = (size_t)elems * sizeof(double);
    const double factor = 0.5;
    struct reference r = {malloc(bytes), calloc(1, bytes), calloc(1, bytes)};
    for (int64_t i = 0; i < elems; i++)
        r.p[i] = tensor_get(&p, i);
    for (int step = 1; step <= 5; step++) {
        struct adamw a = rule_of(step);
        a.weight_decay = 0.1f;
        struct tensor g = tensor_random(DTYPE_F32, elems, (uint64_t)(10 + step), 0.1);
        const struct adamw_state s = {DTYPE_F32, DTYPE_F32, p.data,  m.data,
                                      v.data,    g.data,    copy.dt, copies ? copy.data : NULL};
        d->ops->adamw(d, &a, &factor, &s, NULL, elems);
        step_reference(&r, &a, factor, &g);
        tensor_free(&g);
    }
    check_close("p", &p, r.p, 1e-5);
    check_close("m", &m, r.m, 1e-5);
    check_close("v", &v, r.v, 1e-5);
    if (copies)
        check_copy(&copy, &p);
    uint64_t hash = tensor_hash(&p) ^ tensor_hash(&m) ^ tensor_hash(&v);
    tensor_free(&p);
    tensor_free(&m);
    tensor_free(&v);
    tensor_free(&copy);
    free(r.p);
    free(r.m);
    free(r.v);
    return hash;
}

static uint64_t adamw(struct device *d, enum dtype dt)
{
    static const int64_t sizes[] = {1, 3, 7, 16, 127, 1031, 20011};
    uint64_t hash = 0;
    for (int i = 0; i < 7; i++)
        hash = hash * 31 + adamw_case(d, sizes[i], dt);
    return hash;
}

/* Against the rule as torch.optim.SGD has it, the first step's velocity the gradient itself. */
static void sgd_reference(struct reference *r, const struct sgd *s, double factor, int step,
                          const struct tensor *g)
{
    for (int64_t i = 0; i < g->elems; i++) {
        double grad = tensor_get(g, i) * factor + (double)s->weight_decay * r->p[i];
        r->v[i] = step == 1 ? grad : (double)s->momentum * r->v[i] + grad;
        r->p[i] -= (double)s->lr * r->v[i];
    }
}

static uint64_t sgd_case(struct device *d, int64_t elems, enum dtype dt_copy, float momentum)
{
    struct tensor p = tensor_random(DTYPE_F32, elems, 1, 1);
    struct tensor v = tensor_random(DTYPE_F32, elems, 2, 0);
    int copies = dt_copy != DTYPE_F32;
    struct tensor copy = tensor_poisoned(dt_copy, elems);
    size_t bytes = (size_t)elems * sizeof(double);
    const struct sgd s = {.lr = 0.1f, .momentum = momentum, .weight_decay = 0.05f};
    const double factor = 0.5;
    struct reference r = {.p = malloc(bytes), .v = malloc(bytes)};
    for (int64_t i = 0; i < elems; i++)
        r.p[i] = tensor_get(&p, i);
    for (int step = 1; step <= 5; step++) {
        struct tensor g = tensor_random(DTYPE_F32, elems, (uint64_t)(10 + step), 0.1);
        d->ops->sgd(d, &s, &factor, p.data, v.data, g.dt, g.data, copy.dt,
                    copies ? copy.data : NULL, elems);
        sgd_reference(&r, &s, factor, step, &g);
        tensor_free(&g);
    }
    check_close("p", &p, r.p, 1e-5);
    check_close("v", &v, r.v, 1e-5);
    if (copies)
        check_copy(&copy, &p);
    uint64_t hash = tensor_hash(&p) ^ tensor_hash(&v);
    const double none = NAN;
    d->ops->sgd(d, &s, &none, p.data, v.data, p.dt, p.data, copy.dt, NULL, elems);
    assert_true(hash == (tensor_hash(&p) ^ tensor_hash(&v)));
    tensor_free(&p);
    tensor_free(&v);
    tensor_free(&copy);
    free(r.p);
    free(r.v);
    return hash;
}

static uint64_t sgd(struct device *d, enum dtype dt)
{
    static const int64_t sizes[] = {1, 3, 7, 16, 127, 1031, 20011};
    uint64_t hash = 0;
    for (int i = 0; i < 7; i++)
        hash = hash * 31 + sgd_case(d, sizes[i], dt, i % 3 ? 0.9f : 0);
    return hash;
}

/* Parameters that fp16 has no number for, or only a denormal one, by both rules. */
static uint64_t copy_ends(struct device *d, enum dtype dt)
{
    enum { ELEMS = 37 };
    static const float ends[] = {65504, 65519.99f, 65520, -65520, 1e9f, 6e-5f, 3e-8f, -1e-7f, 0};
    const double factor = 1;
    struct tensor p = tensor_poisoned(DTYPE_F32, ELEMS), copy[2];
    struct tensor m = tensor_random(DTYPE_F32, ELEMS, 1, 0), v = tensor_copy(&m);
    struct tensor g = tensor_copy(&m);
    for (int64_t i = 0; i < ELEMS; i++)
        tensor_set(&p, i, ends[i % 9]);
    copy[0] = tensor_poisoned(DTYPE_F16, ELEMS);
    copy[1] = tensor_poisoned(DTYPE_F16, ELEMS);
    const struct adamw_state s = {DTYPE_F32, DTYPE_F32, p.data,    m.data,
                                  v.data,    g.data,    DTYPE_F16, copy[0].data};
    d->ops->adamw(d, &(struct adamw){.bias1 = 1, .bias2 = 1, .eps = 1}, &factor, &s, NULL, ELEMS);
    d->ops->sgd(d, &(struct sgd){0}, &factor, p.data, v.data, g.dt, g.data, DTYPE_F16, copy[1].data,
                ELEMS);
    for (int i = 0; i < 2; i++) {
        check_copy(&copy[i], &p);
        assert_true(tensor_get(&copy[i], 2) == INFINITY && tensor_get(&copy[i], 3) == -INFINITY);
        assert_true(tensor_get(&copy[i], 6) == 0x1p-24 && tensor_get(&copy[i], 1) == 65504);
    }
    uint64_t hash = tensor_hash(&copy[0]);
    tensor_free(&p);
    tensor_free(&m);
    tensor_free(&v);
    tensor_free(&g);
    tensor_free(&copy[0]);
    tensor_free(&copy[1]);
    return hash;
}

/* Sums of numbers of which each order gives other bits, into memory that holds something. */
static uint64_t sum_from_last(struct device *d, enum dtype dt)
{
    enum { MOST = 1000 };
    static const int counts[] = {0, 1, 2, 3, 7, 255, 256, 257, 521, MOST};
    double x[MOST], got[10], other = 0;
    for (int i = 0; i < MOST; i++)
        x[i] = 1.0 / (3 + 7 * i % 41);
    for (int k = 0; k < 10; k++) {
        double want = 0;
        for (int i = counts[k] - 1; i >= 0; i--)
            want += x[i];
        got[k] = 5;
        d->ops->sum_from_last(d, &got[k], x, counts[k]);
        assert_true(got[k] == want);
    }
    for (int i = 0; i < MOST; i++)
        other += x[i];
    assert_true(other != got[9]);
    return hash_bytes(got, sizeof got);
}

/* A slice that starts anywhere sums to what its elements are. */
static uint64_t sumsq(struct device *d, enum dtype dt)
{
    static const int64_t sizes[] = {0, 1, 3, 7, 127, 16384, 16411, 300007};
    double got[8];
    if (dt == DTYPE_F16)
        return 0; /* no gradient is */
    struct tensor x = tensor_random(dt, 300008, 3, 1);
    for (int i = 0; i < 8; i++) {
        long double want = 0;
        const char *slice = (char *)x.data + dtype_bytes(dt);
        for (int64_t j = 0; j < sizes[i]; j++)
            want += tensor_get(&x, j + 1) * tensor_get(&x, j + 1);
        got[i] = 2;
        d->ops->sumsq(d, &got[i], dt, slice, sizes[i]);
        assert_true(fabsl(got[i] - 2 - want) <= 1e-13L * (want + 2));
    }
    tensor_free(&x);
    return hash_bytes(got, sizeof got);
}

/* A gradient in bf16 makes the step that its numbers make in fp32, to the bit: of AdamW, with the
 * moments in a format, and of SGD. */
static uint64_t narrow_gradient(struct device *d, enum dtype dt_m)
{
    enum { ELEMS = 20011 };
    const double factor = 0.37;
    const struct rounding numbers = {.key = 5, .step = 2, .first = 1};
    const struct sgd rule = {.lr = 0.1f, .momentum = 0.9f, .weight_decay = 0.05f};
    if (dt_m == DTYPE_F16)
        return 0; /* no moment is */
    struct tensor narrow = tensor_random(DTYPE_BF16, ELEMS, 4, 1);
    struct tensor wide = tensor_poisoned(DTYPE_F32, ELEMS), p[2], m[2], v[2], copy[2];
    for (int64_t i = 0; i < ELEMS; i++)
        tensor_set(&wide, i, tensor_get(&narrow, i));
    for (int k = 0; k < 2; k++) {
        const struct tensor *g = k ? &narrow : &wide;
        p[k] = tensor_random(DTYPE_F32, ELEMS, 1, 1);
        m[k] = tensor_random(dt_m, ELEMS, 2, 1);
        v[k] = tensor_copy(&m[k]);
        copy[k] = tensor_poisoned(DTYPE_BF16, ELEMS);
        for (int64_t i = 0; i < ELEMS; i++)
            tensor_set(&v[k], i, fabs(tensor_get(&v[k], i)));
        const struct adamw_state s = {.dt_m = dt_m,
                                      .p = p[k].data,
                                      .m = m[k].data,
                                      .v = v[k].data,
                                      .g = g->data,
                                      .dt_copy = DTYPE_BF16,
                                      .copy = copy[k].data,
                                      .dt_g = g->dt};
        const struct adamw a = rule_of(3);
        d->ops->adamw(d, &a, &factor, &s, &numbers, ELEMS);
        if (dt_m == DTYPE_F32)
            d->ops->sgd(d, &rule, &factor, p[k].data, m[k].data, g->dt, g->data, DTYPE_BF16,
                        copy[k].data, ELEMS);
    }
    uint64_t hash[2];
    for (int k = 0; k < 2; k++)
        hash[k] = tensor_hash(&p[k]) + 3 * tensor_hash(&m[k]) + 5 * tensor_hash(&v[k]) +
                  7 * tensor_hash(&copy[k]);
    assert_true(hash[0] == hash[1]);
    for (int k = 0; k < 2; k++) {
        tensor_free(&p[k]);
        tensor_free(&m[k]);
        tensor_free(&v[k]);
        tensor_free(&copy[k]);
    }
    tensor_free(&narrow);
    tensor_free(&wide);
    return hash[0];
}

static void a_gradient_in_bf16_is_what_it_is_in_fp32(void **state)
{
    for_each_setting(narrow_gradient);
}

static void adamw_is_the_published_rule(void **state)
{
    for_each_setting(adamw);
}

static void sgd_is_the_published_rule(void **state)
{
    for_each_setting(sgd);
}

static void copies_in_fp16_have_infinity_and_denormals(void **state)
{
    for_each_setting(copy_ends);
}

static void sumsq_is_as_exact_as_double(void **state)
{
    for_each_setting(sumsq);
}

static void sums_are_taken_from_the_last_on(void **state)
{
    for_each_setting(sum_from_last);
}

/* Moments that fade away end at 0 and not in denormals; others' arithmetic is left alone. */
static void denormals_are_flushed_here_only(void **state)
{
    enum { ELEMS = 37 };
    const struct adamw a = rule_of(1000);
    const double factor = 1;
    struct device *d = open_device(NULL, 1);
    float p[ELEMS], m[ELEMS], v[ELEMS], g[ELEMS] = {0};
    for (int i = 0; i < ELEMS; i++) {
        p[i] = 1;
        m[i] = v[i] = 1e-38f;
    }
    const struct adamw_state s = {DTYPE_F32, DTYPE_F32, p, m, v, g, DTYPE_BF16, NULL};
    d->ops->adamw(d, &a, &factor, &s, NULL, ELEMS);
    for (int i = 0; i < ELEMS; i++) {
        assert_true(p[i] == 1);
        assert_true(m[i] == 0 || m[i] >= 1.17549435e-38f || strcmp(d->level, "generic") == 0);
        assert_true(v[i] == 0 || v[i] >= 1.17549435e-38f || strcmp(d->level, "generic") == 0);
    }
    volatile float tiny = 1e-40f;
    assert_true(tiny * 0.5f > 0);
    device_close(d);
}

/* The mean over the targets there were, scaled down where its norm exceeds the limit. */
static uint64_t update_factor(struct device *d, enum dtype dt)
{
    const double set[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    const double one = 1;
    double y[9] = {0}, factor, targets = 50, squares = 16, none = 0, broken = NAN, inf = INFINITY;
    d->ops->set(d, y, set, 8);
    assert_memory_equal(y, set, sizeof set);
    assert_true(y[8] == 0);
    d->ops->update_factor(d, &factor, &targets, &squares, &one, 100, 0);
    assert_true(factor == 2);
    d->ops->update_factor(d, &factor, &targets, &squares, &one, 100, 9);
    assert_true(factor == 2);
    d->ops->update_factor(d, &factor, &targets, &squares, &one, 100, 4);
    assert_true(fabs(factor - 2 * (4 / (8 + 1e-6))) < 1e-15);
    d->ops->update_factor(d, &factor, &none, &squares, &one, 100, 4);
    assert_true(factor == 0);
    d->ops->update_factor(d, &factor, &targets, &broken, &one, 100, 4);
    assert_true(isnan(factor));
    d->ops->update_factor(d, &factor, &targets, &inf, &one, 100, 4);
    assert_true(isnan(factor));
    const double loss_scale = 1024, scaled = 16 * loss_scale * loss_scale, tiny = 0x1p-60;
    d->ops->update_factor(d, &factor, &targets, &scaled, &loss_scale, 100, 0);
    assert_true(factor == 2 / loss_scale);
    d->ops->update_factor(d, &factor, &targets, &scaled, &loss_scale, 100, 9);
    assert_true(factor == 2 / loss_scale);
    d->ops->update_factor(d, &factor, &targets, &scaled, &loss_scale, 100, 4);
    assert_true(fabs(factor - 2 / loss_scale * (4 / (8 + 1e-6))) < 1e-18);
    d->ops->update_factor(d, &factor, &none, &scaled, &loss_scale, 100, 4);
    assert_true(factor == 0);
    d->ops->update_factor(d, &factor, &targets, &inf, &loss_scale, 100, 0);
    assert_true(isnan(factor));
    d->ops->update_factor(d, &factor, &targets, &squares, &tiny, 100, 0);
    assert_true(factor == 0x1p61);
    d->ops->update_factor(d, &factor, &targets, &inf, &one, 100, 4);
    float p = 1, m = 2, v = 3, g = 4;
    const struct adamw_state s = {DTYPE_F32, DTYPE_F32, &p, &m, &v, &g, DTYPE_BF16, NULL};
    d->ops->adamw(d, &(struct adamw){.lr = 1, .bias1 = 1, .bias2 = 1}, &factor, &s, NULL, 1);
    assert_true(p == 1 && m == 2 && v == 3);
    return 0;
}

static void the_update_takes_the_clipped_mean(void **state)
{
    for_each_setting(update_factor);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(adamw_is_the_published_rule),
        cmocka_unit_test(sgd_is_the_published_rule),
        cmocka_unit_test(a_gradient_in_bf16_is_what_it_is_in_fp32),
        cmocka_unit_test(copies_in_fp16_have_infinity_and_denormals),
        cmocka_unit_test(denormals_are_flushed_here_only),
        cmocka_unit_test(sumsq_is_as_exact_as_double),
        cmocka_unit_test(sums_are_taken_from_the_last_on),
        cmocka_unit_test(the_update_takes_the_clipped_mean),
    };
    return cmocka_run_group_tests_name("ops optimizer", tests, NULL, NULL);
}
