/* link.h - a mesh inside, and what ties its groups to a GPU.
 *
 * Private to comm/: mesh.c's side of it.  The functions of mesh.h for GPUs are in link.c, and what
 * is NCCL's alone in nccl_start.c and nccl_state.c, or in nccl_absent.c in a build without NCCL.
 */
#ifndef TRIREME_COMM_GPU_LINK_H
#define TRIREME_COMM_GPU_LINK_H

#include "comm/mesh.h"

struct link;

struct mesh {
    struct mesh_shape shape;
    struct mesh_coord coord;
    struct group *group[MESH_SETS]; /* by axes; NULL: none of its own */
    struct link *link;              /* to a GPU, or NULL */
};

/* What has a communicator: a group by its axes, and a stream.  MESH_CHANNELS: at most so many, of
 * collectives and of messages (mesh_channels()). */
enum { MESH_COLLECTIVES = 9, MESH_CHANNELS = MESH_COLLECTIVES + COMM_POINTS };
struct mesh_channel {
    unsigned axes;
    enum comm_stream stream;
};

/* Those of a shape, in the order in which they are made; pure.  Returns how many. */
int mesh_channels(const struct mesh_shape *shape, const struct mesh_options *options,
                  struct mesh_channel list[MESH_CHANNELS]);

/* Does a channel carry messages between any two of its ranks, on the reduce stream? */
int mesh_has_messages(const struct mesh_options *options, const struct mesh_channel *channel);

/* Thread blocks that a channel's communicator has at least, and at most; 0: as NCCL chooses.  Pure.
 */
int mesh_least_ctas(const struct mesh_options *options, const struct mesh_channel *channel);
int mesh_most_ctas(const struct mesh_options *options, const struct mesh_channel *channel);

/* Do sums over a group go through host memory? */
int mesh_is_staged(const struct mesh_shape *shape, const struct mesh_options *options,
                   unsigned axes);

void link_close(struct link *link); /* NULL allowed */

/* Set the environment in which NCCL lets ranks share a GPU, before it starts. */
void link_share_gpu(const struct world *world);

#endif
