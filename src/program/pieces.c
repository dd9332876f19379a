/* pieces.c - see pieces.h.
 *
 *   op               instruction  from   to     elements
 *   all_reduce       ALLREDUCE    -      y      of y
 *   all_reduce_max   the same, a maximum
 *   all_gather       GATHER       x      y      of x
 *   reduce_scatter   REDUCE       x      y      of y
 *   all_to_all       ALLTOALL     x      y      of a part, as many parts as members
 *
 * Of a gather or a reduce-scatter in chunks each is an instruction, of its rows alone.
 *
 * Operands are views of what the run has in the spaces where x and y lie: hazards, lifetimes and
 * waits are those of these buffers.
 */
#include "program/pieces.h"

/* Where value v of a run's graph lies, or that of its `chunks` which begins at ref. */
static int operand(struct program *program, const struct run *run, const int *buffer,
                   struct segment_ref ref, int v, int chunks)
{
    size_t bytes = graph_bytes(run->segment->graph, v) / (size_t)chunks;
    int whole = buffer[ref.space];
    if (program->buffer[whole].bytes == bytes)
        return whole;
    int view = program_add_buffer(program, program->buffer[whole].pool, bytes, 0, "%s at %zu",
                                  program->buffer[whole].name, ref.offset);
    return state_make_view(program->buffer, view, whole, ref.offset);
}

/* Equal parts, in the order of the members; returns the first. */
static int equal_parts(struct program *program, int members, int64_t elems)
{
    int last = 0;
    for (int m = 0; m < members; m++)
        last = program_add_part(program, (struct comm_part){.send_from = m * elems,
                                                            .send_elems = elems,
                                                            .recv_from = m * elems,
                                                            .recv_elems = elems});
    return last - members + 1;
}

void pieces_exchange(struct program *program, const struct run *run, int piece, const int *buffer)
{
    static const struct {
        enum instr_kind kind;
        enum program_stream stream;
        enum group_reduction reduction;
    } kinds[] = {
        [TRANSFER_SUM] = {.kind = INSTR_ALLREDUCE, .stream = STREAM_REDUCE},
        [TRANSFER_MAXIMUM] = {.kind = INSTR_ALLREDUCE,
                              .stream = STREAM_REDUCE,
                              .reduction = GROUP_MAX},
        [TRANSFER_GATHER] = {.kind = INSTR_GATHER, .stream = STREAM_GATHER},
        [TRANSFER_SCATTER] = {.kind = INSTR_REDUCE, .stream = STREAM_REDUCE},
        [TRANSFER_ALL_TO_ALL] = {.kind = INSTR_ALLTOALL, .stream = STREAM_REDUCE},
    };
    const struct segment_step *step = segment_exchange(run->segment, piece);
    const struct graph_node *node = segment_node(run->segment, step);
    const struct graph *graph = run->segment->graph;
    enum op_transfer transfer = node->op->transfer;
    int x = node->in[0], y = node->out[0], members = node->attrs.members;
    int in_place = op_reduces_in_place(node->op);
    int from = in_place ? -1 : operand(program, run, buffer, step->in[0], x, step->row_chunks);
    int to = operand(program, run, buffer, step->out[0], y, step->row_chunks);
    int64_t elems = graph_elems(graph, transfer == TRANSFER_GATHER ? x : y) / step->row_chunks;
    int parts =
        transfer == TRANSFER_ALL_TO_ALL ? equal_parts(program, members, elems / members) : -1;
    struct instr *instr = program_add_instr(program, kinds[transfer].kind, kinds[transfer].stream);
    instr->unit = run->unit;
    instr->micro = run->micro;
    instr->phase = run->phase;
    instr->piece = piece;
    instr->axes = node->attrs.axes;
    instr->elems = transfer == TRANSFER_ALL_TO_ALL ? elems / members : elems;
    instr->dtype = graph->values[x].dtype;
    if (transfer == TRANSFER_SCATTER)
        instr->result = graph->values[y].dtype;
    instr->reduction = kinds[transfer].reduction;
    instr->first_part = parts;
    if (from >= 0)
        instr_bind(instr, SLOT_FROM, from, ACCESS_READ);
    instr_bind(instr, SLOT_TO, to, from >= 0 ? ACCESS_WRITE : ACCESS_BOTH);
}
