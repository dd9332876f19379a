/* program.c - struct program: how to append buffers and instructions, and how an instruction is
 * printed.  compile.c runs the passes that write one. */
#include "program/program.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"

const char *instr_name(enum instr_kind kind)
{
    static const char *const names[INSTR_KINDS] = {
        [INSTR_ZERO] = "ZERO",         [INSTR_LOAD] = "LOAD",
        [INSTR_RUN] = "RUN",           [INSTR_GATHER] = "GATHER",
        [INSTR_REDUCE] = "REDUCE",     [INSTR_ALLREDUCE] = "ALLREDUCE",
        [INSTR_SEND] = "SEND",         [INSTR_RECV] = "RECV",
        [INSTR_FETCH] = "FETCH",       [INSTR_SPILL] = "SPILL",
        [INSTR_NORM] = "NORM",         [INSTR_SCALE] = "SCALE",
        [INSTR_CAST] = "CAST",         [INSTR_DECODE] = "DECODE",
        [INSTR_ADD] = "ADD",           [INSTR_UPDATE] = "UPDATE",
        [INSTR_RELEASE] = "RELEASE",   [INSTR_ALLTOALL] = "ALLTOALL",
        [INSTR_MOMENTUM] = "MOMENTUM", [INSTR_ORTHOGONALIZE] = "ORTHOGONALIZE",
    };
    return names[kind];
}

const char *program_stream_name(enum program_stream stream)
{
    static const char *const names[STREAMS] = {
        [STREAM_COMPUTE] = "compute", [STREAM_GATHER] = "gather",   [STREAM_REDUCE] = "reduce",
        [STREAM_POINT] = "point",     [STREAM_POINT_1] = "point 1", [STREAM_POINT_2] = "point 2",
        [STREAM_POINT_3] = "point 3", [STREAM_POINT_4] = "point 4", [STREAM_POINT_5] = "point 5",
        [STREAM_POINT_6] = "point 6", [STREAM_POINT_7] = "point 7", [STREAM_FETCH] = "fetch",
        [STREAM_SPILL] = "spill",     [STREAM_READ] = "read",       [STREAM_WRITE] = "write",
        [STREAM_UPDATE] = "update",   [STREAM_HOST] = "host",
    };
    return names[stream];
}

int program_add_buffer(struct program *program, enum mem_pool pool, size_t bytes, int persistent,
                       const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    int b = state_append_buffer(&program->buffer, &program->buffers, &program->buffer_capacity,
                                pool, bytes, persistent, fmt, args);
    va_end(args);
    return b;
}

/* Give the list the space that instr_capacity asks for. */
static void set_space(struct program *program)
{
    size_t bytes = (size_t)program->instr_capacity * sizeof *program->instr;
    program->instr = array_need(realloc(program->instr, bytes), bytes);
}

void instr_make(struct instr *instr, enum instr_kind kind, enum program_stream stream)
{
    memset(instr, 0, sizeof *instr); /* what lies between members, too: lists are compared */
    instr->kind = kind;
    instr->stream = stream;
    instr->unit = instr->micro = instr->piece = instr->flat = -1;
    instr->peer = instr->first_part = -1;
    memset(instr->buffer, -1, sizeof instr->buffer);
    memset(instr->wait, -1, sizeof instr->wait);
}

struct instr *program_add_instr(struct program *program, enum instr_kind kind,
                                enum program_stream stream)
{
    if (program->instrs == program->instr_capacity) {
        program->instr_capacity = program->instrs ? 2 * program->instrs : 1024;
        set_space(program);
    }
    struct instr *instr = &program->instr[program->instrs++];
    instr_make(instr, kind, stream);
    return instr;
}

void program_set_instrs(struct program *program, int instrs)
{
    program->instrs = instrs;
    program->instr_capacity = instrs ? instrs : 1;
    set_space(program);
}

void program_share_list(struct program *program, const struct program *other)
{
    size_t bytes = (size_t)program->instrs * sizeof *program->instr;
    if (!program->instr_capacity || program->instrs != other->instrs ||
        memcmp(program->instr, other->instr, bytes))
        return;
    free(program->instr);
    program->instr = other->instr;
    program->instr_capacity = 0;
}

int program_add_part(struct program *program, struct comm_part part)
{
    program->part =
        array_grow(program->part, program->parts, &program->part_capacity, sizeof *program->part);
    program->part[program->parts] = part;
    return program->parts++;
}

void program_add_all_reduce(struct program *program, int flat, int micro, unsigned axes, int buffer,
                            int64_t elems, enum dtype dtype)
{
    struct instr *instr = program_add_instr(program, INSTR_ALLREDUCE, STREAM_REDUCE);
    instr->flat = flat;
    instr->micro = micro;
    instr->axes = axes;
    instr->elems = elems;
    instr->dtype = dtype;
    instr_bind(instr, SLOT_TO, buffer, ACCESS_BOTH);
}

void program_add_zero(struct program *program)
{
    instr_bind(program_add_instr(program, INSTR_ZERO, STREAM_COMPUTE), SLOT_SUMS,
               program->state->sums, ACCESS_WRITE);
}

void program_add_cast(struct program *program, int flat, int micro, int from, int to, int64_t elems,
                      enum dtype dtype)
{
    struct instr *instr = program_add_instr(program, INSTR_CAST, STREAM_COMPUTE);
    instr->flat = flat;
    instr->micro = micro;
    instr->elems = elems;
    instr->dtype = dtype;
    instr_bind(instr, SLOT_FROM, from, ACCESS_READ);
    instr_bind(instr, SLOT_TO, to, ACCESS_WRITE);
}

void instr_bind(struct instr *instr, int slot, int buffer, enum instr_access access)
{
    instr->buffer[slot] = buffer;
    instr->bound |= space_bit(slot);
    instr->reads |= access & ACCESS_READ ? space_bit(slot) : 0;
    instr->writes |= access & ACCESS_WRITE ? space_bit(slot) : 0;
}

const char *instr_text(const struct program *program, int index, char *text, size_t size)
{
    const struct instr *instr = &program->instr[index];
    char name[64] = "", unit[MODEL_PREFIX], micro[24] = "", piece[24] = "";
    if (instr->unit >= 0 && instr->unit < program->units->count) /* else verify says it is wrong */
        snprintf(name, sizeof name, " %s",
                 model_unit_name(program->units->model, instr->unit, unit));
    if (instr->flat >= 0)
        snprintf(name, sizeof name, " %s", program->units->flat[instr->flat].name);
    if (instr->micro >= 0)
        snprintf(micro, sizeof micro, " micro %d", instr->micro);
    if (instr->piece > 0 || instr_is_exchange(instr))
        snprintf(piece, sizeof piece, " piece %d", instr->piece);
    int has_phase = instr_is_of_phase(instr) || (instr_is_message(instr) && instr->unit >= 0);
    const char *what = has_phase                       ? segment_phase_name(instr->phase)
                       : instr->reduction == GROUP_MAX ? "maximum"
                                                       : "";
    snprintf(text, size, "%s%s%s%s%s%s", instr_name(instr->kind), what[0] ? " " : "", what, name,
             micro, piece);
    return text;
}

const struct graph *program_graph(const struct program *program, int unit)
{
    const struct unit_kind *kind = units_kind(program->units, unit);
    int pass = program_generates(program);
    if (pass >= 0)
        return kind->generate[pass];
    return program->kind == PROGRAM_EVALUATE ? kind->evaluate : kind->train;
}

const struct segment *program_segment(const struct program *program, int unit,
                                      enum segment_phase phase)
{
    const struct unit_kind *kind = units_kind(program->units, unit);
    int pass = program_generates(program);
    if (pass >= 0)
        return &kind->generation[pass];
    return program->kind == PROGRAM_EVALUATE ? &kind->evaluation
                                             : units_segment(program->units, unit, phase);
}

void program_destroy(struct program *program)
{
    if (!program)
        return;
    free(program->buffer);
    if (program->instr_capacity)
        free(program->instr);
    free(program->part);
    free(program->finished);
    free(program);
}
