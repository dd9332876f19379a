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
 * They are found by unit and by the set of places that the micro-batch has (struct runs_sets); a
 * buffer lies where that of the micro-batch before it in the set lay, so that recorded GPU graphs
 * repeat.
 */
#include "program/runs.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "program/pieces.h"

/* Buffers that a unit's runs hand on; -1: not made yet. */
struct unit_buffers {
    int output;      /* activation leaving the unit */
    int output_grad; /* its gradient, from the units that read it */
    int saved;       /* what forward keeps for backward */
    int deferred;    /* what the input part of backward keeps for the weight part */
};

/* Buffers whose values another rank makes; -1: none yet. */
struct received_buffers {
    int buffer[2]; /* by way: [WAY_UP] the unit's output, [WAY_DOWN] its gradient */
    int micro[2];  /* by way: the micro-batch that was received last */
};

/* What of a unit's output crosses to another rank, and back. */
struct crossing {
    unsigned is_own : 1;     /* the unit is the rank's */
    unsigned goes : 1;       /* its output goes to units of the next stage */
    unsigned comes_back : 1; /* and the gradient of that comes back */
};

struct runs_buffers {
    int units;
    const struct runs_sets *sets;
    struct units_stage *stage;         /* per stage */
    int *rank;                         /* per stage: its rank on the pipeline axis */
    struct crossing *crossing;         /* per unit */
    struct unit_buffers *unit;         /* by set and unit */
    struct received_buffers *received; /* by set and unit */
    int (*loaded)[LOAD_SLOTS];         /* by set */
    int (*carried)[PHASES][2]; /* per unit and phase, two buffers: a transfer may still read that of
                                  the last run, so the next run of the same unit takes the other */
    int carried_now;           /* which of the two `carried` buffers the present run takes */
    int last;                  /* the unit of the run before, or -1 */
    uint64_t slots;            /* the slots of LOAD that the rank's segments read, a bit each */
};

static void *make_table(int count, size_t size)
{
    return memset(array_make((size_t)count, size), -1, (size_t)count * size);
}

static int stage_of(const struct program *program, int unit)
{
    return program->units->stage[unit];
}

static int own_rank(const struct program *program)
{
    return program->state->coord.at[MESH_PIPELINE];
}

static struct unit_buffers *buffers_of(const struct program *program, const struct runs_buffers *b,
                                       int micro, int unit)
{
    int set = b->sets->own[stage_of(program, unit) * program->micros + micro];
    return &b->unit[set * b->units + unit];
}

/* The buffers for what crosses stages at a unit: of another rank's unit, its output, received by
 * the stage behind it; of an own unit, the gradient of its output, received by its own stage. */
static struct received_buffers *received_of(const struct program *program,
                                            const struct runs_buffers *b, int micro, int unit)
{
    int stage = stage_of(program, unit) + !b->crossing[unit].is_own;
    int set = b->sets->received[stage * program->micros + micro];
    return &b->received[set * b->units + unit];
}

/* Where the output of a unit is, and its gradient. */
static int *output_of(const struct program *program, const struct runs_buffers *b, int micro,
                      int unit)
{
    return b->crossing[unit].is_own ? &buffers_of(program, b, micro, unit)->output
                                    : &received_of(program, b, micro, unit)->buffer[WAY_UP];
}

static int *gradient_of(const struct program *program, const struct runs_buffers *b, int micro,
                        int unit)
{
    return b->crossing[unit].is_own && !b->crossing[unit].comes_back
               ? &buffers_of(program, b, micro, unit)->output_grad
               : &received_of(program, b, micro, unit)->buffer[WAY_DOWN];
}

/* Give a new buffer the place of *which, the buffer of an earlier micro-batch, if there was one;
 * then *which is the new one, which is returned. */
static int follow(struct program *program, int *which, int buffer)
{
    program->buffer[buffer].like = *which;
    return *which = buffer;
}

/* Does a unit make a gradient of its input k? */
static int makes_gradient(const struct program *program, int unit, int k)
{
    for (int phase = 0; phase < PHASES; phase++)
        if (units_segment(program->units, unit, phase)->writes >> (SPACE_INPUT_GRAD + k) & 1)
            return 1;
    return 0;
}

/* Find whether the output of an own unit goes to units of the next stage, and whether its gradient
 * comes back from there. */
static void find_crossing(const struct program *program, struct units_stage next, int unit,
                          struct crossing *crossing)
{
    for (int u = next.first; u < next.first + next.count; u++)
        for (int k = 0; k < program->units->boundary[u].inputs; k++)
            if (program->units->boundary[u].producer[k] == unit) {
                crossing->goes = 1;
                crossing->comes_back |=
                    program->kind == PROGRAM_TRAIN && makes_gradient(program, u, k);
            }
}

static void find_crossings(const struct program *program, struct runs_buffers *b)
{
    size_t stages = (size_t)program->units->stages;
    b->stage = array_make(stages, sizeof *b->stage);
    b->rank = array_make(stages, sizeof *b->rank);
    b->crossing = array_make((size_t)b->units, sizeof *b->crossing);
    for (int stage = 0; stage < program->units->stages; stage++) {
        b->stage[stage] = units_stage(program->units, stage);
        b->rank[stage] = program->units->rank[b->stage[stage].first];
    }
    for (int u = 0; u < b->units; u++) {
        int next = stage_of(program, u) + 1;
        b->crossing[u].is_own = program_owns(program, u) != 0;
        if (program_owns(program, u) && next < program->units->stages &&
            b->rank[next] != own_rank(program))
            find_crossing(program, b->stage[next], u, &b->crossing[u]);
    }
}

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

/* The kinds of data that LOAD loads. */
static const struct load {
    int slot; /* LOAD's slot for sequence 0; that of sequence s is slot + s */
    const char *name;
    enum graph_value_role role; /* of its value in a unit's graph */
    enum segment_space space;   /* where a segment finds it; of tokens: of those of sequence 0 */
    int64_t each;               /* int32 for each sequence; 0: one for each of its rows */
} loads[] = {
    {.slot = SLOT_LOAD_TOKENS, .name = "tokens", .role = VALUE_TOKENS, .space = SPACE_TOKENS},
    {.slot = SLOT_LOAD_TARGETS, .name = "targets", .role = VALUE_TARGETS, .space = SPACE_TARGETS},
    {.slot = SLOT_LOAD_POSITIONS,
     .name = "positions",
     .role = VALUE_POSITIONS,
     .space = SPACE_POSITIONS},
    {.slot = SLOT_LOAD_DOCUMENTS,
     .name = "documents",
     .role = VALUE_DOCUMENTS,
     .space = SPACE_DOCUMENTS},
    {.slot = SLOT_LOAD_SAMPLES,
     .name = "samples",
     .role = VALUE_SAMPLES,
     .space = SPACE_SAMPLES,
     .each = 2},
};
enum { LOADS = sizeof loads / sizeof loads[0] };
_Static_assert(LOADS *SEQUENCES == LOAD_SLOTS, "each of a LOAD's slots has its row");

/* The slot of LOAD that fills a space of a segment; -1: none does. */
static int load_slot(const struct segment *segment, int space)
{
    if (space >= SPACE_TOKENS && space < SPACE_TARGETS)
        return SLOT_LOAD_TOKENS + space - SPACE_TOKENS;
    for (int k = 0; k < LOADS; k++)
        if ((int)loads[k].space == space)
            return loads[k].slot +
                   segment->graph->values[graph_find(segment->graph, loads[k].role)].index;
    return -1;
}

/* The slots of LOAD that segments of the rank's units read, a bit each. */
static uint64_t slots_read(const struct program *program)
{
    uint64_t slots = 0;
    for (int unit = 0; unit < program->units->count; unit++)
        for (int phase = 0; phase < PHASES && program_owns(program, unit); phase++) {
            const struct segment *segment = program_segment(program, unit, phase);
            for (int space = SPACE_TOKENS; space <= SPACE_SAMPLES; space++)
                if (segment->reads >> space & 1 && load_slot(segment, space) >= 0)
                    slots |= space_bit(load_slot(segment, space));
        }
    return slots;
}

struct runs_buffers *runs_open(const struct program *program, const struct runs_sets *sets)
{
    struct runs_buffers *b = array_make(1, sizeof *b);
    b->units = program->units->count;
    b->last = -1;
    b->sets = sets;
    b->unit = make_table(sets->owns * b->units, sizeof *b->unit);
    b->received = make_table(sets->receipts * b->units, sizeof *b->received);
    b->loaded = make_table(sets->loads, sizeof *b->loaded);
    b->carried = make_table(b->units, sizeof *b->carried);
    b->slots = slots_read(program);
    find_crossings(program, b);
    return b;
}

void runs_close(struct runs_buffers *b)
{
    free(b->stage);
    free(b->rank);
    free(b->crossing);
    free(b->unit);
    free(b->received);
    free(b->loaded);
    free(b->carried);
    free(b);
}

/* Make the buffer of a slot of LOAD. */
static int loaded(struct program *program, int *which, const struct load *load, int sequence,
                  int micro)
{
    int64_t each = load->each ? load->each : program_seq(program, sequence);
    size_t bytes = (size_t)(program_batch(program) * each) * sizeof(int32_t);
    return follow(program, which,
                  program_add_buffer(program, POOL_WORKSPACE, bytes, 0, "%s%s micro %d", load->name,
                                     sequence ? " of the other" : "", micro));
}

void runs_load(struct program *program, struct runs_buffers *b, int micro)
{
    int *which = b->loaded[b->sets->loaded[micro]];
    if (!b->slots)
        return;
    struct instr *instr = program_add_instr(program, INSTR_LOAD, STREAM_COMPUTE);
    instr->micro = micro;
    for (int k = 0; k < LOADS; k++)
        for (int s = 0; s < SEQUENCES; s++) {
            int slot = loads[k].slot + s;
            if (b->slots >> slot & 1)
                instr_bind(instr, slot, loaded(program, &which[slot], &loads[k], s, micro),
                           ACCESS_WRITE);
        }
}

/* Make a buffer for a value that passes between runs, in the place of *which; see follow(). */
static int passing(struct program *program, int *which, const char *what, const struct run *run,
                   size_t bytes)
{
    return follow(program, which,
                  program_add_buffer(program, POOL_ACTIVATIONS, bytes, 0, "%s %d micro %d", what,
                                     run->unit, run->micro));
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
    int *which = gradient_of(program, b, run->micro, producer);
    if (run->accumulate & segment_adds_input(k))
        return *which;
    return passing(program, which, "gradient", run, program_boundary_bytes(program, producer));
}

/* The buffer of one space of a run, made where the run is the first to name it. */
static int buffer_of(struct program *program, struct runs_buffers *b, const struct run *run,
                     enum segment_space space)
{
    const struct unit_boundaries *own = &program->units->boundary[run->unit];
    struct unit_buffers *at = buffers_of(program, b, run->micro, run->unit);
    if (space < SPACE_GRAD) {
        const struct run_use *use = &run->use[space - SPACE_PARAM];
        return use->decoded >= 0 ? use->decoded : use->param;
    }
    if (space < SPACE_INPUT)
        return run->use[space - SPACE_GRAD].grad;
    if (segment_input(space) >= 0)
        return *output_of(program, b, run->micro, own->producer[segment_input(space)]);
    if (segment_input_grad(space) >= 0)
        return input_grad(program, b, run, segment_input_grad(space));
    if (load_slot(run->segment, space) >= 0)
        return b->loaded[b->sets->loaded[run->micro]][load_slot(run->segment, space)];
    switch (space) {
    case SPACE_OUTPUT: return output(program, &at->output, run);
    case SPACE_OUTPUT_GRAD: return *gradient_of(program, b, run->micro, run->unit);
    case SPACE_SAVED:
        if (run->phase == PHASE_FORWARD)
            passing(program, &at->saved, "saved", run, run->segment->saved_bytes);
        return at->saved;
    case SPACE_DEFERRED:
        if (run->phase == PHASE_BACKWARD_INPUT)
            passing(program, &at->deferred, "deferred", run, run->segment->deferred_bytes);
        return at->deferred;
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

/* ---- messages between ranks ---- */

/* Append one end of a message: with WAY_UP of a unit's output, which goes to the rank of the next
 * stage; with WAY_DOWN of the gradient of that output, which comes from there. */
static void write_message(struct program *program, const struct runs_buffers *b,
                          enum instr_kind kind, int unit, int micro, enum mesh_way way, int buffer)
{
    enum dtype dtype = program->units->request.dtype;
    int lower = b->rank[stage_of(program, unit)], upper = b->rank[stage_of(program, unit) + 1];
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
    struct received_buffers *at = received_of(program, b, micro, unit);
    int *which = &at->buffer[way];
    if (at->micro[way] == micro)
        return;
    at->micro[way] = micro;
    follow(program, which,
           program_add_buffer(program, POOL_ACTIVATIONS, program_boundary_bytes(program, unit), 0,
                              "%s %d micro %d", way == WAY_UP ? "output" : "gradient", unit,
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
    if (stage == 0 || b->rank[stage - 1] == own_rank(program))
        return (struct units_stage){0};
    return b->stage[stage - 1];
}

void runs_receive(struct program *program, struct runs_buffers *b, const struct run *run, int runs)
{
    int stage = stage_of(program, run->unit), is_backward = segment_phase_is_backward(run->phase);
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
    struct units_stage below = stage_below(program, b, stage_of(program, run->unit));
    int micro = run->micro;
    for (int r = 0; r < runs; r++)
        if (run[r].segment->writes >> SPACE_OUTPUT & 1 && b->crossing[run[r].unit].goes)
            write_message(program, b, INSTR_SEND, run[r].unit, micro, WAY_UP,
                          *output_of(program, b, micro, run[r].unit));
    for (int u = below.first + below.count - 1; u >= below.first; u--)
        if (has_input(program, run, runs, u, SPACE_INPUT_GRAD, ACCESS_WRITE))
            write_message(program, b, INSTR_SEND, u, micro, WAY_DOWN,
                          *gradient_of(program, b, micro, u));
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
    b->carried_now = run->unit == b->last && !b->carried_now;
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
