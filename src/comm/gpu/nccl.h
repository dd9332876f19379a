/* nccl.h - start, watch and end the NCCL communicators of a link.
 *
 * Private to comm/.  Defined in the files nccl_*.c, or in nccl_absent.c in a build without NCCL.
 *
 * Every rank makes the same calls in the same order: it makes the root communicator (of all ranks,
 * or of the ranks of one replica where sums over replicas go by MPI), splits one communicator off
 * it per channel, ends the root, and makes a first transfer on each channel.  Later calls come from
 * the one thread that enqueues, in program order.  Communicators do not block: a call that has to
 * wait for peers returns "in progress", and the caller asks for its state until it is done or
 * link_hang_ns() have passed without progress.
 */
#ifndef TRIREME_COMM_GPU_NCCL_H
#define TRIREME_COMM_GPU_NCCL_H

#include "comm/gpu/channel.h"

/* Make the communicators of the link's channels and try each with a few bytes.  Collective over
 * world.  Returns 0, or -1 on all ranks with err set; the caller then abandons the link, whose
 * communicators may be half made. */
int nccl_start(struct link *link, struct error *err);

/* Complete the transfers that were enqueued and free the communicators; a link that was abandoned,
 * or on which this fails, is abandoned instead.  Every member of a communicator calls. */
void nccl_stop(struct link *link);

/* Allocate GPU memory that can be made a window (nccl_register.c), for nccl_free().  Returns NULL
 * where NCCL has none. */
void *nccl_alloc(size_t bytes);
void nccl_free(void *block);

/* mesh_register() and mesh_unregister() of a mesh that is attached to a GPU. */
int nccl_register(struct link *link, void *memory, size_t bytes, struct error *err);
void nccl_unregister(struct link *link, void *memory);

/* The parts of mesh_poll() and of link_abandon() that concern communicators.  nccl_poll() returns
 * 0, or -1 with err set where one of them has failed; it does not wait. */
int nccl_poll(struct link *link, struct error *err);
void nccl_abandon(struct link *link);

#endif
