/* nccl.h - communicators of a link.
 *
 * Private to comm/: nccl.c and the files nccl_*.c, or nccl_absent.c in a build without NCCL.
 *
 * Every rank makes the same calls in the same order: the root communicator (of all ranks; where
 * sums over replicas go by MPI, of the ranks of one replica), one split of it per channel, the
 * root's end, a first transfer on each channel.  Later calls come from the one thread that
 * enqueues, in program order.  Communicators do not block: a call that has to wait for peers
 * returns, and is asked for until the link's time is up.
 */
#ifndef TRIREME_COMM_GPU_NCCL_H
#define TRIREME_COMM_GPU_NCCL_H

#include "comm/gpu/channel.h"

/* Make the communicators of link's channels.  Collective over world; fails on all ranks. */
int nccl_start(struct link *link, struct error *err);

/* End them: what was issued is completed first, unless it was abandoned. */
void nccl_stop(struct link *link);

/* Memory of the GPU that can be a window of all ranks; NULL where there is none. */
void *nccl_alloc(size_t bytes);
void nccl_free(void *block);

/* mesh_poll() and link_abandon() for the communicators. */
int nccl_poll(struct link *link, struct error *err);
void nccl_abandon(struct link *link);

#endif
