/* mesh_shape.c - which rank is where in a mesh.
 *
 * The rank at (p, r, s, c, t) is (((p * replicas + r) * shards + s) * contexts + c) * tensors + t.
 * Ranks that differ in one coordinate alone form that axis's group, so that every rank is in one
 * group per axis.  With replicate 2 and shard 3:
 *
 *             s=0 s=1 s=2
 *       r=0    0   1   2      shard groups       {0 1 2} {3 4 5}
 *       r=1    3   4   5      replicate groups   {0 3} {1 4} {2 5}
 *                             data group         {0 1 2 3 4 5}
 *
 * Tensor is the fastest axis, context the next and then shard, so that their groups, which exchange
 * most, lie within nodes when ranks are numbered node by node.  The data group is that of one of
 * its axes where the others are 1.
 */
#include "comm/mesh.h"

#include <stdio.h>

#include "base/text.h"

const char *mesh_axis_name(enum mesh_axis axis)
{
    static const char *const names[MESH_AXES] = {[MESH_PIPELINE] = "pipeline",
                                                 [MESH_REPLICATE] = "replicate",
                                                 [MESH_SHARD] = "shard",
                                                 [MESH_CONTEXT] = "context",
                                                 [MESH_TENSOR] = "tensor"};
    return names[axis];
}

const char *mesh_axes_name(unsigned axes, char text[MESH_AXES_TEXT])
{
    text[0] = 0;
    if (axes == MESH_DATA)
        return text_append(text, MESH_AXES_TEXT, "data");
    for (int axis = 0; axis < MESH_AXES; axis++)
        if (axes >> axis & 1)
            text_join(text, MESH_AXES_TEXT, axes >> axis > 1 ? ", " : " and ", "%s",
                      mesh_axis_name(axis));
    return text;
}

/* Set err: the product of the degrees is not the number of ranks.  Returns -1. */
static int does_not_fit(const struct mesh_shape *s, int ranks, struct error *err)
{
    return error_set(
        err,
        "parallel: pipeline %d x replicate %d x shard %d x context %d x tensor %d does "
        "not make %d rank%s (0 stands for what is left, once)",
        s->degree[MESH_PIPELINE], s->degree[MESH_REPLICATE], s->degree[MESH_SHARD],
        s->degree[MESH_CONTEXT], s->degree[MESH_TENSOR], ranks, ranks == 1 ? "" : "s");
}

int mesh_resolve(struct mesh_shape *shape, int ranks, struct error *err)
{
    int64_t product = 1;
    int open = -1;
    for (int axis = 0; axis < MESH_AXES; axis++) {
        int degree = shape->degree[axis];
        if (degree < 0 || (!degree && open >= 0) || product > ranks)
            return does_not_fit(shape, ranks, err);
        if (degree)
            product *= degree;
        else
            open = axis;
    }
    if (product < 1 || ranks % product || (open < 0 && product != ranks))
        return does_not_fit(shape, ranks, err);
    if (open >= 0)
        shape->degree[open] = (int)(ranks / product);
    return 0;
}

struct mesh_coord mesh_coord_of_rank(const struct mesh_shape *shape, int rank)
{
    struct mesh_coord coord;
    for (int axis = MESH_AXES - 1; axis >= 0; axis--) {
        coord.at[axis] = rank % shape->degree[axis];
        rank /= shape->degree[axis];
    }
    return coord;
}

int mesh_rank(const struct mesh_shape *shape, struct mesh_coord coord)
{
    int rank = 0;
    for (int axis = 0; axis < MESH_AXES; axis++)
        rank = rank * shape->degree[axis] + coord.at[axis];
    return rank;
}

unsigned mesh_wide_axes(const struct mesh_shape *shape, unsigned axes)
{
    for (int axis = 0; axis < MESH_AXES; axis++)
        if (shape->degree[axis] < 2)
            axes &= ~(1u << axis);
    return axes;
}

int mesh_members(const struct mesh_shape *shape, unsigned axes)
{
    int members = 1;
    for (int axis = 0; axis < MESH_AXES; axis++)
        members *= axes >> axis & 1 ? shape->degree[axis] : 1;
    return members;
}

int mesh_member(const struct mesh_shape *shape, struct mesh_coord coord, unsigned axes)
{
    int member = 0;
    for (int axis = 0; axis < MESH_AXES; axis++)
        if (axes >> axis & 1)
            member = member * shape->degree[axis] + coord.at[axis];
    return member;
}

struct mesh_coord mesh_coord_of_member(const struct mesh_shape *shape, struct mesh_coord coord,
                                       unsigned axes, int member)
{
    for (int axis = MESH_AXES - 1; axis >= 0; axis--)
        if (axes >> axis & 1) {
            coord.at[axis] = member % shape->degree[axis];
            member /= shape->degree[axis];
        }
    return coord;
}

int mesh_has(const struct mesh_shape *shape, unsigned axes)
{
    unsigned wide = mesh_wide_axes(shape, axes);
    int is_axis = !(wide & (wide - 1)); /* or none, a group of one rank */
    return is_axis || wide == mesh_wide_axes(shape, MESH_SHARDS) ||
           wide == mesh_wide_axes(shape, MESH_DATA);
}

int mesh_first_rank(const struct mesh_shape *shape, struct mesh_coord coord, unsigned axes)
{
    for (int axis = 0; axis < MESH_AXES; axis++)
        if (axes >> axis & 1)
            coord.at[axis] = 0;
    return mesh_rank(shape, coord);
}
