/* rate.h - the learning rate of a step. */
#ifndef TRIREME_TRAIN_RATE_H
#define TRIREME_TRAIN_RATE_H

#include "config/config.h"

/* Rate of step (1 is the first): linear from lr / warmup_steps to lr over warmup_steps, then by
 * the schedule from lr to min_lr at the last step. */
double rate_at(const struct config_train *train, int64_t step);

#endif
