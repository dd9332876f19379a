/* mesh.h - the ranks as a grid: pipeline x replicate x shard x context x tensor, tensor
 * fastest.
 *
 * A group is named by a set of axes, bit a for axis a: the ranks that agree in all the others, in
 * the order of their numbers.  Axes of one rank make no difference to it.
 */
#ifndef TRIREME_COMM_MESH_H
#define TRIREME_COMM_MESH_H

#include "comm/group.h"
#include "comm/world.h"

enum mesh_axis {
    MESH_PIPELINE,
    MESH_REPLICATE,
    MESH_SHARD,
    MESH_CONTEXT, /* ranks that each have a part of every sequence */
    MESH_TENSOR,
    MESH_AXES
};

/* MESH_SHARDS: what a strategy splits is split over these.  MESH_DATA: ranks that have rows of the
 * batch of their own: sequences, or parts of them. */
enum {
    MESH_SETS = 1 << MESH_AXES,
    MESH_SHARDS = 1 << MESH_SHARD | 1 << MESH_CONTEXT,
    MESH_DATA = 1 << MESH_REPLICATE | MESH_SHARDS
};

struct mesh_shape {
    int degree[MESH_AXES];
    unsigned points; /* bit k: stream COMM_POINT + k carries messages along the pipeline axis */
};

enum mesh_way { WAY_UP, WAY_DOWN }; /* an activation to the next stage; its gradient back */

/* Which of the COMM_POINTS streams, from 0, messages have from one rank of the pipeline axis to
 * another; the same at both ends.  Link k connects ranks k and k + 1, and where the axis is a ring
 * link ranks - 1 its two ends.
 *
 *   link    to the upper rank        to the lower rank
 *           activation  gradient     activation  gradient
 *   even         0          1             2          3
 *   odd          4          5             6          7
 *
 * So the messages of a rank's two links, of which one is even and one odd, do not wait for one
 * another.  In a ring of an odd number of ranks both links of rank 0 are even; but there
 * activations go to the upper rank on the one and to the lower on the other. */
static inline int mesh_point(int ranks, int from, int to, enum mesh_way way)
{
    int lower = from < to ? from : to, is_ring = from + to == ranks - 1 && lower == 0 && ranks > 2;
    int link = is_ring ? ranks - 1 : lower;
    return link % 2 * 4 + (from > to) * 2 + (int)way;
}

struct mesh_coord {
    int at[MESH_AXES];
};

const char *mesh_axis_name(enum mesh_axis axis);

/* "shard", "data" (MESH_DATA), "shard and tensor" into text; returns text. */
enum { MESH_AXES_TEXT = 64 };
const char *mesh_axes_name(unsigned axes, char text[MESH_AXES_TEXT]);

/* Fill in the one degree that is 0 ("what is left"; at most one may be) so that the
 * product is ranks.  Returns 0, or -1 with err saying which product does not fit. */
int mesh_resolve(struct mesh_shape *shape, int ranks, struct error *err);

/* Pure arithmetic: the coordinates of a rank, and the rank that has them. */
struct mesh_coord mesh_coord_of_rank(const struct mesh_shape *shape, int rank);
int mesh_rank(const struct mesh_shape *shape, struct mesh_coord coord);

/* Pure, of a resolved shape and a set of axes: those of them along which there is more than one
 * rank; the ranks of the group, and the number of the one at coord among them; is there such a
 * group? */
unsigned mesh_wide_axes(const struct mesh_shape *shape, unsigned axes);
int mesh_members(const struct mesh_shape *shape, unsigned axes);
int mesh_member(const struct mesh_shape *shape, struct mesh_coord coord, unsigned axes);
int mesh_has(const struct mesh_shape *shape, unsigned axes);

/* The place of a member, from 0, of the group along axes that the rank at coord is in. */
struct mesh_coord mesh_coord_of_member(const struct mesh_shape *shape, struct mesh_coord coord,
                                       unsigned axes, int member);

struct mesh;

/* Split world into the groups of shape, which is the same on all ranks, else this fails.
 * Collective over world.
 * The mesh owns its groups; world stays the caller's.
 * Returns 0 and a mesh for mesh_destroy(), or -1 on every rank with err set. */
int mesh_create(struct mesh **mesh, struct world *world, struct mesh_shape shape,
                struct error *err);
void mesh_destroy(struct mesh *mesh); /* NULL allowed; collective where it is attached */

/* ---- on GPUs ----
 *
 * mesh_attach(), mesh_alloc(), mesh_poll() and mesh_abandon() are in gpu/link.c; mesh_register(),
 * mesh_unregister() and mesh_gpu_library() in gpu/nccl_register.c and gpu/nccl_state.c, or, in a
 * build without NCCL, in gpu/nccl_absent.c. */

struct device;

/* How the groups of a GPU communicate. */
enum comm_inter_node { COMM_INTER_NODE_NCCL, COMM_INTER_NODE_MPI };

/* A rank of the pipeline axis that this one sends messages to, or receives them from, by a stream.
 */
struct mesh_peer {
    enum comm_stream stream; /* COMM_POINT and those after it */
    int member, sends;       /* sends 0: receives */
};
enum { MESH_PEERS = 128 };

struct mesh_options {
    enum comm_inter_node inter_node; /* mpi: sums over replicas go through host memory and MPI */
    int share_gpu;                   /* several ranks on one GPU: for tests */
    int64_t piece_bytes;             /* of a transfer that is staged; 0: as suits */
    int min_ctas, max_ctas;          /* thread blocks of a transfer of NCCL's; 0: as it chooses */
    int copy_engines;                /* 1: gathers over MESH_SHARDS go by copy engines */
    int nvls;                        /* 1: switches of NVLink may add up, in any order */
    unsigned messages; /* bit s: on COMM_REDUCE the ranks along the axes s, all of more than one
                          rank, send one another parts: all-to-alls, and sums of 16 bits */
    struct mesh_peer peer[MESH_PEERS]; /* of this rank, which are connected at the start; */
    int peers;                         /* 0: its neighbours; above MESH_PEERS: refused */
};

/* Let the groups work on the memory and streams of a GPU: makes the NCCL communicators (none for
 * groups of one) and sends a few bytes over each.  Collective over world; a CPU device changes
 * nothing.  options may differ between ranks in messages and peers.  Fails on all ranks together,
 * after run.hang_seconds (world_watch(), else ten minutes) when some do not answer; what was begun
 * is then abandoned, as mesh_abandon() says.  Staging of transfers is allocated here.  The device
 * stays open until mesh_destroy().
 *
 * Communicators, in the order they are made, one for each group over 1 and stream of group.h:
 * MESH_SHARDS on COMM_GATHER and on COMM_REDUCE, replicate and MESH_DATA on COMM_REDUCE, pipeline
 * on COMM_REDUCE and on the streams of shape.points, context and tensor on COMM_GATHER and on
 * COMM_REDUCE; groups of the same ranks share them.  Shard alone has none where
 * context exceeds 1.  With COMM_INTER_NODE_MPI groups along replicate have none where that exceeds
 * 1: they offer all-reduce, by MPI. */
int mesh_attach(struct mesh *mesh, struct world *world, struct device *device, struct mem *mem,
                const struct mesh_options *options, struct error *err);

/* Bytes of device memory (POOL_COMM) mesh_attach() allocates on every rank; pure.  NCCL's own
 * buffers are beside them. */
size_t mesh_device_staging_bytes(const struct mesh_shape *shape,
                                 const struct mesh_options *options);

/* Bytes to keep free beside them for the buffers of NCCL, which has one communicator for each group
 * and stream; pure.  An estimate, by logs of nodes of eight H100, and for nodes of eight ranks:
 * NCCL says nothing of what it will take, so that callers look at what is left once the mesh is
 * attached. */
size_t mesh_reserve_bytes(const struct mesh_shape *shape, const struct mesh_options *options);

/* Bytes of pinned host memory (POOL_HOST) it allocates; pure. */
size_t mesh_host_staging_bytes(const struct mesh_shape *shape, const struct mesh_options *options);

/* Device memory that transfers will read and write, counted in mem: device_alloc()'s, or NCCL's
 * own where gathers go by copy engines (mesh_options.copy_engines).  mesh may be NULL.  Not
 * collective.  Returns memory for mesh_free(), before the mesh is destroyed, or NULL with err set.
 */
void *mesh_alloc(struct mesh *mesh, struct device *device, struct mem *mem, enum mem_pool pool,
                 size_t bytes, struct error *err);
void mesh_free(struct mesh *mesh, struct device *device, struct mem *mem, enum mem_pool pool,
               size_t bytes, void *block); /* NULL allowed */

/* Register with NCCL the device memory that transfers will read and write, so that networks can
 * reach it directly.  Collective over world, at the same place of the program; memory NULL: the
 * rank has none there.  At most MESH_REGISTERED ranges at a time.  Returns 1 if it was registered
 * on all ranks that have it, else 0: the transfers work all the same.  With copy engines it is to
 * be memory of mesh_alloc(), of as many bytes on every rank of a group that gathers; -1 with err
 * set on all ranks where it is not, or GPUs do not reach each other's.  A mesh without
 * communicators registers nothing. */
enum { MESH_REGISTERED = 16 };
int mesh_register(struct mesh *mesh, void *memory, size_t bytes, struct error *err);

/* Undo it, before the memory is freed; memory that is not registered is allowed. */
void mesh_unregister(struct mesh *mesh, void *memory);

/* Did a transfer of an attached mesh fail meanwhile (a peer died, the network broke)?  0, or -1
 * with err naming group, rank and node; does not wait.  Any thread, but not while another is
 * starting an operation. */
int mesh_poll(struct mesh *mesh, struct error *err);

/* End what an attached mesh has under way, after a failure: does not wait for peers longer than
 * a few seconds.  Where NCCL does not end it, the GPU is given up (device_give_up()).  Nothing
 * works on the mesh afterwards but mesh_poll() and mesh_destroy().  Any thread. */
void mesh_abandon(struct mesh *mesh);

/* "NCCL 2.28.9" with what it was built for where that differs, or "no NCCL", into text; returns
 * text. */
const char *mesh_gpu_library(char text[96]);

/* ---- what it is ---- */

struct mesh_shape mesh_shape(const struct mesh *mesh);
struct mesh_coord mesh_coord(const struct mesh *mesh);

/* The group of a set of axes: of one, of MESH_SHARDS, of MESH_DATA; the mesh's.  NULL: no axes, or
 * mesh_has() says there is none. */
struct group *mesh_group_of(const struct mesh *mesh, unsigned axes);
struct group *mesh_group(const struct mesh *mesh, enum mesh_axis axis);

/* Bytes of POOL_COMM the groups of a mesh of this (resolved) shape allocate on every rank;
 * a pure function.  Groups of the same ranks are one. */
size_t mesh_staging_bytes(const struct mesh_shape *shape);

#endif
