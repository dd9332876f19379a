/* thread.c - the communication thread's loop: take what was submitted, step each queue, sleep.
 *
 * MPI advances only inside its calls, so the thread has to keep calling it.  While an operation is
 * in flight the thread polls: at first without pause, then giving way, then with sleeps of a
 * sixteenth of the time for which nothing has moved, so that compute threads are not starved.
 * Sleeps stay short while somebody waits.  While nobody does they grow to a millisecond: the
 * operation may come that much later, and a peer that waits for it loses at most a sixteenth.  Each
 * poll takes the core from the kernels for a timer, two context switches and a call of MPI: on a
 * virtual machine with one core for each rank, 7,000 sleeps and polls a second took a tenth of the
 * core.
 *
 * Where a node has more ranks than cores, what a thread waits for is mostly another rank that wants
 * the same core.  Giving way and short sleeps cost 4 ranks on 2 cores as much processor time as
 * their kernels; there the thread sleeps at once, and longer.
 */
#include "comm/thread.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/quiet_thread.h"
#include "comm/transport.h"

enum {
    SPIN_NS = 30000,              /* poll without pause, when a core is free for it */
    YIELD_NS = 150000,            /* then give way to whoever is ready */
    SLEEP_MIN_NS = 15000,         /* then sleep between polls */
    SLEEP_MAX_NS = 50000,         /* the longest sleep while somebody waits */
    SLEEP_CROWDED_MIN_NS = 50000, /* both where there are more ranks than cores */
    SLEEP_CROWDED_MAX_NS = 300000,
    SLEEP_UNAWAITED_MAX_NS = 1000000, /* and while nobody does */
    TICK_FIRST_NS = 500000,           /* nothing in flight: between ticks, the first 20, */
    TICK_LAST_NS = 5000000,           /* and those after them */
    WAIT_SPIN_NS = 4000,              /* thread_wait() looks without pause before it sleeps */
    WATCH_NS = 20000000,              /* between calls of the watch */
};

struct queue {
    struct operation *head, *tail;  /* accepted operations; used by the thread alone */
    struct operation *in, *in_tail; /* submitted ones that are not accepted yet; under the lock */
    int load;                       /* number submitted and not done; atomic */
};

/* A function that another thread makes this one call; NULL: none. */
struct hook {
    void (*call)(void *arg);
    void *arg;
};

struct thread {
    pthread_t id;
    pthread_mutex_t lock;
    pthread_cond_t work, done;
    struct queue queue[QUEUES];
    int incoming; /* 1: something was submitted, or a hook was set; atomic */
    int waiters;  /* threads in thread_wait() */
    int stopping; /* 1: end when all queues are empty */
    int core;     /* enum thread_core; atomic */
    struct hook tick, interrupt;
    thread_watch *watch;
    void *watch_arg;
};

/* Returns 1 if op may be stepped beside the unfinished operations before it in its queue.  A
 * collective may not.  A message may, unless it and a message before it share memory that one of
 * them writes, or a peer whose messages would be matched in the wrong order. */
static int may_join(const struct operation *head, const struct operation *op)
{
    int count = 0;
    if (!transport_is_message(op))
        return op == head;
    for (const struct operation *a = head; a != op; a = a->next)
        if (!transport_is_message(a) || ++count >= GROUP_MESSAGES ||
            (!a->finished && !transport_independent(a, op)))
            return 0;
    return 1;
}

/* Set op to done, and wake the threads that wait. */
static void complete(struct thread *t, struct queue *queue, struct operation *op)
{
    pthread_mutex_lock(&t->lock);
    __atomic_sub_fetch(&queue->load, 1, __ATOMIC_RELEASE);
    __atomic_store_n(&op->done, 1, __ATOMIC_RELEASE); /* op may be gone from here on */
    if (t->waiters)
        pthread_cond_broadcast(&t->done);
    pthread_mutex_unlock(&t->lock);
}

/* Step all operations of a queue that may run now.  Returns 1 if any moved, else 0. */
static int advance(struct thread *t, struct queue *queue)
{
    int moved = 0;
    for (struct operation *op = queue->head; op; op = op->next) {
        if (!op->started) {
            if (!may_join(queue->head, op))
                break;
            op->started = moved = 1;
            op->start_ns = clock_ns();
        }
        if (op->finished)
            continue;
        int step = op->step(op);
        moved |= step != STEP_WAITS;
        if (step == STEP_DONE) {
            op->end_ns = clock_ns();
            op->finished = 1;
        }
    }
    while (queue->head && queue->head->finished) {
        struct operation *op = queue->head;
        queue->head = op->next;
        complete(t, queue, op);
    }
    return moved;
}

/* Append the operations that were submitted to their queues; under the lock. */
static void accept_submitted(struct thread *t)
{
    __atomic_store_n(&t->incoming, 0, __ATOMIC_RELAXED);
    for (struct queue *queue = t->queue; queue < t->queue + QUEUES; queue++) {
        if (!queue->in)
            continue;
        if (queue->head)
            queue->tail->next = queue->in;
        else
            queue->head = queue->in;
        queue->tail = queue->in_tail;
        queue->in = queue->in_tail = NULL;
    }
}

/* Returns 1 if an operation is in flight. */
static int busy(const struct thread *t)
{
    for (int i = 0; i < QUEUES; i++)
        if (t->queue[i].head)
            return 1;
    return 0;
}

/* Sleep until something is submitted, at most ns; 0: without limit.  Under the lock. */
static void sleep_for(struct thread *t, int64_t ns)
{
    struct timespec until;
    if (!ns) {
        pthread_cond_wait(&t->work, &t->lock);
        return;
    }
    ns += clock_ns();
    until.tv_sec = ns / 1000000000;
    until.tv_nsec = ns % 1000000000;
    pthread_cond_timedwait(&t->work, &t->lock, &until);
}

/* Leave the core to other threads for a while, as no operation has moved for quiet_ns.  Under the
 * lock. */
static void back_off(struct thread *t, int64_t quiet_ns)
{
    enum thread_core core = __atomic_load_n(&t->core, __ATOMIC_RELAXED);
    int64_t yield_from = core == THREAD_CORE_OWN ? SPIN_NS : 0;
    int64_t sleep_from = core == THREAD_CORE_CROWDED ? 0 : yield_from + YIELD_NS;
    if (quiet_ns < yield_from)
        return;
    if (quiet_ns < sleep_from) {
        pthread_mutex_unlock(&t->lock);
        sched_yield();
        pthread_mutex_lock(&t->lock);
        return;
    }
    int64_t least_ns = core == THREAD_CORE_CROWDED ? SLEEP_CROWDED_MIN_NS : SLEEP_MIN_NS;
    int64_t awaited_ns = core == THREAD_CORE_CROWDED ? SLEEP_CROWDED_MAX_NS : SLEEP_MAX_NS;
    int64_t most_ns = t->waiters ? awaited_ns : SLEEP_UNAWAITED_MAX_NS, ns = quiet_ns / 16;
    sleep_for(t, ns < least_ns ? least_ns : ns > most_ns ? most_ns : ns);
}

/* Sleep, as no operation is in flight.  MPI may still have something to send (a connection that is
 * being made, a fragment that did not fit); therefore the tick is called now and then. */
static void idle(struct thread *t, int64_t quiet_ns)
{
    if (!t->tick.call) {
        sleep_for(t, 0);
        return;
    }
    sleep_for(t, quiet_ns < 20 * TICK_FIRST_NS ? TICK_FIRST_NS : TICK_LAST_NS);
    struct hook tick = t->tick; /* it may have been taken away meanwhile */
    if (!tick.call || t->incoming)
        return;
    pthread_mutex_unlock(&t->lock);
    tick.call(tick.arg);
    pthread_mutex_lock(&t->lock);
}

/* Sleep as long as suits, then take over what was submitted.  Returns 0 when it is time to end. */
static int wait_for_work(struct thread *t, int64_t quiet_ns)
{
    int go_on = 1;
    if (!quiet_ns && !__atomic_load_n(&t->incoming, __ATOMIC_ACQUIRE) && busy(t))
        return 1;
    pthread_mutex_lock(&t->lock);
    if (!t->incoming) {
        if (busy(t))
            back_off(t, quiet_ns);
        else if (t->stopping)
            go_on = 0;
        else
            idle(t, quiet_ns);
    }
    accept_submitted(t);
    struct hook interrupt = t->interrupt;
    pthread_mutex_unlock(&t->lock);
    if (interrupt.call)
        interrupt.call(interrupt.arg);
    return go_on;
}

/* Report to the watch which operations are under way. */
static void call_watch(struct thread *t, int moved)
{
    struct thread_view view = {.moved = moved};
    pthread_mutex_lock(&t->lock);
    thread_watch *watch = t->watch;
    void *arg = t->watch_arg;
    view.waits = t->waiters > 0;
    pthread_mutex_unlock(&t->lock);
    for (int i = 0; i < QUEUES; i++)
        view.op[i] = t->queue[i].head;
    if (watch)
        watch(arg, &view);
}

/* The thread: advance all queues, and back off where nothing moves, until thread_stop(). */
static void *run(void *arg)
{
    struct thread *t = arg;
    int64_t moved_ns = clock_ns(), looked_ns = moved_ns, quiet_ns = 0;
    int moved_since = 0;
    prctl(PR_SET_TIMERSLACK, 1000);
    while (wait_for_work(t, quiet_ns)) {
        int moved = 0;
        for (struct queue *queue = t->queue; queue < t->queue + QUEUES; queue++)
            moved |= advance(t, queue);
        int64_t now = clock_ns();
        if (moved)
            moved_ns = now;
        quiet_ns = now - moved_ns;
        moved_since |= moved;
        if (now - looked_ns < WATCH_NS)
            continue;
        looked_ns = now;
        call_watch(t, moved_since);
        moved_since = 0;
    }
    return NULL;
}

int thread_start(struct thread **thread, struct error *err)
{
    pthread_condattr_t attr;
    struct thread *t = array_make(1, sizeof *t);
    *thread = NULL;
    pthread_mutex_init(&t->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&t->work, &attr);
    pthread_condattr_destroy(&attr);
    pthread_cond_init(&t->done, NULL);
    int failed = quiet_thread_start(&t->id, "comm", run, t);
    if (failed) {
        free(t);
        return error_set(err, "cannot start the communication thread: %s", strerror(failed));
    }
    *thread = t;
    return 0;
}

/* Wake the thread from a sleep, and make it look at what was submitted; under the lock. */
static void wake(struct thread *t)
{
    __atomic_store_n(&t->incoming, 1, __ATOMIC_RELEASE);
    pthread_cond_signal(&t->work);
}

void thread_stop(struct thread *t)
{
    if (!t)
        return;
    pthread_mutex_lock(&t->lock);
    t->stopping = 1;
    wake(t);
    pthread_mutex_unlock(&t->lock);
    pthread_join(t->id, NULL);
    pthread_cond_destroy(&t->done);
    pthread_cond_destroy(&t->work);
    pthread_mutex_destroy(&t->lock);
    free(t);
}

void thread_set_core(struct thread *t, enum thread_core core)
{
    __atomic_store_n(&t->core, core, __ATOMIC_RELAXED);
}

/* Set a hook, and wake the thread. */
static void set_hook(struct thread *t, struct hook *hook, void (*call)(void *arg), void *arg)
{
    pthread_mutex_lock(&t->lock);
    *hook = (struct hook){.call = call, .arg = arg};
    wake(t);
    pthread_mutex_unlock(&t->lock);
}

void thread_set_tick(struct thread *t, void (*tick)(void *arg), void *arg)
{
    set_hook(t, &t->tick, tick, arg);
}

void thread_interrupt(struct thread *t, void (*call)(void *arg), void *arg)
{
    set_hook(t, &t->interrupt, call, arg);
}

void thread_set_watch(struct thread *t, thread_watch *watch, void *arg)
{
    pthread_mutex_lock(&t->lock);
    t->watch = watch;
    t->watch_arg = arg;
    pthread_mutex_unlock(&t->lock);
}

void thread_submit(struct thread *t, struct operation *op)
{
    struct queue *queue = &t->queue[op->queue];
    op->next = NULL;
    op->started = op->finished = op->done = 0;
    pthread_mutex_lock(&t->lock);
    __atomic_add_fetch(&queue->load, 1, __ATOMIC_RELAXED);
    if (queue->in)
        queue->in_tail->next = op;
    else
        queue->in = op;
    queue->in_tail = op;
    wake(t);
    pthread_mutex_unlock(&t->lock);
}

void thread_wait(struct thread *t, struct operation *op)
{
    if (__atomic_load_n(&t->core, __ATOMIC_RELAXED) == THREAD_CORE_OWN) {
        int64_t until = clock_ns() + WAIT_SPIN_NS;
        while (!__atomic_load_n(&op->done, __ATOMIC_ACQUIRE) && clock_ns() < until)
            ;
    }
    if (__atomic_load_n(&op->done, __ATOMIC_ACQUIRE))
        return;
    pthread_mutex_lock(&t->lock);
    if (!t->waiters++)
        wake(t); /* from a long sleep */
    while (!__atomic_load_n(&op->done, __ATOMIC_ACQUIRE))
        pthread_cond_wait(&t->done, &t->lock);
    t->waiters--;
    pthread_mutex_unlock(&t->lock);
}

int thread_queue_idle(struct thread *t, int queue)
{
    return __atomic_load_n(&t->queue[queue].load, __ATOMIC_ACQUIRE) == 0;
}

struct call {
    struct operation op; /* first */
    struct hook hook;
};

static int step_call(struct operation *op)
{
    struct call *c = (struct call *)op;
    c->hook.call(c->hook.arg);
    return STEP_DONE;
}

void thread_call(struct thread *t, void (*call)(void *arg), void *arg)
{
    struct call c = {.op = {.step = step_call, .queue = QUEUE_CONTROL},
                     .hook = {.call = call, .arg = arg}};
    thread_submit(t, &c.op);
    thread_wait(t, &c.op);
}
