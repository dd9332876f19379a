/* core_wait.h - how long threads of this process are ready to run and have no core. */
#ifndef TRIREME_TRAIN_CORE_WAIT_H
#define TRIREME_TRAIN_CORE_WAIT_H

#include <stdint.h>

enum { CORE_WAIT_THREADS = 64 }; /* looked at; of a process with more the others are left out */

/* Threads of the process at core_wait_begin(). */
struct core_wait {
    int threads;
    int id[CORE_WAIT_THREADS];     /* the kernel's number of the thread */
    int64_t ns[CORE_WAIT_THREADS]; /* how long it had waited for a core by then */
};

/* Note how long each thread of the process has waited for a core so far.  Where the kernel does not
 * count that (/proc/self/task/N/schedstat), no thread is noted and core_wait_end() returns 0. */
void core_wait_begin(struct core_wait *wait);

/* Return for how many seconds since core_wait_begin() the thread that waited longest has waited. */
double core_wait_end(const struct core_wait *wait);

#endif
