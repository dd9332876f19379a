/* lr_schedule.h - the learning rate of a step, and the optimizer's numbers that follow from it. */
#ifndef TRIREME_TRAIN_LR_SCHEDULE_H
#define TRIREME_TRAIN_LR_SCHEDULE_H

#include "config/config.h"
#include "segment/optimizer.h"

/* Return the learning rate of a step (1 is the first): from warmup_min_lr, which a step 0 would
 * have, to lr at step warmup_steps, linearly or with log(step + 1), then by the schedule from lr to
 * min_lr at the last step; schedules wsd stay at lr until the last decay_steps steps.  Without a
 * warm-up step 0 has lr, the start of the schedule.  Steps are
 * those of the optimizer, however many ranks and micro-batches share one; a step that an overflow
 * in fp16 skipped does not count, as in DeepSpeed. */
double lr_schedule_at(const struct config_train *train, int64_t step);

/* Return how many of the last steps of a schedule wsd decay: train.decay_steps, or where that is 0
 * a tenth of the steps, rounded up, if as many come after warm-up.  0 for other schedules. */
int64_t lr_schedule_decay_steps(const struct config_train *train);

/* Return the last step of the stable phase of a schedule wsd, 0 where it has none; -1 for other
 * schedules. */
int64_t lr_schedule_stable_end(const struct config_train *train);

/* Return how much of the decay of a schedule wsd is done at a step: 0 up to the end of the stable
 * phase, 1 at the last step.  0 for other schedules. */
double lr_schedule_decay_done(const struct config_train *train, int64_t step);

/* Return the optimizer's numbers of a step: learning rate, the config's constants, AdamW's bias
 * corrections. */
struct optimizer_rule lr_schedule_rule(const struct config_train *train, int64_t step);

#endif
