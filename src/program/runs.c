/* runs.c - which buffer a run has in each space of its segment.
 *
 * A segment names its operands by space: SPACE_PARAM, SPACE_INPUT, SPACE_SAVED, ...  buffer_of()
 * finds the program's buffer for one space of a run.  Some belong to the run (its flats), some to
 * the state (constants, sums, work).  Others pass from run to run, and the first run to name one
 * makes it: unit 3's forward makes the output that unit 4's forward reads.
 *
 *   micro-batch 0: forward 3 --output--> forward 4 ... backward 4 --gradient--> backward 3
 *                     \________________saved___________________________________/
 *
 * They are noted by unit and by the set of addresses that the micro-batch has (struct runs_sets): a
 * buffer is at the address of that of the micro-batch before it in the set, so that recorded GPU
 * graphs repeat.  runs_buffers.c has these notes, runs_load.c makes what is loaded, runs_messages.c
 * what is received from other ranks.
 */
#include <stdlib.h>

#include "base/array.h"
#include "program/pieces.h"
#include "program/runs_private.h"

/* Where units of another rank read an output, their part of its gradient is received before the
 * first own run that writes that gradient, so even the first one adds.  written: of each
 * micro-batch and unit, is there something of its output's gradient? */
void runs_plan(const struct program *program, const struct runs_buffers *b, struct run *run,
               int runs)
{
    int units = program->units->count;
    char *written = array_make((size_t)program->micros * (size_t)units, 1);
    for (int u = 0; u < units; u++)
        for (int m = 0; m < program->micros && b->crossing[u].comes_back; m++)
            written[m * units + u] = 1;
    for (int r = 0; r < runs; r++) {
        const struct unit_boundaries *own = &program->units->boundary[run[r].unit];
        for (int k = 0; k < own->inputs; k++) {
            char *at = &written[run[r].micro * units + own->producer[k]];
            if (!(run[r].segment->writes >> (SPACE_INPUT_GRAD + k) & 1))
                continue;
            run[r].accumulate |= *at ? segment_adds_input(k) : 0;
            *at = 1;
        }
    }
    free(written);
}

/* Make a buffer for a value that passes between runs, at the address of *which; see runs_follow().
 */
static int passing(struct program *program, int *which, const char *what, const struct run *run,
                   size_t bytes)
{
    return runs_follow(program, which,
                       program_add_buffer(program, POOL_ACTIVATIONS, bytes, 0, "%s %d micro %d",
                                          what, run->unit, run->micro));
}

/* Make the buffer of a unit's output.  The last unit has an output in generation alone: the logits,
 * which outlive the step. */
static int output(struct program *program, int *which, const struct run *run)
{
    if (run->unit < program->units->count - 1)
        return passing(program, which, "output", run, program_boundary_bytes(program, run->unit));
    size_t row = (size_t)program->units->model->config.vocab * sizeof(float);
    size_t bytes = (size_t)program_batch(program) * row;
    program->logits = program_add_buffer(program, POOL_WORKSPACE, bytes, 1, "logits");
    return program->logits;
}

/* The buffer for the gradient of input k of a run, made where the run is the first to write it. */
static int input_grad(struct program *program, struct runs_buffers *b, const struct run *run, int k)
{
    int producer = program->units->boundary[run->unit].producer[k];
    int *which = runs_gradient(program, b, run->micro, producer);
    if (run->accumulate & segment_adds_input(k))
        return *which;
    return passing(program, which, "gradient", run, program_boundary_bytes(program, producer));
}

/* The buffer of one space of a run, made where the run is the first to name it. */
static int buffer_of(struct program *program, struct runs_buffers *b, const struct run *run,
                     enum segment_space space)
{
    const struct unit_boundaries *own = &program->units->boundary[run->unit];
    struct runs_unit_buffers *at = runs_unit_buffers(program, b, run->micro, run->unit);
    int *deferred = runs_deferred(program, b, run->micro, run->unit);
    if (space < SPACE_GRAD) {
        const struct run_use *use = &run->use[space - SPACE_PARAM];
        return use->decoded >= 0 ? use->decoded : use->param;
    }
    if (space < SPACE_INPUT)
        return run->use[space - SPACE_GRAD].grad;
    if (segment_input(space) >= 0)
        return *runs_output(program, b, run->micro, own->producer[segment_input(space)]);
    if (segment_input_grad(space) >= 0)
        return input_grad(program, b, run, segment_input_grad(space));
    if (runs_load_slot(run->segment, space) >= 0)
        return b->loaded[b->sets->loaded[run->micro]][runs_load_slot(run->segment, space)];
    switch (space) {
    case SPACE_OUTPUT: return output(program, &at->output, run);
    case SPACE_OUTPUT_GRAD: return *runs_gradient(program, b, run->micro, run->unit);
    case SPACE_SAVED:
        if (run->phase == PHASE_FORWARD)
            passing(program, &at->saved, "saved", run, run->segment->saved_bytes);
        return at->saved;
    case SPACE_DEFERRED:
        if (run->phase == PHASE_BACKWARD_INPUT)
            passing(program, deferred, "deferred", run, run->segment->deferred_bytes);
        return *deferred;
    case SPACE_CACHE: return program->state->cache[run->unit];
    case SPACE_CONST: return program->state->constants;
    case SPACE_LOSS: return program->state->over_data;
    case SPACE_LOSS_SCALE: return program->state->loss_scale;
    case SPACE_EXPERT_TOKENS: return program->state->expert_tokens[run->unit];
    case SPACE_WORK: return program->state->work;
    case SPACE_CARRY:
        return passing(program, &b->carried[run->unit][run->phase][b->carried_now], "carried", run,
                       run->segment->carry_bytes);
    default: return -1;
    }
}

/* Append the RUN of one piece.  A segment's writes are reads as well where they add: the loss,
 * the tokens at experts, and the gradients that run->accumulate names. */
static void write_piece(struct program *program, const struct run *run, int number,
                        const int *buffer)
{
    const struct segment_piece *piece = &run->segment->piece[number];
    struct instr *instr = program_add_instr(program, INSTR_RUN, STREAM_COMPUTE);
    instr->phase = run->phase;
    instr->unit = run->unit;
    instr->micro = run->micro;
    instr->piece = number;
    uint64_t adds = space_bit(SPACE_LOSS) | space_bit(SPACE_EXPERT_TOKENS);
    for (int k = 0; k < run->uses; k++) {
        const struct flat *flat = &program->units->flat[run->use[k].flat];
        unsigned added = segment_added(run->accumulate, k) &
                         segment_piece_sections(run->segment, number, k, flat);
        instr->accumulate |= (uint64_t)added * segment_adds(k, 0);
        adds |= added ? space_bit(SPACE_GRAD + k) : 0;
    }
    for (int k = 0; k < BOUNDARY_USES; k++)
        if (run->accumulate & segment_adds_input(k) &&
            segment_piece_can_add(run->segment, number, k)) {
            instr->accumulate |= segment_adds_input(k);
            adds |= space_bit(SPACE_INPUT_GRAD + k);
        }
    for (int s = 0; s < SPACE_COUNT; s++) {
        uint64_t read = (piece->reads | (piece->writes & adds)) >> s & 1;
        uint64_t write = piece->writes >> s & 1;
        if (s == SPACE_WORK)
            read = 0;
        if (read || write)
            instr_bind(instr, s, buffer[s], (read ? ACCESS_READ : 0) | (write ? ACCESS_WRITE : 0));
    }
}

void runs_write(struct program *program, struct runs_buffers *b, const struct run *run)
{
    int buffer[SPACE_COUNT];
    const struct segment *segment = run->segment;
    uint64_t touched = segment->reads | segment->writes;
    /* The other one than the run before, if that was of the same unit. */
    b->carried_now = run->unit == b->last ? !b->carried_now : 0;
    b->last = run->unit;
    for (int s = 0; s < SPACE_COUNT; s++)
        buffer[s] = touched >> s & 1 ? buffer_of(program, b, run, s) : -1;
    for (int piece = 0; piece < segment->pieces; piece++) {
        if (segment->piece[piece].runs)
            write_piece(program, run, piece, buffer);
        if (segment_exchange(segment, piece))
            pieces_exchange(program, run, piece, buffer);
    }
}
