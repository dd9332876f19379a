/* transport.h - what the files of comm/ share: groups inside, transfers, kinds.
 *
 * Private to comm/.  A kind of operation (all-gather, ...) is a numbered list of transfers,
 * computed when needed; a transport carries the list out.  Transfers are posted and retired
 * in order, so two members that compute matching lists cannot mismatch.
 */
#ifndef TRIREME_COMM_TRANSPORT_H
#define TRIREME_COMM_TRANSPORT_H

#include <mpi.h>

#include "comm/group.h"
#include "comm/thread.h"

struct world {
    struct mem *mem;
    struct thread *thread;
    MPI_Comm comm;       /* of every message */
    struct group *whole; /* all ranks, for LANE_CONTROL only */
    int rank, size, node, nodes, local_rank, local_size, cores;
    int splits;  /* groups are told apart by the tags this gives them */
    int tag_max; /* of the MPI library */
    int patience_s;
    char host[256];
    char library[128];
};

/* Carries out operations of a group; one row each: self.c, mpi.c. */
struct transport {
    const char *name;
    int (*step)(struct comm_op *op); /* STEP_... */
};

extern const struct transport transport_self;
extern const struct transport transport_mpi;

/* Working memory of a group on one lane. */
struct lane_area {
    void **request; /* 2 * room */
    char *slots;    /* 2 * (size - 1) slots of slot_bytes */
};

struct group {
    const struct transport *transport;
    struct world *world; /* NULL: group_self() without one */
    struct mem *mem;     /* that block is counted in; NULL: not counted */
    int rank, size;
    int *ranks; /* of the world, by member */
    int tag;    /* of lane 0; the other lanes follow */
    int room;   /* transfers in flight on a lane */
    size_t slot_bytes;
    struct lane_area area[LANES];
    char *name;
    void *block; /* ranks and areas */
    size_t block_bytes;
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
    int message;                                /* between two members */
    void (*plan)(struct comm_op *op);           /* set piece and total */
    int64_t (*limit)(const struct comm_op *op); /* may post transfers before this one */
    void (*transfer)(const struct comm_op *op, int64_t index, struct transfer *x);
    void (*retired)(struct comm_op *op, int64_t index); /* NULL: nothing to do */
    void (*alone)(struct comm_op *op);                  /* the whole operation in a group of one */
};

extern const struct comm_kind kind_all_gather, kind_reduce_scatter, kind_all_reduce,
    kind_all_reduce_small, kind_broadcast, kind_send, kind_recv;

static inline int transport_is_message(const struct comm_op *op)
{
    return op->kind && op->kind->message;
}

/* Elements of one member's share in a batch of an all-reduce of elems, whose slots hold slot_elems.
 */
int64_t transport_share(int64_t elems, int size, int64_t slot_elems);

/* Whether message b may start while the message a before it is under way. */
int transport_independent(const struct comm_op *a, const struct comm_op *b);

/* All ranks of world, for its control lane. */
int group_whole(struct group **group, struct world *world, struct error *err);

/* Start an operation that is not of one of the three streams. */
void group_start(struct group *g, int lane, struct comm_op *op, const struct comm_kind *kind);

/* What op is and whom it waits for, for a person. */
void transport_describe(const struct comm_op *op, char *text, size_t bytes);

#endif
