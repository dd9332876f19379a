/* core_wait.h - how long threads of this process are ready to run and have no core. */
#ifndef TRIREME_TRAIN_CORE_WAIT_H
#define TRIREME_TRAIN_CORE_WAIT_H

#include <stdint.h>

/* The threads at a time; the rest of many are left out. */
enum { CORE_WAIT_THREADS = 64 };
struct core_wait {
    int threads;
    int id[CORE_WAIT_THREADS];
    int64_t ns[CORE_WAIT_THREADS];
};

/* Note how long each thread has waited so far, as the kernel counts it; none, if it does not. */
void core_wait_begin(struct core_wait *wait);

/* Seconds since then of the thread that waited longest. */
double core_wait_end(const struct core_wait *wait);

#endif
