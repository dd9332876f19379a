/* verify.c - one rank's program: order, lifetimes, memory.
 *
 * Instructions of one stream run in their order; those of different streams are ordered by waits
 * alone.  clocks() derives from the waits what has certainly ended before each instruction: for
 * each stream the latest such instruction (vector clocks).  Then the list is walked once.  For each
 * buffer it is remembered which instruction of each stream wrote and read it last; an access that
 * is not ordered after all of these, where one of both writes, is a race:
 *
 *   gather   GATHER layers.1 (writes w)
 *   compute           RUN layers.0      RUN layers.1 (reads w)    without a wait: a race on w
 *
 * A buffer that comes to life looks in memory_map.h for those that had its memory before: they must
 * have been released, and the release must be ordered before.  Views count as the buffer that they
 * are part of; but where units exchange rows in chunks, accesses to what these lie in are held
 * against each other byte by byte (overlaps.h). */
#include "verify/verify.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "verify/division.h"
#include "verify/graphs.h"
#include "verify/memory_map.h"
#include "verify/overlaps.h"
#include "verify/persistent.h"
#include "verify/segments.h"
#include "verify/streams.h"
#include "verify/updaters.h"

enum { TEXT = 112 };

/* Instruction at[s] of stream s and all before it happened before. */
struct before {
    int at[STREAMS];
};

struct uses {
    int first;                         /* instruction, or -1 */
    int wrote[STREAMS], read[STREAMS]; /* the last on each stream, or -1 */
    int released;                      /* instruction, or -1 */
    int last;                          /* the last instruction that used it, or -1 */
    size_t given_bytes;                /* bytes of its views that were written */
    int made;                          /* 1: a gradient, which each step makes anew */
    int given;                         /* 1: written by its own name; views have this alone */
};

struct verify {
    const struct program *program;
    struct before *before; /* per instruction, without itself */
    struct uses *uses;     /* per buffer */
    int works;             /* RUNs and UPDATEs so far */
    int *works_at;         /* per instruction: `works` up to it */
    struct memory_map *map[POOL_COUNT];
    struct overlaps *overlaps; /* NULL: all units exchange whole values */
    struct error *err;
};

static int wrong(struct verify *v, const char *what, int i, int buffer, int other)
{
    char here[TEXT], there[TEXT] = "";
    const struct program *p = v->program;
    instr_text(p, i, here, sizeof here);
    if (other >= 0)
        instr_text(p, other, there, sizeof there);
    return error_set(v->err, "verify: %s: buffer \"%s\" at instruction %d (%s)%s%s", what,
                     buffer >= 0 ? p->buffer[buffer].name : "", i, here,
                     other >= 0 ? " against " : "", there);
}

/* Clocks from the waits alone. */
static int clocks(struct verify *v)
{
    struct before stream[STREAMS];
    memset(stream, -1, sizeof stream);
    for (int i = 0; i < v->program->instrs; i++) {
        const struct instr *instr = &v->program->instr[i];
        struct before now = stream[instr->stream];
        for (int s = 0; s < STREAMS; s++) {
            int at = instr->wait[s];
            if (at < 0)
                continue;
            if (at >= i || (int)v->program->instr[at].stream != s)
                return wrong(v, "wrong wait", i, -1, at < v->program->instrs ? at : -1);
            for (int t = 0; t < STREAMS; t++)
                now.at[t] = v->before[at].at[t] > now.at[t] ? v->before[at].at[t] : now.at[t];
            now.at[s] = at > now.at[s] ? at : now.at[s];
        }
        v->before[i] = now;
        now.at[instr->stream] = i;
        stream[instr->stream] = now;
    }
    return 0;
}

static int ordered(const struct verify *v, int first, int then)
{
    return v->before[then].at[v->program->instr[first].stream] >= first;
}

/* The latest of at[] that is not ordered before instruction i, or -1.  An instruction is no race
 * against itself: it may be given two parts of a buffer, or work in place. */
static int unordered(const struct verify *v, const int at[STREAMS], int i)
{
    for (int s = 0; s < STREAMS; s++)
        if (at[s] >= 0 && at[s] != i && !ordered(v, at[s], i))
            return at[s];
    return -1;
}

/* Buffer b comes to life at instruction i: the buffers that had its memory last must have been
 * released, and their release must be ordered before i.  That suffices: those that had it earlier
 * were checked when these came. */
static int check_memory(struct verify *v, int i, int b)
{
    const struct program_buffer *buffer = &v->program->buffer[b];
    const int *had;
    if (buffer->offset + buffer->bytes > v->program->pool_bytes[buffer->pool])
        return wrong(v, "outside its slab", i, b, -1);
    int count = memory_map_give(v->map[buffer->pool], b, &had);
    for (int c = 0; c < count; c++) {
        const struct uses *its = &v->uses[had[c]];
        if (its->released < 0)
            return wrong(v, "memory reused too early", i, b, its->first);
        if (!ordered(v, its->released, i))
            return wrong(v, "memory reused in flight", i, b, its->released);
    }
    return 0;
}

static int check_release(struct verify *v, int i, int b)
{
    struct uses *uses = &v->uses[b];
    if (uses->released >= 0)
        return wrong(v, "released twice", i, b, uses->released);
    if (v->program->buffer[b].persistent)
        return wrong(v, "released though it outlives the step", i, b, -1);
    int late = unordered(v, uses->wrote, i);
    late = late >= 0 ? late : unordered(v, uses->read, i);
    if (late >= 0)
        return wrong(v, "released in flight", i, b, late);
    uses->released = i;
    return 0;
}

/* Does a buffer hold values?  State does before the step, but for gradients; any buffer does once
 * it was written under its own name, or all of its views were. */
static int has_values(const struct verify *v, int named)
{
    const struct program_buffer *buffer = &v->program->buffer[named];
    const struct uses *uses = &v->uses[named], *root = &v->uses[buffer_root(v->program, named)];
    return (buffer->persistent && !root->made && !buffer->partial) || uses->given ||
           (buffer->bytes && uses->given_bytes >= buffer->bytes);
}

/* An instruction that touches some of what instruction i touches of a buffer, where one of both
 * writes, and that is not ordered before it; or -1. */
static int find_race(const struct verify *v, int i, int b, int write)
{
    const struct uses *uses = &v->uses[b];
    if (v->overlaps && v->program->buffer[b].pool == POOL_ACTIVATIONS &&
        b >= v->program->state->buffers) { /* no gradient */
        int after[STREAMS];
        overlaps_add(v->overlaps, i, b, after);
        return unordered(v, after, i);
    }
    int race = unordered(v, uses->wrote, i);
    return race < 0 && write ? unordered(v, uses->read, i) : race;
}

/* named: the buffer, or the view of one, that the instruction names. */
static int check_access(struct verify *v, int i, int named, int read, int write)
{
    int b = buffer_root(v->program, named), persistent = v->program->buffer[b].persistent;
    struct uses *uses = &v->uses[b];
    if (uses->released >= 0)
        return wrong(v, "used after release", i, b, uses->released);
    if (uses->first < 0 && !persistent && check_memory(v, i, b))
        return -1;
    if (uses->first < 0)
        uses->first = i;
    if (read && !has_values(v, named))
        return wrong(v, "read before written", i, b, -1);
    int race = find_race(v, i, b, write);
    if (race >= 0)
        return wrong(v, "race", i, b, race);
    if (write) {
        uses->wrote[v->program->instr[i].stream] = i;
        if (named != b && !v->uses[named].given)
            uses->given_bytes += v->program->buffer[named].bytes;
        v->uses[named].given = 1;
    }
    if (read)
        uses->read[v->program->instr[i].stream] = i;
    uses->last = i;
    return 0;
}

/* Does a run of elements lie in a buffer? */
static int lies_in(const struct program *program, int buffer, enum dtype dtype, int64_t from,
                   int64_t elems)
{
    int64_t space = (int64_t)(program->buffer[buffer].bytes / dtype_bytes(dtype));
    return from >= 0 && elems >= 0 && elems <= space && from <= space - elems;
}

static int by_place(const void *a, const void *b)
{
    const struct comm_part *one = a, *other = b;
    return (one->recv_from > other->recv_from) - (one->recv_from < other->recv_from);
}

/* Do any two of the parts that are received overlap?  They are put in order, as there is one of
 * every rank. */
static int parts_overlap(const struct comm_part *part, int size)
{
    struct comm_part *sorted = array_make((size_t)size, sizeof *sorted);
    int count = 0, overlap = 0;
    for (int k = 0; k < size; k++)
        if (part[k].recv_elems)
            sorted[count++] = part[k];
    qsort(sorted, (size_t)count, sizeof *sorted, by_place);
    for (int k = 1; k < count; k++)
        overlap |= sorted[k].recv_from < sorted[k - 1].recv_from + sorted[k - 1].recv_elems;
    free(sorted);
    return overlap;
}

/* The parts of an ALLTOALL lie in its buffers, and those it receives do not overlap. */
static int check_parts(struct verify *v, int i)
{
    const struct program *p = v->program;
    const struct instr *instr = &p->instr[i];
    int from = instr->buffer[SLOT_FROM], to = instr->buffer[SLOT_TO];
    int size = instr->axes ? mesh_members(&p->layout->shape, instr->axes) : 0;
    if (from < 0 || to < 0 || size < 1 || instr->first_part < 0 ||
        instr->first_part > p->parts - size)
        return wrong(v, "wrong operand", i, from, -1);
    const struct comm_part *part = &p->part[instr->first_part];
    for (int k = 0; k < size; k++) {
        if (!lies_in(p, from, instr->dtype, part[k].send_from, part[k].send_elems))
            return wrong(v, "wrong size", i, from, -1);
        if (!lies_in(p, to, instr->dtype, part[k].recv_from, part[k].recv_elems))
            return wrong(v, "wrong size", i, to, -1);
    }
    return parts_overlap(part, size) ? wrong(v, "parts overlap", i, to, -1) : 0;
}

static int check_instr(struct verify *v, int i)
{
    const struct instr *instr = &v->program->instr[i];
    if (!mesh_has(&v->program->layout->shape, instr->axes))
        return wrong(v, "group that the mesh has not", i, -1, -1);
    if (!streams_allow(v->program, instr))
        return wrong(v, "wrong stream", i, -1, -1);
    v->works += instr->kind == INSTR_RUN || instr->kind == INSTR_UPDATE;
    v->works_at[i] = v->works;
    if (instr->kind == INSTR_ALLTOALL && check_parts(v, i))
        return -1;
    for (int slot = 0; slot < SLOTS; slot++) {
        int b = instr->buffer[slot];
        if (b < 0)
            continue;
        if (!streams_reach(v->program, instr, slot))
            return wrong(v, "out of reach", i, b, -1);
        if (instr_is_exchange(instr)) /* its operands are places in what pieces share as a whole */
            b = buffer_root(v->program, b);
        int rc = instr->kind == INSTR_RELEASE
                     ? check_release(v, i, b)
                     : check_access(v, i, b, instr->reads >> slot & 1, instr->writes >> slot & 1);
        if (rc)
            return -1;
    }
    return 0;
}

static int check_ends(struct verify *v)
{
    for (int b = 0; b < v->program->buffers; b++)
        if (!v->program->buffer[b].persistent && v->uses[b].first >= 0 && v->uses[b].released < 0)
            return wrong(v, "never released", v->uses[b].first, b, -1);
    return 0;
}

/* A buffer lives until its last use, or where that is on a stream which the next RUN or UPDATE
 * overlaps, until that has run. */
static int check_lengths(struct verify *v)
{
    for (int b = 0; b < v->program->buffers; b++) {
        const struct uses *uses = &v->uses[b];
        if (uses->released < 0 || uses->last < 0)
            continue;
        enum program_stream stream = v->program->instr[uses->last].stream;
        int more = stream != STREAM_COMPUTE && stream != STREAM_HOST;
        if (v->works_at[uses->released] - v->works_at[uses->last] > more)
            return wrong(v, "released late", uses->released, b, uses->last);
    }
    return 0;
}

/* A view lies inside what it is a view of. */
static int check_view(struct verify *v, int b)
{
    const struct program_buffer *view = &v->program->buffer[b],
                                *whole = &v->program->buffer[view->whole];
    if (whole->whole < 0 && view->pool == whole->pool && view->persistent == whole->persistent &&
        view->from + view->bytes <= whole->bytes && view->offset == whole->offset + view->from)
        return 0;
    return error_set(v->err, "verify: buffer \"%s\" is not inside \"%s\"", view->name, whole->name);
}

/* Persistent buffers are alive all along: they may not overlap at all. */
static int check_persistent(struct verify *v)
{
    const struct program_buffer *buffer = v->program->buffer;
    for (int b = 0; b < v->program->buffers; b++) {
        const int *had;
        if (buffer[b].whole >= 0 && check_view(v, b))
            return -1;
        if (!buffer[b].persistent || buffer[b].whole >= 0)
            continue;
        if (buffer[b].offset + buffer[b].bytes > v->program->pool_bytes[buffer[b].pool])
            return error_set(v->err, "verify: outside its slab: buffer \"%s\"", buffer[b].name);
        if (memory_map_give(v->map[buffer[b].pool], b, &had))
            return error_set(v->err, "verify: buffers \"%s\" and \"%s\" share memory",
                             buffer[had[0]].name, buffer[b].name);
    }
    return 0;
}

/* Note which buffers are gradients, whole or shards: each step makes them anew. */
static void find_gradients(struct verify *v)
{
    const struct program *p = v->program;
    for (int f = 0; f < p->units->flats && !program_updates_first(p); f++) {
        const int grads[] = {p->state->flat[f].grad, p->state->flat[f].whole_grad};
        for (int k = 0; k < 2; k++)
            if (grads[k] >= 0)
                v->uses[buffer_root(p, grads[k])].made = 1;
    }
}

/* Check how one unit of each kind is divided: those of a kind are divided alike. */
static int check_divisions(const struct program *program, struct error *err)
{
    const struct units *units = program->units;
    unsigned mesh = mesh_wide_axes(&program->layout->shape, MESH_SETS - 1);
    char *done = array_make((size_t)units->kinds, 1), name[MODEL_PREFIX];
    int rc = 0;
    for (int unit = 0; !rc && unit < units->count; unit++)
        if (program_owns(program, unit) && !done[units->kind_of[unit]]++)
            rc = division_check(program_graph(program, unit),
                                model_unit_name(units->model, unit, name), mesh,
                                program->kind == PROGRAM_TRAIN, err);
    free(done);
    return rc;
}

/* What does not depend on the list of instructions: the rules of updates follow from the
 * configuration, and flats, rows, loss, dropout and segments from the graphs. */
static int check_graphs(const struct program *program, struct error *err)
{
    int updates = program->kind == PROGRAM_TRAIN || program->kind == PROGRAM_UPDATE;
    if (updates && updaters_check(program, err))
        return -1;
    if (program->kind == PROGRAM_UPDATE) /* it runs no graph */
        return 0;
    return check_divisions(program, err) || graphs_check_flats(program, err) ||
                   graphs_check_rows(program, err) || graphs_check_tables(program, err) ||
                   graphs_check_loss(program, err) || graphs_check_dropout(program, err) ||
                   segments_check(program, err)
               ? -1
               : 0;
}

int verify_program(const struct program *program, struct error *err)
{
    if (!program->has_waits)
        return error_set(err, "verify: the program was compiled without waits");
    struct verify v = {
        .program = program,
        .before = array_make((size_t)program->instrs, sizeof *v.before),
        .uses = array_make((size_t)program->buffers, sizeof *v.uses),
        .works_at = array_make((size_t)program->instrs, sizeof *v.works_at),
        .err = err,
    };
    for (int pool = 0; pool < POOL_COUNT; pool++)
        v.map[pool] = memory_map_create(program, pool);
    for (int b = 0; b < program->buffers; b++) {
        struct uses *uses = &v.uses[b];
        uses->first = uses->released = uses->last = -1;
        memset(uses->wrote, -1, sizeof uses->wrote);
        memset(uses->read, -1, sizeof uses->read);
    }
    find_gradients(&v);
    v.overlaps = overlaps_create(program);
    int rc = check_graphs(program, err) || clocks(&v) || check_persistent(&v) ||
                     persistent_check(program, err)
                 ? -1
                 : 0;
    for (int i = 0; !rc && i < program->instrs; i++)
        rc = check_instr(&v, i);
    if (!rc)
        rc = check_ends(&v);
    if (!rc)
        rc = verify_values(program, err);
    if (!rc)
        rc = check_lengths(&v);
    free(v.before);
    free(v.uses);
    free(v.works_at);
    overlaps_destroy(v.overlaps);
    for (int pool = 0; pool < POOL_COUNT; pool++)
        memory_map_destroy(v.map[pool]);
    return rc;
}
