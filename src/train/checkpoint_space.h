/* checkpoint_space.h - whether the disk can hold a run's checkpoints; compared before the run
 * trains. */
#ifndef TRIREME_TRAIN_CHECKPOINT_SPACE_H
#define TRIREME_TRAIN_CHECKPOINT_SPACE_H

#include "train/session.h"

/* How many checkpoints a start will add to those that exist, at most, at any one time: it has
 * finished `done` of `steps`, saves every `every` steps (0: not) and at the end, and deletes all
 * but `keep` after a new one is complete.  `there`: how many exist.  0 where no step is left. */
int64_t checkpoint_space_count(int64_t done, int64_t steps, int64_t every, int64_t keep,
                               int64_t there);

/* Compare the bytes that checkpoints under dir, a folder that all ranks share, will take with those
 * that are free now.  If the first one does not fit, the run is refused: -1 on all ranks with err
 * set; if only later ones may not fit, rank 0 warns. done: finished steps; there: the run's
 * checkpoints that pruning will count (rank 0's counts).  Changes nothing.  Collective. */
int checkpoint_space_check(struct session *session, const char *dir, int64_t done, int64_t there,
                           struct error *err);

#endif
