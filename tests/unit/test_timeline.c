/* test_timeline.c - when the actions of schedules run where stages differ in cost: the step's time
 * is that of a closed form, no action runs before what it needs, and none waits without a reason.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include "base/array.h"
#include "base/philox.h"
#include "simulate/timeline.h"

static const char *const rows[] = {"naive", "gpipe", "1f1b", "interleaved_1f1b", "zb_h1", "zb_v"};
enum { ROWS = sizeof rows / sizeof rows[0], COST_MOST = 9 };

static struct schedule *made(const char *name, int ranks, int micros)
{
    struct schedule_request request = {.name = name, .ranks = ranks, .micros = micros};
    struct schedule *s = NULL;
    struct error err = {0};
    if (schedule_create(&s, &request, &err))
        fail_msg("%s", err.text);
    return s;
}

/* Costs from 1 to COST_MOST, of each stage and phase its own. */
static struct schedule_costs *drawn(const struct schedule *s, uint64_t key)
{
    struct schedule_costs *cost = array_make((size_t)s->stages, sizeof *cost);
    for (int stage = 0; stage < s->stages; stage++) {
        uint64_t at = (uint64_t)stage * 3;
        cost[stage] = (struct schedule_costs){
            .forward = 1 + (int64_t)(philox_u64(key, at) % COST_MOST),
            .input = 1 + (int64_t)(philox_u64(key, at + 1) % COST_MOST),
            .weight = 1 + (int64_t)(philox_u64(key, at + 2) % COST_MOST),
        };
    }
    return cost;
}

/* All forward, then all backward, of stages one behind the other: as items through machines in a
 * row, each of which takes its own time for every item. */
static void test_gpipe_is_a_flow_shop(void **state)
{
    for (int i = 0; i < 6 * 9; i++) {
        struct schedule *s = made("gpipe", 1 + i % 6, 1 + i / 6);
        struct schedule_costs *cost = drawn(s, (uint64_t)i);
        struct timeline t;
        int64_t want = 0, most_forward = 0, most_backward = 0;
        for (int stage = 0; stage < s->stages; stage++) {
            int64_t backward = cost[stage].input + cost[stage].weight;
            want += cost[stage].forward + backward;
            most_forward = cost[stage].forward > most_forward ? cost[stage].forward : most_forward;
            most_backward = backward > most_backward ? backward : most_backward;
        }
        timeline_fill(&t, s, cost);
        assert_int_equal(t.makespan, want + (s->micros - 1) * (most_forward + most_backward));
        timeline_free(&t);
        free(cost);
        schedule_destroy(s);
    }
}

/* When an action of this stage, micro-batch and phases ends; -1: there is none. */
static int64_t end_of(const struct timeline *t, int stage, int micro, unsigned phases)
{
    const struct schedule *s = t->schedule;
    for (int a = 0; stage >= 0 && stage < s->stages && a < s->first[s->ranks]; a++)
        if (s->action[a].stage == stage && s->action[a].micro == micro &&
            phases >> s->action[a].phase & 1)
            return timeline_end(t, a);
    return -1;
}

/* When an action can start: the rank is free, and what it reads is there. */
static int64_t earliest(const struct timeline *t, int rank, int a)
{
    enum { FORWARD = 1 << PHASE_FORWARD };
    const unsigned first_part = 1u << PHASE_BACKWARD | 1u << PHASE_BACKWARD_INPUT;
    const struct schedule_action *action = &t->schedule->action[a];
    int is_forward = action->phase == PHASE_FORWARD,
        is_weight = action->phase == PHASE_BACKWARD_WEIGHT;
    int64_t times[] = {
        a > t->schedule->first[rank] ? timeline_end(t, a - 1) : 0,
        is_forward ? end_of(t, action->stage - 1, action->micro, FORWARD) : -1,
        is_forward ? -1 : end_of(t, action->stage, action->micro, FORWARD),
        is_forward || is_weight ? -1 : end_of(t, action->stage + 1, action->micro, first_part),
        is_weight ? end_of(t, action->stage, action->micro, first_part) : -1,
    };
    int64_t latest = 0;
    for (size_t k = 0; k < sizeof times / sizeof times[0]; k++)
        latest = times[k] > latest ? times[k] : latest;
    return latest;
}

static void test_actions_start_when_they_can(void **state)
{
    for (int i = 0; i < ROWS * 4 * 7; i++) {
        struct schedule *s = made(rows[i % ROWS], 1 + i / ROWS % 4, 1 + i / ROWS / 4);
        struct schedule_costs *cost = drawn(s, 1000 + (uint64_t)i);
        struct timeline t;
        int64_t busy = 0, last = 0;
        timeline_fill(&t, s, cost);
        for (int rank = 0; rank < s->ranks; rank++)
            for (int a = s->first[rank]; a < s->first[rank + 1]; a++) {
                assert_int_equal(t.start[a], earliest(&t, rank, a));
                last = timeline_end(&t, a) > last ? timeline_end(&t, a) : last;
            }
        for (int stage = 0; stage < s->stages; stage++)
            busy += s->micros * (cost[stage].forward + cost[stage].input + cost[stage].weight);
        assert_int_equal(t.makespan, last);
        double idle = 1 - (double)busy / (double)(s->ranks * last);
        assert_float_equal(timeline_idle_mean(&t), idle, 1e-12);
        timeline_free(&t);
        free(cost);
        schedule_destroy(s);
    }
}

static void test_equal_stages_are_played_alike(void **state)
{
    static const struct schedule_costs one = {2, 3, 1};
    for (int i = 0; i < ROWS; i++) {
        struct schedule *s = made(rows[i], 4, 8);
        struct schedule_costs *cost = array_make((size_t)s->stages, sizeof *cost);
        int64_t *start = array_make((size_t)s->first[4], sizeof *start);
        struct timeline t;
        for (int stage = 0; stage < s->stages; stage++)
            cost[stage] = one;
        timeline_fill(&t, s, cost);
        assert_int_equal(schedule_play(s, &one, start, NULL), t.makespan);
        assert_memory_equal(start, t.start, (size_t)s->first[4] * sizeof *start);
        timeline_free(&t);
        free(start);
        free(cost);
        schedule_destroy(s);
    }
}

static void test_costs_of_operations(void **state)
{
    struct schedule_costs large = timeline_costs(3e15), none = timeline_costs(0);
    assert_true(large.forward == 3000000000000 && large.input == large.forward &&
                large.weight == large.forward);
    assert_true(none.forward == 1 && none.input == 1 && none.weight == 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gpipe_is_a_flow_shop),
        cmocka_unit_test(test_actions_start_when_they_can),
        cmocka_unit_test(test_equal_stages_are_played_alike),
        cmocka_unit_test(test_costs_of_operations),
    };
    return cmocka_run_group_tests_name("timeline", tests, NULL, NULL);
}
