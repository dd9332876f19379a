/* schedule_runs.c - the runs of a rank, from the actions of its schedule, and the pass that writes
 * them.
 *
 * An action becomes the runs of its stage's units.  The unit that ends in the loss makes that, and
 * its gradient, in backward, so that logits exist only a chunk at a time.
 */
#include "program/schedule_runs.h"

#include <stdlib.h>

#include "base/array.h"
#include "program/gradients.h"
#include "program/overlap_update.h"
#include "program/passes.h"
#include "program/shard.h"

/* ---- the runs of a rank ---- */

/* Append the run of a unit in an action, unless it writes nothing but work and what it carries from
 * piece to piece. */
static void add_run(struct schedule_runs *runs, int unit, const struct schedule_action *action)
{
    const struct program *program = runs->program;
    enum segment_phase phase = action->phase;
    int is_both = program->kind == PROGRAM_TRAIN && !program->units->request.splits_loss &&
                  units_kind(program->units, unit)->ends_in_loss;
    if (is_both && phase == PHASE_BACKWARD)
        phase = PHASE_BOTH;
    const struct segment *segment = program_segment(program, unit, phase);
    if (segment->writes & ~(space_bit(SPACE_WORK) | space_bit(SPACE_CARRY)))
        runs->run[runs->count++] = (struct run){.phase = phase,
                                                .unit = unit,
                                                .micro = action->micro,
                                                .action = runs->actions,
                                                .segment = segment};
}

static void add_action(struct schedule_runs *runs, const struct schedule_action *action)
{
    struct units_stage own = units_stage(runs->program->units, action->stage);
    int last = own.first + own.count - 1, first = runs->count;
    if (action->phase == PHASE_FORWARD)
        for (int u = own.first; u <= last; u++)
            add_run(runs, u, action);
    else
        for (int u = last; u >= own.first; u--)
            add_run(runs, u, action);
    runs->action[runs->actions++] =
        (struct schedule_runs_action){*action, first, runs->count - first};
}

/* List forward of one micro-batch, stage by stage. */
static void list_forward(struct schedule_runs *runs)
{
    const struct schedule *schedule = runs->program->layout->schedule;
    for (int stage = 0; stage < schedule->stages; stage++)
        if (schedule->rank_of[stage] == runs->program->state->coord.at[MESH_PIPELINE])
            add_action(runs, &(struct schedule_action){stage, 0, PHASE_FORWARD});
}

/* List all actions of the rank, and their runs. */
static void list_runs(struct schedule_runs *runs)
{
    const struct program *program = runs->program;
    const struct schedule *schedule = program->layout->schedule;
    int count, most = 0;
    const struct schedule_action *action =
        schedule_actions(schedule, program->state->coord.at[MESH_PIPELINE], &count);
    for (int stage = 0; stage < schedule->stages; stage++) {
        int units = units_stage(program->units, stage).count;
        most = units > most ? units : most;
    }
    runs->run = array_make((size_t)count * (size_t)most, sizeof *runs->run);
    runs->action = array_make((size_t)count, sizeof *runs->action);
    for (int a = 0; a < count && program->kind == PROGRAM_TRAIN; a++)
        add_action(runs, &action[a]);
    if (program->kind != PROGRAM_TRAIN)
        list_forward(runs);
}

static int is_last_of_action(const struct schedule_runs *runs, int r)
{
    const struct schedule_runs_action *action = &runs->action[runs->run[r].action];
    return r == action->first + action->count - 1;
}

/* ---- the pass ---- */

/* The action whose runs read what is received for action k: k itself, or, where forward has no runs
 * because the unit of the loss does all in backward, that backward. */
static const struct schedule_runs_action *reader_of(const struct schedule_runs *runs, int k)
{
    const struct schedule_runs_action *reader = &runs->action[k];
    for (int i = k; i < runs->actions && !reader->count; i++)
        if (runs->action[i].scheduled.stage == runs->action[k].scheduled.stage &&
            runs->action[i].scheduled.micro == runs->action[k].scheduled.micro)
            reader = &runs->action[i];
    return reader;
}

enum receive_place { BEFORE_RUN, AFTER_ACTION };

/* Receive what is to be received before run r, or after it, the last of its action.  *next: the
 * first arrival that is not received yet. */
static void receive(struct program *program, struct runs_buffers *buffers,
                    const struct schedule_runs *runs, int r, enum receive_place place, int *next)
{
    int action = runs->run[r].action;
    for (; *next < runs->arrivals; (*next)++) {
        const struct schedule_arrival *arrival = &runs->arrival[*next];
        const struct schedule_runs_action *reader = reader_of(runs, arrival->needs);
        int is_later = arrival->action == action && arrival->is_after && place == BEFORE_RUN;
        if (arrival->action > action || is_later)
            break;
        if (reader->count)
            runs_receive(program, buffers, &runs->run[reader->first], reader->count);
    }
}

/* After the last run of an action: receive what comes, in the order of all ranks, before what the
 * action sends, and send what its runs have made for other ranks. */
static void exchange(struct program *program, struct runs_buffers *buffers,
                     const struct schedule_runs *runs, int r, int *next)
{
    const struct schedule_runs_action *action = &runs->action[runs->run[r].action];
    if (program->units->stages == 1 || !is_last_of_action(runs, r))
        return;
    receive(program, buffers, runs, r, AFTER_ACTION, next);
    runs_send(program, buffers, &runs->run[action->first], action->count);
}

static void write_runs(struct program *program, struct runs_buffers *buffers,
                       struct schedule_runs *runs)
{
    struct run *run = runs->run;
    char *loaded = array_make((size_t)program->micros, 1);
    for (int r = 0, arrival = 0; r < runs->count; r++) {
        if (!loaded[run[r].micro]++)
            runs_load(program, buffers, run[r].micro);
        receive(program, buffers, runs, r, BEFORE_RUN, &arrival);
        shard_before(program, run, runs->count, r);
        overlap_update_before_run(program, &run[r]);
        gradients_before(program, run, runs->count, r);
        runs_write(program, buffers, &run[r]);
        exchange(program, buffers, runs, r, &arrival);
        gradients_after(program, run, runs->count, r);
        shard_after(program, run, runs->count, r);
    }
    free(loaded);
}

void pass_schedule(struct program *program)
{
    struct schedule_runs runs = {.program = program};
    struct runs_sets sets;
    list_runs(&runs);
    schedule_list_arrivals(&runs);
    schedule_find_sets(&runs, &sets);
    struct runs_buffers *buffers = runs_open(program, &sets);
    shard_plan(program, runs.run, runs.count);
    gradients_plan(program, runs.run, runs.count);
    runs_plan(program, buffers, runs.run, runs.count);
    overlap_update_plan(program, runs.run, runs.count);
    if (!program->overlap)
        program_add_zero(program);
    write_runs(program, buffers, &runs);
    overlap_update_end(program);
    if (program->kind == PROGRAM_EVALUATE)
        pass_sums(program);
    runs_close(buffers);
    schedule_free_sets(&sets);
    free(runs.run);
    free(runs.action);
    free(runs.arrival);
}
