/* run_length.c - the steps of train.epochs.
 *
 * A run of 2 epochs of 60 sequences took 8 a step up to step 9, of which 3 were its warm-up, and
 * goes on with 16 a step:
 *
 *     sequences   0 .. 24 ...... 72 ...... 120
 *     steps       1 ... 3 ...... 9  10 11 12        the last 48 in 3 steps
 *     decay            0 ...... 50 ....... 100 %    96 sequences, as before
 *
 * Steps count on from 9 and end with 12.  The decay goes on with the sequences: from the end of the
 * warm-up it takes 96 of them, 6 steps of 16.  The 3 + 6 steps that it counts with are 3 fewer than
 * the run's 12, so train.ahead is -3.  Thus the learning rate neither jumps nor ends early, however
 * often the batch changes.  A decay of schedule wsd is a tenth of the steps that the run would have
 * had with 16 from its start, and ends with the run.
 */
#include "train/run_length.h"

#include <math.h>

#include "base/round.h"

/* The steps of `batch` sequences that a decay takes from the end of the warm-up to the last of the
 * `needed` sequences.  A warm-up that goes on takes that batch from here on. */
static int64_t decay_from_warmup(const struct config_train *train, const struct run_position *at,
                                 int64_t needed, int64_t batch)
{
    int64_t left = train->warmup_steps - (at->step - at->scaler.skipped);
    int64_t warmup = left > 0 ? at->samples + left * batch : at->warmup_samples;
    return ceil_div(max_i64(needed - warmup, 0), batch);
}

int run_length_set(struct config_train *train, const struct run_position *at, int64_t sequences,
                   int64_t batch, struct error *err)
{
    double all = ceil(train->epochs * (double)sequences * (1 - 1e-12));
    if (!(train->epochs > 0))
        return 0;
    if (all / (double)batch > 1e12)
        return error_set(err, "train.epochs: %g epochs of %lld sequences are %g steps",
                         train->epochs, (long long)sequences, ceil(all / (double)batch));
    int64_t needed = max_i64((int64_t)all, 1);
    train->steps = at->step + ceil_div(max_i64(needed - at->samples, 0), batch);
    int64_t counted = train->schedule < SCHEDULE_WSD
                          ? train->warmup_steps + decay_from_warmup(train, at, needed, batch)
                          : ceil_div(needed, batch);
    train->ahead = counted - train->steps;
    return config_check_decay_steps(train, err);
}
