/* runs.c - see runs.h: which buffer a run has in each space of its segment. */
#include "program/runs.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "program/pieces.h"

/* A ring of buffer sets: micro-batch m has number m modulo `ring`.  The arrays are by set, or by
 * set and unit; -1: not made yet. */
struct runs_buffers {
    int units, ring;
    int *loaded[LOAD_SLOTS];
    int *output;      /* activation leaving the unit */
    int *output_grad; /* gradient arriving at that place */
    int *saved, *deferred;
};

static int *make_table(int count)
{
    int *table = array_make((size_t)count, sizeof *table);
    memset(table, -1, (size_t)count * sizeof *table);
    return table;
}

struct runs_buffers *runs_open(const struct program *program, int ring)
{
    int units = program->units->count;
    struct runs_buffers *b = array_make(1, sizeof *b);
    *b = (struct runs_buffers){
        .units = units,
        .ring = ring,
        .output = make_table(ring * units),
        .output_grad = make_table(ring * units),
        .saved = make_table(ring * units),
        .deferred = make_table(ring * units),
    };
    for (int k = 0; k < LOAD_SLOTS; k++)
        b->loaded[k] = make_table(ring);
    return b;
}

void runs_close(struct runs_buffers *b)
{
    for (int k = 0; k < LOAD_SLOTS; k++)
        free(b->loaded[k]);
    free(b->output);
    free(b->output_grad);
    free(b->saved);
    free(b->deferred);
    free(b);
}

/* A new buffer in the place of *which, of an earlier micro-batch, if there was one. */
static int follow(struct program *program, int *which, int buffer)
{
    program->buffer[buffer].like = *which;
    return *which = buffer;
}

void runs_plan(const struct program *program, struct run *run, int runs)
{
    int units = program->units->count;
    char *written = array_make((size_t)program->micros * (size_t)units, 1);
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

static int input(struct program *program, int *which, const char *what, int micro)
{
    const struct units_request *r = &program->units->request;
    int64_t batch = program->kind == PROGRAM_LOGITS ? 1 : r->batch;
    size_t bytes = (size_t)(batch * r->seq) * sizeof(int32_t);
    return follow(program, which,
                  program_buffer(program, POOL_WORKSPACE, bytes, 0, "%s micro %d", what, micro));
}

/* Does a segment of the rank's units read a space? */
static int reads_space(const struct program *program, enum segment_space space)
{
    const struct layout_stage *own = &program->stage;
    for (int unit = own->first; unit < own->first + own->count; unit++)
        for (int phase = 0; phase < PHASES; phase++)
            if (program_segment(program, unit, phase)->reads >> space & 1)
                return 1;
    return 0;
}

/* Tokens and targets are always loaded. */
static const struct {
    const char *name;
    enum segment_space optional; /* loaded where a segment reads this; 0: always */
} loads[LOAD_SLOTS] = {
    [SLOT_LOAD_TOKENS] = {.name = "tokens"},
    [SLOT_LOAD_TARGETS] = {.name = "targets"},
    [SLOT_LOAD_POSITIONS] = {.name = "positions", .optional = SPACE_POSITIONS},
    [SLOT_LOAD_DOCUMENTS] = {.name = "documents", .optional = SPACE_DOCUMENTS},
};

void runs_load(struct program *program, struct runs_buffers *b, int micro)
{
    int set = micro % b->ring, buffer[LOAD_SLOTS];
    for (int k = 0; k < LOAD_SLOTS; k++)
        buffer[k] = loads[k].optional && !reads_space(program, loads[k].optional)
                        ? -1
                        : input(program, &b->loaded[k][set], loads[k].name, micro);
    int index = program_instr(program, INSTR_LOAD, STREAM_COMPUTE);
    struct instr *instr = &program->instr[index];
    instr->micro = micro;
    for (int k = 0; k < LOAD_SLOTS; k++)
        if (buffer[k] >= 0)
            instr_bind(instr, k, buffer[k], ACCESS_WRITE);
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
    int *which = &b->output_grad[run->micro % b->ring * b->units + producer];
    if (run->accumulate & segment_adds_input(k))
        return *which;
    return passing(program, which, "gradient", run, program->units->boundary[producer].bytes);
}

/* The buffer of one space of a run, made where the run is the first to name it. */
static int buffer_of(struct program *program, struct runs_buffers *b, const struct run *run,
                     enum segment_space space)
{
    const struct unit_boundaries *own = &program->units->boundary[run->unit];
    int set = run->micro % b->ring, at = set * b->units + run->unit;
    if (space < SPACE_GRAD)
        return run->use[space - SPACE_PARAM].param;
    if (space < SPACE_INPUT)
        return run->use[space - SPACE_GRAD].grad;
    if (segment_input(space) >= 0)
        return b->output[set * b->units + own->producer[segment_input(space)]];
    if (segment_input_grad(space) >= 0)
        return input_grad(program, b, run, segment_input_grad(space));
    switch (space) {
    case SPACE_OUTPUT: return output(program, &b->output[at], run);
    case SPACE_OUTPUT_GRAD: return b->output_grad[at];
    case SPACE_SAVED:
        if (run->phase == PHASE_FORWARD)
            passing(program, &b->saved[at], "saved", run, run->segment->saved_bytes);
        return b->saved[at];
    case SPACE_DEFERRED:
        if (run->phase == PHASE_BACKWARD_INPUT)
            passing(program, &b->deferred[at], "deferred", run, run->segment->deferred_bytes);
        return b->deferred[at];
    case SPACE_TOKENS: return b->loaded[SLOT_LOAD_TOKENS][set];
    case SPACE_TARGETS: return b->loaded[SLOT_LOAD_TARGETS][set];
    case SPACE_POSITIONS: return b->loaded[SLOT_LOAD_POSITIONS][set];
    case SPACE_DOCUMENTS: return b->loaded[SLOT_LOAD_DOCUMENTS][set];
    case SPACE_CONST: return program->state->constants;
    case SPACE_LOSS: return program->state->sums;
    case SPACE_LOSS_SCALE: return program->state->loss_scale;
    case SPACE_WORK: return program->state->work;
    case SPACE_CARRY:
        return program_buffer(program, POOL_ACTIVATIONS, run->segment->carry_bytes, 0,
                              "carried %d micro %d", run->unit, run->micro);
    default: return -1;
    }
}

/* Sums and accumulated gradients are read too; work is scratch, written before read. */
static void write_piece(struct program *program, const struct run *run, int number,
                        const int *buffer)
{
    const struct segment_piece *piece = &run->segment->piece[number];
    int index = program_instr(program, INSTR_RUN, STREAM_COMPUTE);
    struct instr *instr = &program->instr[index];
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
    for (int s = 0; s < SPACE_COUNT; s++)
        buffer[s] = touched >> s & 1 ? buffer_of(program, b, run, s) : -1;
    for (int piece = 0; piece < segment->pieces; piece++) {
        if (segment->piece[piece].runs)
            write_piece(program, run, piece, buffer);
        if (segment_exchange(segment, piece))
            pieces_exchange(program, run, piece, buffer);
    }
}
