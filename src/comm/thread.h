/* thread.h - the communication thread: queues of operations.
 *
 * Private to comm/.  A queue's first operation is stepped until it is finished, and so are messages
 * behind it that may travel beside it; the queues are stepped one after another.  A step never
 * blocks, so that a queue that waits for a peer does not delay the others.
 */
#ifndef TRIREME_COMM_THREAD_H
#define TRIREME_COMM_THREAD_H

#include "comm/group.h"

struct operation;
struct thread;

/* The streams of group.h, and one for world.h. */
enum { QUEUE_CONTROL = COMM_STREAMS, QUEUES };

/* What one step of an operation did. */
enum { STEP_WAITS, STEP_MOVED, STEP_DONE };

/* Start the thread.  Returns 0 and a thread for thread_stop(), or -1 with err set and *thread NULL.
 */
int thread_start(struct thread **thread, struct error *err);

/* Finish what was submitted, end the thread, free it; NULL allowed. */
void thread_stop(struct thread *thread);

/* Spin before sleeping, or not: whether a core is free to do so. */
void thread_set_spin(struct thread *thread, int spin);

/* Have tick(arg) called now and then while there is nothing to do; NULL: never. */
void thread_set_tick(struct thread *thread, void (*tick)(void *arg), void *arg);

/* What a watch sees. */
struct thread_view {
    const struct operation *op[QUEUES]; /* the first operations under way, or NULL */
    int waits;                          /* somebody is in thread_wait() */
    int moved;                          /* anything has since the last call */
};

/* Have watch(arg, view) called now and then, also while there is nothing to do if there is a tick;
 * NULL: never. */
typedef void thread_watch(void *arg, const struct thread_view *view);
void thread_set_watch(struct thread *thread, thread_watch *watch, void *arg);

/* Queue op, whose step and queue are set; thread_wait() returns when it is done. */
void thread_submit(struct thread *thread, struct operation *op);
void thread_wait(struct thread *thread, struct operation *op);

/* 1 if every operation submitted to queue is done. */
int thread_queue_idle(struct thread *thread, int queue);

/* Run call(arg) on the thread and wait for it. */
void thread_call(struct thread *thread, void (*call)(void *arg), void *arg);

/* Have the thread run call(arg) before anything else; returns at once. */
void thread_interrupt(struct thread *thread, void (*call)(void *arg), void *arg);

#endif
