/* mesh.c - making the groups of a mesh.  Which ranks a group has follows from mesh_shape.c, which
 * channels they have on a GPU from gpu/mesh_channels.c. */
#include "comm/mesh.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "comm/gpu/link.h"

/* List, each once, the sets of axes whose groups of more than one rank a shape has: each axis,
 * MESH_SHARDS, MESH_DATA, without axes of one rank.  Returns how many. */
static int list_sets(const struct mesh_shape *shape, unsigned set[MESH_SETS])
{
    unsigned listed = 1; /* bit s: set s is listed; the empty set is left out */
    int count = 0;
    for (int k = 0; k < MESH_AXES + 2; k++) {
        unsigned asked = k < MESH_AXES ? 1u << k : k == MESH_AXES ? MESH_SHARDS : MESH_DATA;
        unsigned wide = mesh_wide_axes(shape, asked);
        if (listed >> wide & 1)
            continue;
        listed |= 1u << wide;
        set[count++] = wide;
    }
    return count;
}

/* Make this rank's group along a set of axes.  Returns 0, or -1 with err set. */
static int create_group(struct mesh *mesh, struct world *world, unsigned axes, struct error *err)
{
    const struct mesh_shape *shape = &mesh->shape;
    int first = mesh_first_rank(shape, mesh->coord, axes), size = 0;
    int *ranks = array_make((size_t)mesh_members(shape, axes), sizeof *ranks);
    char name[MESH_AXES_TEXT];
    for (int rank = first; rank < world_size(world); rank++)
        if (mesh_first_rank(shape, mesh_coord_of_rank(shape, rank), axes) == first)
            ranks[size++] = rank;
    int rc = group_create(&mesh->group[axes], world, ranks, size, mesh_axes_name(axes, name), err);
    free(ranks);
    return rc;
}

/* Resolve the shape, and check that rank 0 has the same one: every rank lists the groups by itself,
 * and with different lists ranks would sum the data of wrong ranks, or hang.  Collective. */
static int resolve(struct mesh_shape *shape, struct world *world, struct error *err)
{
    int rc = mesh_resolve(shape, world_size(world), err);
    struct mesh_shape first = *shape;
    world_broadcast(world, &first, sizeof first, 0);
    if (!rc && (memcmp(first.degree, shape->degree, sizeof first.degree) != 0 ||
                first.points != shape->points))
        rc = error_set(err,
                       "rank %d has another parallel layout than rank 0; are their configurations "
                       "the same?",
                       world_rank(world));
    return world_agree(world, rc, err);
}

int mesh_create(struct mesh **mesh, struct world *world, struct mesh_shape shape, struct error *err)
{
    struct mesh *m;
    unsigned set[MESH_SETS];
    int count, rc = 0;
    *mesh = NULL;
    if (resolve(&shape, world, err))
        return -1;
    m = array_make(1, sizeof *m);
    m->world = world;
    m->shape = shape;
    m->coord = mesh_coord_of_rank(&shape, world_rank(world));
    for (int axis = 0; axis < MESH_AXES; axis++)
        if (shape.degree[axis] == 1)
            m->group[1u << axis] = group_self(world, mesh_axis_name(axis));
    count = list_sets(&shape, set);
    for (int k = 0; k < count; k++) /* also after a failure: the order of groups gives the tags */
        if (create_group(m, world, set[k], rc ? NULL : err))
            rc = -1;
    rc = world_agree(world, rc, err);
    if (rc)
        mesh_destroy(m);
    else
        *mesh = m;
    return rc;
}

void mesh_destroy(struct mesh *mesh)
{
    if (!mesh)
        return;
    link_close(mesh->link);
    for (int axes = 0; axes < MESH_SETS; axes++)
        group_destroy(mesh->group[axes]);
    free(mesh);
}

size_t mesh_staging_bytes(const struct mesh_shape *shape)
{
    unsigned set[MESH_SETS];
    int count = list_sets(shape, set);
    size_t bytes = 0;
    for (int k = 0; k < count; k++)
        bytes += group_staging_bytes(mesh_members(shape, set[k]));
    return bytes;
}

struct mesh_shape mesh_shape(const struct mesh *mesh)
{
    return mesh->shape;
}

struct mesh_coord mesh_coord(const struct mesh *mesh)
{
    return mesh->coord;
}

struct group *mesh_group_of(const struct mesh *mesh, unsigned axes)
{
    unsigned wide = mesh_wide_axes(&mesh->shape, axes);
    return mesh->group[wide ? wide : axes & -axes]; /* of one rank: that of its first axis */
}

struct group *mesh_group(const struct mesh *mesh, enum mesh_axis axis)
{
    return mesh_group_of(mesh, 1u << axis);
}
