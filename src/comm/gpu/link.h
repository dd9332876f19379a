/* link.h - what ties the groups of a mesh to a GPU.
 *
 * Private to comm/: mesh.c's side of it, which does not know CUDA.  link.c in a build with CUDA,
 * link_absent.c in one without.
 */
#ifndef TRIREME_COMM_GPU_LINK_H
#define TRIREME_COMM_GPU_LINK_H

#include "comm/mesh.h"

struct link;

enum { LINK_DATA = MESH_AXES, LINK_GROUPS };

struct link_request {
    struct mesh_shape shape;
    struct mesh_coord coord;
    struct group *group[LINK_GROUPS]; /* LINK_DATA: NULL where it is one of the others */
    struct world *world;
    struct device *device;
    struct mem *mem;
    struct mesh_options options;
    size_t device_staging_bytes, host_staging_bytes; /* two halves each */
};

/* mesh_attach().  The groups are the request's; link_close() before they are destroyed. */
int link_open(struct link **link, const struct link_request *request, struct error *err);
void link_close(struct link *link); /* NULL allowed */

/* The functions of mesh.h of these names. */
int link_register(struct link *link, void *memory, size_t bytes);
void link_unregister(struct link *link, void *memory);
int link_poll(struct link *link, struct error *err);
void link_abandon(struct link *link);
const char *link_library(char text[96]);

/* Set the environment in which NCCL lets ranks share a GPU, before it starts. */
void link_share_gpu(const struct world *world);

#endif
