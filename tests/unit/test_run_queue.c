/* test_run_queue.c - how many threads are used follows from how long they waited for cores. */
#include "ops_check.h"

#include "device/cpu/run_queue.h"

static const int64_t STEP = 50000000;

/* n samples during each of which all threads together waited for `waited` of the time, and
 * background threads ran for `ran` of it. */
static int samples_beside(struct run_queue_choice *c, int n, double waited, double ran)
{
    for (int i = 0; i < n; i++)
        run_queue_choice_sample(c, c->last_ns + STEP, c->last_waited_ns + (int64_t)(waited * STEP),
                                c->last_ran_ns + (int64_t)(ran * STEP));
    return c->now;
}

static int samples(struct run_queue_choice *c, int n, double waited)
{
    return samples_beside(c, n, waited, 0);
}

static struct run_queue_choice of_threads(int threads)
{
    struct run_queue_choice c = {.most = threads, .now = threads};
    run_queue_choice_sample(&c, 1000000000, 7000000000, 3000000000);
    return c;
}

static void threads_without_a_core_are_left_out(void **state)
{
    static const struct {
        int threads;
        double waited;
        int want;
    } rows[] = {{2, 0, 2},     {2, 0.1, 2},   {2, 0.5, 1},  {2, 1.6, 1}, {2, 2, 1},
                {64, 0.1, 64}, {64, 0.5, 63}, {64, 32, 32}, {64, 64, 1}, {3, 1.1, 2}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct run_queue_choice c = of_threads(rows[i].threads);
        assert_int_equal(c.now, rows[i].threads);
        assert_int_equal(samples(&c, 1, rows[i].waited), rows[i].want);
    }
}

/* While the thread that is left waits itself, nothing is tried; then all come back. */
static void threads_come_back_when_it_is_quiet(void **state)
{
    struct run_queue_choice c = of_threads(2);
    assert_int_equal(samples(&c, 1, 1.5), 1);
    assert_int_equal(samples(&c, 1000, 0.7), 1);
    assert_int_equal(samples(&c, 1, 0), 2);
    assert_int_equal(samples(&c, 1000, 0.02), 2);
}

/* A process on the second core alone: one thread never waits, two do.  What is lost by trying falls
 * to under a hundredth. */
static void trials_that_fail_become_rare(void **state)
{
    struct run_queue_choice c = of_threads(2);
    int with_two = 0;
    for (int i = 0; i < 20000; i++)
        with_two += samples(&c, 1, c.now == 2 ? 0.5 : 0) == 2;
    assert_true(with_two > 20 && with_two < 200);
    samples(&c, 200, 0);
    assert_int_equal(c.now, 2);
    samples(&c, 10, 0);
    samples(&c, 1, 1);
    assert_true(c.hold_ns < 1000000000); /* a new load, not a trial that failed */
}

/* Threads bear the share of a core that a background thread takes, and no more. */
static void a_background_thread_is_borne(void **state)
{
    struct run_queue_choice c = of_threads(2);
    assert_int_equal(samples_beside(&c, 100, 0.2, 0.2), 2);
    assert_int_equal(samples_beside(&c, 100, 0.3, 0.2), 2); /* what is left is noise */
    assert_int_equal(samples_beside(&c, 100, 0, 1), 2);     /* it has a core of its own */
    assert_int_equal(samples_beside(&c, 1, 0.7, 0.2), 1);   /* it is not what they wait for */
    c = of_threads(2);
    assert_int_equal(samples_beside(&c, 1, 1, 1), 1); /* it has a core, others want one too */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_without_a_core_are_left_out),
        cmocka_unit_test(threads_come_back_when_it_is_quiet),
        cmocka_unit_test(trials_that_fail_become_rare),
        cmocka_unit_test(a_background_thread_is_borne),
    };
    return cmocka_run_group_tests_name("run queue", tests, NULL, NULL);
}
