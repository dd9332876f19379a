/* runs.c - see runs.h: which buffer a run has in each space of its segment. */
#include "program/runs.h"

#include <stdlib.h>

#include "base/array.h"

/* The buffers of one micro-batch that pass between runs, by unit; -1: not made yet. */
struct runs_buffers {
    int tokens, targets;
    int *output;      /* activation leaving the unit */
    int *output_grad; /* gradient arriving at that place */
    int *saved;
};

struct runs_buffers *runs_open(const struct program *program)
{
    size_t units = (size_t)program->units->count;
    struct runs_buffers *b = array_make(1, sizeof *b);
    b->output = array_make(units, sizeof *b->output);
    b->output_grad = array_make(units, sizeof *b->output_grad);
    b->saved = array_make(units, sizeof *b->saved);
    return b;
}

void runs_close(struct runs_buffers *b)
{
    free(b->output);
    free(b->output_grad);
    free(b->saved);
    free(b);
}

void runs_load(struct program *program, struct runs_buffers *p, int micro)
{
    const struct units_request *r = &program->units->request;
    int64_t batch = program->kind == PROGRAM_LOGITS ? 1 : r->batch;
    size_t bytes = (size_t)(batch * r->seq) * sizeof(int32_t);
    p->tokens = program_buffer(program, POOL_WORKSPACE, bytes, 0, "tokens micro %d", micro);
    p->targets = program_buffer(program, POOL_WORKSPACE, bytes, 0, "targets micro %d", micro);
    int index = program_instr(program, INSTR_LOAD, STREAM_COMPUTE);
    struct instr *instr = &program->instr[index];
    instr->micro = micro;
    instr_bind(instr, SLOT_LOAD_TOKENS, p->tokens, ACCESS_WRITE);
    instr_bind(instr, SLOT_LOAD_TARGETS, p->targets, ACCESS_WRITE);
}

static int boundary(struct program *program, const char *what, const struct run *run)
{
    return program_buffer(program, POOL_ACTIVATIONS, program->units->boundary_bytes, 0,
                          "%s %d micro %d", what, run->unit, run->micro);
}

/* The activation that leaves the unit of run; the logits at the very end stay. */
static int output(struct program *program, const struct run *run)
{
    if (run->unit < program->units->count - 1)
        return boundary(program, "output", run);
    size_t bytes = (size_t)program->units->model->config.vocab * sizeof(float);
    program->logits = program_buffer(program, POOL_WORKSPACE, bytes, 1, "logits");
    return program->logits;
}

/* The buffer of one space of a run, made where the run is the first to name it. */
static int buffer_of(struct program *program, struct runs_buffers *p, const struct run *run,
                     enum segment_space space)
{
    int u = run->unit;
    if (space < SPACE_GRAD)
        return run->use[space - SPACE_PARAM].param;
    if (space < SPACE_INPUT)
        return run->use[space - SPACE_GRAD].grad;
    switch (space) {
    case SPACE_INPUT: return p->output[u - 1];
    case SPACE_OUTPUT: return p->output[u] = output(program, run);
    case SPACE_OUTPUT_GRAD: return p->output_grad[u];
    case SPACE_INPUT_GRAD: return p->output_grad[u - 1] = boundary(program, "gradient", run);
    case SPACE_SAVED:
        if (run->phase == PHASE_FORWARD)
            p->saved[u] = program_buffer(program, POOL_ACTIVATIONS, run->segment->saved_bytes, 0,
                                         "saved %d micro %d", u, run->micro);
        return p->saved[u];
    case SPACE_TOKENS: return p->tokens;
    case SPACE_TARGETS: return p->targets;
    case SPACE_CONST: return program->state->constants;
    case SPACE_LOSS: return program->state->sums;
    case SPACE_LOSS_SCALE: return program->state->loss_scale;
    case SPACE_WORK: return program->state->work;
    default: return -1;
    }
}

void runs_write(struct program *program, struct runs_buffers *p, const struct run *run)
{
    int buffer[SPACE_COUNT];
    const struct segment *segment = run->segment;
    unsigned touched = segment->reads | segment->writes;
    for (int s = 0; s < SPACE_COUNT; s++)
        buffer[s] = touched >> s & 1 ? buffer_of(program, p, run, s) : -1;
    int index = program_instr(program, INSTR_RUN, STREAM_COMPUTE);
    struct instr *instr = &program->instr[index];
    instr->phase = run->phase;
    instr->unit = run->unit;
    instr->micro = run->micro;
    instr->accumulate = run->accumulate;
    /* Sums and accumulated gradients are read too; work is scratch, written before read. */
    unsigned adds = 1u << SPACE_LOSS;
    for (int k = 0; k < run->uses; k++)
        adds |= (segment_added(run->accumulate, k) ? 1u : 0) << (SPACE_GRAD + k);
    for (int s = 0; s < SPACE_COUNT; s++) {
        unsigned read = (segment->reads | (segment->writes & adds)) >> s & 1;
        unsigned write = segment->writes >> s & 1;
        if (s == SPACE_WORK)
            read = 0;
        if (buffer[s] >= 0)
            instr_bind(instr, s, buffer[s], (read ? ACCESS_READ : 0) | (write ? ACCESS_WRITE : 0));
    }
}
