/* test_choices.c - each row of the table of single changes is the plan of that run, and says of
 * recomputation and prefetch what they are for. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/round.h"
#include "plan/choices.h"
#include "plan/compare.h"
#include "plan/largest.h"
#include "simulate/machine_file.h"
#include "tests/unit/rig.h"

#define LARGE "model.preset=llama-124m data.seq_len=256 train.global_batch=8 device=cpu "

static void choices_of(struct choices *choices, const char *settings, int ranks)
{
    struct error err = {0};
    struct report report;
    struct config config = rig_config(settings);
    struct report_request request = {.config = &config, .ranks = ranks, .nodes = 1, .threads = 1};
    if (report_measure(&report, &request, &err))
        fail_msg("%s", err.text);
    choices_make(choices, &report, 1);
    assert_int_equal(choices->as_is.memory_bytes, report.rank[0].need.total_bytes);
    report_free(&report);
}

static const struct choices_row *find(const struct choices *choices, const char *settings)
{
    for (int i = 0; i < choices->count; i++)
        if (!strcmp(choices->row[i].settings, settings))
            return &choices->row[i];
    return NULL;
}

static const struct choices_row *found(const struct choices *choices, const char *settings)
{
    const struct choices_row *row = find(choices, settings);
    if (!row)
        fail_msg("no row %s", settings);
    return row;
}

static void rows_are_plans(void **state)
{
    static const char *const runs[] = {
        LARGE "train.micro_batch=2",
        LARGE "parallel.strategy=NO_SHARD precision=bf16",
        LARGE
        "parallel.strategy=SHARD_GRAD_OP precision=fp16 recompute=full parallel.prefetch_units=3",
        "model.preset=gpt2 data.seq_len=128 device=cpu offload.optimizer=disk",
    };
    for (int i = 0; i < 4; i++) {
        struct choices choices;
        struct error err = {0};
        choices_of(&choices, runs[i], 3);
        assert_true(choices.count >= 5);
        for (int k = 0; k < choices.count; k++) {
            const struct choices_row *row = &choices.row[k];
            struct report report;
            char text[512];
            snprintf(text, sizeof text, "%s %s", runs[i], row->settings);
            struct config config = rig_config(text);
            struct report_request request = {
                .config = &config, .ranks = 3, .nodes = 1, .threads = 1};
            assert_int_equal(report_make(&report, &request, &err), 0);
            assert_true(report.verified);
            assert_int_equal(row->memory_bytes, report.rank[0].need.total_bytes);
            assert_int_equal(row->disk_bytes, report.rank[0].need.pool_bytes[POOL_DISK]);
            assert_int_equal(row->sent_bytes, report.rank[0].sent_bytes);
            assert_true(row->flops == report.rank[0].flops);
            assert_true(row->memory_bytes != choices.as_is.memory_bytes ||
                        row->sent_bytes != choices.as_is.sent_bytes ||
                        row->flops != choices.as_is.flops ||
                        row->disk_bytes != choices.as_is.disk_bytes);
            report_free(&report);
        }
    }
}

static void what_they_are_for(void **state)
{
    struct choices choices;
    choices_of(&choices, LARGE "train.micro_batch=2", 2);
    const struct choices_row *is = &choices.as_is, *full = found(&choices, "recompute=full"),
                             *some = found(&choices, "recompute=selective"),
                             *half = found(&choices, "recompute=full recompute_every=2");
    assert_null(find(&choices, "recompute=none"));
    assert_true(full->memory_bytes < some->memory_bytes && some->memory_bytes < is->memory_bytes);
    assert_true(full->memory_bytes < half->memory_bytes && half->memory_bytes < is->memory_bytes);
    assert_true(is->flops < some->flops && some->flops < half->flops && half->flops < full->flops);
    assert_true(full->flops < 4.0 / 3 * is->flops && some->flops < 1.1 * is->flops);
    assert_true(full->sent_bytes == is->sent_bytes);

    const struct choices_row *far = found(&choices, "parallel.prefetch_units=2"),
                             *near = found(&choices, "parallel.forward_prefetch=false "
                                                     "parallel.backward_prefetch=none");
    assert_true(near->memory_bytes < is->memory_bytes && is->memory_bytes < far->memory_bytes);
    assert_true(near->sent_bytes == is->sent_bytes && far->sent_bytes == is->sent_bytes);

    const struct choices_row *local = found(&choices, "parallel.accumulate=local"),
                             *reduced = found(&choices, "comm.reduce_dtype=bf16");
    assert_true(local->memory_bytes > is->memory_bytes && local->sent_bytes < is->sent_bytes);
    assert_true(reduced->sent_bytes < is->sent_bytes);
    assert_true(found(&choices, "offload.optimizer=disk")->disk_bytes > 0);
    choices_of(&choices, LARGE "recompute=full", 2);
    assert_null(find(&choices, "recompute=full"));
    assert_true(found(&choices, "recompute=none")->memory_bytes > choices.as_is.memory_bytes);
}

/* With muon each rank owns other matrices, and all ranks together are slower than the first alone,
 * of which a change is planned: what it is compared with is the first alone, too. */
static void changes_are_compared_with_the_same_ranks(void **state)
{
    struct config config = rig_config("model.preset=llama3-8b device=cuda precision=bf16 "
                                      "train.optimizer=muon model.layers=7");
    struct machine machine;
    struct error err = {0};
    struct report report;
    struct compare compare;
    struct choices choices;
    assert_int_equal(machine_find(&machine, "h100", &err), 0);
    struct report_request request = {
        .config = &config, .ranks = 16, .nodes = 2, .threads = 1, .speeds = &machine};
    assert_int_equal(report_make(&report, &request, &err), 0);
    compare_make(&compare, &report, 1);
    const struct report *first = &compare_chosen(&compare)->report;
    choices_make(&choices, first, 1);
    assert_true(first->forecast.step_s < report.forecast.step_s);
    assert_true(choices.as_is.step_s == first->forecast.step_s);
    assert_true(found(&choices, "recompute=full")->step_s > choices.as_is.step_s);
    assert_null(find(&choices, "recompute=none")); /* as it is */
    assert_null(find(&choices, "parallel.prefetch_units=1"));
    compare_free(&compare);
    report_free(&report);
}

#define MANY_MICROS                                                                            \
    "model.preset=llama-10m device=cuda precision=bf16 parallel.pipeline=2 data.seq_len=2048 " \
    "model.max_seq_len=2048 train.global_batch=200 train.micro_batch=1 recompute=full "

/* The largest micro-batch fits, and one more does not: a rank's plan says so; the same of
 * evaluation. */
static void the_largest_fits_and_one_more_does_not(void **state)
{
    static const char *const settings[] = {
        "model.preset=llama-10m device=cuda precision=bf16",
        "model.preset=llama-10m device=cuda precision=bf16 parallel.strategy=SHARD_GRAD_OP",
        "model.preset=llama-10m device=cuda precision=bf16 recompute=full data.valid=v.h5",
        MANY_MICROS "parallel.schedule=1f1b",
        MANY_MICROS "parallel.schedule=gpipe", /* memory grows with all of them */
    };
    for (size_t k = 0; k < sizeof settings / sizeof settings[0]; k++)
        for (int evaluates = 0; evaluates < 2; evaluates++) {
            struct config config = rig_config(settings[k]);
            struct memory_limits limits = {.device_bytes = (size_t)3 << 30};
            int64_t most =
                (evaluates ? largest_evaluation : largest_training)(&config, 2, 1, 1, &limits);
            int64_t batch = config.train.global_batch, micro = config.train.micro_batch;
            assert_in_range(most, 2, LARGEST_MOST - 1);
            for (int more = 0; more < 2; more++) {
                struct report report;
                struct error err = {0};
                config.train.micro_batch = evaluates ? micro : most + more;
                config.train.eval_micro_batch = evaluates ? most + more : 0;
                config.train.global_batch =
                    max_i64(batch, config.train.micro_batch * 2 / config.parallel.pipeline);
                if (evaluates)
                    strcpy(config.data.valid, "v.h5");
                struct report_request request = {
                    .config = &config, .ranks = 2, .nodes = 1, .threads = 1};
                if (report_make(&report, &request, &err))
                    fail_msg("%s", err.text);
                size_t needs = report_most(&report).device_bytes;
                assert_int_equal(needs > limits.device_bytes, more);
                report_free(&report);
            }
            limits.device_bytes = 1 << 20;
            config = rig_config(settings[k]);
            assert_int_equal(largest_training(&config, 2, 1, 1, &limits), 0);
        }
}

/* All sequences of a rank at once fit, whose gradients take the place of activations, where one at
 * a time does not; and what is evaluated beside them. */
static void more_may_fit_where_one_does_not(void **state)
{
    struct config config = rig_config("model.preset=llama3-8b model.layers=15 data.seq_len=4096 "
                                      "train.global_batch=2 device=cuda precision=bf16");
    struct memory_limits limits = {.device_bytes = rig_machine_bytes("h100")};
    assert_int_equal(largest_training(&config, 1, 1, 1, &limits), 2);
    assert_true(largest_evaluation(&config, 1, 1, 1, &limits) > 2);
    config.train.micro_batch = 1;
    assert_int_equal(largest_evaluation(&config, 1, 1, 1, &limits), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_plans),
        cmocka_unit_test(more_may_fit_where_one_does_not),
        cmocka_unit_test(what_they_are_for),
        cmocka_unit_test(changes_are_compared_with_the_same_ranks),
        cmocka_unit_test(the_largest_fits_and_one_more_does_not),
    };
    return cmocka_run_group_tests_name("choices", tests, NULL, NULL);
}
