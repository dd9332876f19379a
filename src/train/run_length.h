/* run_length.h - how many steps a run has. */
#ifndef TRIREME_TRAIN_RUN_LENGTH_H
#define TRIREME_TRAIN_RUN_LENGTH_H

#include "base/error.h"
#include "config/config.h"
#include "train/run_checkpoint.h"

/* Set train->steps and train->ahead by train->epochs; where that is 0, leave train as it is.
 * The run stands at `at`, has `sequences` in an epoch, and takes `batch` of them a step from now
 * on.  It may have taken other batches before: its last step is the one that reads the last
 * sequence.  Returns 0, or -1 with err set: there would be too many steps, or fewer than
 * train->decay_steps after warm-up. */
int run_length_set(struct config_train *train, const struct run_position *at, int64_t sequences,
                   int64_t batch, struct error *err);

#endif
