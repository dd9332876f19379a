/* overlaps.c - see overlaps.h.
 *
 * Which bytes an instruction touches is found here from its graph and the places that its segment
 * gives operands: for a RUN those of its piece's steps, for any other instruction those of the view
 * that it names.  (The waits under check come from segment_touch() instead.)  Who touched these
 * bytes before, access.h says, as it does where waits are made: it knows nothing of instructions,
 * and tests/unit/test_access.c holds it against what is known of each byte alone.
 *
 * Of each stream the last instruction that touched the bytes stands for those before it, and one
 * that overwrites them for all before it, which it must come after.
 */
#include "verify/overlaps.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "graph/op.h"
#include "program/access.h"

/* Bytes that each RUN of a piece touches of a space. */
struct bytes {
    size_t from, to;
    int space, writes;
};

struct touches {
    struct bytes *bytes;
    int count, capacity;
    int *piece; /* the first of each piece, and one after the last; NULL: not found yet */
};

struct overlaps {
    const struct program *program;
    struct access_map **buffer; /* per buffer; NULL until it is touched */
    struct touches *touches;    /* per kind of unit and phase */
};

static int segment_has_chunks(const struct segment *segment)
{
    for (int s = 0; s < segment->steps; s++)
        if (segment->step[s].row_chunks > 1)
            return 1;
    return 0;
}

static int program_has_chunks(const struct program *program)
{
    for (int unit = 0; unit < program->units->count; unit++)
        for (int phase = 0; phase < PHASES && program_owns(program, unit); phase++)
            if (segment_has_chunks(program_segment(program, unit, phase)))
                return 1;
    return 0;
}

struct overlaps *overlaps_create(const struct program *program)
{
    if (!program_has_chunks(program))
        return NULL;
    struct overlaps *o = array_make(1, sizeof *o);
    o->program = program;
    o->buffer = array_make((size_t)program->buffers, sizeof *o->buffer);
    o->touches = array_make((size_t)program->units->kinds * PHASES, sizeof *o->touches);
    return o;
}

void overlaps_destroy(struct overlaps *o)
{
    if (!o)
        return;
    for (int b = 0; b < o->program->buffers; b++)
        access_map_destroy(o->buffer[b]);
    for (int k = 0; k < o->program->units->kinds * PHASES; k++) {
        free(o->touches[k].bytes);
        free(o->touches[k].piece);
    }
    free(o->buffer);
    free(o->touches);
    free(o);
}

/* Where a step has a value: all of it, or the chunk of its rows that the step is for. */
static void add_value(struct touches *touches, const struct segment *segment,
                      const struct segment_step *step, struct segment_ref ref, int v, int writes)
{
    const struct graph_node *node = segment_node(segment, step);
    if (v < 0 || ref.space < 0)
        return;
    size_t size = graph_bytes(segment->graph, v);
    int is_matrix = !writes && node->op == &op_linear && v == node->in[1];
    is_matrix |= !writes && node->op == &op_linear_input_grad && v == node->in[1];
    if (step->row_chunks > 1 && !is_matrix)
        size /= (size_t)step->row_chunks;
    touches->bytes =
        array_grow(touches->bytes, touches->count, &touches->capacity, sizeof *touches->bytes);
    touches->bytes[touches->count++] = (struct bytes){
        .from = ref.offset, .to = ref.offset + size, .space = ref.space, .writes = writes};
}

static int compare_bytes(const void *a, const void *b)
{
    const struct bytes *one = a, *other = b;
    if (one->space != other->space)
        return one->space - other->space;
    if (one->writes != other->writes)
        return one->writes - other->writes;
    if (one->from != other->from)
        return one->from < other->from ? -1 : 1;
    return (one->to > other->to) - (one->to < other->to);
}

/* Sort what was found of a piece, and leave away what is there twice. */
static void end_piece(struct touches *touches, int first)
{
    struct bytes *bytes = touches->bytes;
    int kept = first;
    if (touches->count == first)
        return;
    qsort(&bytes[first], (size_t)(touches->count - first), sizeof *bytes, compare_bytes);
    for (int t = first + 1; t < touches->count; t++)
        if (compare_bytes(&bytes[kept], &bytes[t]))
            bytes[++kept] = bytes[t];
    touches->count = kept + 1;
}

static void find_touches(struct touches *touches, const struct segment *segment)
{
    touches->piece = array_make((size_t)segment->pieces + 1, sizeof *touches->piece);
    for (int p = 0; p < segment->pieces; p++) {
        for (int s = segment->piece[p].first; s < segment->piece[p].end; s++) {
            const struct segment_step *step = &segment->step[s];
            const struct graph_node *node = segment_node(segment, step);
            for (int k = 0; k < NODE_INS; k++)
                add_value(touches, segment, step, step->in[k], node->in[k], 0);
            for (int k = 0; k < NODE_OUTS; k++)
                add_value(touches, segment, step, step->out[k], node->out[k], 1);
        }
        end_piece(touches, touches->piece[p]);
        touches->piece[p + 1] = touches->count;
    }
}

static const struct touches *touches_of(struct overlaps *o, const struct instr *instr)
{
    struct touches *touches =
        &o->touches[o->program->units->kind_of[instr->unit] * PHASES + (int)instr->phase];
    if (!touches->piece)
        find_touches(touches, program_segment(o->program, instr->unit, instr->phase));
    return touches;
}

/* What instruction i touches of buffer b by one of its slots. */
static void add_slot(struct overlaps *o, int i, int slot, int b, int after[STREAMS])
{
    const struct instr *instr = &o->program->instr[i];
    const struct program_buffer *view = &o->program->buffer[instr->buffer[slot]];
    struct access access = {.instr = i, .stream = instr->stream};
    if (instr->kind != INSTR_RUN || slot == SPACE_WORK) {
        access.from = view->whole < 0 ? 0 : view->from;
        access.to = access.from + view->bytes;
        access.writes = (int)(instr->writes >> slot & 1);
        access_map_add(o->buffer[b], access, after);
        return;
    }
    const struct touches *touches = touches_of(o, instr);
    for (int t = touches->piece[instr->piece]; t < touches->piece[instr->piece + 1]; t++) {
        const struct bytes *bytes = &touches->bytes[t];
        access.from = bytes->from;
        access.to = bytes->to;
        access.writes = bytes->writes;
        if (bytes->space == slot)
            access_map_add(o->buffer[b], access, after);
    }
}

void overlaps_add(struct overlaps *o, int i, int b, int after[STREAMS])
{
    const struct instr *instr = &o->program->instr[i];
    memset(after, -1, STREAMS * sizeof *after);
    if (!o->buffer[b])
        o->buffer[b] = access_map_create();
    for (uint64_t left = instr->bound; left; left &= left - 1) {
        int slot = __builtin_ctzll(left);
        if (buffer_root(o->program, instr->buffer[slot]) == b)
            add_slot(o, i, slot, b, after);
    }
}
