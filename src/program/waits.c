/* waits.c - what each instruction waits for on other streams; see pass_waits() in passes.h.
 *
 * By the list, an instruction must come after the writers of what it reads, the readers and writers
 * of what it writes, and the release of memory it takes over.  Vector clocks show which of these
 * are implied: the vector of an instruction holds, for each stream, up to where that stream is
 * known to be complete when the instruction ends. settle() goes through the needs latest first,
 * adds a wait only where the vector does not cover it yet, and joins in the vector of what is
 * waited for.
 */
#include "program/passes.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "program/memory.h"
#include "program/ranges.h"

/* Of a buffer: the last instruction of each stream that wrote, read or released it; -1: none. */
struct history {
    int wrote[STREAMS], read[STREAMS], released[STREAMS];
};

/* What is known to be complete when an instruction starts, per stream. */
struct clock_vector {
    int at[STREAMS];
};

struct waits {
    struct program *program;
    struct history *history;      /* per buffer */
    struct memory_lifetime *life; /* per buffer */
    struct clock_vector *vector;  /* per instruction, itself included */
    struct ranges *ranges[POOL_COUNT];
};

static void need(int wait[STREAMS], const int at[STREAMS])
{
    for (int s = 0; s < STREAMS; s++)
        wait[s] = at[s] > wait[s] ? at[s] : wait[s];
}

/* Buffer b begins to live: it waits for the release of the buffers that had its memory last.  They
 * have waited for those that had it before them. */
static void need_memory(struct waits *w, int b, int wait[STREAMS])
{
    const struct program_buffer *buffer = &w->program->buffer[b];
    const int *had;
    int count = ranges_give(w->ranges[buffer->pool], buffer->offset, buffer->bytes, b, &had);
    for (int i = 0; i < count; i++)
        need(wait, w->history[had[i]].released);
}

static void need_operands(struct waits *w, int i, int wait[STREAMS])
{
    const struct instr *instr = &w->program->instr[i];
    for (unsigned left = instr->bound; left; left &= left - 1) {
        int slot = __builtin_ctz(left), b = buffer_root(w->program, instr->buffer[slot]);
        int write = instr->writes >> slot & 1 || instr->kind == INSTR_RELEASE;
        need(wait, w->history[b].wrote);
        if (write)
            need(wait, w->history[b].read);
        if (w->life[b].first == i && !w->program->buffer[b].persistent)
            need_memory(w, b, wait);
    }
}

static void remember(struct waits *w, int i)
{
    const struct instr *instr = &w->program->instr[i];
    for (unsigned left = instr->bound; left; left &= left - 1) {
        int slot = __builtin_ctz(left), b = buffer_root(w->program, instr->buffer[slot]);
        if (instr->kind == INSTR_RELEASE)
            w->history[b].released[instr->stream] = i;
        if (instr->writes >> slot & 1)
            w->history[b].wrote[instr->stream] = i;
        if (instr->reads >> slot & 1)
            w->history[b].read[instr->stream] = i;
    }
}

/* Keep only the waits that nothing before implies: go through them latest first. */
static void settle(struct waits *w, int i, const int wait[STREAMS], struct clock_vector *stream)
{
    struct instr *instr = &w->program->instr[i];
    struct clock_vector known = stream[instr->stream];
    for (;;) {
        int latest = -1, at = -1;
        for (int s = 0; s < STREAMS; s++)
            if (s != (int)instr->stream && wait[s] > known.at[s] && wait[s] > at) {
                latest = s;
                at = wait[s];
            }
        if (latest < 0)
            break;
        instr->wait[latest] = at;
        need(known.at, w->vector[at].at);
    }
    known.at[instr->stream] = i;
    w->vector[i] = stream[instr->stream] = known;
}

void pass_waits(struct program *program)
{
    size_t buffers = (size_t)program->buffers, instrs = (size_t)program->instrs;
    struct waits w = {
        .program = program,
        .history = array_make(buffers, sizeof *w.history),
        .life = memory_lifetimes(program),
        .vector = array_make(instrs, sizeof *w.vector),
    };
    struct clock_vector stream[STREAMS];
    for (int pool = 0; pool < POOL_COUNT; pool++)
        w.ranges[pool] = ranges_create();
    memset(w.history, -1, buffers * sizeof *w.history);
    memset(stream, -1, sizeof stream);
    for (int i = 0; i < program->instrs; i++) {
        int wait[STREAMS];
        memset(wait, -1, sizeof wait);
        need_operands(&w, i, wait);
        settle(&w, i, wait, stream);
        remember(&w, i);
    }
    free(w.history);
    free(w.life);
    free(w.vector);
    for (int pool = 0; pool < POOL_COUNT; pool++)
        ranges_destroy(w.ranges[pool]);
}
