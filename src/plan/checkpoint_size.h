/* checkpoint_size.h - what a run's checkpoints take on disk, and how many lie there at once. */
#ifndef TRIREME_PLAN_CHECKPOINT_SIZE_H
#define TRIREME_PLAN_CHECKPOINT_SIZE_H

#include "program/layout.h"
#include "segment/units.h"

/* Bytes of the numbers in a checkpoint, of all ranks: the master weights and the optimizer's state
 * of what is trained, the weights of what is frozen; beside adapters the latter only where
 * checkpoint.frozen asks for them, or no folder (model.path) has them.  The same for every layout;
 * files add some KiB a rank and piece. */
int64_t checkpoint_size_bytes(const struct config *config, const struct layout *layout,
                              const struct units *units);

/* How many checkpoints a start will add to those that exist, at most, at any one time: it has
 * finished `done` of `steps`, saves every `every` steps (0: not) and at the end, and deletes all
 * but `keep` after a new one is complete.  `there`: how many exist.  0 where no step is left. */
int64_t checkpoint_size_count(int64_t done, int64_t steps, int64_t every, int64_t keep,
                              int64_t there);

/* The same of a run as it is configured; steps: those of the run, as train.epochs may say them. */
int64_t checkpoint_size_count_of_run(const struct config *config, int64_t done, int64_t steps,
                                     int64_t there);

#endif
