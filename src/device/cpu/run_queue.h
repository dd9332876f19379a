/* run_queue.h - how many threads kernels use while other processes want the same cores.
 *
 * Threads of a team meet after every kernel.  One that waits for a core makes all others wait, and
 * they spin: two threads beside eight busy processes on two cores are several times slower than
 * one.  Linux counts for each thread how long it was ready and had no core
 * (/proc/self/task/N/schedstat). Every SAMPLE that is summed over the team: the threads that did
 * not have a core, on average, are left out, until the others find their cores free again; then all
 * are tried, and where that fails, again after twice the time, 8 s at most.
 *
 *   threads 2, waited 0.01 of 2   ->  2            idle machine
 *   threads 2, waited 1.6 of 2    ->  1            eight busy processes on two cores
 *   threads 64, waited 0.5 of 64  ->  63           one busy process on 64 cores
 *
 * A thread of this process that writes a checkpoint in the background is no other process: the team
 * bears the little of a core that it takes, which is less than a thread left out.
 *
 * A kernel gives the same bits with any number of threads, and a product of oneDNN takes fewer only
 * where that was seen to give the same bits, so that load changes nothing but time.
 * OMP_DYNAMIC=false, OpenMP's word for it, keeps all threads.
 */
#ifndef TRIREME_DEVICE_CPU_RUN_QUEUE_H
#define TRIREME_DEVICE_CPU_RUN_QUEUE_H

#include <stdint.h>

struct device;

/* The choice itself, without clock and files.  It begins with zeros, but for most and now, which
 * are equal. */
struct run_queue_choice {
    int most, now;          /* threads there are; threads to be used */
    int64_t last_ns;        /* time of the sample before; 0: there was none */
    int64_t last_waited_ns; /* and what all threads had waited by then, */
    int64_t last_ran_ns;    /* and background threads had run */
    int64_t hold_ns;        /* how long threads are left out */
    int64_t until_ns;       /* and until when */
    int64_t raised_ns;      /* when all threads were tried again; 0: never */
};

/* Take a sample: the time, for how long all threads together were ready without a core, and for how
 * long background threads of the process (base/background.h) had one, each since any fixed point.
 * Returns the number of threads to use from now on. */
int run_queue_choice_sample(struct run_queue_choice *choice, int64_t now_ns, int64_t waited_ns,
                            int64_t ran_ns);

struct run_queue;

/* Begin to watch the team of `threads` threads that the calling thread will start.  Returns a queue
 * for run_queue_close(), or NULL where the number of threads is not to change: with
 * OMP_DYNAMIC=false and for one thread.  It does not change either where the kernel counts no
 * waiting. */
struct run_queue *run_queue_open(int threads);
void run_queue_close(struct run_queue *queue); /* NULL allowed */

/* The number of threads that a kernel should use now, d->threads at most; 1 inside a parallel
 * region. Takes a sample when one is due. */
int run_queue_threads(const struct device *d);

#endif
