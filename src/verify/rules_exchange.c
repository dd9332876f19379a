/* rules_exchange.c - what ranks exchange after a piece of a unit must be what its graph says there,
 * of what the piece has left. */
#include "verify/rules.h"

/* The instruction is the exchange that follows its piece: of the kind, over the group, of the size
 * that the graph says. */
static int check_exchange(const struct values *v, int i)
{
    static const struct {
        enum instr_kind kind;
        enum group_reduction reduction;
    } kinds[] = {[TRANSFER_SUM] = {INSTR_ALLREDUCE, GROUP_SUM},
                 [TRANSFER_MAXIMUM] = {INSTR_ALLREDUCE, GROUP_MAX},
                 [TRANSFER_GATHER] = {INSTR_GATHER, GROUP_SUM},
                 [TRANSFER_SCATTER] = {INSTR_REDUCE, GROUP_SUM},
                 [TRANSFER_SWAP] = {INSTR_ALLTOALL, GROUP_SUM}};
    const struct instr *instr = &v->program->instr[i];
    const struct layout_stage *own = &v->program->stage;
    if (instr->unit < own->first || instr->unit >= own->first + own->count)
        return wrong_operand(v, i, -1);
    const struct segment *segment = program_segment(v->program, instr->unit, instr->phase);
    const struct segment_step *step = segment_exchange(segment, instr->piece);
    if (!step || !instr->axes || instr->accumulate)
        return wrong_operand(v, i, -1);
    const struct graph_node *node = segment_node(segment, step);
    int members = mesh_members(&v->program->layout->shape, instr->axes);
    if (kinds[node->op->transfer].kind != instr->kind ||
        kinds[node->op->transfer].reduction != instr->reduction ||
        instr->axes != node->attrs.axes || members != node->attrs.members)
        return wrong_operand(v, i, -1);
    const struct graph_value *x = &segment->graph->values[node->in[0]];
    int64_t elems =
        graph_elems(segment->graph, instr->kind == INSTR_GATHER ? node->in[0] : node->out[0]);
    if (instr->kind == INSTR_ALLTOALL)
        elems /= members;
    const struct graph_value *y = &segment->graph->values[node->out[0]];
    enum dtype result = instr->kind == INSTR_REDUCE ? y->dtype : DTYPE_F32;
    return instr->elems == elems && instr->dtype == x->dtype && instr->result == result
               ? 0
               : wrong_operand(v, i, -1);
}

/* Parts of all ranks are alike, and in their order. */
static int check_equal_parts(const struct values *v, int i, int members)
{
    const struct instr *instr = &v->program->instr[i];
    const struct comm_part *part = &v->program->part[instr->parts];
    for (int m = 0; m < members; m++)
        if (part[m].send_elems != instr->elems || part[m].recv_elems != instr->elems ||
            part[m].send_from != m * instr->elems || part[m].recv_from != m * instr->elems)
            return wrong_operand(v, i, -1);
    return 0;
}

/* An operand is the whole of what the unit has in a space, or lies there where the value does. */
static int check_place(const struct values *v, int i, int slot, struct segment_ref ref,
                       size_t bytes)
{
    const struct program_buffer *buffer = &v->program->buffer[v->program->instr[i].buffer[slot]];
    size_t from = buffer->whole < 0 ? 0 : buffer->from;
    if (buffer->bytes == bytes && from == ref.offset)
        return 0;
    return wrong_size(v, i, v->program->instr[i].buffer[slot]);
}

/* A value of the unit, in a space: what the exchange reads; in_place: and changes. */
static int reads_exchanged(struct values *v, int i, int slot, struct segment_ref ref, int in_place)
{
    const struct instr *instr = &v->program->instr[i];
    int k = segment_input_grad(ref.space);
    struct value want = k < 0 ? rules_wanted(v, instr, ref.space) : rules_input_grad(v, instr, k);
    rules_lacks_after(v, instr, in_place ? (int)ref.space : -1, &want);
    return rules_read(v, i, buffer_root(v->program, instr->buffer[slot]), ref.space, want);
}

/* The sum, rows or parts are where the next piece finds them. */
static int writes_exchanged(struct values *v, int i, struct segment_ref ref)
{
    const struct instr *instr = &v->program->instr[i];
    int b = buffer_root(v->program, instr->buffer[SLOT_TO]), k = segment_input_grad(ref.space);
    struct value value = k < 0 ? rules_written(instr, ref.space) : rules_input_grad(v, instr, k);
    if (value.meaning == MEANS_NOTHING)
        return wrong_operand(v, i, SLOT_TO);
    if (!rules_is_stepwise(ref.space)) {
        values_put(v, i, b, value);
        return 0;
    }
    struct value has = values_get(v, b);
    has.pending = has.maxima = 0;
    values_put(v, i, b, has);
    return rules_add_step(v, i, b, ref.space, value);
}

int rules_exchange(struct values *v, int i)
{
    const struct instr *instr = &v->program->instr[i];
    if (check_exchange(v, i))
        return -1;
    const struct segment *segment = program_segment(v->program, instr->unit, instr->phase);
    const struct segment_step *step = segment_exchange(segment, instr->piece);
    const struct graph_node *node = segment_node(segment, step);
    int in_place = instr->kind == INSTR_ALLREDUCE, slot = in_place ? SLOT_TO : SLOT_FROM;
    struct segment_ref from = in_place ? step->out[0] : step->in[0];
    int x = in_place ? node->out[0] : node->in[0];
    if (check_place(v, i, slot, from, graph_bytes(segment->graph, x)) ||
        check_place(v, i, SLOT_TO, step->out[0], graph_bytes(segment->graph, node->out[0])) ||
        reads_exchanged(v, i, slot, from, in_place))
        return -1;
    if (instr->kind == INSTR_ALLTOALL && check_equal_parts(v, i, node->attrs.members))
        return -1;
    return writes_exchanged(v, i, step->out[0]);
}
