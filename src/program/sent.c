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
    case INSTR_ALLTOALL: return group_all_to_all_sent(size, rank, &program->part[instr->parts]);
    default: return 0;
    }
}

int64_t sent_bytes(const struct program *program, const struct instr *instr)
{
    return sent_elems(program, instr, program->state->coord) * (int64_t)dtype_bytes(instr->dtype);
}
