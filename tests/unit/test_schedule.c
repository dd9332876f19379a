/* test_schedule.c - the table of schedules: the orders of all stages together take the time and
 * keep the micro-batches alive that theory says; and what one stage makes of an order. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "program/schedule.h"
#include "segment/place.h"
#include "tests/unit/rig.h"

enum { STAGES = 8, MICROS = 32, KINDS = 3 };

/* What an action costs; backward in one or in two. */
struct costs {
    int forward, input, weight;
};

static int cost_of(const struct costs *costs, enum segment_phase phase)
{
    switch (phase) {
    case PHASE_FORWARD: return costs->forward;
    case PHASE_BACKWARD: return costs->input + costs->weight;
    case PHASE_BACKWARD_INPUT: return costs->input;
    default: return costs->weight;
    }
}

/* One stage going through its actions. */
struct stage {
    struct schedule_action action[SCHEDULE_ACTIONS * MICROS];
    int count, done, time, alive, most_alive;
};

struct pipeline {
    struct stage stage[STAGES];
    int stages, micros;
    int end[STAGES][PHASE_BOTH + 1][MICROS]; /* when an action ended; -1: not yet */
    struct costs costs;
};

static void list_all(struct pipeline *p, const struct schedule *row)
{
    memset(p->end, -1, sizeof p->end);
    for (int s = 0; s < p->stages; s++) {
        struct schedule_place place = {p->stages, s, p->micros};
        p->stage[s] = (struct stage){0};
        p->stage[s].count = schedule_list(row, &place, p->stage[s].action);
        assert_true(p->stage[s].count <= SCHEDULE_ACTIONS * p->micros);
    }
}

/* When stage s can begin its next action: 0 or later, or -1: what it needs is not there. */
static int ready_at(const struct pipeline *p, int s)
{
    const struct schedule_action *a = &p->stage[s].action[p->stage[s].done];
    int is_forward = a->phase == PHASE_FORWARD;
    assert_int_equal(a->stage, s);
    if (!is_forward)
        assert_true(p->end[s][PHASE_FORWARD][a->micro] >= 0);
    if (a->phase == PHASE_BACKWARD_WEIGHT) {
        assert_true(p->end[s][PHASE_BACKWARD_INPUT][a->micro] >= 0);
        return 0;
    }
    assert_int_equal(p->end[s][a->phase][a->micro], -1);
    int from = is_forward ? s - 1 : s + 1;
    return from < 0 || from == p->stages ? 0 : p->end[from][a->phase][a->micro];
}

static void do_action(struct pipeline *p, int s, int from)
{
    struct stage *stage = &p->stage[s];
    const struct schedule_action *a = &stage->action[stage->done++];
    stage->time = from > stage->time ? from : stage->time;
    stage->time += cost_of(&p->costs, a->phase);
    stage->alive += (a->phase == PHASE_FORWARD) - (a->phase == PHASE_BACKWARD) -
                    (a->phase == PHASE_BACKWARD_WEIGHT);
    stage->most_alive = stage->alive > stage->most_alive ? stage->alive : stage->most_alive;
    p->end[s][a->phase][a->micro] = stage->time;
}

/* Play all stages, transfers taking no time; returns when the last one ends. */
static int play(struct pipeline *p)
{
    int done = 0, all = 0, end = 0;
    for (int s = 0; s < p->stages; s++)
        all += p->stage[s].count;
    while (done < all) {
        int before = done;
        for (int s = 0; s < p->stages; s++)
            for (int from; p->stage[s].done < p->stage[s].count && (from = ready_at(p, s)) >= 0;
                 done++)
                do_action(p, s, from);
        assert_true(done > before);
    }
    for (int s = 0; s < p->stages; s++) {
        assert_int_equal(p->stage[s].alive, 0);
        end = p->stage[s].time > end ? p->stage[s].time : end;
    }
    return end;
}

static int least(int a, int b)
{
    return a < b ? a : b;
}

/* Huang et al. 2019 (GPipe), Narayanan et al. 2019 (1F1B): the same bubble, p - 1 micro-batches
 * long; all micro-batches alive, or as many as stages behind hold.  Qi et al. 2023 (ZB-H1): weight
 * parts fill the bubble, as many as may be put off, and every stage holds p micro-batches. */
static void test_time_and_memory_are_those_of_theory(void **state)
{
    static const struct costs costs[] = {{1, 1, 1}, {2, 3, 2}};
    static struct pipeline p;
    for (int i = 0; i < 2 * (STAGES - 1) * MICROS; i++) {
        p.costs = costs[i % 2];
        p.micros = 1 + i / 2 % MICROS;
        p.stages = 2 + i / 2 / MICROS;
        int all = p.costs.forward + p.costs.input + p.costs.weight;
        list_all(&p, schedule_row(PIPELINE_GPIPE));
        assert_int_equal(play(&p), (p.micros + p.stages - 1) * all);
        for (int s = 0; s < p.stages; s++)
            assert_int_equal(p.stage[s].most_alive, p.micros);
        list_all(&p, schedule_row(PIPELINE_1F1B));
        assert_int_equal(play(&p), (p.micros + p.stages - 1) * all);
        for (int s = 0; s < p.stages; s++)
            assert_int_equal(p.stage[s].most_alive, least(p.micros, p.stages - s));
        list_all(&p, schedule_row(PIPELINE_ZB_H1));
        assert_int_equal(play(&p), (p.micros + p.stages - 1) * all -
                                       (least(p.micros, p.stages) + p.stages - 2) * p.costs.weight);
        for (int s = 0; s < p.stages; s++)
            assert_int_equal(p.stage[s].most_alive, least(p.micros, p.stages));
        list_all(&p, schedule_row(PIPELINE_NAIVE));
        play(&p);
        for (int s = 0; s < p.stages; s++)
            assert_int_equal(p.stage[s].most_alive, 1);
    }
}

static const char *const rows[] = {"naive", "gpipe", "1f1b", "zb_h1"};
enum { ROWS = sizeof rows / sizeof rows[0] };

static struct config config_of(const char *row, int micros, const char *more)
{
    char text[512];
    snprintf(text, sizeof text,
             "model.layers=3 model.hidden=12 model.heads=2 model.ffn=20 model.vocab=23 "
             "data.seq_len=7 train.global_batch=%d train.micro_batch=1 parallel.schedule=%s %s",
             micros, row, more);
    return rig_config(text);
}

static int is_same_work(const struct instr *a, const struct instr *b)
{
    return a->kind == b->kind && a->kind == INSTR_RUN && a->unit == b->unit && a->phase == b->phase;
}

/* Do two RUNs have their activations, tokens and targets at the same places? */
static int is_same_place(const struct program *p, const struct instr *a, const struct instr *b)
{
    for (int s = SPACE_INPUT; s < SPACE_COUNT; s++) {
        if ((a->buffer[s] < 0) != (b->buffer[s] < 0))
            return 0;
        if (a->buffer[s] >= 0 && p->buffer[a->buffer[s]].offset != p->buffer[b->buffer[s]].offset)
            return 0;
    }
    return 1;
}

/* RUNs of one unit and phase on memory that no RUN before them had. */
static int count_places(const struct program *p, int i)
{
    int places = 0;
    for (int k = i; k < p->instrs; k++) {
        if (!is_same_work(&p->instr[i], &p->instr[k]))
            continue;
        int known = 0;
        for (int j = i; j < k; j++)
            known |= is_same_work(&p->instr[i], &p->instr[j]) &&
                     is_same_place(p, &p->instr[j], &p->instr[k]);
        places += !known;
    }
    return places;
}

/* What passes has the place that it had `alive` micro-batches before. */
static void check_ring(const struct program *p, const struct instr *instr, int alive)
{
    for (int s = SPACE_INPUT; s < SPACE_COUNT; s++) {
        int b = instr->buffer[s];
        if (b >= 0 && !p->buffer[b].persistent)
            assert_int_equal(p->buffer[b].like >= 0, instr->micro >= alive);
    }
}

/* As many sets of buffers as micro-batches are alive, used again in their order: that many CUDA
 * graphs. */
static void test_buffers_are_a_ring(void **state)
{
    static const char *const more[] = {"", "recompute=full model.tie_embeddings=true",
                                       "model.family=gpt2 recompute=selective"};
    for (int i = 0; i < ROWS * 3 * 5; i++) {
        const char *row = rows[i % ROWS];
        int micros = 1 + i / ROWS % 5, alive = strcmp(row, "gpipe") ? 1 : micros;
        struct config config = config_of(row, micros, more[i / ROWS / 5]);
        struct fleet fleet;
        fleet_open(&fleet, &config, 1, PROGRAM_TRAIN);
        const struct program *p = fleet.program[0];
        for (int k = 0; k < p->instrs; k++)
            if (p->instr[k].kind == INSTR_RUN) {
                assert_true(count_places(p, k) <= alive);
                check_ring(p, &p->instr[k], alive);
            }
        fleet_close(&fleet);
    }
}

static size_t bytes_of(const char *row, int micros, enum mem_pool pool)
{
    struct config config = config_of(row, micros, "");
    struct fleet fleet;
    fleet_open(&fleet, &config, 1, PROGRAM_TRAIN);
    size_t bytes = fleet.program[0]->pool_bytes[pool];
    fleet_close(&fleet);
    return bytes;
}

/* Each micro-batch more that is alive costs what forward keeps for its backward: of each unit its
 * input and what is saved. */
static void test_memory_grows_with_what_is_alive(void **state)
{
    struct config config = config_of("gpipe", 1, "");
    struct fleet fleet;
    size_t kept = 0;
    fleet_open(&fleet, &config, 1, PROGRAM_TRAIN);
    for (int u = 0; u < fleet.units->count; u++)
        kept += (fleet.units->boundary[u].bytes + 63) / 64 * 64 +
                (units_segment(fleet.units, u, PHASE_FORWARD)->saved_bytes + 63) / 64 * 64;
    fleet_close(&fleet);
    for (int micros = 1; micros < 5; micros++) {
        size_t one = bytes_of("naive", micros, POOL_ACTIVATIONS);
        assert_int_equal(bytes_of("1f1b", micros, POOL_ACTIVATIONS), one);
        size_t all = bytes_of("gpipe", micros, POOL_ACTIVATIONS);
        size_t first = bytes_of("gpipe", 1, POOL_ACTIVATIONS), more = (size_t)(micros - 1) * kept;
        assert_in_range(all, first + more * 9 / 10, first + more);
    }
}

/* Items that are to share a place do, and still nothing overlaps what lives with any of them. */
static void test_alike_items_share_a_place(void **state)
{
    struct place items[] = {
        {.bytes = 100, .first = 0, .last = 1}, {.bytes = 300, .first = 1, .last = 2},
        {.bytes = 200, .first = 4, .last = 6}, {.bytes = 100, .first = 3, .last = 4},
        {.bytes = 100, .first = 5, .last = 6},
    };
    items[3].like = &items[0];
    items[4].like = &items[3];
    assert_int_equal(place_items(items, 5), 320 + 128);
    assert_int_equal(items[1].offset, 0);
    assert_int_equal(items[2].offset, 0);
    assert_int_equal(items[0].offset, 320);
    assert_int_equal(items[3].offset, 320);
    assert_int_equal(items[4].offset, 320);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_time_and_memory_are_those_of_theory),
        cmocka_unit_test(test_buffers_are_a_ring),
        cmocka_unit_test(test_memory_grows_with_what_is_alive),
        cmocka_unit_test(test_alike_items_share_a_place),
    };
    return cmocka_run_group_tests_name("schedule", tests, NULL, NULL);
}
