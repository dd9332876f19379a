/* channel.h - the inside of a link: its channels, staging memory and first failure.
 *
 * Private to comm/.  A channel is the communicator of one group for one stream.  For example a mesh
 * with shard degree 8 has a channel "group shard (gather)" and a channel "group shard (reduce)", so
 * that gathers of parameters and sums of gradients can run beside each other.
 */
#ifndef TRIREME_COMM_GPU_CHANNEL_H
#define TRIREME_COMM_GPU_CHANNEL_H

#include <pthread.h>

#include "base/clock.h"
#include "comm/gpu/link.h"
#include "comm/transport.h"
#include "device/device.h"

struct channel {
    struct link *link;
    struct group *group; /* NULL: the root, from which the other communicators are split */
    enum comm_stream stream;
    int swaps;                 /* 1: on the reduce stream, members send parts to one another */
    int least_ctas, most_ctas; /* thread blocks that NCCL may use; 0: NCCL chooses */
    char name[64];             /* for errors: "group shard (reduce)" */
    void *comm;                /* ncclComm_t, or NULL; the thread that enqueues uses it, and another
                                  thread takes it away, or asks for its state, under link->lock */
};

struct staged;

enum { PIECE_EVENTS = 4 };

struct link {
    const struct mesh *mesh; /* its groups are carried by `device`; outlives the link */
    struct world *world;
    struct device *device;
    struct mem *mem;
    struct mesh_options options;
    size_t device_staging_bytes, host_staging_bytes; /* each in two halves */
    struct channel channel[MESH_CHANNELS];
    struct channel root;     /* its communicator is split into the others, and ended after that */
    int channels;            /* entries of `channel` in use */
    char *staging;           /* device memory in two halves; after the start, reduce stream only */
    struct staged *staged;   /* sums over replicas by MPI; NULL: by NCCL */
    mesh_progress *progress; /* mesh_set_progress(); NULL: not known */
    void *progress_arg;
    unsigned pieces; /* of sums, enqueued so far on the reduce stream (pieces.c) */
    struct device_event *piece_event[PIECE_EVENTS]; /* recorded before the first piece of a
                                                       block; never NULL in a step */
    struct operation *held[GROUP_MESSAGES];         /* messages to be given to NCCL as one group */
    int messages_held;
    void *registered[MESH_REGISTERED];            /* start of each range; NULL: a free place */
    void *handle[MESH_REGISTERED][MESH_CHANNELS]; /* of ncclCommRegister(); NULL: none */
    void *window[MESH_REGISTERED][MESH_CHANNELS]; /* ncclWindow_t; NULL: none */

    pthread_mutex_t lock; /* guards the fields below, and calls that ask NCCL for a state */
    int abandoned, hung;  /* hung: a communicator could not be ended, so nothing can be freed */
    struct error err;     /* the first failure; empty text: none */
};

/* Return where half 0 or 1 of the device's staging begins. */
static inline char *link_staging(const struct link *l, int half)
{
    return l->staging + (size_t)half * (l->device_staging_bytes / 2);
}

_Static_assert(DEVICE_POINT_7 - DEVICE_GATHER == (int)COMM_POINT_7, "streams in the same order");

/* Return the device's stream on which transfers of a comm_stream run. */
static inline enum device_stream link_stream(enum comm_stream stream)
{
    return (enum device_stream)(DEVICE_GATHER + (int)stream);
}

/* Return the device on which an operation runs, and (op_stream()) its stream there. */
static inline struct device *op_device(const struct operation *op)
{
    return op->group->link->device;
}

static inline enum device_stream op_stream(const struct operation *op)
{
    return link_stream((enum comm_stream)op->queue);
}

/* Enqueue a copy of `bytes` bytes on the operation's stream.  Returns GIVEN, or FAILED with op->err
 * set to "WHAT: ...". */
int channel_copy(struct operation *op, void *to, const void *from, int64_t bytes, const char *what);

/* pieces.c: channel_begin_piece() is to be called before each piece of a sum is enqueued on the
 * reduce stream; it waits while too many are enqueued and not done, for link_hang_ns() without
 * progress at most, and returns GIVEN, or FAILED with op->err set.  link_open_pieces() makes what
 * that needs, for link_close_pieces() also after a failure, and returns 0, or -1 with err set. */
int link_open_pieces(struct link *l, struct error *err);
void link_close_pieces(struct link *l);
int channel_begin_piece(struct operation *op);

/* Return how long to wait for a peer, in ns: run.hang_seconds (0: for ever) once world_watch() has
 * set it, before that 600 s. */
int64_t link_hang_ns(const struct link *l);

/* A limit on how long to wait without progress of this rank (mesh_set_progress()): what is waited
 * for may be enqueued behind much that computes.  link_limit_begin() starts it, and
 * link_limit_is_over() returns 1 once most_ns (0: never) have passed since then and since the last
 * progress, but for time in which the job was suspended.  To be asked several times a second. */
struct link_limit {
    struct clock_awake awake;
    int64_t most_ns, since_ns, progress;
};
struct link_limit link_limit_begin(const struct link *l, int64_t most_ns);
int link_limit_is_over(const struct link *l, struct link_limit *limit);

/* Return the stream's name for errors: "gather", "reduce", "point 1". */
const char *comm_stream_name(enum comm_stream stream);

/* End the transfers that are under way, as mesh_abandon() describes.  Any thread; a second call
 * does nothing. */
void link_abandon(struct link *l);

/* mesh_poll() of a link: ask the communicators whether a peer died or the network broke.  Returns
 * 0, or, where that is so, or a failure was kept before, -1 with err set to the first failure. Does
 * not wait. */
int link_poll(struct link *l, struct error *err);

/* Keep a failure for mesh_poll(), unless an earlier one is kept.  Any thread. */
void link_note(struct link *l, const struct error *err);

/* Return 0, or, where the link was abandoned, -1 with err set to the failure that was kept.  err
 * may be NULL. */
int link_check(struct link *l, struct error *err);

/* Return 0, or, where a failure was kept or the link was abandoned, -1 with err set to it.  err may
 * be NULL. */
int link_failed(struct link *l, struct error *err);

/* staged.c: sums over replicas by MPI.  None of these is collective.  staged_open() allocates
 * pinned host memory and returns 0, or -1 with err set; in either case the caller frees *staged by
 * staged_close().  After staged_abandon() no further sum is started, and staged_close() leaves the
 * memory allocated, because a transfer may still read or write it. */
int staged_open(struct staged **staged, struct link *link, struct error *err);
void staged_close(struct staged *staged); /* NULL allowed */
void staged_abandon(struct staged *staged);

#endif
