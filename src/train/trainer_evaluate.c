/* trainer_evaluate.c - evaluations between a run's steps, and what follows from their loss. */
#include <math.h>

#include "train/evaluate.h"
#include "train/trainer_private.h"

/* Compare the loss of an evaluation with the lowest before it; one that is not finite is not below
 * any, and is warned of. */
static void judge_evaluation(struct trainer *t, double loss)
{
    struct run_best *best = &t->at.best;
    double delta = t->s->config.train.early_stop_delta;
    if (!isfinite(loss) && !world_rank(t->s->world))
        log_warn(t->s->log,
                 "step %lld: the loss on data.valid is not finite: what the model computes "
                 "overflows; lower train.lr, and go on from an earlier checkpoint "
                 "(checkpoint.resume)%s",
                 (long long)t->at.step,
                 t->s->config.precision == PRECISION_FP16 ? ", or use precision bf16" : "");
    if (!isfinite(loss) || (best->step && !(loss < best->loss - delta))) {
        best->without++;
        return;
    }
    *best = (struct run_best){.step = t->at.step, .loss = loss};
    t->save_due |= t->s->config.checkpoint.keep_best;
}

/* Evaluate the state after the step last ended, and write samples.  Where a stop was asked for
 * before or during that, or data.valid cannot be read, the run stops with evaluation_due set, and
 * the next start makes the whole evaluation. */
static int run_evaluation(struct trainer *t, struct metrics_step *report, struct error *err)
{
    int rc = EVALUATE_STOPPED;
    if (trainer_make_pending_update(t, err))
        return -1;
    training_data_warn_changed(&t->data, t->s);
    if (!t->is_stopping)
        rc = evaluate(t->s, &t->data.valid, t->s->config.train.eval_batches, t->stop,
                      &report->eval_loss, &report->eval_tokens, err);
    if (rc == EVALUATE_UNREADABLE) {
        t->data.unread = *err;
        *err = (struct error){0};
    }
    if (!rc && t->samples)
        rc = samples_write(t->samples, t->at.step, t->stop, err);
    t->at.evaluation_due = rc > 0;
    t->is_stopping |= rc > 0;
    report->evaluated = !rc;
    if (rc)
        return rc < 0 ? -1 : 0;
    judge_evaluation(t, report->eval_loss);
    return 0;
}

int trainer_evaluate_if_due(struct trainer *t, struct metrics_step *report, struct error *err)
{
    const struct config_train *c = &t->s->config.train;
    if (!t->s->evaluate || !(trainer_is_due(c->eval_every, t->at.step) || t->at.step == c->steps))
        return 0;
    return run_evaluation(t, report, err);
}

int trainer_make_up_evaluation(struct trainer *t, struct error *err)
{
    struct metrics_step report = {.step = t->at.step};
    if (run_evaluation(t, &report, err))
        return -1;
    if (report.evaluated)
        metrics_write_evaluation(&t->metrics, &report);
    t->save_due |= report.evaluated; /* so that the next start does not repeat it */
    return 0;
}
