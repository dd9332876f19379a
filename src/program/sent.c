/* sent.c - see sent.h. */
#include "program/sent.h"

int64_t sent_elems(const struct program *program, const struct instr *instr,
                   struct mesh_coord coord)
{
    const struct mesh_shape *shape = &program->state->layout->shape;
    int size = mesh_members(shape, instr->axes);
    int rank = mesh_member(shape, coord, instr->axes);
    switch (instr->kind) {
    case INSTR_SEND: return instr->elems;
    case INSTR_GATHER:
    case INSTR_REDUCE: return instr->elems * (size - 1);
    case INSTR_ALLREDUCE:
        return group_all_reduce_sent(size, rank, instr->elems, instr->dtype) /
               (int64_t)dtype_bytes(instr->dtype);
    case INSTR_ALLTOALL:
        return group_all_to_all_sent(size, rank, &program->part[instr->first_part]);
    default: return 0;
    }
}

int64_t sent_bytes(const struct program *program, const struct instr *instr)
{
    return sent_elems(program, instr, program->state->coord) * (int64_t)dtype_bytes(instr->dtype);
}

/* Does every member of the group send something to every other one?  On GPUs that is so for sums in
 * 16 bits too: members exchange their terms. */
static int sends_to_every_member(const struct instr *instr)
{
    int is_short = dtype_bytes(instr->dtype) == 2;
    switch (instr->kind) {
    case INSTR_ALLTOALL: return 1;
    case INSTR_REDUCE: return is_short;
    case INSTR_ALLREDUCE: return is_short && instr->reduction == GROUP_SUM;
    default: return 0;
    }
}

_Static_assert((int)STREAM_POINT_7 - (int)STREAM_POINT == (int)COMM_POINT_7 - (int)COMM_POINT,
               "streams of messages in the same order");

/* Note the peer of a message; of more than there is memory for only that they are more. */
static void add_peer(struct mesh_options *options, const struct instr *instr)
{
    const struct mesh_peer peer = {
        .stream = (enum comm_stream)(COMM_POINT + (int)instr->stream - STREAM_POINT),
        .member = instr->peer,
        .sends = instr->kind == INSTR_SEND};
    if (options->peers > MESH_PEERS)
        return;
    for (int i = 0; i < options->peers; i++) {
        const struct mesh_peer *known = &options->peer[i];
        if (known->stream == peer.stream && known->member == peer.member &&
            known->sends == peer.sends)
            return;
    }
    if (options->peers < MESH_PEERS)
        options->peer[options->peers] = peer;
    options->peers++;
}

void sent_describe(struct mesh_options *options, const struct program *const *programs, int count)
{
    const struct mesh_shape *shape = &programs[0]->state->layout->shape;
    for (int p = 0; p < count; p++)
        for (int i = 0; i < programs[p]->instrs; i++) {
            const struct instr *instr = &programs[p]->instr[i];
            if (sends_to_every_member(instr))
                options->swaps |= 1u << mesh_wide_axes(shape, instr->axes);
            if (instr->kind == INSTR_SEND || instr->kind == INSTR_RECV)
                add_peer(options, instr);
        }
}
