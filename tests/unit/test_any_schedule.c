/* test_any_schedule.c - schedules by chance, right ones and changed ones: trireme accepts what the
 * judge finds right, with the same actions in it, and refuses the rest, in one line; and the
 * programs of the right ones are right. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "plan/report.h"
#include "program/schedule.h"
#include "tests/unit/any_schedule.h"
#include "tests/unit/rig.h"

enum { CASES = 3000, PROGRAMS = 400 };

/* 0, or -1: refused. */
static int make(struct any *any, const struct any_schedule *drawn, const char *path,
                struct schedule **schedule, struct error *err)
{
    struct schedule_request request = {
        .name = path, .ranks = drawn->ranks, .micros = drawn->micros};
    assert_int_equal(any_schedule_write(any, drawn, path), 0);
    return schedule_create(schedule, &request, err);
}

/* Has the schedule what was drawn, in its order?  Where some backward actions are in two parts, B
 * is I and W. */
static void check_same(const struct schedule *s, const struct any_schedule *drawn)
{
    static const char letters[PHASES] = {[PHASE_FORWARD] = 'F',
                                         [PHASE_BACKWARD] = 'B',
                                         [PHASE_BACKWARD_INPUT] = 'I',
                                         [PHASE_BACKWARD_WEIGHT] = 'W'};
    for (int rank = 0; rank < drawn->ranks; rank++) {
        int count, at = 0;
        const struct schedule_action *action = schedule_actions(s, rank, &count);
        for (int a = 0; a < drawn->line[rank].count; a++) {
            const struct any_action *own = &drawn->line[rank].action[a];
            const char *kinds = *own->kind == 'B' && s->splits_backward ? "IW" : own->kind;
            for (; *kinds; kinds++, at++) {
                assert_true(at < count);
                assert_int_equal(action[at].stage, own->stage);
                assert_int_equal(action[at].micro, own->micro);
                assert_int_equal(letters[action[at].phase], *kinds);
            }
        }
        assert_int_equal(at, count);
    }
}

static void test_right_ones_are_accepted_and_wrong_ones_refused(void **state)
{
    char path[] = "/tmp/trireme-schedule-XXXXXX.csv";
    int right = 0, changed = 0;
    close(mkstemps(path, 4));
    for (int i = 0; i < CASES; i++) {
        struct any any = any_case("any schedule", i);
        struct any_schedule drawn;
        struct schedule *s = NULL;
        struct error err = {0};
        any_schedule(&any, 1 + i % ANY_RANKS, &drawn);
        assert_true(schedule_judge(&drawn));
        const char *change = i / ANY_RANKS % 2 ? any_schedule_change(&any, &drawn) : "none";
        int is_right = schedule_judge(&drawn), rc = make(&any, &drawn, path, &s, &err);
        if (rc != (is_right ? 0 : -1))
            fail_msg("case %d, change: %s: the judge finds it %s; %s", i, change,
                     is_right ? "right" : "wrong", rc ? err.text : "it is accepted");
        if (rc && (!strstr(err.text, path) || strchr(err.text, '\n')))
            fail_msg("case %d: %s", i, err.text);
        if (!rc)
            check_same(s, &drawn);
        right += is_right;
        changed += is_right && i / ANY_RANKS % 2;
        schedule_destroy(s);
    }
    unlink(path);
    print_message("%d of %d are right, of which %d are changed\n", right, CASES, changed);
    assert_in_range(changed, CASES / 20, CASES / 2 - CASES / 20);
}

/* Also on more ranks than tests run on. */
static void test_programs_are_verified(void **state)
{
    char path[] = "/tmp/trireme-schedule-XXXXXX.csv";
    close(mkstemps(path, 4));
    for (int i = 0; i < PROGRAMS; i++) {
        struct any any = any_case("any schedule's programs", i);
        struct any_schedule drawn;
        struct report report;
        struct error err = {0};
        char text[ANY_TEXT];
        any_schedule(&any, 1 + i % ANY_RANKS, &drawn);
        assert_int_equal(any_schedule_write(&any, &drawn, path), 0);
        snprintf(text, sizeof text,
                 "model.layers=6 model.hidden=12 model.heads=2 model.ffn=20 model.vocab=23 "
                 "data.seq_len=7 train.micro_batch=1 train.global_batch=%d parallel.pipeline=%d "
                 "parallel.schedule=%s",
                 drawn.micros, drawn.ranks, path);
        struct config config = rig_config(text);
        struct report_request request = {
            .config = &config, .ranks = drawn.ranks, .nodes = 1, .threads = 1};
        if (report_make(&report, &request, &err))
            fail_msg("case %d: %s", i, err.text);
        if (!report.verified)
            fail_msg("case %d: %s", i, report.verdict.text);
        report_free(&report);
    }
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_right_ones_are_accepted_and_wrong_ones_refused),
        cmocka_unit_test(test_programs_are_verified)};
    return cmocka_run_group_tests_name("any schedule", tests, NULL, NULL);
}
