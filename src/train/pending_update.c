/* pending_update.c - the rule of the step before, kept for its update; see pending_update.h. */
#include "train/pending_update.h"

static int check(const struct pending_update *pending, struct error *err)
{
    if (!pending->is_broken)
        return 0;
    return error_set(err,
                     "a step failed while weights were updated: memory may hold a mixture of two "
                     "steps; go on from the last checkpoint");
}

int pending_update_pass(struct pending_update *pending, const struct session *s,
                        struct step_input *input, struct error *err)
{
    if (!s->update)
        return 0;
    pending->next = (struct pending_update_step){input->step, input->rule};
    input->rule = pending->last.rule;
    return check(pending, err);
}

void pending_update_started(struct pending_update *pending, const struct session *s, int rc)
{
    if (!s->update)
        return;
    pending->is_broken |= rc != 0;
    if (!rc)
        pending->last = pending->next;
}

int pending_update_make(struct pending_update *pending, struct session *s, struct error *err)
{
    const struct step_input input = {.rule = pending->last.rule,
                                     .seed = (uint64_t)s->config.seed,
                                     .step = pending->last.step,
                                     .decay_all = s->config.train.decay == DECAY_ALL};
    if (check(pending, err))
        return -1;
    if (!pending->last.step)
        return 0;
    pending->last.step = 0;
    pending->is_broken = executor_run_step(s->executor, s->update, &input, NULL, NULL, err) != 0;
    return pending->is_broken ? -1 : 0;
}
