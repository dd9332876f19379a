/* ranks.c - see ranks.h. */
#include "verify/ranks.h"

int ranks_member(const struct ranks *g, int rank, unsigned axes, int k)
{
    const struct mesh_shape *shape = g->shape;
    struct mesh_coord coord = mesh_coord_of_rank(shape, rank);
    if (k < 0 || k >= mesh_members(shape, axes))
        return -1;
    for (int axis = MESH_AXES - 1; axis >= 0; axis--) {
        if (!(axes >> axis & 1))
            continue;
        coord.at[axis] = k % shape->degree[axis];
        k /= shape->degree[axis];
    }
    return mesh_rank(shape, coord);
}

int ranks_other_end(const struct ranks *g, int rank, const struct instr *message)
{
    int other = ranks_member(g, rank, message->axes, message->peer);
    return other == rank ? -1 : other;
}

const struct instr *ranks_met_by(const struct ranks *g, int m, enum program_stream stream,
                                 unsigned axes)
{
    const struct instr *theirs = ranks_ready(&g->rank[m], stream);
    return theirs && theirs->axes == axes ? theirs : NULL;
}

int ranks_same(const struct instr *a, const struct instr *b)
{
    return a->kind == b->kind && a->axes == b->axes && a->elems == b->elems &&
           a->dtype == b->dtype && a->reduction == b->reduction && a->result == b->result &&
           a->flat == b->flat && a->unit == b->unit && a->micro == b->micro &&
           a->phase == b->phase && a->piece == b->piece;
}

int ranks_same_message(const struct instr *a, const struct instr *b)
{
    return a->unit == b->unit && a->micro == b->micro && a->phase == b->phase && a->flat == b->flat;
}
