/* test_scaler.c - the loss scale follows DeepSpeed's rule, goes on where it was saved, and is
 * nothing in other precisions. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

#include "base/philox.h"
#include "tests/unit/rig.h"
#include "train/scaler.h"

#define MODEL "model.preset=llama-tiny "

/* The rule as DeepSpeed words it: by the number of the step at which it last overflowed. */
struct rule {
    double scale, least;
    int64_t step, last_overflow, window;
    int hysteresis, left;
};

static void rule_update(struct rule *r, int overflowed)
{
    if (overflowed) {
        if (r->hysteresis == 1 || r->left == 1)
            r->scale = r->scale / 2 > r->least ? r->scale / 2 : r->least;
        else
            r->left--;
        r->last_overflow = r->step;
    } else if ((r->step - r->last_overflow) % r->window == 0) {
        r->left = r->hysteresis;
        r->scale *= 2;
    }
    r->step++;
}

static struct scaler begin(const char *more)
{
    char text[512];
    snprintf(text, sizeof text, MODEL "%s", more);
    struct config config = rig_config(text);
    return scaler_begin(&config);
}

static void follows_the_rule(void **state)
{
    static const int windows[] = {1, 2, 3, 7}, hystereses[] = {1, 2, 5}, odds[] = {2, 3, 9, 40};
    for (int i = 0; i < 4 * 3 * 4; i++) {
        int window = windows[i % 4], hysteresis = hystereses[i / 4 % 3], odd = odds[i / 12];
        char text[256];
        snprintf(text, sizeof text,
                 "precision=fp16 train.initial_scale_power=6 train.loss_scale_window=%d "
                 "train.hysteresis=%d train.min_loss_scale=4",
                 window, hysteresis);
        struct scaler scaler = begin(text);
        struct rule rule = {64, 4, 0, -1, window, hysteresis, hysteresis};
        int64_t overflows = 0;
        for (uint64_t step = 0; step < 1000; step++) {
            int overflowed = philox_u64((uint64_t)i, step) % (uint64_t)odd == 0;
            overflows += overflowed;
            scaler_update(&scaler, overflowed);
            rule_update(&rule, overflowed);
            assert_true(scaler.scale == rule.scale && scaler.scale >= 4);
            assert_int_equal(scaler.skipped, overflows);
        }
    }
}

static void ends_at_the_least(void **state)
{
    struct scaler scaler = begin("precision=fp16 train.initial_scale_power=3 "
                                 "train.min_loss_scale=2 train.hysteresis=3");
    const int ends[] = {0, 0, 0, 0, 1, 1};
    for (int i = 0; i < 6; i++) { /* 8, 8, 8, 4, 2, 2 */
        assert_int_equal(scaler_at_end(&scaler), ends[i]);
        scaler_update(&scaler, 1);
    }
    assert_true(scaler.scale == 2);
}

static void fixed_stays(void **state)
{
    struct scaler scaler = begin("precision=fp16 train.loss_scale=100");
    for (int i = 0; i < 3000; i++)
        scaler_update(&scaler, i % 5 == 0);
    assert_true(scaler.scale == 100);
    assert_int_equal(scaler.skipped, 600);
    assert_true(scaler_at_end(&scaler));
}

static void fixed_at_one_or_less(void **state)
{
    assert_true(begin("precision=fp16 train.loss_scale=1").scale == 1);
    assert_true(begin("precision=fp16 train.loss_scale=0.25").scale == 0.25);
}

static void others_have_none(void **state)
{
    static const char *const others[] = {"precision=fp32", "precision=bf16", "precision=bf16_pure"};
    for (int i = 0; i < 3; i++) {
        struct scaler scaler = begin(others[i]);
        scaler_update(&scaler, 1);
        assert_true(scaler.scale == 1 && !scaler.active && !scaler.skipped);
    }
}

/* The dynamic scale goes on, within this configuration's bounds; a fixed one is what it says. */
static void resumes(void **state)
{
    struct scaler saved = {1, 1, 512, 1, 1000, 17, 2, 1, 5}, scaler;
    scaler = begin("precision=fp16");
    scaler_resume(&scaler, &saved);
    assert_true(scaler.scale == 512 && scaler.finite == 17 && scaler.spare == 1);
    assert_int_equal(scaler.skipped, 5);
    scaler = begin("precision=fp16 train.min_loss_scale=1024 train.hysteresis=1");
    saved.spare = 2;
    scaler_resume(&scaler, &saved);
    assert_true(scaler.scale == 1024 && scaler.spare == 1);
    scaler = begin("precision=fp16 train.loss_scale=8");
    scaler_resume(&scaler, &saved);
    assert_true(scaler.scale == 8);
    scaler = begin("precision=bf16");
    scaler_resume(&scaler, &saved);
    assert_true(scaler.scale == 1);
    assert_int_equal(scaler.skipped, 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(follows_the_rule), cmocka_unit_test(ends_at_the_least),
        cmocka_unit_test(fixed_stays),      cmocka_unit_test(fixed_at_one_or_less),
        cmocka_unit_test(others_have_none), cmocka_unit_test(resumes),
    };
    return cmocka_run_group_tests_name("scaler", tests, NULL, NULL);
}
