/* thread.h - the communication thread: queues of operations.
 *
 * Private to comm/.  A queue's first operation is stepped until it is finished, and so are messages
 * after it that may travel beside it; the queues are stepped one after another.  A step never
 * blocks, so that a queue that waits for a peer does not delay the others.
 */
#ifndef TRIREME_COMM_THREAD_H
#define TRIREME_COMM_THREAD_H

#include "comm/group.h"

struct operation;
struct thread;

/* Queues: one for each stream of group.h, and QUEUE_CONTROL for the collectives of world.h. */
enum { QUEUE_CONTROL = COMM_STREAMS, QUEUES };

/* What one step of an operation did. */
enum {
    STEP_WAITS, /* nothing: it waits for a peer */
    STEP_MOVED, /* some of its work */
    STEP_DONE   /* the last of its work, or it failed with op->err set */
};

/* Start the thread.  Returns 0 and a thread for thread_stop(), or -1 with err set and *thread NULL.
 */
int thread_start(struct thread **thread, struct error *err);

/* Finish what was submitted, end the thread, free it; NULL allowed. */
void thread_stop(struct thread *thread);

/* Say on whose core the thread waits for an operation in flight, which decides how: any thread may
 * call it, at any time. */
enum thread_core {
    THREAD_CORE_KERNELS, /* one that computes for this rank: give way, then sleep; the default */
    THREAD_CORE_OWN,     /* a free one: poll without pause before that */
    THREAD_CORE_CROWDED, /* one of more ranks than cores: sleep at once, and longer */
};
void thread_set_core(struct thread *thread, enum thread_core core);

/* Make the thread call tick(arg) now and then while no operation is in flight; NULL: never. */
void thread_set_tick(struct thread *thread, void (*tick)(void *arg), void *arg);

/* What a watch sees. */
struct thread_view {
    const struct operation *op[QUEUES]; /* the first operation of each queue, or NULL */
    int waits;                          /* 1: a thread is in thread_wait() */
    int moved;                          /* 1: an operation has moved since the last call */
};

/* Make the thread call watch(arg, view) now and then, also while no operation is in flight if there
 * is a tick; NULL: never. */
typedef void thread_watch(void *arg, const struct thread_view *view);
void thread_set_watch(struct thread *thread, thread_watch *watch, void *arg);

/* Append op to its queue; op->step and op->queue are set. */
void thread_submit(struct thread *thread, struct operation *op);
/* Wait until a submitted op is done. */
void thread_wait(struct thread *thread, struct operation *op);

/* Returns 1 if every operation submitted to queue is done, else 0. */
int thread_queue_idle(struct thread *thread, int queue);

/* Make the thread run call(arg), after what is in QUEUE_CONTROL, and wait until it has. */
void thread_call(struct thread *thread, void (*call)(void *arg), void *arg);

/* Make the thread run call(arg) before its next steps; returns at once. */
void thread_interrupt(struct thread *thread, void (*call)(void *arg), void *arg);

#endif
