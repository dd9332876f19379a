/* nccl_call.h - calls and types that the files nccl*.c share.  Private to them. */
#ifndef TRIREME_COMM_GPU_NCCL_CALL_H
#define TRIREME_COMM_GPU_NCCL_CALL_H

#include <nccl.h>

#include "comm/gpu/nccl.h"

static inline ncclComm_t comm_of(const struct channel *c)
{
    return c->comm;
}

/* Return the CUDA stream on which NCCL enqueues the transfers of a channel. */
static inline cudaStream_t nccl_stream(const struct channel *c)
{
    return device_stream_native(c->link->device, link_stream(c->stream));
}

/* Set err to what NCCL says of code: "WHAT in group shard (reduce), rank 3 on node7: ...".  Returns
 * -1.  err may be NULL here and below. */
int nccl_failed(const struct channel *c, const char *what, ncclResult_t code, struct error *err);

/* Wait, after a call of NCCL that returned code, until c's communicator can be called again.  Only
 * the first transfers of a kind, which make connections, take time.  Waits for link_hang_ns()
 * without progress at most.  Returns 0, or -1 with err set. */
int nccl_wait_for_call(struct channel *c, const char *what, ncclResult_t code, struct error *err);

/* Return whether c's communicator can be called now (READY), not yet (WAITS), or never again
 * (BROKEN, with err set).  Does not wait. */
enum nccl_state { NCCL_READY, NCCL_WAITS, NCCL_BROKEN };
enum nccl_state nccl_state_of(struct channel *c, const char *what, struct error *err);

/* Set err to the failure of a wait for peers that took ns.  Returns -1. */
int nccl_too_long(const struct channel *c, const char *what, int64_t ns, struct error *err);

/* Pause in a loop that waits; times counts its rounds.  Returns at once in the first 2,000 of them,
 * later after 50 us. */
void nccl_nap(int64_t times);

/* Return the version of the NCCL that is loaded (22803 is 2.28.3), or 0 where it does not say. */
int nccl_version(void);

/* nccl_settings.c: check that this NCCL, environment and machine can do what the link's options ask
 * for, then set NCCL's environment variables.  Collective over world; to be called before any
 * communicator is made.  Returns 0, or -1 on all ranks with err set and the environment as it was.
 */
int nccl_prepare(struct link *l, struct error *err);

/* Return the configuration with which c's communicator is made. */
ncclConfig_t nccl_config(const struct channel *c);

/* nccl_register.c: return 1 where copy engines do the gathers of channel c, else 0. */
int nccl_gathers_by_copies(const struct channel *c);

/* nccl_newer.c, for NCCL 2.28 and newer.  nccl_config_newer() fills the settings that older
 * versions lack; copies: 1 where copy engines do the gathers.  nccl_window_open() makes memory a
 * window of c and is collective over c's group; nccl_wait_for_call() has to follow, after which
 * *window is the window, or, where GPUs do not reach each other's memory, NULL or the handle of a
 * plain registration. */
void nccl_config_newer(ncclConfig_t *config, const struct channel *c, int copies);
ncclResult_t nccl_window_open(const struct channel *c, void *memory, size_t bytes, void **window);
void nccl_window_close(const struct channel *c, void *window);

/* Complete the transfers enqueued on c's communicator and free it; c->comm may be NULL.  Waits 30 s
 * at most.  Returns 0, or -1 with err set. */
int nccl_end(struct channel *c, struct error *err);

/* A swap: every member of a group sends a part to every other.  Data of `total` bytes is divided
 * into one part per member: part m is the `part` bytes from m * part on, less where total ends
 * earlier.
 *
 *   SWAP_OUT   this rank sends part m, which lies at from + m * from_step, to member m, and
 *              receives its own part as member m has it, at into + m * into_step
 *   SWAP_BACK  this rank sends its own part, which lies at from, to every member, and receives
 *              part m from member m, at into + m * into_step
 *
 * A member sends nothing to itself. */
enum nccl_swap_way { SWAP_OUT, SWAP_BACK };

struct nccl_swap {
    const char *from;
    char *into;
    int64_t from_step, into_step, part, total; /* bytes */
};

/* Enqueue the exchange on c.  Returns NCCL's code, for nccl_wait_for_call(). */
ncclResult_t nccl_swap(struct channel *c, const struct nccl_swap *swap, enum nccl_swap_way way);

#endif
