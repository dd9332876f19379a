/* rate.h - the learning rate of a step, and the optimizer's numbers that follow from it. */
#ifndef TRIREME_TRAIN_RATE_H
#define TRIREME_TRAIN_RATE_H

#include "config/config.h"
#include "step/optimizer.h"

/* Rate of step (1 is the first): linear from lr / warmup_steps to lr over warmup_steps, then by
 * the schedule from lr to min_lr at the last step. */
double rate_at(const struct config_train *train, int64_t step);

/* What the optimizer is told at this step: the rate, the config's constants, AdamW's bias
 * corrections. */
struct optimizer_rule rate_rule(const struct config_train *train, int64_t step);

#endif
