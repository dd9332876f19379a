/* overlaps.c - see overlaps.h.
 *
 * Each buffer has the list of what was touched of it: bytes from and to, by whom, read or written.
 * An instruction's own bytes are, for a RUN, those of the operands of its piece's steps, as the
 * segment places them; for any other instruction those of the view that it names.  What is
 * overwritten leaves the list: who touches these bytes later must come after the one that
 * overwrites them, which must come after all before it.
 */
#include "verify/overlaps.h"

#include <stdlib.h>

#include "base/array.h"
#include "graph/op.h"

struct bytes {
    size_t from, to;
    int instr, writes;
};

struct touches {
    struct bytes *bytes;
    int count, capacity;
};

struct overlaps {
    const struct program *program;
    struct touches *buffer; /* per buffer */
    struct touches now;     /* of the instruction that is added */
    int *other;
    int others, other_capacity;
};

static int exchanges_parts(const struct segment *segment)
{
    for (int s = 0; s < segment->steps; s++)
        if (segment->step[s].parts > 1)
            return 1;
    return 0;
}

static int has_parts(const struct program *program)
{
    for (int unit = 0; unit < program->units->count; unit++)
        for (int phase = 0; phase < PHASES && program_owns(program, unit); phase++)
            if (exchanges_parts(program_segment(program, unit, phase)))
                return 1;
    return 0;
}

struct overlaps *overlaps_create(const struct program *program)
{
    if (!has_parts(program))
        return NULL;
    struct overlaps *o = array_make(1, sizeof *o);
    o->program = program;
    o->buffer = array_make((size_t)program->buffers, sizeof *o->buffer);
    return o;
}

void overlaps_destroy(struct overlaps *o)
{
    if (!o)
        return;
    for (int b = 0; b < o->program->buffers; b++)
        free(o->buffer[b].bytes);
    free(o->buffer);
    free(o->now.bytes);
    free(o->other);
    free(o);
}

static void add(struct touches *touches, struct bytes bytes)
{
    touches->bytes =
        array_grow(touches->bytes, touches->count, &touches->capacity, sizeof *touches->bytes);
    touches->bytes[touches->count++] = bytes;
}

/* Where a step has a value: all of it, or the part of its rows that the step is for. */
static void add_value(struct overlaps *o, const struct segment *segment,
                      const struct segment_step *step, struct segment_ref ref, int v,
                      struct bytes bytes)
{
    const struct graph_node *node = segment_node(segment, step);
    size_t size = graph_bytes(segment->graph, v);
    int is_matrix = !bytes.writes && node->op == &op_linear && v == node->in[1];
    is_matrix |= !bytes.writes && node->op == &op_linear_input_grad && v == node->in[1];
    if (step->parts > 1 && !is_matrix)
        size /= (size_t)step->parts;
    bytes.from = ref.offset;
    bytes.to = ref.offset + size;
    add(&o->now, bytes);
}

static void add_steps(struct overlaps *o, int i, int space)
{
    const struct instr *instr = &o->program->instr[i];
    const struct segment *segment = program_segment(o->program, instr->unit, instr->phase);
    const struct segment_piece *piece = &segment->piece[instr->piece];
    for (int s = piece->first; s < piece->end; s++) {
        const struct segment_step *step = &segment->step[s];
        const struct graph_node *node = segment_node(segment, step);
        for (int k = 0; k < NODE_INS; k++)
            if (node->in[k] >= 0 && step->in[k].space == space)
                add_value(o, segment, step, step->in[k], node->in[k], (struct bytes){.instr = i});
        for (int k = 0; k < NODE_OUTS; k++)
            if (node->out[k] >= 0 && step->out[k].space == space)
                add_value(o, segment, step, step->out[k], node->out[k],
                          (struct bytes){.instr = i, .writes = 1});
    }
}

static void add_operand(struct overlaps *o, int i, int slot)
{
    const struct instr *instr = &o->program->instr[i];
    const struct program_buffer *part = &o->program->buffer[instr->buffer[slot]];
    size_t from = part->whole < 0 ? 0 : part->from;
    if (instr->kind == INSTR_RUN && slot != SPACE_WORK)
        add_steps(o, i, slot);
    else
        add(&o->now, (struct bytes){from, from + part->bytes, i, (int)(instr->writes >> slot & 1)});
}

/* Take out of what was touched before what is overwritten now. */
static void drop(struct touches *before, struct bytes now)
{
    int kept = 0;
    for (int t = 0; t < before->count; t++)
        if (before->bytes[t].from < now.from || before->bytes[t].to > now.to)
            before->bytes[kept++] = before->bytes[t];
    before->count = kept;
}

int overlaps_add(struct overlaps *o, int i, int b, const int **other)
{
    const struct instr *instr = &o->program->instr[i];
    struct touches *before = &o->buffer[b];
    o->now.count = o->others = 0;
    for (uint64_t left = instr->bound; left; left &= left - 1) {
        int slot = __builtin_ctzll(left);
        if (buffer_root(o->program, instr->buffer[slot]) == b)
            add_operand(o, i, slot);
    }
    for (int n = 0; n < o->now.count; n++)
        for (int t = 0; t < before->count; t++) {
            const struct bytes *now = &o->now.bytes[n], *then = &before->bytes[t];
            if (now->from >= then->to || then->from >= now->to || then->instr == i ||
                !(now->writes || then->writes))
                continue;
            o->other = array_grow(o->other, o->others, &o->other_capacity, sizeof *o->other);
            o->other[o->others++] = then->instr;
        }
    for (int n = 0; n < o->now.count; n++) {
        if (o->now.bytes[n].writes)
            drop(before, o->now.bytes[n]);
        add(before, o->now.bytes[n]);
    }
    *other = o->other;
    return o->others;
}
