/* quiet_thread.c - see quiet_thread.h. */
#include "base/quiet_thread.h"

#include <signal.h>
#include <stdlib.h>

#include "base/array.h"

/* What a thread begins with; its own to free. */
struct start {
    const char *name;
    void *(*run)(void *);
    void *arg;
};

/* The thread names itself, so that it has its name when it begins to work. */
static void *begin(void *user)
{
    struct start start = *(struct start *)user;
    free(user);
    pthread_setname_np(pthread_self(), start.name);
    return start.run(start.arg);
}

/* A thread begins with the signals blocked that are blocked in the one that creates it. */
int quiet_thread_start(pthread_t *thread, const char *name, void *(*run)(void *), void *arg)
{
    struct start *start = array_make(1, sizeof *start);
    sigset_t all, before;
    *start = (struct start){name, run, arg};
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(thread, NULL, begin, start);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed)
        free(start);
    return failed;
}
