/* test_attention.c - attention against a plain double-precision one, on every level. */
#include "tests/unit/attention_check.h"

#include "base/philox.h"

static void agrees_with_double(void **state)
{
    for (int i = 0; i < SHAPES; i++)
        for (int type = 0; type < TYPES; type++) {
            enum dtype dt = types[type].dt;
            double tolerance = types[type].tolerance;
            struct problem p;
            problem_make(&p, &shapes[i], dt);
            reference(&p);
            for (int level = 0; device_cpu_level(level); level++) {
                run(&p, device_cpu_level(level), 2);
                assert_close("o", &p, dt, p.o, p.ref_o, p.out_elems, tolerance);
                assert_lse(&p);
                assert_close("dqkv", &p, dt, p.dqkv, p.ref_dx, p.qkv_elems, tolerance);
                if (p.dkv)
                    assert_close("dkv", &p, dt, p.dkv, p.ref_dz, p.kv_elems, tolerance);
            }
            problem_free(&p);
        }
}

/* The gradient of some elements of x, of the reference, against its own outputs. */
static void check_quotient(struct problem *p, double *x, const double *gradient, int64_t elems)
{
    const double step = 1e-4;
    for (int64_t e = 0; e < elems; e += 1 + elems / 61) {
        double was = x[e], loss[2];
        for (int side = 0; side < 2; side++) {
            x[e] = was + (side ? step : -step);
            reference(p);
            loss[side] = dot(p->dy, p->ref_o, p->out_elems);
        }
        x[e] = was;
        assert_true(fabs((loss[1] - loss[0]) / (2 * step) - gradient[e]) < 1e-6);
    }
}

/* The reference's own gradient, which the test above trusts. */
static void gradient_is_the_difference_quotient(void **state)
{
    for (int i = 1; i < SHAPES; i++) {
        struct problem p;
        if (shapes[i].batch * shapes[i].seq * attention_keys(&shapes[i]) > 5000)
            continue;
        problem_make(&p, &shapes[i], DTYPE_F32);
        reference(&p);
        double *dx = malloc((size_t)p.qkv_elems * sizeof *dx);
        double *dz = malloc((size_t)p.kv_elems * sizeof *dz);
        memcpy(dx, p.ref_dx, (size_t)p.qkv_elems * sizeof *dx);
        memcpy(dz, p.ref_dz, (size_t)p.kv_elems * sizeof *dz);
        check_quotient(&p, p.x, dx, p.qkv_elems);
        check_quotient(&p, p.z, dz, p.kv_elems);
        free(dx);
        free(dz);
        problem_free(&p);
    }
}

static void threads_do_not_change_a_bit(void **state)
{
    for (int i = 0; i < SHAPES; i++)
        for (int type = 0; type < TYPES; type++)
            for (int level = 0; device_cpu_level(level); level++) {
                enum dtype dt = types[type].dt;
                struct problem one, many;
                size_t size = dtype_bytes(dt);
                problem_make(&one, &shapes[i], dt);
                problem_make(&many, &shapes[i], dt);
                run(&one, device_cpu_level(level), 1);
                for (int threads = 2; threads <= 3; threads++) {
                    run(&many, device_cpu_level(level), threads);
                    assert_memory_equal(one.o, many.o, one.out_elems * size);
                    assert_memory_equal(one.lse, many.lse, one.lse_elems * sizeof(float));
                    assert_memory_equal(one.dqkv, many.dqkv, one.qkv_elems * size);
                    if (one.dkv)
                        assert_memory_equal(one.dkv, many.dkv, one.kv_elems * size);
                }
                problem_free(&one);
                problem_free(&many);
            }
}

/* Rows after `cut` change: nothing up to it may, not by one bit. */
static void the_future_is_not_seen(void **state)
{
    for (int i = 2; i < PLAIN; i++)
        for (int type = 0; type < TYPES; type++)
            for (int level = 0; device_cpu_level(level); level++) {
                enum dtype dt = types[type].dt;
                int64_t cut = shapes[i].seq * 2 / 3, n = shapes[i].heads * shapes[i].head_dim;
                struct problem before, after;
                problem_make(&before, &shapes[i], dt);
                problem_make(&after, &shapes[i], dt);
                for (int64_t e = (cut + 1) * after.row; e < after.a.seq * after.row; e++)
                    put(dt, after.qkv, e, 30 * philox_normal(13, e));
                run(&before, device_cpu_level(level), 1);
                run(&after, device_cpu_level(level), 1);
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
        for (int level = 0; device_cpu_level(level); level++) {
            enum dtype dt = types[type].dt;
            struct problem p;
            problem_make(&p, &shapes[6], dt);
            p.a.scale = 1000;
            reference(&p);
            run(&p, device_cpu_level(level), 1);
            assert_close("o", &p, dt, p.o, p.ref_o, p.out_elems, 3e-2);
            assert_lse(&p);
            for (int64_t e = 0; e < p.qkv_elems; e++)
                assert_true(isfinite(value(dt, p.dqkv, e)));
            problem_free(&p);
        }
}

static void put_both(const struct problem *p, void *to, double *as_double, int64_t i, float x)
{
    put(p->a.dt, to, i, x);
    as_double[i] = value(p->a.dt, to, i);
}

/* Add `by`, as the type rounds it, to all scores of a problem: element 0 of every key becomes 1,
 * that of every query by / scale. */
static void shift_scores(struct problem *p, double by)
{
    const struct attention *a = &p->a;
    void *keys = is_separate(a) ? p->kv : p->qkv;
    for (int64_t b = 0; b < a->batch; b++) {
        for (int64_t t = 0; t < a->seq; t++)
            for (int64_t h = 0; h < a->heads; h++)
                put_both(p, p->qkv, p->x, at_head(p, b, t, h), (float)(by / a->scale));
        for (int64_t u = 0; u < attention_keys(a); u++)
            for (int64_t h = 0; h < a->kv_heads; h++)
                put_both(p, keys, p->z, at_key(p, b, u, h), 1);
    }
}

static void forget(struct problem *p, void *gradient, double *want, int64_t i)
{
    assert_true(isfinite(value(p->a.dt, gradient, i)));
    put(p->a.dt, gradient, i, 0);
    want[i] = 0;
}

/* Elements 0 of the gradients, which shifting scores changed, are but finite: those of keys are
 * sums over queries' elements of hundreds, and would hide the others; those of queries are sums of
 * the scores' gradients, which are 0 but for their rounding. */
static void forget_shifted(struct problem *p)
{
    const struct attention *a = &p->a;
    void *keys = is_separate(a) ? p->dkv : p->dqkv;
    for (int64_t b = 0; b < a->batch; b++) {
        for (int64_t u = 0; u < attention_keys(a); u++)
            for (int64_t h = 0; h < a->kv_heads; h++)
                forget(p, keys, p->ref_dz, at_key(p, b, u, h));
        for (int64_t t = 0; t < a->seq; t++)
            for (int64_t h = 0; h < a->heads; h++)
                forget(p, p->dqkv, p->ref_dx, at_head(p, b, t, h));
    }
}

/* Scores that are all far below 0, as some heads of trained models have them: a key that is not
 * there, with a score of 0, would have a weight of e^120, which fp32 does not hold.  In fp32 scores
 * of 120 are rounded by 4e-6, and sums of some of them by 2e-5. */
static void low_scores_have_the_same_gradients(void **state)
{
    for (int i = 0; i < SHAPES; i += 3)
        for (int type = 0; type < TYPES; type++)
            for (int level = 0; device_cpu_level(level); level++) {
                enum dtype dt = types[type].dt;
                double tolerance = dt == DTYPE_F32 ? 1e-4 : types[type].tolerance;
                struct problem p;
                problem_make(&p, &shapes[i], dt);
                shift_scores(&p, -120);
                reference(&p);
                run(&p, device_cpu_level(level), 2);
                forget_shifted(&p);
                assert_close("o", &p, dt, p.o, p.ref_o, p.out_elems, tolerance);
                assert_lse(&p);
                assert_close("dqkv", &p, dt, p.dqkv, p.ref_dx, p.qkv_elems, tolerance);
                if (p.dkv)
                    assert_close("dkv", &p, dt, p.dkv, p.ref_dz, p.kv_elems, tolerance);
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
            for (int level = 0; device_cpu_level(level); level++) {
                enum dtype dt = types[type].dt;
                double tolerance = types[type].tolerance;
                struct problem p;
                problem_make(&p, &shapes[6], dt);
                p.a.scale = scales[i];
                reference(&p);
                run(&p, device_cpu_level(level), 1);
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
        for (int level = 0; device_cpu_level(level); level++) {
            enum dtype dt = types[type].dt;
            struct problem p;
            problem_make(&p, &shapes[5], dt);
            put(dt, p.qkv, at_head(&p, 0, 40, 1), NAN);
            run(&p, device_cpu_level(level), 1);
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
    for (int level = 0; device_cpu_level(level); level++) {
        struct problem p;
        problem_make(&p, &shapes[5], DTYPE_F16);
        for (int64_t t = 0; t < p.a.seq; t++)
            for (int64_t i = 0; i < p.a.head_dim; i++) {
                put(DTYPE_F16, p.qkv, at_head(&p, 0, t, p.a.heads + p.a.kv_heads) + i, 65504);
                put(DTYPE_F16, p.dout, at_out(&p, 0, t, 0) + i, 20000);
                put(DTYPE_F16, p.dout, at_out(&p, 0, t, 1) + i, 20000);
            }
        run(&p, device_cpu_level(level), 1);
        for (int64_t e = 0; e < p.out_elems; e++)
            assert_true(value(DTYPE_F16, p.o, e) == 65504);
        for (int64_t i = 0; i < p.a.head_dim; i++)
            assert_true(isinf(value(DTYPE_F16, p.dqkv, at_head(&p, 0, 0, 3) + i)));
        problem_free(&p);
    }
}

/* What is counted for FLOPs is what there is to do. */
static void pairs_are_those_that_are_seen(void **state)
{
    for (int i = 0; i < SHAPES; i++) {
        const struct attention *a = &shapes[i];
        double pairs = 0;
        if (a->forms & (ATTENTION_FULL | ATTENTION_DOCUMENTS))
            continue;
        for (int64_t t = 0; t < a->seq; t++) {
            int64_t end = sequence_position(&a->part, t) + 1;
            pairs += (double)(a->forms & ATTENTION_WINDOW && a->window < end ? a->window : end);
        }
        assert_true(attention_causal_pairs(a) == pairs);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(agrees_with_double),
        cmocka_unit_test(pairs_are_those_that_are_seen),
        cmocka_unit_test(gradient_is_the_difference_quotient),
        cmocka_unit_test(threads_do_not_change_a_bit),
        cmocka_unit_test(the_future_is_not_seen),
        cmocka_unit_test(large_scores_stay_finite),
        cmocka_unit_test(low_scores_have_the_same_gradients),
        cmocka_unit_test(huge_scores_leave_gradients_exact),
        cmocka_unit_test(nan_is_not_hidden),
        cmocka_unit_test(fp16_overflows_to_infinity_only),
    };
    return cmocka_run_group_tests_name("attention", tests, NULL, NULL);
}
