/* runs_messages.c - what passes between runs of different ranks of the pipeline axis: SEND, RECV.
 *
 * Two values cross from a stage to the next one, if that is another rank's, for each unit of the
 * lower stage whose output units of the upper one read:
 *
 *   lower stage   SEND output ----->  WAY_UP    -----> RECV output     upper stage
 *                 RECV gradient <---  WAY_DOWN  <----- SEND gradient
 *
 * A message is received before the first run that reads it, once for a micro-batch, and sent after
 * the runs that make it.
 */
#include "program/runs_private.h"

/* Append one end of a message: with WAY_UP of a unit's output, which goes to the rank of the next
 * stage; with WAY_DOWN of the gradient of that output, which comes from there. */
static void write_message(struct program *program, const struct runs_buffers *b,
                          enum instr_kind kind, int unit, int micro, enum mesh_way way, int buffer)
{
    enum dtype dtype = program->units->request.dtype;
    int lower = b->rank[runs_stage_of(program, unit)],
        upper = b->rank[runs_stage_of(program, unit) + 1];
    int from = way == WAY_UP ? lower : upper, to = way == WAY_UP ? upper : lower;
    struct instr *instr = program_add_instr(program, kind, program_point(program, from, to, way));
    instr->unit = unit;
    instr->micro = micro;
    instr->phase = way == WAY_UP ? PHASE_FORWARD : PHASE_BACKWARD;
    instr->axes = 1u << MESH_PIPELINE;
    instr->peer = kind == INSTR_SEND ? to : from;
    instr->elems = (int64_t)(program_boundary_bytes(program, unit) / dtype_bytes(dtype));
    instr->dtype = dtype;
    instr_bind(instr, kind == INSTR_SEND ? SLOT_FROM : SLOT_TO, buffer,
               kind == INSTR_SEND ? ACCESS_READ : ACCESS_WRITE);
}

/* Append the RECV of a unit's output or its gradient, unless this micro-batch's is received
 * already.
 */
static void receive(struct program *program, struct runs_buffers *b, int unit, int micro,
                    enum mesh_way way)
{
    struct runs_received_buffers *at = runs_received_buffers(program, b, micro, unit);
    int *which = &at->buffer[way];
    if (at->micro[way] == micro)
        return;
    at->micro[way] = micro;
    runs_follow(program, which,
                program_add_buffer(program, POOL_ACTIVATIONS, program_boundary_bytes(program, unit),
                                   0, "%s %d micro %d", way == WAY_UP ? "output" : "gradient", unit,
                                   micro));
    write_message(program, b, INSTR_RECV, unit, micro, way, *which);
}

/* Does a unit read the gradient of its output, in any part of backward? */
static int reads_output_grad(const struct program *program, int unit)
{
    for (int phase = 0; phase < PHASES; phase++)
        if (units_segment(program->units, unit, phase)->reads >> SPACE_OUTPUT_GRAD & 1)
            return 1;
    return 0;
}

/* Does one of the runs access the output of `unit`, or its gradient, as one of its inputs?  first:
 * SPACE_INPUT, or SPACE_INPUT_GRAD. */
static int has_input(const struct program *program, const struct run *run, int runs, int unit,
                     enum segment_space first, enum instr_access access)
{
    for (int r = 0; r < runs; r++) {
        const struct unit_boundaries *own = &program->units->boundary[run[r].unit];
        const struct segment *segment = run[r].segment;
        uint64_t spaces = access == ACCESS_READ ? segment->reads : segment->writes;
        for (int k = 0; k < own->inputs; k++)
            if (own->producer[k] == unit && spaces >> ((int)first + k) & 1)
                return 1;
    }
    return 0;
}

/* The units of the stage below if that is another rank's; else a stage of no units. */
static struct units_stage stage_below(const struct program *program, const struct runs_buffers *b,
                                      int stage)
{
    if (stage == 0 || b->rank[stage - 1] == runs_own_rank(program))
        return (struct units_stage){0};
    return b->stage[stage - 1];
}

void runs_receive(struct program *program, struct runs_buffers *b, const struct run *run, int runs)
{
    int stage = runs_stage_of(program, run->unit),
        is_backward = segment_phase_is_backward(run->phase);
    struct units_stage own = b->stage[stage], below = stage_below(program, b, stage);
    for (int u = below.first; u < below.first + below.count; u++)
        if (has_input(program, run, runs, u, SPACE_INPUT, ACCESS_READ))
            receive(program, b, u, run->micro, WAY_UP);
    for (int u = own.first + own.count - 1; u >= own.first && is_backward; u--)
        if (b->crossing[u].comes_back && reads_output_grad(program, u))
            receive(program, b, u, run->micro, WAY_DOWN);
}

void runs_send(struct program *program, struct runs_buffers *b, const struct run *run, int runs)
{
    struct units_stage below = stage_below(program, b, runs_stage_of(program, run->unit));
    int micro = run->micro;
    for (int r = 0; r < runs; r++)
        if (run[r].segment->writes >> SPACE_OUTPUT & 1 && b->crossing[run[r].unit].goes)
            write_message(program, b, INSTR_SEND, run[r].unit, micro, WAY_UP,
                          *runs_output(program, b, micro, run[r].unit));
    for (int u = below.first + below.count - 1; u >= below.first; u--)
        if (has_input(program, run, runs, u, SPACE_INPUT_GRAD, ACCESS_WRITE))
            write_message(program, b, INSTR_SEND, u, micro, WAY_DOWN,
                          *runs_gradient(program, b, micro, u));
}
