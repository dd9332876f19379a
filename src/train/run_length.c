/* run_length.c - the steps of train.epochs.
 *
 * A run of 2 epochs of 60 sequences took 8 a step up to step 9, and goes on with 16 a step:
 *
 *     sequences   0 ...... 72 ...... 120
 *     steps       1 ...... 9  10 11 12        the last 48 in 3 steps
 *     with 16 from the start  5  6  7  8      so the learning rate's decay is 4 steps behind
 *
 * Steps count on from 9 and end with 12.  The decay goes on with the sequences, as that of a run
 * with 16 a step from its start would: from step 6 of 8 on.  So it neither jumps nor ends early.
 */
#include "train/run_length.h"

#include <math.h>

#include "base/round.h"

int run_length_set(struct config_train *train, int64_t done, int64_t samples, int64_t sequences,
                   int64_t batch, struct error *err)
{
    double all = ceil(train->epochs * (double)sequences * (1 - 1e-12));
    if (!(train->epochs > 0))
        return 0;
    if (all / (double)batch > 1e12)
        return error_set(err, "train.epochs: %g epochs of %lld sequences are %g steps",
                         train->epochs, (long long)sequences, ceil(all / (double)batch));
    int64_t needed = max_i64((int64_t)all, 1), alike = ceil_div(needed, batch);
    train->steps = done + ceil_div(max_i64(needed - samples, 0), batch);
    train->ahead = alike - train->steps;
    return config_check_decay_steps(train, err);
}
