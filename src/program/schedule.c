/* schedule.c - the table of schedules (schedule.h), and the runs of a stage by one of its rows.
 *
 * An action becomes the runs of the stage's units.  The unit that ends in the loss makes that, and
 * its gradient, in backward, so that logits exist only a chunk at a time.
 */
#include "program/schedule.h"

#include <stdlib.h>

#include "base/array.h"
#include "program/gradients.h"
#include "program/passes.h"
#include "program/runs.h"
#include "program/shard.h"

/* ---- the rows ---- */

struct list {
    const struct schedule_place *place;
    struct schedule_action *action;
    int count;
};

static void add(struct list *list, enum segment_phase phase, int micro)
{
    list->action[list->count++] = (struct schedule_action){list->place->stage, micro, phase};
}

static int list_naive(const struct schedule_place *place, struct schedule_action *action)
{
    struct list list = {place, action, 0};
    for (int m = 0; m < place->micros; m++) {
        add(&list, PHASE_FORWARD, m);
        add(&list, PHASE_BACKWARD, m);
    }
    return list.count;
}

static int list_gpipe(const struct schedule_place *place, struct schedule_action *action)
{
    struct list list = {place, action, 0};
    for (int m = 0; m < place->micros; m++)
        add(&list, PHASE_FORWARD, m);
    for (int m = 0; m < place->micros; m++)
        add(&list, PHASE_BACKWARD, m);
    return list.count;
}

/* Micro-batches that a stage is ahead in forward: those that the stages behind it hold. */
static int ahead_of(const struct schedule_place *place)
{
    int behind = place->stages - 1 - place->stage;
    return behind < place->micros ? behind : place->micros;
}

static int list_1f1b(const struct schedule_place *place, struct schedule_action *action)
{
    struct list list = {place, action, 0};
    int ahead = ahead_of(place);
    for (int m = 0; m < ahead; m++)
        add(&list, PHASE_FORWARD, m);
    for (int m = 0; m < place->micros; m++) {
        if (m + ahead < place->micros)
            add(&list, PHASE_FORWARD, m + ahead);
        add(&list, PHASE_BACKWARD, m);
    }
    return list.count;
}

/* Qi et al. 2023 (zero bubble pipeline parallelism, H1): as 1F1B, but a stage puts the weight parts
 * off by as many micro-batches as there are stages before it.  They fill the time in which it would
 * wait, and every stage holds as many micro-batches as the first one of 1F1B. */
static int list_zb_h1(const struct schedule_place *place, struct schedule_action *action)
{
    struct list list = {place, action, 0};
    int ahead = ahead_of(place);
    for (int m = 0; m < ahead; m++)
        add(&list, PHASE_FORWARD, m);
    for (int m = 0; m < place->micros + place->stage; m++) {
        if (m + ahead < place->micros)
            add(&list, PHASE_FORWARD, m + ahead);
        if (m < place->micros)
            add(&list, PHASE_BACKWARD_INPUT, m);
        if (m >= place->stage)
            add(&list, PHASE_BACKWARD_WEIGHT, m - place->stage);
    }
    return list.count;
}

const struct schedule *schedule_row(enum config_pipeline_schedule name)
{
    static const struct schedule rows[] = {
        [PIPELINE_NAIVE] = {.list = list_naive},
        [PIPELINE_GPIPE] = {.list = list_gpipe, .splits_loss = 1},
        [PIPELINE_1F1B] = {.list = list_1f1b},
        [PIPELINE_ZB_H1] = {.list = list_zb_h1, .splits_loss = 1, .splits_backward = 1},
    };
    return &rows[name];
}

/* ---- the runs of a stage ---- */

struct runs {
    const struct program *program;
    struct run *run;
    int count;
};

/* The run of a unit in an action, if it has one; not where what it makes is not kept, either. */
static void add_run(struct runs *runs, int unit, const struct schedule_action *action)
{
    const struct program *program = runs->program;
    enum segment_phase phase = action->phase;
    int is_both = program->kind == PROGRAM_TRAIN && !program->units->request.splits_loss &&
                  units_kind(program->units, unit)->ends_in_loss;
    if (is_both && (phase == PHASE_BACKWARD || phase == PHASE_BACKWARD_INPUT))
        phase = PHASE_BOTH;
    const struct segment *segment = program_segment(program, unit, phase);
    if (segment->writes & ~(1u << SPACE_WORK))
        runs->run[runs->count++] =
            (struct run){.phase = phase, .unit = unit, .micro = action->micro, .segment = segment};
}

static void add_action(struct runs *runs, const struct schedule_action *action)
{
    const struct program *program = runs->program;
    struct layout_stage own = layout_stage(program->layout, program->units, action->stage);
    int last = own.first + own.count - 1;
    if (action->phase == PHASE_FORWARD)
        for (int u = own.first; u <= last; u++)
            add_run(runs, u, action);
    else if (program->kind == PROGRAM_TRAIN)
        for (int u = last; u >= own.first; u--)
            add_run(runs, u, action);
}

/* All runs of the step; *count of them.  For free(). */
static struct run *list_runs(const struct program *program, int *count)
{
    struct schedule_place place = {
        .stages = program->layout->shape.degree[MESH_PIPELINE],
        .stage = program->state->coord.at[MESH_PIPELINE],
        .micros = program->micros,
    };
    size_t actions = SCHEDULE_ACTIONS * (size_t)program->micros;
    struct schedule_action *action = array_make(actions, sizeof *action);
    struct runs runs = {.program = program};
    runs.run = array_make(actions * (size_t)program->stage.count, sizeof *runs.run);
    int listed = schedule_row(program->layout->schedule)->list(&place, action);
    for (int a = 0; a < listed; a++)
        add_action(&runs, &action[a]);
    free(action);
    *count = runs.count;
    return runs.run;
}

/* How many sets of buffers the micro-batches need that are alive together, where micro-batch m has
 * the set of m - sets: m begins when that is done.  last: per micro-batch, its last run. */
static int count_sets(const struct run *run, int runs, const int *last)
{
    int sets = 1, begun = 0;
    for (int r = 0; r < runs; r++) {
        if (run[r].micro < begun)
            continue;
        for (int m = begun++ - sets; m >= 0; m--)
            if (last[m] >= r)
                sets = begun - m;
    }
    return sets;
}

/* ---- the pass ---- */

static void zero(struct program *program)
{
    int index = program_instr(program, INSTR_ZERO, STREAM_COMPUTE);
    instr_bind(&program->instr[index], SLOT_SUMS, program->state->sums, ACCESS_WRITE);
}

void pass_schedule(struct program *program)
{
    int runs, loaded = 0;
    struct run *run = list_runs(program, &runs);
    int *last = array_make((size_t)program->micros, sizeof *last);
    for (int r = 0; r < runs; r++)
        last[run[r].micro] = r;
    struct runs_buffers *buffers = runs_open(program, count_sets(run, runs, last));
    shard_plan(program, run, runs);
    gradients_plan(program, run, runs);
    zero(program);
    for (int r = 0; r < runs; r++) {
        if (run[r].micro == loaded)
            runs_load(program, buffers, loaded++);
        shard_before(program, run, runs, r);
        gradients_before(program, run, runs, r);
        runs_write(program, buffers, &run[r]);
        gradients_after(program, run, runs, r);
        shard_after(program, run, runs, r);
    }
    if (program->kind == PROGRAM_EVALUATE)
        pass_sums(program);
    runs_close(buffers);
    free(last);
    free(run);
}
