/* test_attention.c - attention against a plain double-precision one, on every level. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <math.h>
#include <cmocka.h>

#include "base/philox.h"
#include "device/ops.h"

enum { GUARD = 256 }; /* bytes behind an output that nobody may touch */

static const struct {
    enum dtype dt;
    double tolerance; /* of the largest element */
} types[] = {
    {DTYPE_F32, 1e-5},  /* sums of some hundred rounded products */
    {DTYPE_BF16, 1e-2}, /* results, weights and their gradients are rounded to 2^-9 of themselves */
    {DTYPE_F16, 1e-3},  /* results are rounded to 2^-12, and o's enter the gradients */
};
enum { TYPES = sizeof types / sizeof types[0] };

/* A problem, what the op made of it, and what double precision makes of it. */
struct problem {
    struct attention a;
    int64_t row, qkv_elems, out_elems, lse_elems;
    void *qkv, *dout, *o, *dqkv; /* of a.dt; outputs are guarded */
    float *lse;
    double *x, *dy; /* the inputs as they were rounded */
    double *ref_o, *ref_lse, *ref_dx;
};

static const struct attention shapes[] = {
    {.batch = 1, .seq = 1, .heads = 1, .kv_heads = 1, .head_dim = 2},
    {.batch = 2, .seq = 3, .heads = 3, .kv_heads = 1, .head_dim = 6},
    {.batch = 1, .seq = 7, .heads = 4, .kv_heads = 2, .head_dim = 10},
    {.batch = 3, .seq = 37, .heads = 6, .kv_heads = 2, .head_dim = 6},
    {.batch = 1, .seq = 64, .heads = 2, .kv_heads = 2, .head_dim = 128},
    {.batch = 1, .seq = 65, .heads = 2, .kv_heads = 1, .head_dim = 64},
    {.batch = 2, .seq = 131, .heads = 4, .kv_heads = 4, .head_dim = 16},
    {.batch = 1, .seq = 97, .heads = 3, .kv_heads = 1, .head_dim = 256},
    {.batch = 1, .seq = 193, .heads = 5, .kv_heads = 1, .head_dim = 80},
    {.batch = 1, .seq = 577, .heads = 2, .kv_heads = 1, .head_dim = 34},
};
enum { SHAPES = sizeof shapes / sizeof shapes[0] };

static void *guarded(size_t bytes)
{
    void *p = aligned_alloc(64, (bytes + GUARD + 63) / 64 * 64);
    memset(p, 0xff, bytes + GUARD); /* NaN in every type */
    return p;
}

static void assert_guarded(const void *p, size_t bytes)
{
    const unsigned char *end = (const unsigned char *)p + bytes;
    for (int i = 0; i < GUARD; i++)
        assert_int_equal(end[i], 0xff);
}

static double value(enum dtype dt, const void *p, int64_t i)
{
    if (dt == DTYPE_BF16)
        return bf16_to_f32(((const bf16 *)p)[i]);
    return dt == DTYPE_F16 ? f16_to_f32(((const f16 *)p)[i]) : ((const float *)p)[i];
}

static void put(enum dtype dt, void *p, int64_t i, float x)
{
    if (dt == DTYPE_BF16)
        ((bf16 *)p)[i] = f32_to_bf16(x);
    else if (dt == DTYPE_F16)
        ((f16 *)p)[i] = f32_to_f16(x);
    else
        ((float *)p)[i] = x;
}

static void fill(enum dtype dt, void *p, double *as_double, int64_t elems, uint64_t key)
{
    for (int64_t i = 0; i < elems; i++) {
        put(dt, p, i, philox_normal(key, i));
        as_double[i] = value(dt, p, i);
    }
}

static void problem_make(struct problem *p, const struct attention *shape, enum dtype dt)
{
    size_t size = dtype_bytes(dt);
    *p = (struct problem){.a = *shape};
    p->a.dt = dt;
    p->a.scale = (float)(1 / sqrt((double)shape->head_dim));
    p->row = (shape->heads + 2 * shape->kv_heads) * shape->head_dim;
    p->qkv_elems = shape->batch * shape->seq * p->row;
    p->out_elems = shape->batch * shape->seq * shape->heads * shape->head_dim;
    p->lse_elems = shape->batch * shape->heads * shape->seq;
    p->qkv = guarded(p->qkv_elems * size);
    p->dout = guarded(p->out_elems * size);
    p->o = guarded(p->out_elems * size);
    p->dqkv = guarded(p->qkv_elems * size);
    p->lse = guarded(p->lse_elems * sizeof(float));
    p->x = calloc(p->qkv_elems, sizeof(double));
    p->ref_dx = calloc(p->qkv_elems, sizeof(double));
    p->dy = calloc(p->out_elems, sizeof(double));
    p->ref_o = calloc(p->out_elems, sizeof(double));
    p->ref_lse = calloc(p->lse_elems, sizeof(double));
    fill(dt, p->qkv, p->x, p->qkv_elems, 11);
    fill(dt, p->dout, p->dy, p->out_elems, 12);
}

static void problem_free(struct problem *p)
{
    void *blocks[] = {p->qkv, p->dout, p->o,     p->dqkv,    p->lse,
                      p->x,   p->dy,   p->ref_o, p->ref_lse, p->ref_dx};
    for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++)
        free(blocks[i]);
}

static double dot(const double *a, const double *b, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

static void add_scaled(double *y, double s, const double *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] += s * x[i];
}

/* Offsets of a query, key or value head of one position in x, and of its output. */
static int64_t at_head(const struct problem *p, int64_t b, int64_t t, int64_t slot)
{
    return (b * p->a.seq + t) * p->row + slot * p->a.head_dim;
}

static int64_t at_out(const struct problem *p, int64_t b, int64_t t, int64_t h)
{
    return ((b * p->a.seq + t) * p->a.heads + h) * p->a.head_dim;
}

/* One query: weights over the keys 0..t, its output and lse, and what it adds to ref_dx. */
static void reference_query(struct problem *p, int64_t b, int64_t t, int64_t h, double *weight)
{
    const struct attention *a = &p->a;
    int64_t kv = h / (a->heads / a->kv_heads), n = a->head_dim;
    int64_t q = at_head(p, b, t, h), out = at_out(p, b, t, h);
    double top = -INFINITY, sum = 0;
    for (int64_t u = 0; u <= t; u++) {
        weight[u] = a->scale * dot(p->x + q, p->x + at_head(p, b, u, a->heads + kv), n);
        top = fmax(top, weight[u]);
    }
    for (int64_t u = 0; u <= t; u++)
        sum += weight[u] = exp(weight[u] - top);
    p->ref_lse[(b * a->heads + h) * a->seq + t] = top + log(sum);
    memset(p->ref_o + out, 0, n * sizeof(double));
    for (int64_t u = 0; u <= t; u++) {
        weight[u] /= sum;
        add_scaled(p->ref_o + out, weight[u], p->x + at_head(p, b, u, a->heads + a->kv_heads + kv),
                   n);
    }
    double d = dot(p->dy + out, p->ref_o + out, n);
    for (int64_t u = 0; u <= t; u++) {
        int64_t k = at_head(p, b, u, a->heads + kv);
        int64_t v = at_head(p, b, u, a->heads + a->kv_heads + kv);
        double ds = a->scale * weight[u] * (dot(p->dy + out, p->x + v, n) - d);
        add_scaled(p->ref_dx + v, weight[u], p->dy + out, n);
        add_scaled(p->ref_dx + q, ds, p->x + k, n);
        add_scaled(p->ref_dx + k, ds, p->x + q, n);
    }
}

static void reference(struct problem *p)
{
    double *weight = malloc(p->a.seq * sizeof *weight);
    memset(p->ref_dx, 0, p->qkv_elems * sizeof(double));
    for (int64_t b = 0; b < p->a.batch; b++)
        for (int64_t h = 0; h < p->a.heads; h++)
            for (int64_t t = 0; t < p->a.seq; t++)
                reference_query(p, b, t, h, weight);
    free(weight);
}

static struct device *open_level(const char *level, int threads)
{
    struct device *d = NULL;
    struct error err = {0};
    struct device_request request = {.kind = DEVICE_CPU, .threads = threads, .level = level};
    if (device_open(&d, &request, &err))
        fail_msg("%s", err.text);
    return d;
}

/* Run both passes with poisoned outputs and scratch. */
static void run(struct problem *p, const char *level, int threads)
{
    struct device *d = open_level(level, threads);
    size_t size = dtype_bytes(p->a.dt);
    for (enum device_pass pass = DEVICE_FORWARD; pass <= DEVICE_BACKWARD; pass++) {
        size_t bytes = d->ops->attention_scratch(d, &p->a, pass);
        void *scratch = guarded(bytes);
        if (pass == DEVICE_BACKWARD) {
            memset(p->dqkv, 0xff, p->qkv_elems * size);
            d->ops->attention_backward(d, &p->a, p->dqkv, p->dout, p->o, p->lse, p->qkv, scratch);
        } else {
            memset(p->o, 0xff, p->out_elems * size);
            memset(p->lse, 0xff, p->lse_elems * sizeof(float));
            d->ops->attention(d, &p->a, p->o, p->lse, p->qkv, scratch);
        }
        assert_guarded(scratch, bytes);
        free(scratch);
    }
    assert_guarded(p->o, p->out_elems * size);
    assert_guarded(p->dqkv, p->qkv_elems * size);
    assert_guarded(p->lse, p->lse_elems * sizeof(float));
    device_close(d);
}

/* |got - want| <= tolerance * the largest |want|, for all elements. */
static void assert_close(const char *what, const struct problem *p, enum dtype dt, const void *got,
                         const double *want, int64_t elems, double tolerance)
{
    double scale = 1e-3, worst = 0;
    for (int64_t i = 0; i < elems; i++) {
        double error = fabs(value(dt, got, i) - want[i]);
        scale = fmax(scale, fabs(want[i]));
        worst = error <= worst ? worst : error; /* NaN becomes the worst */
    }
    if (!(worst <= tolerance * scale))
        fail_msg("%s: error %g of scale %g (%s, batch %d, seq %d, heads %d/%d, head_dim %d)", what,
                 worst, scale, dtype_name(p->a.dt), (int)p->a.batch, (int)p->a.seq, (int)p->a.heads,
                 (int)p->a.kv_heads, (int)p->a.head_dim);
}

/* lse times scale is the log-sum-exp of scores, which counts in units of 1. */
static void assert_lse(const struct problem *p)
{
    float *scaled = malloc((size_t)p->lse_elems * sizeof *scaled);
    for (int64_t i = 0; i < p->lse_elems; i++)
        scaled[i] = p->lse[i] * p->a.scale;
    assert_close("lse", p, DTYPE_F32, scaled, p->ref_lse, p->lse_elems, 1e-5);
    free(scaled);
}

static void agrees_with_double(void **state)
{
    for (int i = 0; i < SHAPES; i++)
        for (int type = 0; type < TYPES; type++) {
            enum dtype dt = types[type].dt;
            double tolerance = types[type].tolerance;
            struct problem p;
            problem_make(&p, &shapes[i], dt);
            reference(&p);
            for (const char *const *level = device_cpu_levels(); *level; level++) {
                run(&p, *level, 2);
                assert_close("o", &p, dt, p.o, p.ref_o, p.out_elems, tolerance);
                assert_lse(&p);
                assert_close("dqkv", &p, dt, p.dqkv, p.ref_dx, p.qkv_elems, tolerance);
            }
            problem_free(&p);
        }
}

/* The reference's own gradient, which the test above trusts. */
static void gradient_is_the_difference_quotient(void **state)
{
    for (int i = 1; i < 4; i++) {
        struct problem p;
        problem_make(&p, &shapes[i], DTYPE_F32);
        reference(&p);
        double *gradient = p.ref_dx, step = 1e-4;
        p.ref_dx = calloc(p.qkv_elems, sizeof(double));
        for (int64_t e = 0; e < p.qkv_elems; e += 1 + p.qkv_elems / 61) {
            double x = p.x[e], loss[2];
            for (int side = 0; side < 2; side++) {
                p.x[e] = x + (side ? step : -step);
                reference(&p);
                loss[side] = dot(p.dy, p.ref_o, p.out_elems);
            }
            p.x[e] = x;
            assert_true(fabs((loss[1] - loss[0]) / (2 * step) - gradient[e]) < 1e-6);
        }
        free(gradient);
        problem_free(&p);
    }
}

static void threads_do_not_change_a_bit(void **state)
{
    for (int i = 0; i < SHAPES; i++)
        for (int type = 0; type < TYPES; type++)
            for (const char *const *level = device_cpu_levels(); *level; level++) {
                enum dtype dt = types[type].dt;
                struct problem one, many;
                size_t size = dtype_bytes(dt);
                problem_make(&one, &shapes[i], dt);
                problem_make(&many, &shapes[i], dt);
                run(&one, *level, 1);
                for (int threads = 2; threads <= 3; threads++) {
                    run(&many, *level, threads);
                    assert_memory_equal(one.o, many.o, one.out_elems * size);
                    assert_memory_equal(one.lse, many.lse, one.lse_elems * sizeof(float));
                    assert_memory_equal(one.dqkv, many.dqkv, one.qkv_elems * size);
                }
                problem_free(&one);
                problem_free(&many);
            }
}

/* Rows after `cut` change: nothing up to it may, not by one bit. */
static void the_future_is_not_seen(void **state)
{
    for (int i = 2; i < SHAPES; i++)
        for (int type = 0; type < TYPES; type++)
            for (const char *const *level = device_cpu_levels(); *level; level++) {
                enum dtype dt = types[type].dt;
                int64_t cut = shapes[i].seq * 2 / 3, n = shapes[i].heads * shapes[i].head_dim;
                struct problem before, after;
                problem_make(&before, &shapes[i], dt);
                problem_make(&after, &shapes[i], dt);
                for (int64_t e = (cut + 1) * after.row; e < after.a.seq * after.row; e++)
                    put(dt, after.qkv, e, 30 * philox_normal(13, e));
                run(&before, *level, 1);
                run(&after, *level, 1);
                assert_memory_equal(before.o, after.o, (cut + 1) * n * dtype_bytes(dt));
                assert_memory_equal(before.lse, after.lse, (cut + 1) * sizeof(float));
                problem_free(&before);
                problem_free(&after);
            }
}

/* Scores of thousands of either sign: one key takes all, and nothing overflows. */
static void large_scores_stay_finite(void **state)
{
    for (int type = 0; type < TYPES; type++)
        for (const char *const *level = device_cpu_levels(); *level; level++) {
            enum dtype dt = types[type].dt;
            struct problem p;
            problem_make(&p, &shapes[6], dt);
            p.a.scale = 1000;
            reference(&p);
            run(&p, *level, 1);
            assert_close("o", &p, dt, p.o, p.ref_o, p.out_elems, 3e-2);
            assert_lse(&p);
            for (int64_t e = 0; e < p.qkv_elems; e++)
                assert_true(isfinite(value(dt, p.dqkv, e)));
            problem_free(&p);
        }
}

/* Scores whose neighbours in fp32 are 100 and more apart: the largest takes all.  Keys and queries
 * then have no gradient, and what is left are those of values: both as in double precision. */
static void huge_scores_leave_gradients_exact(void **state)
{
    static const float scales[] = {9e8f, 7e9f, 1e12f, 1e30f};
    for (int i = 0; i < 4; i++)
        for (int type = 0; type < TYPES; type++)
            for (const char *const *level = device_cpu_levels(); *level; level++) {
                enum dtype dt = types[type].dt;
                double tolerance = types[type].tolerance;
                struct problem p;
                problem_make(&p, &shapes[6], dt);
                p.a.scale = scales[i];
                reference(&p);
                run(&p, *level, 1);
                assert_close("o", &p, dt, p.o, p.ref_o, p.out_elems, tolerance);
                assert_lse(&p);
                assert_close("dqkv", &p, dt, p.dqkv, p.ref_dx, p.qkv_elems, tolerance);
                problem_free(&p);
            }
}

/* A diverged run must show: NaN in one query's row is NaN in its output and gradient. */
static void nan_is_not_hidden(void **state)
{
    for (int type = 0; type < TYPES; type++)
        for (const char *const *level = device_cpu_levels(); *level; level++) {
            enum dtype dt = types[type].dt;
            struct problem p;
            problem_make(&p, &shapes[5], dt);
            put(dt, p.qkv, at_head(&p, 0, 40, 1), NAN);
            run(&p, *level, 1);
            assert_true(isnan(value(dt, p.o, at_out(&p, 0, 40, 1))));
            assert_true(isnan(p.lse[p.a.seq + 40]));
            assert_true(isnan(value(dt, p.dqkv, at_head(&p, 0, 40, 1))));
            assert_false(isnan(value(dt, p.o, at_out(&p, 0, 40, 0))));
            problem_free(&p);
        }
}

/* Values as large as fp16 has: an average of them is finite, gradients of them are not. */
static void fp16_overflows_to_infinity_only(void **state)
{
    for (const char *const *level = device_cpu_levels(); *level; level++) {
        struct problem p;
        problem_make(&p, &shapes[5], DTYPE_F16);
        for (int64_t t = 0; t < p.a.seq; t++)
            for (int64_t i = 0; i < p.a.head_dim; i++) {
                put(DTYPE_F16, p.qkv, at_head(&p, 0, t, p.a.heads + p.a.kv_heads) + i, 65504);
                put(DTYPE_F16, p.dout, at_out(&p, 0, t, 0) + i, 20000);
                put(DTYPE_F16, p.dout, at_out(&p, 0, t, 1) + i, 20000);
            }
        run(&p, *level, 1);
        for (int64_t e = 0; e < p.out_elems; e++)
            assert_true(value(DTYPE_F16, p.o, e) == 65504);
        for (int64_t i = 0; i < p.a.head_dim; i++)
            assert_true(isinf(value(DTYPE_F16, p.dqkv, at_head(&p, 0, 0, 3) + i)));
        problem_free(&p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(agrees_with_double),
        cmocka_unit_test(gradient_is_the_difference_quotient),
        cmocka_unit_test(threads_do_not_change_a_bit),
        cmocka_unit_test(the_future_is_not_seen),
        cmocka_unit_test(large_scores_stay_finite),
        cmocka_unit_test(huge_scores_leave_gradients_exact),
        cmocka_unit_test(nan_is_not_hidden),
        cmocka_unit_test(fp16_overflows_to_infinity_only),
    };
    return cmocka_run_group_tests_name("attention", tests, NULL, NULL);
}
