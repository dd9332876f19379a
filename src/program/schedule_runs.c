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
    int count, actions;
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
        runs->run[runs->count++] = (struct run){.phase = phase,
                                                .unit = unit,
                                                .micro = action->micro,
                                                .action = runs->actions,
                                                .segment = segment};
}

static void add_action(struct runs *runs, const struct schedule_action *action)
{
    const struct program *program = runs->program;
    struct units_stage own = units_stage(program->units, action->stage);
    int last = own.first + own.count - 1, before = runs->count;
    if (action->phase == PHASE_FORWARD)
        for (int u = own.first; u <= last; u++)
            add_run(runs, u, action);
    else if (program->kind == PROGRAM_TRAIN)
        for (int u = last; u >= own.first; u--)
            add_run(runs, u, action);
    runs->actions += runs->count > before;
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

/* The first run of the action before that of run r: what r reads of another stage is received from
 * there on, beside that action's runs. */
static int received_at(const struct run *run, int r)
{
    int action = run[r].action;
    while (r > 0 && run[r - 1].action >= action - 1)
        r--;
    return r;
}

/* How many sets of buffers the micro-batches need that are alive together, where micro-batch m has
 * the set of m - sets: m begins when that is done.  last: per micro-batch, its last run. */
static int count_sets(const struct program *program, const struct run *run, int runs,
                      const int *last)
{
    int sets = 1, begun = 0, has_stages = program->layout->shape.degree[MESH_PIPELINE] > 1;
    for (int r = 0; r < runs; r++) {
        if (run[r].micro < begun)
            continue;
        int begins = has_stages ? received_at(run, r) : r;
        for (int m = begun++ - sets; m >= 0; m--)
            if (last[m] >= begins)
                sets = begun - m;
    }
    return sets;
}

/* How many runs follow run r in its action, itself among them. */
static int left_in_action(const struct run *run, int runs, int r)
{
    int end = r;
    while (end < runs && run[end].action == run[r].action)
        end++;
    return end - r;
}

/* Before the first run of an action: receive what its runs read and those of the next. */
static void receive(struct program *program, struct runs_buffers *buffers, const struct run *run,
                    int runs, int r)
{
    if (r > 0 && run[r].action == run[r - 1].action)
        return;
    int count = left_in_action(run, runs, r), next = r + count;
    runs_receive(program, buffers, &run[r], count);
    if (next < runs)
        runs_receive(program, buffers, &run[next], left_in_action(run, runs, next));
}

/* Behind the last run of an action: send what its runs have made for other stages. */
static void send(struct program *program, struct runs_buffers *buffers, const struct run *run,
                 int runs, int r)
{
    int first = r;
    if (left_in_action(run, runs, r) > 1)
        return;
    while (first > 0 && run[first - 1].action == run[r].action)
        first--;
    runs_send(program, buffers, &run[first], r - first + 1);
}

/* ---- the pass ---- */

void pass_schedule(struct program *program)
{
    int runs, loaded = 0;
    struct run *run = list_runs(program, &runs);
    int *last = array_make((size_t)program->micros, sizeof *last);
    for (int r = 0; r < runs; r++)
        last[run[r].micro] = r;
    struct runs_buffers *buffers = runs_open(program, count_sets(program, run, runs, last));
    shard_plan(program, run, runs);
    gradients_plan(program, run, runs);
    runs_plan(program, run, runs);
    instr_bind(program_instr(program, INSTR_ZERO, STREAM_COMPUTE), SLOT_SUMS, program->state->sums,
               ACCESS_WRITE);
    for (int r = 0; r < runs; r++) {
        if (run[r].micro == loaded)
            runs_load(program, buffers, loaded++);
        receive(program, buffers, run, runs, r);
        shard_before(program, run, runs, r);
        gradients_before(program, run, runs, r);
        runs_write(program, buffers, &run[r]);
        send(program, buffers, run, runs, r);
        gradients_after(program, run, runs, r);
        shard_after(program, run, runs, r);
    }
    if (program->kind == PROGRAM_EVALUATE)
        pass_sums(program);
    runs_close(buffers);
    free(last);
    free(run);
}
