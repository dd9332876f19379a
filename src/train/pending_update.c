/* pending_update.c - see pending_update.h. */
#include "train/pending_update.h"

void pending_update_pass(struct pending_update *pending, const struct session *s,
                         struct step_input *input)
{
    const struct optimizer_rule before = pending->rule;
    if (!s->update)
        return;
    *pending = (struct pending_update){1, input->step, input->rule};
    input->rule = before;
}

int pending_update_make(struct pending_update *pending, struct session *s, struct error *err)
{
    const struct step_input input = {.rule = pending->rule,
                                     .seed = (uint64_t)s->config.seed,
                                     .step = pending->step,
                                     .decay_all = s->config.train.decay == DECAY_ALL};
    if (!pending->is_pending)
        return 0;
    pending->is_pending = 0;
    return execute(s->executor, s->update, &input, NULL, NULL, err);
}
