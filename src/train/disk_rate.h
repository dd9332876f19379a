/* disk_rate.h - whether the disk that state is offloaded to keeps up with the steps. */
#ifndef TRIREME_TRAIN_DISK_RATE_H
#define TRIREME_TRAIN_DISK_RATE_H

#include "io/swap.h"
#include "train/session.h"

/* Of the first steps of a run; zero-initialise. */
struct disk_rate {
    int64_t steps;       /* that have ended */
    double steps_s;      /* and took so long, in this window */
    int64_t begin_ns;    /* of the window */
    struct swap_use use; /* at its begin */
    int warned;
};

/* A step has ended that took so long.  Warns, once, where a rank spends much of its steps waiting
 * for its file.  Collective. */
void disk_rate_step(struct disk_rate *rate, const struct session *session, double step_ms);

#endif
