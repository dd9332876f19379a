/* evaluate.c - see evaluate.h. */
#include "train/evaluate.h"

int evaluate(struct session *s, struct batches *valid, int64_t batches, double *loss,
             double *targets, struct error *err)
{
    int64_t each = valid->micro_batch * valid->data_ranks;
    int64_t all = (valid->loader.windows + each - 1) / each;
    int64_t passes = batches && batches < all ? batches : all;
    struct step_input input = {.load = batches_load, .user = valid};
    double sum = 0;
    *targets = 0;
    valid->batch = each;
    for (int64_t i = 0; i < passes; i++) {
        struct step_output output;
        valid->sample = i * each;
        if (execute(s->executor, s->evaluate, &input, &output, NULL, err))
            return -1;
        sum += output.loss * output.targets;
        *targets += output.targets;
    }
    *loss = *targets > 0 ? sum / *targets : 0;
    return 0;
}
