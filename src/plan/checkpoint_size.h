/* checkpoint_size.h - what a run's checkpoints take on disk, and how many lie there at once. */
#ifndef TRIREME_PLAN_CHECKPOINT_SIZE_H
#define TRIREME_PLAN_CHECKPOINT_SIZE_H

#include "program/layout.h"
#include "segment/units.h"

/* Return the bytes of the numbers in a checkpoint, of all ranks: the master weights and the
 * optimizer's state of what is trained, and the weights of what is frozen; in a model with adapters
 * these only where checkpoint.frozen asks for them, or no folder (model.path) has them.  The same
 * for every layout; files add some KiB a rank and piece. */
int64_t checkpoint_size_bytes(const struct config *config, const struct layout *layout,
                              const struct units *units);

/* Return how many checkpoints more than the `there` that exist now may be on disk at once.  The run
 * has finished `done` of `steps` steps, saves every `every` steps (0: never) and at the end, and
 * deletes all but `keep` after a new one is complete.  0 where no step is left. */
int64_t checkpoint_size_more(int64_t done, int64_t steps, int64_t every, int64_t keep,
                             int64_t there);

/* The same for a run as it is configured.  steps: of the whole run, counted where train.epochs sets
 * them. */
int64_t checkpoint_size_more_of_run(const struct config *config, int64_t done, int64_t steps,
                                    int64_t there);

#endif
