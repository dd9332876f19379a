/* evaluate.c - see evaluate.h. */
#include "train/evaluate.h"

#include <math.h>

#include "base/round.h"

int evaluate(struct session *s, struct batches *valid, int64_t batches, const struct stop *stop,
             double *loss, double *targets, struct error *err)
{
    int64_t each = valid->micro_batch * valid->data_ranks, samples = valid->data.windows;
    if (batches && batches * s->layout.global_batch < samples)
        samples = batches * s->layout.global_batch;
    struct step_input input = {
        .load = batches_load, .load_places = batches_load_places, .user = valid};
    double sum = 0;
    *targets = 0;
    for (valid->sample = 0; valid->sample < samples; valid->sample += each) {
        struct step_output output;
        int64_t left = samples - valid->sample;
        valid->batch = min_i64(left, each);
        input.stop_vote = stop_asked(stop) != 0;
        if (world_must(s->world, execute(s->executor, s->evaluate, &input, &output, NULL, err),
                       err))
            return -1;
        if (output.votes > 0)
            return EVALUATE_STOPPED;
        if (output.targets > 0)
            sum += output.loss * output.targets;
        *targets += output.targets;
    }
    *loss = *targets > 0 ? sum / *targets : NAN;
    return 0;
}
