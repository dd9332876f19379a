/* transport.h - what the files of comm/ share: groups inside, transfers, kinds.
 *
 * Private to comm/.  A kind of operation (all-gather, ...) is a numbered list of transfers,
 * computed when needed; a transport carries the list out.  Transfers are posted and retired
 * in order, so two members that compute matching lists cannot mismatch.  Where memory is a GPU's,
 * a transport gives each operation whole to a stream instead.
 */
#ifndef TRIREME_COMM_TRANSPORT_H
#define TRIREME_COMM_TRANSPORT_H

#include <mpi.h>
#include <pthread.h>

#include "comm/group.h"
#include "comm/operation.h"
#include "comm/thread.h"
#include "comm/watch.h"

enum { HOST_NAME = 64 };

struct world {
    struct mem *mem;
    struct thread *thread;
    MPI_Comm comm;       /* of every message */
    struct group *whole; /* all ranks, for QUEUE_CONTROL only */
    int rank, size, node, nodes, local_rank, local_size;
    int cores, core_sharers; /* world_cores(), world_core_sharers() */
    int splits;     /* the number of groups made so far, from which each gets its own tags */
    int tag_max;    /* of the MPI library */
    int patience_s; /* atomic: the main thread sets it, the communication thread reads it */
    struct watch *watch;
    char host[256];
    char (*hosts)[HOST_NAME]; /* of every rank, cut short */
    int *lowest;              /* rank of each node */
    char library[128];
};

enum comm_call {
    CALL_ALL_GATHER,
    CALL_REDUCE_SCATTER,
    CALL_ALL_REDUCE,
    CALL_ALL_TO_ALL,
    CALL_BROADCAST, /* of world_broadcast() alone, which has host memory */
    CALL_SEND,
    CALL_RECV,
    CALLS
};

/* What enqueue returns. */
enum { GIVEN = 0, FAILED = -1, HELD = 1 };

/* Carries out operations of a group; one row each.  On host memory (self.c, mpi.c) step does it,
 * on the communication thread; on a GPU's memory (gpu_self.c, nccl.c, staged.c) enqueue, which
 * returns GIVEN, FAILED with op->err set, or HELD: to be given together with those that follow,
 * by flush at the latest. */
struct transport {
    const char *name;
    int (*step)(struct operation *op);           /* STEP_...; NULL on a GPU */
    int (*enqueue[CALLS])(struct operation *op); /* NULL: not offered */
    void (*flush)(struct group *g);              /* NULL: nothing is ever held */
};

extern const struct transport transport_self, transport_mpi;
extern const struct transport transport_gpu_self, transport_nccl, transport_staged;

/* Working memory of a group on one queue. */
struct queue_area {
    void **request; /* 2 * window */
    char *slots;    /* 2 * (size - 1) slots of slot_bytes */
};

struct group {
    const struct transport *transport;
    struct world *world; /* NULL: group_self() without one */
    struct mem *mem;     /* that block is counted in; NULL: not counted */
    int rank, size;
    int *ranks; /* of the world, by member */
    int tag;    /* of queue 0; the other queues follow */
    int window; /* transfers in flight on a queue */
    size_t slot_bytes;
    struct queue_area area[QUEUES];
    char *name;
    void *block; /* ranks and areas */
    size_t block_bytes;
    struct link *link;                     /* to a GPU; NULL: memory is the host's */
    struct channel *channel[COMM_STREAMS]; /* by NCCL; NULL: none for that stream */
    pthread_mutex_t lock;                  /* of the two lists */
    struct operation *newest; /* the last of all that were made (older leads to the others) */
    struct operation *unused; /* the first of those that can be taken */
};

/* One message out and one in; 0 bytes is none. */
struct transfer {
    const char *from;
    char *into;
    int64_t from_bytes, into_bytes;
    int to, source; /* members */
};

struct comm_kind {
    const char *name;
    enum comm_call call;
    int message;                        /* between two members */
    void (*plan)(struct operation *op); /* set piece and total */
    /* The first transfer that may not be posted yet, though the window allows it; NULL: none. */
    int64_t (*limit)(const struct operation *op);
    void (*transfer)(const struct operation *op, int64_t index, struct transfer *x);
    void (*retired)(struct operation *op, int64_t index); /* NULL: nothing to do */
    void (*alone)(struct operation *op); /* all of it in a group of one; NULL: nothing to do */
};

/* kind_all_gather_doubling: on the host, of little data among many members.  recv, [size][elems],
 * has this member's part first, where the caller has put it, and then those of the next members,
 * member 0's behind the last one's. */
extern const struct comm_kind kind_all_gather, kind_all_gather_doubling, kind_reduce_scatter,
    kind_all_reduce, kind_all_reduce_small, kind_all_to_all, kind_broadcast, kind_send, kind_recv;

static inline int transport_is_message(const struct operation *op)
{
    return op->kind && op->kind->message;
}

/* Elements of one member's share in a batch of an all-reduce of elems, whose slots hold slot_elems.
 */
int64_t transport_share(int64_t elems, int size, int64_t slot_elems);

/* Whether message b may start while the message a before it is under way. */
int transport_independent(const struct operation *a, const struct operation *b);

/* Whether an all-reduce is so small that all terms go to every member. */
int group_sum_is_small(int size, int64_t elems, enum dtype dtype);

/* All ranks of world, for its control queue; for group_destroy(). */
struct group *group_whole(struct world *world);

/* All-reduce of host memory, whatever transport the group has. */
void group_all_reduce_host(struct group *g, int queue, struct comm_op *op, void *data,
                           int64_t elems, enum dtype dtype, enum group_reduction reduction);

/* The rank of the world that op waits for now, or -1. */
int transport_waits_for(const struct operation *op);

/* End the job from the communication thread; see world_abort(). */
void world_end_all(int code) __attribute__((noreturn));

/* What op is and whom it waits for, for a person. */
void transport_describe(const struct operation *op, char *text, size_t bytes);

#endif
