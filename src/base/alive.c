/* alive.c - see alive.h.  One count for the process, which any of its threads may raise, and one
 * list of the calls that its threads are making; each entry lies on the stack of its caller. */
#include "base/alive.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"

static volatile sig_atomic_t pieces;

void alive_note(void)
{
    __atomic_add_fetch(&pieces, 1, __ATOMIC_RELAXED);
}

int alive_count(void)
{
    return __atomic_load_n(&pieces, __ATOMIC_RELAXED);
}

static struct {
    pthread_mutex_t lock;
    struct alive_call *last;
} calls = {PTHREAD_MUTEX_INITIALIZER, NULL};

void alive_enter(struct alive_call *call, const char *what, const char *name)
{
    *call = (struct alive_call){.what = what, .name = name, .begin_ns = clock_ns()};
    pthread_mutex_lock(&calls.lock);
    call->before = calls.last;
    calls.last = call;
    pthread_mutex_unlock(&calls.lock);
}

void alive_leave(struct alive_call *call)
{
    struct alive_call **at = &calls.last;
    pthread_mutex_lock(&calls.lock);
    while (*at != call)
        at = &(*at)->before;
    *at = call->before;
    pthread_mutex_unlock(&calls.lock);
    alive_note();
}

const char *alive_doing(char text[ALIVE_DOING])
{
    enum { NAME = 200 };
    const struct alive_call *first = NULL;
    text[0] = 0;
    pthread_mutex_lock(&calls.lock);
    for (const struct alive_call *call = calls.last; call; call = call->before)
        if (!first || call->begin_ns < first->begin_ns)
            first = call;
    if (first) {
        size_t length = strlen(first->name), cut = length > NAME ? length - NAME : 0;
        snprintf(text, ALIVE_DOING, "%s %s%s for %d s", first->what, cut ? "..." : "",
                 first->name + cut, (int)((clock_ns() - first->begin_ns) / 1000000000));
    }
    pthread_mutex_unlock(&calls.lock);
    return text;
}
