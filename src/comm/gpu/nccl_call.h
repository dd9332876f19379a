/* nccl_call.h - what the files that call NCCL share.  Private to them. */
#ifndef TRIREME_COMM_GPU_NCCL_CALL_H
#define TRIREME_COMM_GPU_NCCL_CALL_H

#include <nccl.h>

#include "comm/gpu/nccl.h"

static inline ncclComm_t comm_of(const struct channel *c)
{
    return c->comm;
}

/* NCCL is given CUDA's own streams. */
static inline cudaStream_t nccl_stream(const struct channel *c)
{
    return device_stream_native(c->link->device, link_stream(c->stream));
}

/* Fail with what NCCL says: "WHAT, rank 3 on node7: ...". */
int nccl_failed(const struct channel *c, const char *what, ncclResult_t code, struct error *err);

/* After a call that returned code: wait until the communicator can be called again, which is at
 * once but for the first transfers of a kind.  Returns 0, or -1 with err set. */
int nccl_settle(struct channel *c, const char *what, ncclResult_t code, struct error *err);

/* Ready to be called, not yet, or never again with err set.  Does not wait. */
enum nccl_state { NCCL_READY, NCCL_WAITS, NCCL_BROKEN };
enum nccl_state nccl_state_of(struct channel *c, const char *what, struct error *err);

/* How long all may wait for a peer, and what is said then; returns -1. */
int64_t nccl_patience_ns(const struct link *l);
int nccl_too_long(const struct channel *c, const char *what, int64_t ns, struct error *err);

/* In a loop that waits: return at once the first times, then sleep a little. */
void nccl_nap(int times);

int nccl_version(void);

/* nccl_settings.c: refuse what this NCCL, environment or machine does not have of the link's
 * options, then set NCCL's environment.  Collective; to come before any other call of NCCL. */
int nccl_prepare(struct link *l, struct error *err);

/* What a communicator is made with. */
ncclConfig_t nccl_config(const struct channel *c);

/* nccl_register.c: 1 where c is a communicator whose gathers go by copy engines. */
int nccl_gathers_by_copies(const struct channel *c);

/* nccl_newer.c, for versions that have it: the rest of a configuration, copies: of one whose
 * gathers go by copy engines; a window of all members of c, to be followed by nccl_settle(), after
 * which it may be NULL, or the handle of a registration, where GPUs do not reach each other. */
void nccl_config_newer(ncclConfig_t *config, const struct channel *c, int copies);
ncclResult_t nccl_window_open(const struct channel *c, void *memory, size_t bytes, void **window);
void nccl_window_close(const struct channel *c, void *window);

/* Complete what was issued on one communicator and free it; NULL comm allowed. */
int nccl_end(struct channel *c, struct error *err);

/* Messages with every other member: part m of the others' is `part` bytes long but for the last
 * ones, which are cut off at total.  OUT: member m gets this rank's [from + m * from_step], and
 * this rank gets everybody's part of its own number, at into + m * into_step.  BACK: everybody
 * gets this rank's part, which is at from. */
enum nccl_swap_way { SWAP_OUT, SWAP_BACK };

struct nccl_swap {
    const char *from;
    char *into;
    int64_t from_step, into_step, part, total; /* bytes */
};

/* To be followed by nccl_settle(). */
ncclResult_t nccl_swap(struct channel *c, const struct nccl_swap *swap, enum nccl_swap_way way);

#endif
