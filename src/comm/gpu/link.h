/* link.h - the inside of a mesh, and the link between its groups and a GPU.
 *
 * Private to comm/.  This header is what mesh.c knows of a link; channel.h has the rest.  link.c
 * and mesh_channels.c define the functions of mesh.h for GPUs; nccl_state.c and nccl_settings.c
 * define those that need NCCL, or nccl_absent.c in a build without NCCL.
 */
#ifndef TRIREME_COMM_GPU_LINK_H
#define TRIREME_COMM_GPU_LINK_H

#include "comm/mesh.h"

struct link;

struct mesh {
    struct world *world; /* NULL: this process alone */
    int keeps_apart;     /* mesh_options.keep_apart */
    struct mesh_shape shape;
    struct mesh_coord coord;
    struct group *group[MESH_SETS]; /* by the bits of axes; NULL: no group of its own */
    struct link *link;              /* to the GPU; NULL: on CPUs, or not attached */
};

/* What one communicator is made for: a group, named by its axes, on one stream.  A mesh has at most
 * MESH_COLLECTIVES channels for collectives and COMM_POINTS for messages between stages. */
enum { MESH_COLLECTIVES = 9, MESH_CHANNELS = MESH_COLLECTIVES + COMM_POINTS };
struct mesh_channel {
    unsigned axes;
    enum comm_stream stream;
};

/* List the channels of a mesh of this shape, in the order in which their communicators are made.
 * Depends on the arguments alone.  Returns how many there are. */
int mesh_channels(const struct mesh_shape *shape, const struct mesh_options *options,
                  struct mesh_channel list[MESH_CHANNELS]);

/* Return 1 where the channel is on the reduce stream and any two of its ranks may send parts to one
 * another on it (all-to-alls, and sums in 16 bits), else 0. */
int mesh_swaps(const struct mesh_options *options, const struct mesh_channel *channel);

/* Return the fewest and the most thread blocks that NCCL may use for the channel's communicator; 0:
 * NCCL chooses.  Depend on the arguments alone. */
int mesh_least_ctas(const struct mesh_options *options, const struct mesh_channel *channel);
int mesh_most_ctas(const struct mesh_options *options, const struct mesh_channel *channel);

/* Return 1 where sums over the group of these axes go through host memory and MPI (staged.c). */
int mesh_is_staged(const struct mesh_shape *shape, const struct mesh_options *options,
                   unsigned axes);

/* Detach the mesh's groups from the GPU, end the communicators and free the link; NULL allowed.
 * Collective, unless the link was abandoned.  Where a communicator could not be ended, the link's
 * memory stays allocated, because a thread or the GPU may still use it. */
void link_close(struct link *link);

/* Set the environment variables with which NCCL lets ranks share a GPU.  To be called before any
 * communicator is made; variables that are set already stay.  Without NCCL it does nothing. */
void link_share_gpu(const struct world *world);

#endif
