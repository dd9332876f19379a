/* operation.h - an operation from its start until comm_wait(): what a struct comm_op stands for.
 *
 * Private to comm/.  A group makes a record for each operation in flight, and uses it again for
 * later ones.  So there are few of them, and each can have the bytes for the text of a failure.
 */
#ifndef TRIREME_COMM_OPERATION_H
#define TRIREME_COMM_OPERATION_H

#include "comm/group.h"

enum { MESSAGE_TRANSFERS = 2 }; /* transfers of one message in flight, at most */

struct comm_kind;

struct operation {
    struct group *group;
    const struct comm_kind *kind;
    const char *send;
    char *recv;
    int64_t elems; /* as the functions of group.h take it; of an all-to-all: of the longest part
                      that is sent or received */
    const struct comm_part *part; /* all-to-all: [size], one for each member */
    enum dtype dtype;
    enum dtype result;              /* reduce-scatter: the format of recv */
    enum group_reduction reduction; /* all-reduce */
    int queue;                      /* number of the communication thread's queue, or the stream */
    int peer;                       /* message: the other member; broadcast: the root */
    int accumulate;                 /* reduce-scatter: 1 adds what recv held */
    int done;                       /* 1: complete; atomic */
    int64_t start_ns, end_ns, sent_bytes; /* as in struct comm_op */

    /* Once the operation is submitted, the communication thread alone uses these: */
    int (*step)(struct operation *op); /* returns a STEP_... of thread.h */
    int started, finished;             /* 1: it was; finished ones wait for those before them */
    int64_t piece;                     /* elements of one transfer */
    int64_t posted, retired, total;    /* numbers of transfers */
    int window;                        /* transfers in flight, at most */
    void **request;                    /* [2 * window]: receive and send of each transfer */
    void *own[2 * MESSAGE_TRANSFERS];  /* the requests of a message */

    struct operation *next;  /* in its queue, or among the group's unused ones */
    struct operation *older; /* the one that the group made before */
    struct error err;        /* its failure; empty: none */
};

/* Take a record from the group for an operation, which handle stands for from now on.  The caller
 * sets further members and calls operation_start(). */
struct operation *operation_make(struct group *g, struct comm_op *handle, const void *send,
                                 void *recv, int64_t elems, enum dtype dtype);
/* Start an operation on a queue, or complete it at once where there is nothing to wait for, or
 * where op->err is set. */
void operation_start(struct operation *op, int queue, const struct comm_kind *kind);

/* Complete op now, whether op->err is set or not. */
void operation_finish(struct operation *op);

#endif
