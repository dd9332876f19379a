/* program.c - the list itself; compile.c has it written. */
#include "program/program.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"

const char *instr_name(enum instr_kind kind)
{
    static const char *const names[INSTR_KINDS] = {
        [INSTR_ZERO] = "ZERO",     [INSTR_LOAD] = "LOAD",     [INSTR_RUN] = "RUN",
        [INSTR_GATHER] = "GATHER", [INSTR_REDUCE] = "REDUCE", [INSTR_ALLREDUCE] = "ALLREDUCE",
        [INSTR_SEND] = "SEND",     [INSTR_RECV] = "RECV",     [INSTR_FETCH] = "FETCH",
        [INSTR_SPILL] = "SPILL",   [INSTR_NORM] = "NORM",     [INSTR_SCALE] = "SCALE",
        [INSTR_CAST] = "CAST",     [INSTR_UPDATE] = "UPDATE", [INSTR_RELEASE] = "RELEASE",
    };
    return names[kind];
}

const char *stream_name(enum stream stream)
{
    static const char *const names[STREAMS] = {"compute", "gather", "reduce", "point", "fetch",
                                               "spill",   "read",   "write",  "host"};
    return names[stream];
}

int program_buffer(struct program *program, enum mem_pool pool, size_t bytes, int persistent,
                   const char *fmt, ...)
{
    program->buffer = array_grow(program->buffer, program->buffers, &program->buffer_capacity,
                                 sizeof *program->buffer);
    struct buffer *buffer = &program->buffer[program->buffers];
    *buffer = (struct buffer){.pool = pool, .bytes = bytes, .persistent = persistent, .whole = -1};
    va_list args;
    va_start(args, fmt);
    vsnprintf(buffer->name, sizeof buffer->name, fmt, args);
    va_end(args);
    return program->buffers++;
}

int program_view(struct program *program, int whole, size_t from, size_t bytes, const char *fmt,
                 ...)
{
    char name[sizeof program->buffer->name];
    va_list args;
    va_start(args, fmt);
    vsnprintf(name, sizeof name, fmt, args);
    va_end(args);
    int view = program_buffer(program, program->buffer[whole].pool, bytes,
                              program->buffer[whole].persistent, "%s", name);
    program->buffer[view].whole = whole;
    program->buffer[view].from = from;
    return view;
}

int program_instr(struct program *program, enum instr_kind kind, enum stream stream)
{
    program->instr = array_grow(program->instr, program->instrs, &program->instr_capacity,
                                sizeof *program->instr);
    struct instr *instr = &program->instr[program->instrs];
    *instr = (struct instr){
        .kind = kind, .stream = stream, .unit = -1, .micro = -1, .group = -1, .peer = -1};
    memset(instr->buffer, -1, sizeof instr->buffer);
    memset(instr->wait, -1, sizeof instr->wait);
    return program->instrs++;
}

void instr_bind(struct instr *instr, int slot, int buffer, enum access access)
{
    instr->buffer[slot] = buffer;
    instr->reads |= access & ACCESS_READ ? 1u << slot : 0;
    instr->writes |= access & ACCESS_WRITE ? 1u << slot : 0;
}

const char *instr_text(const struct program *program, int index, char *text, size_t size)
{
    const struct instr *instr = &program->instr[index];
    char unit[48] = "", micro[24] = "";
    if (instr->unit >= 0) {
        const char *prefix = program->units->model->unit[instr->unit].prefix;
        int length = (int)strlen(prefix);
        if (length)
            snprintf(unit, sizeof unit, " %.*s", length - 1, prefix);
        else
            snprintf(unit, sizeof unit, instr->unit ? " head" : " embed");
    }
    if (instr->micro >= 0)
        snprintf(micro, sizeof micro, " micro %d", instr->micro);
    snprintf(text, size, "%s%s%s%s%s", instr_name(instr->kind), instr->kind == INSTR_RUN ? " " : "",
             instr->kind == INSTR_RUN ? segment_phase_name(instr->phase) : "", unit, micro);
    return text;
}

const struct segment *program_segment(const struct program *program, int unit,
                                      enum segment_phase phase)
{
    const struct unit_kind *kind = units_kind(program->units, unit);
    switch (program->request.kind) {
    case PROGRAM_EVALUATE: return &kind->evaluation;
    case PROGRAM_LOGITS: return &kind->logit;
    default: return units_segment(program->units, unit, phase);
    }
}

void program_destroy(struct program *program)
{
    if (!program)
        return;
    free(program->buffer);
    free(program->instr);
    free(program->state);
    free(program->bucket);
    free(program);
}
