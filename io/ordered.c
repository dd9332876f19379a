/* ordered.c - see ordered.h.
 *
 * Items are numbered in the order in which the caller gives them.  Item n is at place n % items of
 * a ring:
 *
 *     n < taken             its result was taken, its place is free
 *     taken <= n < begun    a thread works on it, or it is done (done[place] is 1)
 *     begun <= n < given    it waits for a thread
 *     n = given             the caller fills it next, if its place is free: given - taken < items
 *
 * A single thread is the caller's: ordered_give() then does the work itself.
 */
#include "io/ordered.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/quiet_thread.h"

struct ordered {
    const struct ordered_job *job;
    void *user;
    int threads, started; /* started: threads that run */
    int items;            /* places of the ring */
    char *item;           /* [items][job->item_bytes] */
    char *done;           /* [items] */
    void **state;         /* [threads] made by job->begin() */
    int states;           /* how many were made */
    int64_t given, begun, taken;
    int stop;             /* 1: threads are to end */
    pthread_t *thread;    /* [threads] */
    pthread_mutex_t lock; /* of given, begun, done and stop */
    pthread_cond_t more;  /* given or stop has changed */
    pthread_cond_t ready; /* an item is done */
};

/* What a new thread is given. */
struct start {
    struct ordered *ordered;
    void *state;
};

/* Returns the place of item n. */
static void *place(const struct ordered *o, int64_t n)
{
    return o->item + (size_t)(n % o->items) * o->job->item_bytes;
}

/* A thread: work on items until stop.  arg: a struct start, which is freed. */
static void *run(void *arg)
{
    struct start start = *(struct start *)arg;
    struct ordered *o = start.ordered;
    free(arg);
    pthread_mutex_lock(&o->lock);
    for (;;) {
        while (!o->stop && o->begun == o->given)
            pthread_cond_wait(&o->more, &o->lock);
        if (o->stop)
            break;
        int64_t n = o->begun++;
        pthread_mutex_unlock(&o->lock);
        o->job->work(start.state, place(o, n));
        pthread_mutex_lock(&o->lock);
        o->done[n % o->items] = 1;
        pthread_cond_signal(&o->ready);
    }
    pthread_mutex_unlock(&o->lock);
    return NULL;
}

/* Make the state of each thread and, if there is more than one, start them.  Returns 0, or -1 with
 * err set. */
static int start_threads(struct ordered *o, struct error *err)
{
    for (; o->states < o->threads; o->states++)
        if (o->job->begin(&o->state[o->states], o->user, err))
            return -1;
    for (; o->threads > 1 && o->started < o->threads; o->started++) {
        struct start *start = array_make(1, sizeof *start);
        *start = (struct start){o, o->state[o->started]};
        int failed = quiet_thread_start(&o->thread[o->started], "tokenize", run, start);
        if (failed) {
            free(start);
            return error_set(err, "cannot start thread %d of %d: %s; take fewer (--threads)",
                             o->started + 1, o->threads, strerror(failed));
        }
    }
    return 0;
}

int ordered_create(struct ordered **created, const struct ordered_job *job, void *user, int threads,
                   struct error *err)
{
    struct ordered *o = array_make(1, sizeof *o);
    *created = NULL;
    o->job = job;
    o->user = user;
    o->threads = threads;
    o->items = threads > 1 ? 2 * threads + 1 : 1;
    o->item = array_make((size_t)o->items, job->item_bytes);
    o->done = array_make((size_t)o->items, 1);
    o->state = array_make((size_t)threads, sizeof *o->state);
    o->thread = array_make((size_t)threads, sizeof *o->thread);
    pthread_mutex_init(&o->lock, NULL);
    pthread_cond_init(&o->more, NULL);
    pthread_cond_init(&o->ready, NULL);
    if (start_threads(o, err)) {
        ordered_destroy(o);
        return -1;
    }
    *created = o;
    return 0;
}

/* Wait for the oldest result, and take it.  Returns 0, or -1 with err set. */
static int take(struct ordered *o, struct error *err)
{
    pthread_mutex_lock(&o->lock);
    while (!o->done[o->taken % o->items])
        pthread_cond_wait(&o->ready, &o->lock);
    pthread_mutex_unlock(&o->lock);
    if (o->job->take(o->user, place(o, o->taken), err))
        return -1;
    /* No thread uses this place until it is given again: no lock is needed. */
    o->done[o->taken % o->items] = 0;
    o->taken++;
    return 0;
}

void *ordered_item(struct ordered *o, struct error *err)
{
    if (o->given - o->taken == o->items && take(o, err))
        return NULL;
    return place(o, o->given);
}

void ordered_give(struct ordered *o)
{
    if (o->threads == 1) {
        o->job->work(o->state[0], place(o, o->given));
        o->done[o->given % o->items] = 1;
        o->begun++;
        o->given++;
        return;
    }
    pthread_mutex_lock(&o->lock);
    o->given++;
    pthread_cond_signal(&o->more);
    pthread_mutex_unlock(&o->lock);
}

int ordered_finish(struct ordered *o, struct error *err)
{
    while (o->taken < o->given)
        if (take(o, err))
            return -1;
    return 0;
}

void ordered_destroy(struct ordered *o)
{
    if (!o)
        return;
    pthread_mutex_lock(&o->lock);
    o->stop = 1;
    pthread_cond_broadcast(&o->more);
    pthread_mutex_unlock(&o->lock);
    for (int i = 0; i < o->started; i++)
        pthread_join(o->thread[i], NULL);
    for (int i = 0; i < o->states; i++)
        o->job->end(o->state[i]);
    for (int i = 0; i < o->items; i++)
        o->job->free_item(place(o, i));
    pthread_cond_destroy(&o->more);
    pthread_cond_destroy(&o->ready);
    pthread_mutex_destroy(&o->lock);
    free(o->item);
    free(o->done);
    free(o->state);
    free(o->thread);
    free(o);
}
