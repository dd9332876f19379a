/* lr_schedule.c - see lr_schedule.h. */
#include "train/lr_schedule.h"

#include <math.h>

#include "base/round.h"

/* How far the learning rate has come from lr (0) to min_lr (1) after `done` (0 to 1) of the decay.
 */
static double decayed(enum config_schedule schedule, double done)
{
    switch (schedule) {
    case SCHEDULE_CONSTANT: break;
    case SCHEDULE_LINEAR:
    case SCHEDULE_WSD: return done;
    case SCHEDULE_COSINE:
    case SCHEDULE_WSD_COSINE: return 0.5 * (1 - cos(M_PI * done));
    case SCHEDULE_WSD_SQRT: return sqrt(done);
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

/* The fraction of a decay over the last `decay` steps that is done at a step. */
static double done_at(const struct config_train *train, int64_t decay, int64_t step)
{
    double done = decay > 0 ? (double)(step - train->steps + decay) / (double)decay : 1;
    return fmax(0, fmin(done, 1));
}

/* Where the batch has changed on the way, a tenth is that of the steps that the run would have had
 * with this batch from its start. */
int64_t lr_schedule_decay_steps(const struct config_train *train)
{
    if (train->schedule < SCHEDULE_WSD)
        return 0;
    if (train->decay_steps)
        return train->decay_steps;
    return max_i64(
        0, min_i64(ceil_div(train->steps + train->ahead, 10), train->steps - train->warmup_steps));
}

int64_t lr_schedule_stable_end(const struct config_train *train)
{
    int64_t end = train->steps - lr_schedule_decay_steps(train);
    return train->schedule < SCHEDULE_WSD ? -1 : end > train->warmup_steps ? end : 0;
}

double lr_schedule_decay_done(const struct config_train *train, int64_t step)
{
    int64_t decay = lr_schedule_decay_steps(train);
    return decay > 0 ? done_at(train, decay, step) : 0;
}

double lr_schedule_at(const struct config_train *train, int64_t step)
{
    if (train->warmup_steps && step <= train->warmup_steps)
        return train->warmup_min_lr + (train->lr - train->warmup_min_lr) * warm(train, step);
    int64_t decay = train->schedule >= SCHEDULE_WSD
                        ? lr_schedule_decay_steps(train)
                        : train->steps + train->ahead - train->warmup_steps;
    return train->lr -
           (train->lr - train->min_lr) * decayed(train->schedule, done_at(train, decay, step));
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
