/* operation.h - an operation from its start until comm_wait(): what a struct comm_op stands for.
 *
 * Private to comm/.  A group makes as many as are in flight at a time and uses them again; that is
 * why one may carry the text of its failure.
 */
#ifndef TRIREME_COMM_OPERATION_H
#define TRIREME_COMM_OPERATION_H

#include "comm/group.h"

enum { MESSAGE_TRANSFERS = 2 }; /* of one message in flight */

struct comm_kind;

struct operation {
    struct group *group;
    const struct comm_kind *kind;
    const char *send;
    char *recv;
    int64_t elems; /* of an all-to-all: of the longest part that is sent or received */
    const struct comm_part *part; /* per member, of an all-to-all */
    enum dtype dtype;
    enum dtype result;              /* of a reduce-scatter: the format of recv */
    enum group_reduction reduction; /* of an all-reduce */
    int queue, peer, accumulate;
    int done; /* atomic */
    int64_t start_ns, end_ns, sent_bytes;

    /* of the communication thread, once it is submitted */
    int (*step)(struct operation *op); /* STEP_... of thread.h */
    int started, finished;
    int64_t piece;                  /* elements of one transfer */
    int64_t posted, retired, total; /* transfers */
    int window;     /* the most transfers in flight, for which request[] has space */
    void **request; /* two for each transfer: of its receive and of its send */
    void *own[2 * MESSAGE_TRANSFERS];

    struct operation *next;  /* the next in its queue, or in the group's list of unused ones */
    struct operation *older; /* the one that the group made before this one */
    struct error err;        /* empty: none */
};

/* Take an unused operation of the group, or make one, for op to stand for.  The caller sets what
 * else the kind needs, and starts it. */
struct operation *operation_make(struct group *g, struct comm_op *op, const void *send, void *recv,
                                 int64_t elems, enum dtype dtype);
void operation_start(struct operation *op, int queue, const struct comm_kind *kind);

/* Note that op is complete, with its error or without; also where there was nothing to do. */
void operation_finish(struct operation *op);

#endif
