/* checkpoint_space.h - whether the disk can hold a run's checkpoints, asked before it trains. */
#ifndef TRIREME_TRAIN_CHECKPOINT_SPACE_H
#define TRIREME_TRAIN_CHECKPOINT_SPACE_H

#include "train/session.h"

/* Checkpoints that a start will add, at most, to those there are at any one time: it finished
 * `done` of `steps`, saves every `every` steps (0: not) and at the end, and deletes all but
 * `keep` after a new one is whole.  0 where nothing is left to do. */
int64_t checkpoint_space_count(int64_t done, int64_t steps, int64_t every, int64_t keep,
                               int64_t there);

/* Compare what checkpoints under dir, a folder that all ranks share, will take with what is free
 * there now.  A run whose first one does not fit is refused: -1 on all ranks with err set; where
 * only later ones may not fit, rank 0 warns.  done: finished steps.  Collective. */
int checkpoint_space_check(struct session *session, const char *dir, int64_t done,
                           struct error *err);

#endif
