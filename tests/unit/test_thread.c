/* test_thread.c - the communication thread, without MPI. */
#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "comm/operation.h"
#include "comm/thread.h"

enum { OPS = 100, ROUNDS = 500, TICK_NS = 500000, PAUSE_NS = 100000 };

/* Threads other than the first pause whenever they have let go of a lock: so what they still
 * believe of what it guards has time to become wrong. */
int pthread_mutex_unlock(pthread_mutex_t *lock)
{
    static int (*unlock)(pthread_mutex_t *);
    if (!unlock)
        unlock = (int (*)(pthread_mutex_t *))dlsym(RTLD_NEXT, "pthread_mutex_unlock");
    int rc = unlock(lock);
    if (gettid() != getpid())
        nanosleep(&(struct timespec){.tv_nsec = PAUSE_NS}, NULL);
    return rc;
}

static struct thread *start(void)
{
    struct thread *t = NULL;
    struct error err = {0};
    assert_int_equal(thread_start(&t, &err), 0);
    return t;
}

static void count(void *arg)
{
    __atomic_add_fetch((int *)arg, 1, __ATOMIC_RELAXED);
}

/* An operation that has to be stepped some times, and says when it ended. */
struct steps {
    struct operation op; /* first */
    int left, order, *ended;
};

static int step(struct operation *op)
{
    struct steps *s = (struct steps *)op;
    if (s->left-- > 0)
        return s->left % 2 ? STEP_MOVED : STEP_WAITS;
    s->order = (*s->ended)++;
    return STEP_DONE;
}

/* Operations of a queue end one after another, whatever the other queues do. */
static void the_operations_of_a_queue_end_in_order(void **state)
{
    static struct steps s[OPS];
    struct thread *t = start();
    int ended[QUEUES] = {0};
    for (int i = 0; i < OPS; i++) {
        int queue = i % QUEUES;
        s[i] = (struct steps){{.step = step, .queue = queue}, i % 7, -1, &ended[queue]};
        thread_submit(t, &s[i].op);
    }
    for (int i = 0; i < OPS; i++)
        thread_wait(t, &s[i].op);
    for (int i = 0; i < OPS; i++)
        assert_int_equal(s[i].order, i / QUEUES);
    for (int queue = 0; queue < QUEUES; queue++)
        assert_true(thread_queue_idle(t, queue));
    thread_stop(t);
}

static void a_call_is_over_when_it_returns(void **state)
{
    struct thread *t = start();
    int calls = 0;
    for (int i = 0; i < OPS; i++) {
        thread_call(t, count, &calls);
        assert_int_equal(calls, i + 1);
    }
    thread_stop(t);
}

static void what_was_submitted_is_done_before_the_end(void **state)
{
    static struct steps s[OPS];
    struct thread *t = start();
    int ended = 0;
    for (int i = 0; i < OPS; i++) {
        s[i] = (struct steps){{.step = step, .queue = QUEUE_CONTROL}, 3, -1, &ended};
        thread_submit(t, &s[i].op);
    }
    thread_stop(t);
    assert_int_equal(ended, OPS);
}

/* An operation that waits for a peer, until the test lets it end. */
struct polled {
    struct operation op; /* first */
    int polls, ends;     /* atomic */
};

static int poll(struct operation *op)
{
    struct polled *p = (struct polled *)op;
    __atomic_add_fetch(&p->polls, 1, __ATOMIC_RELAXED);
    return __atomic_load_n(&p->ends, __ATOMIC_RELAXED) ? STEP_DONE : STEP_WAITS;
}

/* Sleeps of at most 50 us, and the pauses above, make it a thousand polls. */
static void what_nobody_waits_for_is_polled_rarely(void **state)
{
    struct polled p = {{.step = poll}};
    struct thread *t = start();
    thread_submit(t, &p.op);
    nanosleep(&(struct timespec){.tv_nsec = 200000000}, NULL);
    int polls = __atomic_load_n(&p.polls, __ATOMIC_RELAXED);
    __atomic_store_n(&p.ends, 1, __ATOMIC_RELAXED);
    thread_wait(t, &p.op);
    thread_stop(t);
    assert_in_range(polls, 1, 500);
}

/* A tick is taken away around the time that it is due. */
static void a_tick_that_was_taken_away_is_not_called(void **state)
{
    struct thread *t = start();
    int ticks = 0, calls = 0, before;
    for (int i = 0; i < ROUNDS; i++) {
        thread_set_tick(t, count, &ticks);
        thread_call(t, count, &calls); /* ticks become rare when nothing happens */
        int64_t due = clock_ns() + TICK_NS + i * 1000;
        while (clock_ns() < due)
            ;
        thread_set_tick(t, NULL, NULL);
    }
    thread_call(t, count, &calls);
    before = ticks;
    nanosleep(&(struct timespec){.tv_nsec = 10 * TICK_NS}, NULL);
    assert_int_equal(__atomic_load_n(&ticks, __ATOMIC_RELAXED), before);
    assert_true(before > 0);
    thread_stop(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_operations_of_a_queue_end_in_order),
        cmocka_unit_test(a_call_is_over_when_it_returns),
        cmocka_unit_test(what_was_submitted_is_done_before_the_end),
        cmocka_unit_test(what_nobody_waits_for_is_polled_rarely),
        cmocka_unit_test(a_tick_that_was_taken_away_is_not_called),
    };
    return cmocka_run_group_tests_name("thread", tests, NULL, NULL);
}
