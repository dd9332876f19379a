/* mesh.h - the ranks as a grid: pipeline x replicate x shard x context x tensor, tensor
 * fastest.
 *
 * A group is named by a set of axes, bit a for axis a: it has the ranks whose coordinates on all
 * other axes are the same, in the order of their numbers.  Axes with one rank make no difference.
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

/* Sets of axes. */
enum {
    MESH_SETS = 1 << MESH_AXES,                        /* how many there are */
    MESH_SHARDS = 1 << MESH_SHARD | 1 << MESH_CONTEXT, /* over which a strategy splits state */
    MESH_DATA = 1 << MESH_REPLICATE | MESH_SHARDS      /* whose ranks have their own rows of the
                                                          batch: sequences, or parts of them */
};

struct mesh_shape {
    int degree[MESH_AXES]; /* ranks along each axis */
    unsigned points; /* bit k: stream COMM_POINT + k carries messages along the pipeline axis */
};

enum mesh_way { WAY_UP, WAY_DOWN }; /* an activation to the next stage; its gradient back */

/* The number k of the stream COMM_POINT + k for messages from one rank of the pipeline axis to
 * another; the same at both ends.  Link k connects ranks k and k + 1; where the axis is a ring,
 * link ranks - 1 connects its two ends.
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

/* Write the name of a set of axes, "shard", "data" (MESH_DATA) or "shard and tensor", into text;
 * returns text. */
enum { MESH_AXES_TEXT = 64 };
const char *mesh_axes_name(unsigned axes, char text[MESH_AXES_TEXT]);

/* Replace the degree that is 0 ("what is left"; at most one may be) so that the product of all
 * degrees is ranks.  Returns 0, or -1 with err saying which product does not fit. */
int mesh_resolve(struct mesh_shape *shape, int ranks, struct error *err);

/* Return the coordinates of a rank, and the rank that has them; pure arithmetic. */
struct mesh_coord mesh_coord_of_rank(const struct mesh_shape *shape, int rank);
int mesh_rank(const struct mesh_shape *shape, struct mesh_coord coord);

/* The functions below are pure; their shape is resolved, axes is a set of axes. */

/* Returns the axes of the set along which there is more than one rank. */
unsigned mesh_wide_axes(const struct mesh_shape *shape, unsigned axes);
/* Returns how many ranks a group of these axes has. */
int mesh_members(const struct mesh_shape *shape, unsigned axes);
/* Returns the first rank of the group along these axes that the rank at coord is in. */
int mesh_first_rank(const struct mesh_shape *shape, struct mesh_coord coord, unsigned axes);
/* Returns the number of the rank at coord within its group of these axes. */
int mesh_member(const struct mesh_shape *shape, struct mesh_coord coord, unsigned axes);
/* Returns 1 if a mesh of this shape makes a group of these axes. */
int mesh_has(const struct mesh_shape *shape, unsigned axes);

/* Returns the coordinates of member number `member` of the group of these axes that the rank at
 * coord is in. */
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

/* ---- memory, and GPUs ----
 *
 * mesh_attach(), mesh_poll() and mesh_abandon() are in gpu/link.c; mesh_gpu_library() is in
 * gpu/nccl_state.c, or, in a build without NCCL, in gpu/nccl_absent.c; how many
 * bytes mesh_attach() and NCCL take is in gpu/mesh_channels.c, what else concerns memory in
 * mesh_memory.c. */

struct device;

/* How sums over replicas travel between GPUs: by NCCL, or through host memory by MPI. */
enum comm_inter_node { COMM_INTER_NODE_NCCL, COMM_INTER_NODE_MPI };

/* A rank of the pipeline axis that this rank exchanges messages with on a stream. */
struct mesh_peer {
    enum comm_stream stream; /* COMM_POINT or one after it */
    int member;              /* the other rank's number along the pipeline axis */
    int sends;               /* 1: this rank sends; 0: it receives */
};
enum { MESH_PEERS = 128 };

struct mesh_options {
    enum comm_inter_node inter_node;
    int share_gpu;          /* 1: several ranks on one GPU, for tests */
    int64_t piece_bytes;    /* of the pieces of a staged transfer; 0: a default */
    int min_ctas, max_ctas; /* thread blocks of an NCCL transfer; 0: NCCL chooses */
    int copy_engines;       /* 1: gathers over MESH_SHARDS go by copy engines */
    int keep_apart;         /* 1: on CPUs, ranks of a node do not read one another's memory */
    int nvls;               /* 1: NVLink switches may take sums, in any order */
    unsigned swaps;         /* bit s, s being a set of axes that all have more than one rank: on
                               COMM_REDUCE these ranks send parts to one another, in all-to-alls and
                               sums of 16-bit terms */
    struct mesh_peer peer[MESH_PEERS]; /* the peers to which this rank connects at the start */
    int peers;                         /* 0: its neighbours; above MESH_PEERS: refused */
};

/* Let the groups work on the memory and streams of a GPU: makes the NCCL communicators (none for
 * groups of one) and sends a few bytes over each.  Collective over world; on a CPU device only
 * options->keep_apart counts.  options may differ between ranks in swaps and peers.  Allocates
 * the staging memory of transfers.  The device stays open until mesh_destroy().
 *
 * Returns 0, or -1 on all ranks with err set.  When some ranks do not answer it fails after
 * run.hang_seconds (world_watch(), else ten minutes), and abandons what was begun, as
 * mesh_abandon() does.
 *
 * Communicators, in the order they are made, one for each group over 1 and stream of group.h:
 * MESH_SHARDS on COMM_GATHER and on COMM_REDUCE, replicate and MESH_DATA on COMM_REDUCE, pipeline
 * on COMM_REDUCE and on the streams of shape.points, context and tensor on COMM_GATHER and on
 * COMM_REDUCE; groups of the same ranks share them.  Shard alone has none where
 * context exceeds 1.  With COMM_INTER_NODE_MPI groups along replicate have none where that exceeds
 * 1: they offer all-reduce, by MPI. */
int mesh_attach(struct mesh *mesh, struct world *world, struct device *device, struct mem *mem,
                const struct mesh_options *options, struct error *err);

/* Let waits for peers last while progress(arg), called by the thread that issues transfers,
 * changes: a transfer may be enqueued behind much that the GPU computes.  progress NULL: time alone
 * counts, as at the start.  Nothing is done on CPUs. */
typedef int64_t mesh_progress(void *arg);
void mesh_set_progress(struct mesh *mesh, mesh_progress *progress, void *arg);

/* Returns the bytes of device memory (POOL_COMM) that mesh_attach() allocates on every rank,
 * without NCCL's own buffers; pure. */
size_t mesh_device_staging_bytes(const struct mesh_shape *shape,
                                 const struct mesh_options *options);

/* Estimate the bytes of device memory to keep free for NCCL's own buffers, of one communicator for
 * each group and stream; pure.  The estimate is from logs of nodes of eight H100, and for nodes of
 * eight ranks.  NCCL does not report beforehand what it will take, so callers look at what is left
 * once the mesh is attached. */
size_t mesh_reserve_bytes(const struct mesh_shape *shape, const struct mesh_options *options);

/* Returns the bytes of pinned host memory (POOL_HOST) that mesh_attach() allocates on every rank;
 * pure. */
size_t mesh_host_staging_bytes(const struct mesh_shape *shape, const struct mesh_options *options);

/* Allocate device memory that transfers will read and write, counted in mem: by device_alloc(); by
 * NCCL where gathers go by copy engines (mesh_options.copy_engines); on a CPU, where the node has
 * other ranks, as memory that these can read (node_memory.h), if the kernel has such memory in huge
 * pages.  mesh may be NULL.  Not collective.  Returns memory to be freed by mesh_free() before the
 * mesh is destroyed, or NULL with err set. */
void *mesh_alloc(struct mesh *mesh, struct device *device, struct mem *mem, enum mem_pool pool,
                 size_t bytes, struct error *err);
void mesh_free(struct mesh *mesh, struct device *device, struct mem *mem, enum mem_pool pool,
               size_t bytes, void *block); /* NULL allowed */

/* Register the memory that transfers will read and write: on a GPU with NCCL, so that networks can
 * reach it directly; on a CPU with the other ranks of the node, which then read it where it lies in
 * all-gathers and reduce-scatters.  Collective over world: every rank makes as many calls in the
 * same order, with memory NULL where it has none.  At most MESH_REGISTERED ranges at a time.  On a
 * CPU, and with copy engines, the memory has to be mesh_alloc()'s; with copy engines of as many
 * bytes on every rank of a group that gathers.
 * Returns 1 if all ranks that have memory registered it; 0 if not, in which case transfers work all
 * the same, as on a mesh without communicators; or, with copy engines, -1 with err set on all ranks
 * if the memory is not as above or GPUs cannot read each other's. */
enum { MESH_REGISTERED = 16 };
int mesh_register(struct mesh *mesh, void *memory, size_t bytes, struct error *err);

/* Undo mesh_register(), before the memory is freed; with memory NULL all calls of this mesh that
 * had none.  Memory that is not registered is allowed.  Not collective. */
void mesh_unregister(struct mesh *mesh, void *memory);

/* Check whether a transfer of an attached mesh has failed (a peer died, the network broke). Returns
 * 0, or -1 with err naming group, rank and node; does not wait.  Any thread may call it, but not
 * while another starts an operation. */
int mesh_poll(struct mesh *mesh, struct error *err);

/* End what an attached mesh has under way, after a failure, without waiting for peers longer than a
 * few seconds.  Where NCCL does not end it, the GPU is given up (device_give_up()).  Afterwards
 * only mesh_poll() and mesh_destroy() may be called on the mesh.  Any thread may call it. */
void mesh_abandon(struct mesh *mesh);

/* Write NCCL's version into text, "2.28.9", with the one it was built for where that differs, or
 * "none" in a build without NCCL; returns text. */
const char *mesh_gpu_library(char text[96]);

/* Return what is wrong with that version where nodes with this one's processors exchange, as text
 * that goes on after its name ("can hang ..."), or NULL where nothing is known. */
const char *mesh_gpu_library_fault(void);

/* ---- shape and groups of a mesh ---- */

struct mesh_shape mesh_shape(const struct mesh *mesh); /* resolved */
struct mesh_coord mesh_coord(const struct mesh *mesh); /* of this rank */

/* Returns the group of this rank along a set of axes: one axis, MESH_SHARDS or MESH_DATA.  It
 * belongs to the mesh.  NULL: the set is empty, or mesh_has() says that there is no such group. */
struct group *mesh_group_of(const struct mesh *mesh, unsigned axes);
struct group *mesh_group(const struct mesh *mesh, enum mesh_axis axis);

/* Returns the bytes of POOL_COMM that the groups of a mesh of this (resolved) shape allocate on
 * every rank; pure. Sets of axes that have the same ranks share one group. */
size_t mesh_staging_bytes(const struct mesh_shape *shape);

#endif
