/* trainer_run.c - a whole training run: its steps, and what is done when they have ended. */
#include <stdio.h>
#include <stdlib.h>

#include "base/array.h"
#include "train/export_folder.h"
#include "train/run_summary.h"
#include "train/trainer_private.h"

static void report_over(const struct trainer *t)
{
    const struct run_best *best = &t->at.best;
    char why[96] = "had no finite loss, and none had before";
    if (best->step)
        snprintf(why, sizeof why, "were not better than that of step %lld (loss %.4f)",
                 (long long)best->step, best->loss);
    log_info(t->s->log,
             "train.early_stop: training ends at step %lld, as %lld evaluations in a row %s%s%s",
             (long long)t->at.step, (long long)best->without, why,
             best->step && t->dir.kept_step == best->step ? "; checkpoints/best has it" : "",
             t->at.step == t->begun ? "; a larger train.early_stop, or 0, trains it longer" : "");
}

/* From now on the answer to a signal says that the run is saved, and with which command an export
 * that is cut short is written. */
static void announce_export(const struct trainer *t)
{
    char *left = array_format("; the model is being written to %s/hf: where that is cut short, run "
                              "me again%s",
                              t->dir.path, t->dir.again);
    stop_trained(t->stop, left);
    free(left);
}

/* Write run.dir/hf of the best checkpoint, or of the last, where checkpoint.export_hf asks for it.
 * A start that finds all steps done comes here too, because the start that trained the last step
 * may have been killed before its export, or not have been asked for one. */
static int export_at_end(struct trainer *t, struct error *err)
{
    int64_t step = t->dir.kept_step ? t->dir.kept_step : t->at.step;
    world_broadcast(t->s->world, &step, sizeof step, 0);
    if (!t->s->config.checkpoint.export_hf || run_directory_has_export(&t->dir, step)) {
        stop_trained(t->stop, "");
        return 0;
    }
    announce_export(t);
    char *path = array_format("%s/step-%08lld", t->dir.checkpoints, (long long)step);
    int rc = export_folder_of_run(t->s->world, t->s->log, path, &t->s->config,
                                  run_directory_owns_export(&t->dir), err);
    free(path);
    if (rc) {
        err->code = EXIT_NODE; /* as where saving fails: the run is trained and saved */
        return -1;
    }
    run_directory_exported(&t->dir, step);
    log_info(t->s->log, "the model of step %lld is in %s/hf", (long long)step, t->dir.path);
    return 0;
}

static int has_ended(const struct trainer *t)
{
    return (t->at.step >= t->s->config.train.steps && !t->at.evaluation_due) || trainer_is_over(t);
}

/* End a run whose last state is saved.  Returns 0; or -1 with err set, also where the gradients of
 * every step have overflowed fp16: the loss scale has become smaller, but no weight has changed. */
static int end_run(struct trainer *t, struct error *err)
{
    if (t->at.step && t->at.scaler.skipped >= t->at.step)
        return error_set(err,
                         "gradients overflowed fp16 in every step, 1 to %lld: nothing was trained; "
                         "with more train.steps this run goes on at a loss scale of %g; or look at "
                         "train.initial_scale_power, and at the weights that it began with",
                         (long long)t->at.step, t->at.scaler.scale);
    return export_at_end(t, err);
}

int trainer_export(struct trainer *t, struct error *err)
{
    return has_ended(t) ? end_run(t, err) : 0;
}

/* Returns -1 with err set where this start has made steps and none has updated anything. */
static int check_updates(const struct trainer *t, struct error *err)
{
    int64_t steps = t->at.step - t->begun;
    if (t->is_stopping || !steps || t->skips < steps)
        return 0;
    return error_set(err,
                     "the gradient was not finite in any step, %lld to %lld: nothing was trained; "
                     "look at %s",
                     (long long)t->begun + 1, (long long)t->at.step,
                     t->at.scaler.active ? "train.loss_scale, and at the weights that it began with"
                                         : "the weights that it began with");
}

static int train_to_end(struct trainer *t, struct error *err)
{
    int64_t last = t->s->config.train.steps;
    if (trainer_advance(t, last, err) || check_updates(t, err) || trainer_save(t, err))
        return -1;
    if (trainer_is_over(t))
        report_over(t);
    if (has_ended(t))
        return end_run(t, err);
    log_info(t->s->log, "asked to stop: state saved at step %lld, %srun me again%s",
             (long long)t->at.step,
             t->dir.again[0] && t->dir.record.job[0] ? "requeue this job, or " : "", t->dir.again);
    err->code = EXIT_SAVED;
    return -1;
}

int trainer_run(struct trainer *t, struct error *err)
{
    t->begun = t->at.step;
    if (trainer_has_work(t)) {
        run_summary(t->s, &t->data.train, t->s->evaluate ? &t->data.valid : NULL, t->at.step,
                    t->at.samples);
        run_forecast_print(&t->forecast, t->s);
        return train_to_end(t, err);
    }
    if (trainer_is_over(t))
        report_over(t);
    else
        run_summary_done(t->s, &t->data.train, t->at.step, t->at.samples, t->dir.path);
    return end_run(t, err);
}
