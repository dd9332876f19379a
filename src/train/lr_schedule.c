/* lr_schedule.c - see lr_schedule.h. */
#include "train/lr_schedule.h"

#include <math.h>

/* How far the learning rate has come from lr (0) to min_lr (1) after `done` (0 to 1) of the decay.
 */
static double decayed(enum config_schedule schedule, double done)
{
    switch (schedule) {
    case SCHEDULE_CONSTANT: break;
    case SCHEDULE_LINEAR: return done;
    case SCHEDULE_COSINE: return 0.5 * (1 - cos(M_PI * done));
    }
    return 0;
}

/* The fraction of the warm-up that is done at one of its steps. */
static double warm(const struct config_train *train, int64_t step)
{
    double steps = (double)train->warmup_steps;
    if (train->warmup_type == WARMUP_LINEAR)
        return (double)step / steps;
    return fmin(1, log((double)step + 1) / log(fmax(2, steps)));
}

double lr_schedule_at(const struct config_train *train, int64_t step)
{
    if (step <= train->warmup_steps)
        return train->warmup_min_lr + (train->lr - train->warmup_min_lr) * warm(train, step);
    int64_t first = train->warmup_steps - train->ahead, decay = train->steps - first;
    double done = decay > 0 ? (double)(step - first) / (double)decay : 1;
    return train->lr -
           (train->lr - train->min_lr) * decayed(train->schedule, fmax(0, fmin(done, 1)));
}

struct optimizer_rule lr_schedule_rule(const struct config_train *train, int64_t step)
{
    float lr = (float)lr_schedule_at(train, step);
    return (struct optimizer_rule){
        .adamw = {.lr = lr,
                  .beta2 = (float)train->beta2,
                  .eps = (float)train->eps,
                  .weight_decay = (float)train->weight_decay,
                  .one_minus_beta1 = (float)(1 - train->beta1),
                  .one_minus_beta2 = (float)(1 - train->beta2),
                  .bias1 = (float)(1 - pow(train->beta1, (double)step)),
                  .bias2 = (float)(1 - pow(train->beta2, (double)step))},
        .sgd = {.lr = lr,
                .momentum = (float)train->momentum,
                .weight_decay = (float)train->weight_decay},
        .momentum = {.one_minus_momentum = (float)(1 - train->muon.momentum),
                     .nesterov = train->muon.nesterov},
        .muon = {.lr = lr, .weight_decay = (float)train->weight_decay},
        .adjust_lr = train->muon.adjust_lr,
        .ns_steps = (int)train->muon.ns_steps,
        .ns_dtype = train->muon.dtype,
    };
}
