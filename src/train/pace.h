/* pace.h - whether the disk that state is offloaded to keeps up with the steps. */
#ifndef TRIREME_TRAIN_PACE_H
#define TRIREME_TRAIN_PACE_H

#include "io/swap.h"
#include "train/session.h"

/* Of the first steps of a run; zero-initialise. */
struct pace {
    int64_t steps;       /* that have ended */
    double steps_s;      /* and took so long, in this window */
    int64_t begin_ns;    /* of the window */
    struct swap_use use; /* at its begin */
    int told;
};

/* A step has ended that took so long.  Warns, once, where a rank spends much of its steps waiting
 * for its file.  Collective. */
void pace_step(struct pace *pace, const struct session *session, double step_ms);

#endif
