/* test_pending_update.c - a step's update in the next step, or made at once: the same state as
 * without train.overlap_update; and what failed between is not taken for a step's state. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "tests/unit/rig.h"
#include "train/lr_schedule.h"
#include "train/pending_update.h"

enum { SEQ = 8, BATCH = 4, STEPS = 5 };

#define SETTINGS                                                                         \
    "model.preset=llama-tiny data.seq_len=8 train.global_batch=4 train.micro_batch=2 "   \
    "precision=bf16_pure train.optimizer_dtype=bf16 train.warmup_steps=4 run.threads=1 " \
    "device=cpu "

struct fixture {
    struct mem mem;
    struct session *s;
    struct pending_update pending;
    int32_t tokens[BATCH * SEQ], targets[BATCH * SEQ];
    struct rig_data data;
};

static void open_fixture(struct fixture *f, const char *more)
{
    char text[512];
    snprintf(text, sizeof text, SETTINGS "%s", more);
    struct config config = rig_config(text);
    *f = (struct fixture){0};
    f->s = rig_open(&f->mem, &config, NULL, 0);
    rig_init(f->s);
    for (int i = 0; i < BATCH * SEQ; i++) {
        f->tokens[i] = i * 7 % 50;
        f->targets[i] = (i * 7 + 3) % 50;
    }
    f->data = (struct rig_data){2, SEQ, f->tokens, f->targets};
}

static int fails(void *user, const struct step_batch *batch, struct error *err)
{
    return error_set(err, "no data");
}

static int take_step(struct fixture *f, int64_t step, int is_lost, struct error *err)
{
    struct step_input input = rig_input(f->s, step);
    input.load = is_lost ? fails : rig_load;
    input.user = &f->data;
    if (pending_update_pass(&f->pending, f->s, &input, err))
        return -1;
    int rc = executor_run_step(f->s->executor, f->s->train, &input, NULL, NULL, err);
    pending_update_started(&f->pending, f->s, rc);
    return rc;
}

/* made_after: the steps after which the update is made at once, a bit each. */
static uint64_t train(const char *more, unsigned made_after)
{
    struct fixture f;
    struct error err = {0};
    open_fixture(&f, more);
    for (int step = 1; step <= STEPS; step++) {
        assert_int_equal(take_step(&f, step, 0, &err), 0);
        for (int twice = 0; twice < 2 && made_after >> step & 1; twice++)
            assert_int_equal(pending_update_make(&f.pending, f.s, &err), 0);
    }
    uint64_t hash = rig_hash(f.s);
    session_close(f.s);
    return hash;
}

static void test_same_state(void **state)
{
    const unsigned last = 1u << STEPS;
    uint64_t wanted = train("", 0);
    assert_int_equal(train("train.overlap_update=true", last), wanted);
    assert_int_equal(train("train.overlap_update=true", last | 1u << 1 | 1u << 3), wanted);
    assert_int_equal(train("train.overlap_update=true", ~0u), wanted);
    assert_int_not_equal(train("train.overlap_update=true", 0), wanted); /* one update less */
}

/* Its program may have updated some flats and others not: that is no state to save. */
static void test_step_that_failed(void **state)
{
    struct fixture f;
    struct error err = {0};
    open_fixture(&f, "train.overlap_update=true");
    assert_int_equal(take_step(&f, 1, 0, &err), 0);
    assert_int_equal(take_step(&f, 2, 1, &err), -1);
    for (int twice = 0; twice < 2; twice++) {
        err.text[0] = 0;
        assert_int_equal(pending_update_make(&f.pending, f.s, &err), -1);
        assert_non_null(strstr(err.text, "a mixture of two steps"));
    }
    assert_int_equal(take_step(&f, 2, 0, &err), -1); /* what is updated would be again */
    session_close(f.s);
    assert_int_equal(f.mem.blocks, 0);
}

/* Where steps make their own updates a failed one changes nothing. */
static void test_step_that_failed_without(void **state)
{
    struct fixture f;
    struct error err = {0};
    open_fixture(&f, "");
    assert_int_equal(take_step(&f, 1, 0, &err), 0);
    uint64_t hash = rig_hash(f.s);
    assert_int_equal(take_step(&f, 2, 1, &err), -1);
    assert_int_equal(pending_update_make(&f.pending, f.s, &err), 0);
    assert_int_equal(rig_hash(f.s), hash);
    session_close(f.s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_state),
        cmocka_unit_test(test_step_that_failed),
        cmocka_unit_test(test_step_that_failed_without),
    };
    return cmocka_run_group_tests_name("pending update", tests, NULL, NULL);
}
