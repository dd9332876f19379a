/* mesh.h - the ranks as a grid: pipeline x replicate x shard x tensor, tensor fastest. */
#ifndef TRIREME_COMM_MESH_H
#define TRIREME_COMM_MESH_H

#include "comm/group.h"
#include "comm/world.h"

enum mesh_axis { MESH_PIPELINE, MESH_REPLICATE, MESH_SHARD, MESH_TENSOR, MESH_AXES };

struct mesh_shape {
    int degree[MESH_AXES];
};

struct mesh_coord {
    int at[MESH_AXES];
};

const char *mesh_axis_name(enum mesh_axis axis);

/* Fill in the one degree that is 0 ("what is left"; at most one may be) so that the
 * product is ranks.  Returns 0, or -1 with err saying which product does not fit. */
int mesh_resolve(struct mesh_shape *shape, int ranks, struct error *err);

/* Pure arithmetic: the place of a rank, and the rank at a place. */
struct mesh_coord mesh_place(const struct mesh_shape *shape, int rank);
int mesh_rank(const struct mesh_shape *shape, struct mesh_coord coord);

struct mesh;

/* Split world into the groups of shape (resolved).  Collective over world.
 * The mesh owns its groups; world stays the caller's.
 * Data ranks (replicate x shard) also form one group, mesh_data(), for sums over the batch.
 * Returns 0 and a mesh for mesh_destroy(), or -1 on every rank with err set. */
int mesh_create(struct mesh **mesh, struct world *world, struct mesh_shape shape,
                struct error *err);
void mesh_destroy(struct mesh *mesh);

struct mesh_shape mesh_shape(const struct mesh *mesh);
struct mesh_coord mesh_coord(const struct mesh *mesh);
struct group *mesh_group(const struct mesh *mesh, enum mesh_axis axis); /* borrowed */
struct group *mesh_data(const struct mesh *mesh);                       /* borrowed */

/* Bytes of POOL_COMM the groups of a mesh of this (resolved) shape allocate on every rank;
 * a pure function.  Where only one of replicate and shard exceeds 1, its group is mesh_data()
 * too. */
size_t mesh_staging_bytes(const struct mesh_shape *shape);

#endif
