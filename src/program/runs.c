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
 * They are found by unit and by micro-batch modulo `ring`; a buffer made for micro-batch m lies
 * where that of m - ring lay, so that recorded GPU graphs repeat.
 */
#include "program/runs.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "program/pieces.h"

/* Buffers that a unit's runs hand on; -1: not made yet. */
struct unit_buffers {
    int output;      /* activation leaving the unit */
    int output_grad; /* gradient arriving at that place */
    int saved, deferred;
    int received[2]; /* by way: of which micro-batch another stage's output or gradient is there */
};

/* A ring of buffer sets: micro-batch m has number m modulo `ring`. */
struct runs_buffers {
    int units, ring;
    struct unit_buffers *unit; /* by set and unit */
    int (*loaded)[LOAD_SLOTS]; /* by set */
    /* By unit: it dies with its run, in whatever set, or, where a transfer reads it last, with the
     * run behind that.  That may be the same unit's: it has two places, of which one is next. */
    int (*carried)[PHASES][2];
    int place;
    unsigned slots; /* of LOAD, that are read: a bit each */
};

static void *make_table(int count, size_t size)
{
    return memset(array_make((size_t)count, size), -1, (size_t)count * size);
}

static struct unit_buffers *buffers_of(const struct runs_buffers *b, int micro, int unit)
{
    return &b->unit[micro % b->ring * b->units + unit];
}

/* A new buffer in the place of *which, of an earlier micro-batch, if there was one. */
static int follow(struct program *program, int *which, int buffer)
{
    program->buffer[buffer].like = *which;
    return *which = buffer;
}

static int stage_of(const struct program *program, int unit)
{
    return program->units->stage[unit];
}

static int own_stage(const struct program *program)
{
    return program->state->coord.at[MESH_PIPELINE];
}

/* Does a unit make a gradient of its input k? */
static int makes_gradient(const struct program *program, int unit, int k)
{
    for (int phase = 0; phase < PHASES; phase++)
        if (units_segment(program->units, unit, phase)->writes >> (SPACE_INPUT_GRAD + k) & 1)
            return 1;
    return 0;
}

/* Does a stage have a unit, below unit `end`, that reads what another puts out?  with_gradient: and
 * makes a gradient of it. */
static int reads(const struct program *program, int stage, int end, int producer, int with_gradient)
{
    struct units_stage units = units_stage(program->units, stage);
    for (int u = units.first; u < units.first + units.count && u < end; u++)
        for (int k = 0; k < program->units->boundary[u].inputs; k++)
            if (program->units->boundary[u].producer[k] == producer &&
                (!with_gradient || makes_gradient(program, u, k)))
                return 1;
    return 0;
}

/* Does the next stage read what a unit of this one puts out? */
static int is_sent(const struct program *program, int unit, int with_gradient)
{
    int next = stage_of(program, unit) + 1, units = program->units->count;
    return next < program->layout->shape.degree[MESH_PIPELINE] &&
           reads(program, next, units, unit, with_gradient);
}

/* What the next stage makes of a gradient is there first. */
void runs_plan(const struct program *program, struct run *run, int runs)
{
    int units = program->units->count;
    char *written = array_make((size_t)program->micros * (size_t)units, 1);
    for (int k = 0; k < program->stage.count && program->kind == PROGRAM_TRAIN; k++) {
        int u = program->stage.first + k;
        for (int m = 0; m < program->micros && is_sent(program, u, 1); m++)
            written[m * units + u] = 1;
    }
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

/* What LOAD loads for the rows of a sequence: what a unit's graph calls it, and its space (of
 * tokens: that of sequence 0).  A row has the slots of LOAD from `slot` on, one for each sequence.
 */
static const struct load {
    int slot;
    const char *name;
    enum graph_value_role role;
    enum segment_space space;
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
};
enum { LOADS = sizeof loads / sizeof loads[0] };
_Static_assert(LOADS *SEQUENCES == LOAD_SLOTS, "each of a LOAD's slots has its row");

/* LOAD's slot of what a segment finds in a space; -1: what is there is not loaded. */
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
static unsigned slots_read(const struct program *program)
{
    const struct units_stage *own = &program->stage;
    unsigned slots = 0;
    for (int unit = own->first; unit < own->first + own->count; unit++)
        for (int phase = 0; phase < PHASES; phase++) {
            const struct segment *segment = program_segment(program, unit, phase);
            for (int space = SPACE_TOKENS; space <= SPACE_DOCUMENTS; space++)
                if (segment->reads >> space & 1 && load_slot(segment, space) >= 0)
                    slots |= 1u << load_slot(segment, space);
        }
    return slots;
}

struct runs_buffers *runs_open(const struct program *program, int ring)
{
    struct runs_buffers *b = array_make(1, sizeof *b);
    b->units = program->units->count;
    b->ring = ring;
    b->unit = make_table(ring * b->units, sizeof *b->unit);
    b->loaded = make_table(ring, sizeof *b->loaded);
    b->carried = make_table(b->units, sizeof *b->carried);
    b->slots = slots_read(program);
    return b;
}

void runs_close(struct runs_buffers *b)
{
    free(b->unit);
    free(b->loaded);
    free(b->carried);
    free(b);
}

/* The memory of a slot of LOAD; for logits, of the first of a micro-batch's sequences alone. */
static int loaded(struct program *program, int *which, const struct load *load, int sequence,
                  int micro)
{
    const struct units_request *r = &program->units->request;
    int64_t batch = program->kind == PROGRAM_LOGITS ? 1 : r->batch;
    size_t bytes = (size_t)(batch * r->seq[sequence]) * sizeof(int32_t);
    return follow(program, which,
                  program_buffer(program, POOL_WORKSPACE, bytes, 0, "%s%s micro %d", load->name,
                                 sequence ? " of the other" : "", micro));
}

void runs_load(struct program *program, struct runs_buffers *b, int micro)
{
    int *which = b->loaded[micro % b->ring];
    if (!b->slots)
        return;
    struct instr *instr = program_instr(program, INSTR_LOAD, STREAM_COMPUTE);
    instr->micro = micro;
    for (int k = 0; k < LOADS; k++)
        for (int s = 0; s < SEQUENCES; s++) {
            int slot = loads[k].slot + s;
            if (b->slots >> slot & 1)
                instr_bind(instr, slot, loaded(program, &which[slot], &loads[k], s, micro),
                           ACCESS_WRITE);
        }
}

/* What passes from or to run at `unit`. */
static int passing(struct program *program, int *which, const char *what, const struct run *run,
                   size_t bytes)
{
    return follow(program, which,
                  program_buffer(program, POOL_ACTIVATIONS, bytes, 0, "%s %d micro %d", what,
                                 run->unit, run->micro));
}

/* The activation that leaves the unit of run; the logits at the very end stay. */
static int output(struct program *program, int *which, const struct run *run)
{
    if (run->unit < program->units->count - 1)
        return passing(program, which, "output", run, program->units->boundary[run->unit].bytes);
    size_t bytes = (size_t)program->units->model->config.vocab * sizeof(float);
    program->logits = program_buffer(program, POOL_WORKSPACE, bytes, 1, "logits");
    return program->logits;
}

/* The gradient of input k of a run: the first of its readers to write it makes the buffer. */
static int input_grad(struct program *program, struct runs_buffers *b, const struct run *run, int k)
{
    int producer = program->units->boundary[run->unit].producer[k];
    int *which = &buffers_of(b, run->micro, producer)->output_grad;
    if (run->accumulate & segment_adds_input(k))
        return *which;
    return passing(program, which, "gradient", run, program->units->boundary[producer].bytes);
}

/* The buffer of one space of a run, made where the run is the first to name it. */
static int buffer_of(struct program *program, struct runs_buffers *b, const struct run *run,
                     enum segment_space space)
{
    const struct unit_boundaries *own = &program->units->boundary[run->unit];
    struct unit_buffers *at = buffers_of(b, run->micro, run->unit);
    if (space < SPACE_GRAD)
        return run->use[space - SPACE_PARAM].param;
    if (space < SPACE_INPUT)
        return run->use[space - SPACE_GRAD].grad;
    if (segment_input(space) >= 0)
        return buffers_of(b, run->micro, own->producer[segment_input(space)])->output;
    if (segment_input_grad(space) >= 0)
        return input_grad(program, b, run, segment_input_grad(space));
    if (load_slot(run->segment, space) >= 0)
        return b->loaded[run->micro % b->ring][load_slot(run->segment, space)];
    switch (space) {
    case SPACE_OUTPUT: return output(program, &at->output, run);
    case SPACE_OUTPUT_GRAD: return at->output_grad;
    case SPACE_SAVED:
        if (run->phase == PHASE_FORWARD)
            passing(program, &at->saved, "saved", run, run->segment->saved_bytes);
        return at->saved;
    case SPACE_DEFERRED:
        if (run->phase == PHASE_BACKWARD_INPUT)
            passing(program, &at->deferred, "deferred", run, run->segment->deferred_bytes);
        return at->deferred;
    case SPACE_CONST: return program->state->constants;
    case SPACE_LOSS: return program->state->sums;
    case SPACE_LOSS_SCALE: return program->state->loss_scale;
    case SPACE_WORK: return program->state->work;
    case SPACE_CARRY:
        return passing(program, &b->carried[run->unit][run->phase][b->place], "carried", run,
                       run->segment->carry_bytes);
    default: return -1;
    }
}

/* ---- messages between stages ---- */

/* A message of what a unit puts out, upward, or of its gradient, downward. */
static void write_message(struct program *program, enum instr_kind kind, int unit, int micro,
                          enum program_way way, int buffer)
{
    enum dtype dtype = program->units->request.dtype;
    int lower = stage_of(program, unit), own = own_stage(program);
    struct instr *instr = program_instr(program, kind, program_point(lower, way));
    instr->unit = unit;
    instr->micro = micro;
    instr->phase = way == WAY_UP ? PHASE_FORWARD : PHASE_BACKWARD;
    instr->axes = 1u << MESH_PIPELINE;
    instr->peer = own == lower ? lower + 1 : lower;
    instr->apart = 1; /* one that is received early waits for nobody but its sender */
    instr->elems = (int64_t)(program->units->boundary[unit].bytes / dtype_bytes(dtype));
    instr->dtype = dtype;
    instr_bind(instr, kind == INSTR_SEND ? SLOT_FROM : SLOT_TO, buffer,
               kind == INSTR_SEND ? ACCESS_READ : ACCESS_WRITE);
}

static void receive(struct program *program, struct runs_buffers *b, int unit, int micro,
                    enum program_way way)
{
    struct unit_buffers *at = buffers_of(b, micro, unit);
    int *which = way == WAY_UP ? &at->output : &at->output_grad;
    if (at->received[way] == micro)
        return;
    at->received[way] = micro;
    follow(program, which,
           program_buffer(program, POOL_ACTIVATIONS, program->units->boundary[unit].bytes, 0,
                          "%s %d micro %d", way == WAY_UP ? "output" : "gradient", unit, micro));
    write_message(program, INSTR_RECV, unit, micro, way, *which);
}

/* Does one of the runs read the gradient of the output of a unit, its own? */
static int has_output_grad(const struct run *run, int runs, int unit)
{
    for (int r = 0; r < runs; r++)
        if (run[r].unit == unit && run[r].segment->reads >> SPACE_OUTPUT_GRAD & 1)
            return 1;
    return 0;
}

/* Does one of the runs read, or write, the output of a unit, or its gradient: of its inputs, the
 * spaces that begin with `first`? */
static int has_input(const struct program *program, const struct run *run, int runs, int unit,
                     enum segment_space first, enum instr_access access)
{
    for (int r = 0; r < runs; r++) {
        const struct unit_boundaries *own = &program->units->boundary[run[r].unit];
        const struct segment *segment = run[r].segment;
        unsigned spaces = access == ACCESS_READ ? segment->reads : segment->writes;
        for (int k = 0; k < own->inputs; k++)
            if (own->producer[k] == unit && spaces >> ((int)first + k) & 1)
                return 1;
    }
    return 0;
}

void runs_receive(struct program *program, struct runs_buffers *b, const struct run *run, int runs)
{
    const struct units_stage *own = &program->stage;
    for (int u = 0; u < own->first; u++)
        if (has_input(program, run, runs, u, SPACE_INPUT, ACCESS_READ))
            receive(program, b, u, run->micro, WAY_UP);
    for (int u = own->first + own->count - 1; u >= own->first; u--)
        if (is_sent(program, u, 1) && has_output_grad(run, runs, u))
            receive(program, b, u, run->micro, WAY_DOWN);
}

void runs_send(struct program *program, struct runs_buffers *b, const struct run *run, int runs)
{
    const struct units_stage *own = &program->stage;
    int micro = run->micro;
    for (int r = 0; r < runs; r++)
        if (run[r].segment->writes >> SPACE_OUTPUT & 1 && is_sent(program, run[r].unit, 0))
            write_message(program, INSTR_SEND, run[r].unit, micro, WAY_UP,
                          buffers_of(b, micro, run[r].unit)->output);
    for (int u = own->first - 1; u >= 0; u--)
        if (has_input(program, run, runs, u, SPACE_INPUT_GRAD, ACCESS_WRITE))
            write_message(program, INSTR_SEND, u, micro, WAY_DOWN,
                          buffers_of(b, micro, u)->output_grad);
}

/* Sums and accumulated gradients are read too; work is scratch, written before read. */
static void write_piece(struct program *program, const struct run *run, int number,
                        const int *buffer)
{
    const struct segment_piece *piece = &run->segment->piece[number];
    struct instr *instr = program_instr(program, INSTR_RUN, STREAM_COMPUTE);
    instr->phase = run->phase;
    instr->unit = run->unit;
    instr->micro = run->micro;
    instr->piece = number;
    unsigned adds = 1u << SPACE_LOSS;
    for (int k = 0; k < run->uses; k++) {
        const struct flat *flat = &program->units->flat[run->use[k].flat];
        unsigned added = segment_added(run->accumulate, k) &
                         segment_piece_sections(run->segment, number, k, flat);
        instr->accumulate |= (uint64_t)added * segment_adds(k, 0);
        adds |= (added ? 1u : 0) << (SPACE_GRAD + k);
    }
    for (int k = 0; k < BOUNDARY_USES; k++)
        if (run->accumulate & segment_adds_input(k) &&
            segment_piece_can_add(run->segment, number, k)) {
            instr->accumulate |= segment_adds_input(k);
            adds |= 1u << (SPACE_INPUT_GRAD + k);
        }
    for (int s = 0; s < SPACE_COUNT; s++) {
        unsigned read = (piece->reads | (piece->writes & adds)) >> s & 1;
        unsigned write = piece->writes >> s & 1;
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
    unsigned touched = segment->reads | segment->writes;
    int is_alone = program->stage.count == 1; /* else another unit's run is always between */
    b->place = is_alone && !b->place;
    for (int s = 0; s < SPACE_COUNT; s++)
        buffer[s] = touched >> s & 1 ? buffer_of(program, b, run, s) : -1;
    for (int piece = 0; piece < segment->pieces; piece++) {
        if (segment->piece[piece].runs)
            write_piece(program, run, piece, buffer);
        if (segment_exchange(segment, piece))
            pieces_exchange(program, run, piece, buffer);
    }
}
