/* disk_rate.h - whether the disk that holds offloaded state is fast enough for the steps. */
#ifndef TRIREME_TRAIN_DISK_RATE_H
#define TRIREME_TRAIN_DISK_RATE_H

#include "io/swap.h"
#include "train/session.h"

/* Measurements of the first steps of a run; zero-initialise. */
struct disk_rate {
    int64_t steps;       /* steps that have ended */
    double steps_s;      /* their seconds in this window */
    int64_t begin_ns;    /* when the window began */
    struct swap_use use; /* counters of the file when the window began */
    int warned;
};

/* Note a step that has ended.  step_ms: what it took; 0: a checkpoint was written beside it, and
 * its window is left out.  Rank 0 warns, once, where a rank spends much of its steps waiting for
 * its file.  Collective. */
void disk_rate_step(struct disk_rate *rate, const struct session *session, double step_ms);

#endif
