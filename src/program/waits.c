/* waits.c - what each instruction waits for on other streams; see pass_waits() in passes.h.
 *
 * By the list, an instruction must come after the writers of what it reads, the readers and writers
 * of what it writes, and the release of memory it takes over.  Vector clocks show which of these
 * are implied: the vector of an instruction holds, for each stream, up to where that stream is
 * known to be complete when the instruction ends. set_waits() goes through the needs latest first,
 * adds a wait only where the vector does not cover it yet, and joins in the vector of what is
 * waited for.
 *
 * Where rows are exchanged in chunks (segment_row_chunks.c), instructions touch different bytes of
 * one buffer at once.  Of each buffer in which activations pass, who accessed it is then remembered
 * by its bytes (access.h), in place of the last instruction of each stream.
 */
#include "program/passes.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "program/access.h"
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
    struct access_map **accesses; /* per buffer, NULL until one is accessed and from its release
                                   on; NULL: nothing goes in chunks */
    struct memory_lifetime *life; /* per buffer */
    struct clock_vector *vector;  /* per instruction, itself included */
    struct ranges *ranges[POOL_COUNT];
};

static void need(int wait[STREAMS], const int at[STREAMS])
{
    for (int s = 0; s < STREAMS; s++)
        wait[s] = at[s] > wait[s] ? at[s] : wait[s];
}

/* Need the release of the buffers that had the memory of b last, which begins to live.  Those have
 * waited for the buffers that had it before them. */
static void need_memory(struct waits *w, int b, int wait[STREAMS])
{
    const struct program_buffer *buffer = &w->program->buffer[b];
    const int *had;
    int count = ranges_give(w->ranges[buffer->pool], buffer->offset, buffer->bytes, b, &had);
    for (int i = 0; i < count; i++)
        need(wait, w->history[had[i]].released);
}

/* Are accesses of a buffer remembered by bytes, not for the buffer as a whole?  Those of
 * activations are, not those of the state's buffers, which come first. */
static int is_by_bytes(const struct waits *w, int b)
{
    return w->accesses && w->program->buffer[b].pool == POOL_ACTIVATIONS &&
           b >= w->program->state->buffers;
}

/* Need what an access of instruction i to bytes of buffer b comes after, and remember the access.
 */
static void need_bytes(struct waits *w, int i, int b, struct access access, int wait[STREAMS])
{
    access.instr = i;
    access.stream = w->program->instr[i].stream;
    if (!w->accesses[b])
        w->accesses[b] = access_map_create();
    access_map_add(w->accesses[b], access, wait);
}

/* The same for all bytes that the piece of RUN i, whose segment has row chunks, touches of a slot's
 * buffer, which begins at byte `from` of its root b. */
static void need_touches(struct waits *w, int i, int slot, int b, size_t from, int wait[STREAMS])
{
    const struct instr *instr = &w->program->instr[i];
    const struct segment *segment = program_segment(w->program, instr->unit, instr->phase);
    const struct segment_piece *piece = &segment->piece[instr->piece];
    for (int t = piece->first_touch; t < piece->end_touch; t++) {
        const struct segment_touch *touch = &segment->touch[t];
        if (touch->space != slot)
            continue;
        need_bytes(w, i, b,
                   (struct access){.from = from + touch->from,
                                   .to = touch->to == SIZE_MAX ? SIZE_MAX : from + touch->to,
                                   .writes = touch->writes},
                   wait);
    }
}

/* The same for what instruction i accesses of the buffer of a slot: what its piece touches, or all.
 */
static void need_operand(struct waits *w, int i, int slot, int writes, int wait[STREAMS])
{
    const struct instr *instr = &w->program->instr[i];
    const struct program_buffer *view = &w->program->buffer[instr->buffer[slot]];
    int b = buffer_root(w->program, instr->buffer[slot]);
    size_t from = view->whole < 0 ? 0 : view->from;
    if (instr->kind == INSTR_RUN &&
        program_segment(w->program, instr->unit, instr->phase)->has_row_chunks)
        need_touches(w, i, slot, b, from, wait);
    else
        need_bytes(w, i, b,
                   (struct access){.from = from, .to = from + view->bytes, .writes = writes}, wait);
}

static void need_operands(struct waits *w, int i, int wait[STREAMS])
{
    const struct instr *instr = &w->program->instr[i];
    for (uint64_t left = instr->bound; left; left &= left - 1) {
        int slot = __builtin_ctzll(left), b = buffer_root(w->program, instr->buffer[slot]);
        int write = instr->writes >> slot & 1 || instr->kind == INSTR_RELEASE;
        if (is_by_bytes(w, b))
            need_operand(w, i, slot, write, wait);
        else
            need(wait, w->history[b].wrote);
        if (write && !is_by_bytes(w, b))
            need(wait, w->history[b].read);
        if (w->life[b].first == i && !w->program->buffer[b].persistent)
            need_memory(w, b, wait);
    }
}

/* Remember what instruction i wrote, read and released. */
static void remember(struct waits *w, int i)
{
    const struct instr *instr = &w->program->instr[i];
    for (uint64_t left = instr->bound; left; left &= left - 1) {
        int slot = __builtin_ctzll(left), b = buffer_root(w->program, instr->buffer[slot]);
        if (instr->kind == INSTR_RELEASE)
            w->history[b].released[instr->stream] = i;
        if (instr->kind == INSTR_RELEASE && is_by_bytes(w, b)) {
            access_map_destroy(w->accesses[b]);
            w->accesses[b] = NULL;
        }
        if (instr->writes >> slot & 1)
            w->history[b].wrote[instr->stream] = i;
        if (instr->reads >> slot & 1)
            w->history[b].read[instr->stream] = i;
    }
}

/* Give instruction i the waits that nothing before implies, latest first, and set the vectors of i
 * and of its stream. */
static void set_waits(struct waits *w, int i, const int wait[STREAMS], struct clock_vector *stream)
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

/* Does one of the rank's units exchange rows in chunks? */
static int exchanges_chunks(const struct program *program)
{
    for (int unit = 0; unit < program->units->count; unit++)
        for (int phase = 0; phase < PHASES && program_owns(program, unit); phase++)
            if (program_segment(program, unit, phase)->has_row_chunks)
                return 1;
    return 0;
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
    if (exchanges_chunks(program))
        w.accesses = array_make(buffers, sizeof *w.accesses);
    memset(w.history, -1, buffers * sizeof *w.history);
    memset(stream, -1, sizeof stream);
    for (int i = 0; i < program->instrs; i++) {
        int wait[STREAMS];
        memset(wait, -1, sizeof wait);
        need_operands(&w, i, wait);
        set_waits(&w, i, wait, stream);
        remember(&w, i);
    }
    for (size_t b = 0; w.accesses && b < buffers; b++)
        access_map_destroy(w.accesses[b]);
    program->has_waits = 1;
    free(w.accesses);
    free(w.history);
    free(w.life);
    free(w.vector);
    for (int pool = 0; pool < POOL_COUNT; pool++)
        ranges_destroy(w.ranges[pool]);
}
