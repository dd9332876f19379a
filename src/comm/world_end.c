/* world_end.c - ending the whole job after a failure of one rank, for which the others would wait.
 *
 * Buffered output is written first, then MPI_Abort is called on the communication thread, the only
 * one that may call MPI.  Each step may hang, so each has a limit of seconds, after which the
 * process ends itself and leaves the other ranks to the launcher.
 */
#include <fcntl.h>
#include <mpi.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "comm/transport.h"

enum { END_STEP_S = 5 }; /* limit of a step in seconds */

static void *flush(void *arg)
{
    fflush(NULL);
    log_urgent_wait();
    return arg;
}

/* Write what is buffered, and wait until the line that says why the job ends is in log.txt, for at
 * most END_STEP_S: a thread that is stuck in writing, perhaps the cause of the end, keeps its
 * stream locked. */
static void flush_if_possible(void)
{
    pthread_t thread;
    struct timespec until;
    if (pthread_create(&thread, NULL, flush, NULL))
        return;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += END_STEP_S;
    pthread_timedjoin_np(thread, NULL, &until);
}

/* MPI_Abort would print at length what is already printed, so stderr becomes /dev/null.  If it does
 * not end the process, the alarm does, and the launcher ends the others. */
void world_end_all(int code)
{
    int nowhere = open("/dev/null", O_WRONLY);
    flush_if_possible();
    signal(SIGALRM, SIG_DFL);
    alarm(END_STEP_S);
    if (nowhere >= 0)
        dup2(nowhere, STDERR_FILENO);
    MPI_Abort(MPI_COMM_WORLD, code);
    _exit(code);
}

static void call_abort(void *arg)
{
    world_end_all(*(int *)arg);
}

void world_abort(struct world *world, int code)
{
    if (world) {
        /* A thread stuck in MPI cannot end the others; then the launcher has to. */
        struct timespec limit = {.tv_sec = 2 * END_STEP_S};
        thread_interrupt(world->thread, call_abort, &code);
        nanosleep(&limit, NULL);
    }
    _exit(code);
}

void world_fail(struct world *world, const struct error *err)
{
    log_urgent("error: rank %d (%s): %s", world->rank, world->host, err->text);
    world_abort(world, err->code);
}

int world_end_job_if_failed(struct world *world, int rc, const struct error *err)
{
    if (rc && world->size > 1)
        world_fail(world, err);
    return rc ? -1 : 0;
}
