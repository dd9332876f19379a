/* run_queue.c - see run_queue.h. */
#include "device/cpu/run_queue.h"

#include <fcntl.h>
#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/array.h"
#include "base/background.h"
#include "base/clock.h"
#include "base/schedstat.h"
#include "device/device.h"

/* Chosen, not measured, so that with the longest hold trials that fail take about a hundredth of
 * the time: one takes a sample, or a few. */
static const int64_t SAMPLE_NS = 50000000;      /* how often threads' waiting is looked at */
static const int64_t LEAST_HOLD_NS = 400000000; /* how long threads are left out at first, */
static const int64_t MOST_HOLD_NS = 8000000000; /* and at most, after trials that failed */
static const int64_t TRIAL_NS = 4 * SAMPLE_NS;  /* waiting within this time: the trial failed */
static const double TOLERATED = 0.15;           /* waiting of so much of a thread is noise */
static const double BACKGROUND = 0.25; /* and of so much for a background thread is its due: of low
                                          priority, it takes 0.1 to 0.2 of a core that is wanted */

/* The share of a thread by which other programs made the team wait since the sample before: what
 * the process's own background threads ran is not theirs. */
static double waited_for_others(const struct run_queue_choice *c, int64_t now_ns, int64_t waited_ns,
                                int64_t ran_ns)
{
    double wall = (double)(now_ns - c->last_ns);
    double own = fmin((double)(ran_ns - c->last_ran_ns), BACKGROUND * wall);
    double waited = (double)(waited_ns - c->last_waited_ns) - own;
    return wall > 0 && waited > 0 ? waited / wall : 0;
}

int run_queue_choice_sample(struct run_queue_choice *c, int64_t now_ns, int64_t waited_ns,
                            int64_t ran_ns)
{
    double waited = waited_for_others(c, now_ns, waited_ns, ran_ns);
    int first = c->last_ns == 0, fit = (int)(c->now - waited + TOLERATED);
    c->last_ns = now_ns;
    c->last_waited_ns = waited_ns;
    c->last_ran_ns = ran_ns;
    if (first)
        return c->now;
    if (fit < c->now && c->now > 1) {
        int failed = c->raised_ns && now_ns - c->raised_ns < TRIAL_NS;
        c->hold_ns = failed ? 2 * c->hold_ns : LEAST_HOLD_NS;
        c->hold_ns = c->hold_ns < MOST_HOLD_NS ? c->hold_ns : MOST_HOLD_NS;
        c->until_ns = now_ns + c->hold_ns;
        c->now = fit > 1 ? fit : 1;
    } else if (c->now < c->most && waited < TOLERATED && now_ns >= c->until_ns) {
        c->now = c->most;
        c->raised_ns = now_ns;
    }
    return c->now;
}

struct run_queue {
    struct run_queue_choice choice;
    int file[]; /* schedstat of each thread */
};

static int open_schedstat(void)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/self/task/%ld/schedstat", (long)syscall(SYS_gettid));
    return open(path, O_RDONLY | O_CLOEXEC);
}

/* How long a thread has waited for a core so far, by its schedstat; 0 where that could not be
 * opened.
 */
static int64_t waited_ns(int file)
{
    char text[96];
    ssize_t bytes = pread(file, text, sizeof text - 1, 0);
    text[bytes > 0 ? bytes : 0] = 0;
    return schedstat_waited_ns(text);
}

struct run_queue *run_queue_open(int threads)
{
    const char *dynamic = getenv("OMP_DYNAMIC");
    if (threads < 2 || (dynamic && !strcasecmp(dynamic, "false")))
        return NULL;
    struct run_queue *q = array_make(1, sizeof *q + (size_t)threads * sizeof *q->file);
    q->choice.most = q->choice.now = threads;
    for (int i = 0; i < threads; i++)
        q->file[i] = -1;
    omp_set_dynamic(0); /* OpenMP's own adjustment may read the load average before every loop */
    return q;
}

void run_queue_close(struct run_queue *q)
{
    for (int i = 0; q && i < q->choice.most; i++)
        if (q->file[i] >= 0)
            close(q->file[i]);
    free(q);
}

int run_queue_threads(const struct device *d)
{
    struct run_queue *q = d->queue;
    int64_t now = q ? clock_ns() : 0, sum = 0;
    if (omp_in_parallel())
        return 1;
    if (!q)
        return d->threads;
    if (now - q->choice.last_ns < SAMPLE_NS)
        return q->choice.now;
    if (q->choice.last_ns == 0) { /* not in run_queue_open(): threads without work would spin */
#pragma omp parallel num_threads(q->choice.most)
        q->file[omp_get_thread_num()] = open_schedstat();
    }
    for (int i = 0; i < q->choice.most; i++)
        sum += waited_ns(q->file[i]);
    return run_queue_choice_sample(&q->choice, now, sum, background_ran_ns());
}
