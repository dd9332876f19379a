/* schedule.c - which segments run, in which order. */
#include "program/passes.h"

#include <stdlib.h>

#include "base/array.h"
#include "program/gradients.h"
#include "program/runs.h"
#include "program/shard.h"

static int add_run(const struct program *program, struct run *run, int runs, int unit, int micro,
                   enum segment_phase phase)
{
    run[runs] = (struct run){.phase = phase,
                             .unit = unit,
                             .micro = micro,
                             .segment = program_segment(program, unit, phase)};
    return runs + 1;
}

/* Forward through all units, the last one both ways, back through the others down to the first that
 * is trained; micro-batch by micro-batch. */
static int list_runs(const struct program *program, struct run *run)
{
    int runs = 0, last = program->units->count - 1;
    int train = program->kind == PROGRAM_TRAIN;
    for (int m = 0; m < program->micros; m++) {
        for (int u = 0; u < last; u++)
            runs = add_run(program, run, runs, u, m, PHASE_FORWARD);
        runs = add_run(program, run, runs, last, m, train ? PHASE_BOTH : PHASE_FORWARD);
        for (int u = last - 1; train && u >= 0 && units_has_backward(program->units, u); u--)
            runs = add_run(program, run, runs, u, m, PHASE_BACKWARD);
    }
    return runs;
}

static void zero(struct program *program)
{
    int index = program_instr(program, INSTR_ZERO, STREAM_COMPUTE);
    instr_bind(&program->instr[index], SLOT_SUMS, program->state->sums, ACCESS_WRITE);
}

void pass_schedule(struct program *program)
{
    size_t units = (size_t)program->units->count;
    struct run *run = array_make(2 * units * (size_t)program->micros, sizeof *run);
    struct runs_buffers *buffers = runs_open(program);
    int runs = list_runs(program, run), micro = -1;
    shard_plan(program, run, runs);
    gradients_plan(program, run, runs);
    zero(program);
    for (int r = 0; r < runs; r++) {
        if (run[r].micro != micro)
            runs_load(program, buffers, micro = run[r].micro);
        shard_before(program, run, runs, r);
        gradients_before(program, run, runs, r);
        runs_write(program, buffers, &run[r]);
        gradients_after(program, run, runs, r);
        shard_after(program, run, runs, r);
    }
    if (program->kind == PROGRAM_EVALUATE)
        pass_sums(program);
    runs_close(buffers);
    free(run);
}
