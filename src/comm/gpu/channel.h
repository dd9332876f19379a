/* channel.h - inside a link: streams, staging, communicators.
 *
 * Private to comm/.  A channel is a group's communicator for one stream.
 */
#ifndef TRIREME_COMM_GPU_CHANNEL_H
#define TRIREME_COMM_GPU_CHANNEL_H

#include <pthread.h>

#include "comm/gpu/link.h"
#include "comm/transport.h"
#include "device/device.h"

struct channel {
    struct link *link;
    struct group *group; /* NULL: all ranks it was split from */
    enum comm_stream stream;
    int messages;              /* 1: on the reduce stream, its members send one another parts */
    int least_ctas, most_ctas; /* thread blocks; 0: as NCCL chooses */
    char name[64];             /* "group shard (reduce)" */
    void *comm;                /* ncclComm_t; under the lock, and of the thread that enqueues */
};

struct staged;

struct link {
    const struct mesh *mesh; /* whose groups it ties to device; outlives the link */
    struct world *world;
    struct device *device;
    struct mem *mem;
    struct mesh_options options;
    size_t device_staging_bytes, host_staging_bytes; /* two halves each */
    struct channel channel[MESH_CHANNELS];
    struct channel root; /* what the others are split from; gone afterwards */
    int channels;
    char *staging;         /* of the device: two halves; used on the reduce stream alone */
    struct staged *staged; /* sums by MPI, or NULL */
    struct operation *held[GROUP_MESSAGES];
    int messages_held;
    void *registered[MESH_REGISTERED];
    void *handle[MESH_REGISTERED][MESH_CHANNELS];
    void *window[MESH_REGISTERED][MESH_CHANNELS]; /* ncclWindow_t; NULL: none */

    pthread_mutex_t lock; /* of the following, and of asking NCCL how it is */
    int abandoned, hung;  /* hung: what was abandoned did not end, so nothing can be freed */
    struct error err;     /* the first failure, for those who ask later */
};

/* One half of the staging. */
static inline char *link_staging(const struct link *l, int half)
{
    return l->staging + (size_t)half * (l->device_staging_bytes / 2);
}

static inline enum device_stream link_stream(enum comm_stream stream)
{
    return (enum device_stream)(DEVICE_GATHER + (int)stream);
}

/* The device and its stream that an operation is given to. */
static inline struct device *op_device(const struct operation *op)
{
    return op->group->link->device;
}

static inline enum device_stream op_stream(const struct operation *op)
{
    return link_stream((enum comm_stream)op->queue);
}

/* Have the operation's stream copy; where that fails `what` is put before the text.  Returns GIVEN
 * or FAILED. */
int channel_copy(struct operation *op, void *to, const void *from, int64_t bytes, const char *what);

/* "gather", "reduce", ... as messages name a stream. */
const char *comm_stream_name(enum comm_stream stream);

/* End what is under way, as mesh_abandon() says. */
void link_abandon(struct link *l);

/* Keep a failure for mesh_poll(); the first one stays. */
void link_note(struct link *l, const struct error *err);

/* Fail with what was noted where the link was abandoned; else 0. */
int link_check(struct link *l, struct error *err);

/* Fail where anything was noted or the link was abandoned; else 0. */
int link_failed(struct link *l, struct error *err);

/* staged.c: sums over replicas by MPI.  Not collective.  staged_open() returns 0, or -1 with err
 * set; in either case *staged is for staged_close().  After staged_abandon() nothing more is
 * started, and staged_close() leaves the memory to what may still be under way in it. */
int staged_open(struct staged **staged, struct link *link, struct error *err);
void staged_close(struct staged *staged); /* NULL allowed */
void staged_abandon(struct staged *staged);

#endif
