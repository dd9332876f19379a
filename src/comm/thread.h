/* thread.h - the communication thread: lanes of operations, each a queue.
 *
 * Private to comm/.  A lane's first operation is stepped until it is finished; the lanes
 * take turns.  A step never blocks, so a lane that waits for a peer holds up nobody.
 */
#ifndef TRIREME_COMM_THREAD_H
#define TRIREME_COMM_THREAD_H

#include "comm/group.h"

struct thread;

/* The streams of group.h, and one for world.h. */
enum { LANE_CONTROL = COMM_STREAMS, LANES };

/* What one step of an operation did. */
enum { STEP_WAITS, STEP_MOVED, STEP_DONE };

int thread_start(struct thread **thread, struct error *err);

/* Finish what was submitted, end the thread, free it; NULL allowed. */
void thread_stop(struct thread *thread);

/* Spin before sleeping, or not: whether a core is free to do so. */
void thread_set_spin(struct thread *thread, int spin);

/* Have tick(arg) called now and then while there is nothing to do; NULL: never. */
void thread_set_tick(struct thread *thread, void (*tick)(void *arg), void *arg);

/* What a watch sees. */
struct thread_view {
    const struct comm_op *op[LANES]; /* the first operations under way, or NULL */
    int waits;                       /* somebody is in thread_wait() */
    int moved;                       /* anything has since the last call */
};

/* Have watch(arg, view) called now and then, also while there is nothing to do if there is a tick;
 * NULL: never. */
typedef void thread_watch(void *arg, const struct thread_view *view);
void thread_set_watch(struct thread *thread, thread_watch *watch, void *arg);

/* Queue op, whose step and lane are set; thread_wait() returns when it is done. */
void thread_submit(struct thread *thread, struct comm_op *op);
void thread_wait(struct thread *thread, struct comm_op *op);

/* 1 if every operation submitted to lane is done. */
int thread_lane_idle(struct thread *thread, int lane);

/* Run call(arg) on the thread and wait for it. */
void thread_call(struct thread *thread, void (*call)(void *arg), void *arg);

/* Have the thread run call(arg) before anything else; returns at once. */
void thread_interrupt(struct thread *thread, void (*call)(void *arg), void *arg);

#endif
