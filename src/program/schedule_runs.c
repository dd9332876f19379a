/* schedule_runs.c - the runs of a stage, from the actions of its schedule, and the pass that writes
 * them.
 *
 * An action becomes the runs of the stage's units.  The unit that ends in the loss makes that, and
 * its gradient, in backward, so that logits exist only a chunk at a time.
 */
#include <stdlib.h>

#include "base/array.h"
#include "program/gradients.h"
#include "program/passes.h"
#include "program/runs.h"
#include "program/schedule.h"
#include "program/shard.h"

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
    int listed = schedule_list(schedule_row(program->layout->schedule), &place, action);
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
    runs_plan(program, run, runs);
    instr_bind(program_instr(program, INSTR_ZERO, STREAM_COMPUTE), SLOT_SUMS, program->state->sums,
               ACCESS_WRITE);
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
