/* background.c - see background.h.  Threads belong to the process, and so does their table: a
 * thread that works in the background has a place in a table with the clock that counts its time;
 * when it ends, its time is added to that of the ones before.
 */
#include "base/background.h"

#include <pthread.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"

enum { NICE = 10 };

static struct {
    pthread_mutex_t lock;
    int count;
    clockid_t clock[BACKGROUND_MOST];
    int64_t ended_ns; /* of those that have ended */
} background = {.lock = PTHREAD_MUTEX_INITIALIZER};

void background_begin(void)
{
    clockid_t clock;
    setpriority(PRIO_PROCESS, (id_t)gettid(), NICE); /* of this thread alone, as Linux has it */
    pthread_mutex_lock(&background.lock);
    if (background.count < BACKGROUND_MOST && !pthread_getcpuclockid(pthread_self(), &clock))
        background.clock[background.count++] = clock;
    pthread_mutex_unlock(&background.lock);
}

void background_end(void)
{
    clockid_t clock;
    int known = !pthread_getcpuclockid(pthread_self(), &clock);
    pthread_mutex_lock(&background.lock);
    for (int i = 0; known && i < background.count; i++)
        if (background.clock[i] == clock) {
            background.clock[i--] = background.clock[--background.count];
            background.ended_ns += clock_thread_ns();
        }
    pthread_mutex_unlock(&background.lock);
}

int64_t background_ran_ns(void)
{
    pthread_mutex_lock(&background.lock);
    int64_t ns = background.ended_ns;
    for (int i = 0; i < background.count; i++) {
        struct timespec ran = {0};
        clock_gettime(background.clock[i], &ran);
        ns += (int64_t)ran.tv_sec * 1000000000 + ran.tv_nsec;
    }
    pthread_mutex_unlock(&background.lock);
    return ns;
}
