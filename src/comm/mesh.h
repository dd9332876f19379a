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

/* How the groups of a GPU communicate. */
enum comm_reduce { COMM_REDUCE_FP32, COMM_REDUCE_BF16 };
enum comm_inter_node { COMM_INTER_NODE_NCCL, COMM_INTER_NODE_MPI };

struct mesh_options {
    enum comm_reduce reduce;         /* fp32: the library's sum; bf16: gradients travel as bf16 and
                                        are summed in fp32, in rank order */
    enum comm_inter_node inter_node; /* mpi: the replicate axis goes through host memory and MPI */
    int share_gpu;                   /* several ranks on one GPU: for tests */
};

/* Let the groups work on the memory and streams of a GPU: makes the NCCL communicators (none for
 * groups of one).  Collective over world; a CPU device changes nothing.  Fails on all ranks
 * together.  staging of transfers is allocated here: mesh_device_staging_bytes(). */
int mesh_attach(struct mesh *mesh, struct world *world, struct device *device, struct mem *mem,
                const struct mesh_options *options, struct error *err);

/* Bytes of device memory (POOL_COMM) mesh_attach() allocates on every rank; pure.  NCCL's own
 * buffers are beside them, in the device's reserve. */
size_t mesh_device_staging_bytes(const struct mesh_shape *shape,
                                 const struct mesh_options *options);

/* Did a transfer of an attached mesh fail meanwhile (a peer died, the network broke)?  0, or -1
 * with err naming group, rank and node; does not wait.  Any thread. */
int mesh_poll(struct mesh *mesh, struct error *err);

/* End what an attached mesh has under way, after a failure: does not wait for peers longer than
 * a few seconds. */
void mesh_abandon(struct mesh *mesh);

struct mesh_shape mesh_shape(const struct mesh *mesh);
struct mesh_coord mesh_coord(const struct mesh *mesh);
struct group *mesh_group(const struct mesh *mesh, enum mesh_axis axis); /* borrowed */
struct group *mesh_data(const struct mesh *mesh);                       /* borrowed */

/* Bytes of POOL_COMM the groups of a mesh of this (resolved) shape allocate on every rank;
 * a pure function.  Where only one of replicate and shard exceeds 1, its group is mesh_data()
 * too. */
size_t mesh_staging_bytes(const struct mesh_shape *shape);

#endif
