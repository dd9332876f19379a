/* compile.c - see compile.h: the passes in their order. */
#include "program/compile.h"

#include <string.h>

#include "base/array.h"
#include "program/memory.h"
#include "program/overlap_update.h"
#include "program/passes.h"

struct program *program_create_without_waits(const struct state *state, enum program_kind kind)
{
    struct program *program = array_make(1, sizeof *program);
    program->state = state;
    program->units = state->units;
    program->layout = state->layout;
    program->kind = kind;
    program->micros = kind == PROGRAM_TRAIN ? state->layout->micros : 1;
    program->logits = -1;
    program->finished = array_make((size_t)state->buckets + 1, sizeof *program->finished);
    program->buffers = program->buffer_capacity = state->buffers;
    program->buffer = array_make((size_t)state->buffers, sizeof *program->buffer);
    memcpy(program->buffer, state->buffer, (size_t)state->buffers * sizeof *program->buffer);
    if (kind == PROGRAM_UPDATE) {
        overlap_update_plan(program, NULL, 0);
        overlap_update_end(program);
    } else {
        pass_schedule(program);
    }
    if (kind == PROGRAM_TRAIN)
        pass_update(program);
    pass_release(program);
    memory_plan(program);
    return program;
}

struct program *program_create(const struct state *state, enum program_kind kind)
{
    struct program *program = program_create_without_waits(state, kind);
    pass_waits(program);
    return program;
}
