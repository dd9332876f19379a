/* test_alive.c - signs of life: calls that are under way are named, the one that began first. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <cmocka.h>

#include "base/alive.h"

static void the_first_call_is_named(void **state)
{
    char text[ALIVE_DOING], name[1000];
    struct alive_call calls[3];
    int count = alive_count();
    assert_string_equal(alive_doing(text), "");
    alive_enter(&calls[0], "reading", "a");
    alive_enter(&calls[1], "writing", "b");
    assert_string_equal(alive_doing(text), "reading a for 0 s");
    calls[0].begin_ns -= INT64_C(7900000000);
    assert_string_equal(alive_doing(text), "reading a for 7 s");
    alive_leave(&calls[0]);
    assert_string_equal(alive_doing(text), "writing b for 0 s");
    memset(name, 'x', sizeof name);
    strcpy(name + sizeof name - 6, "/end");
    alive_enter(&calls[2], "syncing", name);
    alive_leave(&calls[1]);
    alive_doing(text);
    assert_true(!strncmp(text, "syncing ...xxx", 14) && strstr(text, "xxx/end for 0 s"));
    errno = ENOSPC;
    alive_leave(&calls[2]);
    assert_int_equal(errno, ENOSPC);
    assert_string_equal(alive_doing(text), "");
    assert_int_equal(alive_count(), count + 3);
    assert_int_equal(ALIVE_CALL("reading", "a", (int)strlen(alive_doing(text))), 17);
}

static void *make_calls(void *name)
{
    char text[ALIVE_DOING];
    for (int i = 0; i < 20000; i++)
        if (!ALIVE_CALL("reading", name, alive_doing(text)[0]))
            return name;
    return NULL;
}

static void threads_make_calls(void **state)
{
    char text[ALIVE_DOING];
    pthread_t thread[4];
    void *failed;
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, make_calls, "a"), 0);
    for (int i = 0; i < 4; i++) {
        pthread_join(thread[i], &failed);
        assert_null(failed);
    }
    assert_string_equal(alive_doing(text), "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_call_is_named),
        cmocka_unit_test(threads_make_calls),
    };
    return cmocka_run_group_tests_name("alive", tests, NULL, NULL);
}
