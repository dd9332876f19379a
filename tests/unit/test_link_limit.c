/* test_link_limit.c - how long a rank waits for its peers on a GPU. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include <cmocka.h>

#include "comm/gpu/channel.h"

static const int64_t second_ns = 1000000000;

static void no_limit_is_zero_seconds(void **state)
{
    struct world world = {0};
    struct link link = {.world = &world};
    assert_int_equal(link_hang_ns(&link), 600 * second_ns);
    world.is_watched = 1;
    assert_int_equal(link_hang_ns(&link), 0);
    world.hang_seconds = 7;
    assert_int_equal(link_hang_ns(&link), 7 * second_ns);
}

static int64_t steps_done(void *arg)
{
    return *(int64_t *)arg;
}

static void waits_end_by_time_without_progress(void **state)
{
    const struct timespec nap = {.tv_nsec = 2000000};
    int64_t done = 0;
    struct link link = {.progress = steps_done, .progress_arg = &done};
    struct link_limit limit = link_limit_begin(&link, 1000000), never = link_limit_begin(&link, 0);
    nanosleep(&nap, NULL);
    done++;
    assert_false(link_limit_is_over(&link, &limit));
    nanosleep(&nap, NULL);
    assert_true(link_limit_is_over(&link, &limit));
    assert_false(link_limit_is_over(&link, &never));
}

/* As if nobody had looked for an hour: a second of it counts. */
static void time_in_suspension_does_not_count(void **state)
{
    struct link link = {0};
    struct link_limit limit = link_limit_begin(&link, 30 * second_ns);
    limit.awake.seen_ns -= 3600 * second_ns;
    assert_false(link_limit_is_over(&link, &limit));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_limit_is_zero_seconds),
        cmocka_unit_test(waits_end_by_time_without_progress),
        cmocka_unit_test(time_in_suspension_does_not_count),
    };
    return cmocka_run_group_tests_name("limits on waiting", tests, NULL, NULL);
}
