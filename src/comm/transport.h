/* transport.h - private to comm/: struct world and struct group, operations as lists of transfers,
 * and the transports that carry these out.
 *
 * A kind of operation (all-gather, ...) is a numbered list of transfers, each at
 * most one message out and one in, which its functions compute when they are needed:
 *
 *     kind->plan(op)                 how many transfers
 *     kind->transfer(op, i, &x)      what transfer i sends to whom, and receives from whom
 *     kind->retired(op, i)           transfer i is complete: add up, or copy
 *
 * A transport carries the list out.  It posts and retires transfers in order, so that members who
 * compute matching lists cannot mismatch.  Where memory is a GPU's, a transport gives each
 * operation whole to a stream instead.
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
    MPI_Comm comm;                                       /* of every message */
    struct group *whole;                                 /* all ranks, for QUEUE_CONTROL only */
    int rank, size, node, nodes, local_rank, local_size; /* as world.h's functions return them */
    int cores, core_sharers;                             /* world_cores(), world_core_sharers() */
    int splits;       /* number of groups made so far, which gives each group its own tags */
    int tag_max;      /* the largest tag that the MPI library takes */
    int is_watched;   /* 1: world_watch() has set hang_seconds; atomic */
    int hang_seconds; /* seconds of world_watch(); atomic: the main thread sets it, the
                       communication thread reads it */
    struct watch *watch;
    struct node_memory *node_memory; /* NULL: none was asked for yet */
    char host[256];                  /* name of this node */
    char (*hosts)[HOST_NAME];        /* name of every rank's node, cut to 63 characters */
    int *lowest;                     /* lowest rank of each node */
    char library[128];               /* world_library() */
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

/* What enqueue() did with an operation. */
enum {
    GIVEN = 0,   /* enqueued it */
    FAILED = -1, /* failed, with op->err set */
    HELD = 1 /* holds it, to enqueue it together with those that follow, by flush() at the latest */
};

/* A way of carrying out the operations of a group; there is one row for each. */
struct transport {
    const char *name;
    /* Host memory (self.c, mpi.c): advance op without blocking, on the communication thread.
     * Returns a STEP_... of thread.h.  NULL: the memory is a GPU's. */
    int (*step)(struct operation *op);
    /* A GPU's memory (gpu_self.c, nccl.c, staged.c): enqueue op.  NULL: this call is not offered.
     */
    int (*enqueue[CALLS])(struct operation *op);
    /* Enqueue the operations that are held.  NULL: none ever is. */
    void (*flush)(struct group *g);
};

extern const struct transport transport_self, transport_mpi;
extern const struct transport transport_gpu_self, transport_nccl, transport_staged;

/* Where this member and another one read each other's memory (exchange_read.c). */
struct queue_reads {
    uint64_t own, peer; /* addresses: of what this member gives to the other, and the reverse */
    const char *at;     /* where the other's is read; NULL: it comes by messages */
};

/* Working memory of a group on one queue. */
struct queue_area {
    void **request;            /* [2 * window] */
    struct queue_reads *reads; /* [size] */
    const char **term;         /* [size]: addresses of the terms of a batch */
    char *slots;               /* 2 * (size - 1) slots of slot_bytes */
};

struct group {
    const struct transport *transport;
    struct world *world; /* NULL: group_self() without one */
    struct mem *mem;     /* in which block is counted; NULL: not counted */
    int rank, size;      /* number of this member; how many members */
    int *ranks;          /* [size]: the rank of the world of each member */
    int tag;             /* MPI tag of queue 0; queue q has tag + q */
    int window;          /* transfers in flight on a queue, at most */
    size_t slot_bytes;
    struct queue_area area[QUEUES];
    char *name;
    void *block; /* memory of ranks and areas */
    size_t block_bytes;
    struct link *link;                     /* to a GPU; NULL: memory is the host's */
    struct channel *channel[COMM_STREAMS]; /* of NCCL; NULL: none for that stream */
    pthread_mutex_t lock;                  /* of the two lists below */
    struct operation *newest;              /* all operations made, linked by older */
    struct operation *unused;              /* those that are free to be taken, linked by next */
};

/* One message out and one in; of 0 bytes: no message. */
struct transfer {
    const char *from;               /* memory to be sent */
    char *into;                     /* memory to receive into */
    int64_t from_bytes, into_bytes; /* of the two messages */
    int to, source;                 /* the members that receive and send them */
    const char *at;                 /* where retired() reads what source gives, so that no message
                                       is received; NULL: one is */
    int is_read;                    /* 1: `to` reads, so that no message is sent */
    int is_notice;                  /* 1: what is sent is no payload */
};

struct comm_kind {
    const char *name;
    enum comm_call call;
    int message; /* 1: a message between two members; 0: a collective */
    /* Set op->piece and op->total. */
    void (*plan)(struct operation *op);
    /* Called on the communication thread before the first transfer, when the operations before this
     * one in its queue are complete.  NULL: nothing to do. */
    void (*begin)(struct operation *op);
    /* The kind of which this one is the form for members that read one another's memory
     * (exchange_read.c); NULL: all data go by messages. */
    const struct comm_kind *by_messages;
    /* Returns the number of the first transfer that may not be posted yet, even if the window
     * allows it, because it needs results of others than the `retired` first ones.  NULL: the
     * window alone counts. */
    int64_t (*limit)(const struct operation *op, int64_t retired);
    /* Fill x, which is zeros, for transfer `index`. */
    void (*transfer)(const struct operation *op, int64_t index, struct transfer *x);
    /* Called when transfer `index` is complete, and so are all before it.  NULL: nothing to do. */
    void (*retired)(struct operation *op, int64_t index);
    /* Do all of the operation in a group of one.  NULL: nothing to do. */
    void (*alone)(struct operation *op);
};

/* kind_all_gather_doubling is for little data of the host among many members.  Its recv
 * [size][elems] is rotated: it begins with this member's part, which the caller puts there, and
 * goes on with those of the next members, member 0's after the last one's. */
extern const struct comm_kind kind_all_gather, kind_all_gather_doubling, kind_reduce_scatter,
    kind_all_reduce, kind_all_reduce_small, kind_all_to_all, kind_broadcast, kind_send, kind_recv;
extern const struct comm_kind kind_all_gather_read, kind_reduce_scatter_read;

static inline int transport_is_message(const struct operation *op)
{
    return op->kind && op->kind->message;
}

/* Returns the elements that each member sums in a batch of an all-reduce of `elems` elements, if a
 * slot holds slot_elems. */
int64_t transport_share(int64_t elems, int size, int64_t slot_elems);

/* Returns 1 if message b may start while the message a before it is under way. */
int transport_independent(const struct operation *a, const struct operation *b);

/* Returns 1 if an all-reduce is so small that every member is sent all terms. */
int group_sum_is_small(int size, int64_t elems, enum dtype dtype);

/* Make the group of all ranks of world, for its control queue; for group_destroy(). */
struct group *group_whole(struct world *world);

/* Start an all-reduce of host memory on a queue, whatever transport the group has. */
void group_all_reduce_host(struct group *g, int queue, struct comm_op *handle, void *data,
                           int64_t elems, enum dtype dtype, enum group_reduction reduction);

/* Returns the rank of the world that op waits for now, or -1; on the communication thread. */
int transport_waits_for(const struct operation *op);

/* End the job as world_abort() does; on the communication thread. */
void world_end_all(int code) __attribute__((noreturn));

/* Write into text, for people, what kind of operation op is, and which rank it waits for. */
void transport_describe(const struct operation *op, char *text, size_t bytes);

#endif
