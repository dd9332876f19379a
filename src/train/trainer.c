/* trainer.c - the steps of a training run; see trainer.h.  trainer_evaluate.c evaluates between
 * them, trainer_run.c is the whole run and its end.
 *
 * A GPU computes a step while the host reports the one before.  So up to two steps are under way,
 * in flight[step % 2]:
 *
 *   start 7 | end 6: numbers, metrics | start 8 | end 7 | ... | start 10 | end 9 | end 10 | save
 *
 * must_end() says after which steps nothing may be under way: before a checkpoint, an evaluation or
 * a trace, with a dynamic loss scale (the next step depends on it), and always on the CPU.  All
 * ranks take the same decisions, because what they depend on (loss, votes to stop, skipped) is the
 * same on all.
 */
#include "train/trainer_private.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/round.h"
#include "base/text.h"
#include "io/disk.h"
#include "program/memory.h"
#include "train/lr_schedule.h"
#include "train/shared_settings.h"
#include "train/tokenizer_check.h"
#include "train/tracing.h"
#include "train/weights.h"

enum { SKIPS_IN_A_ROW = 10 }; /* steps without an update before the run gives up */

/* Rank 0 writes products.json, opens metrics.jsonl and, where anything will be trained or evaluated
 * with these settings, writes config.yaml and claims the directory for this start. */
static int open_records(struct trainer *t, struct error *err)
{
    char path[CONFIG_TEXT + 16];
    if (world_rank(t->s->world))
        return 0;
    snprintf(path, sizeof path, "%s/config.yaml", t->dir.path);
    if ((trainer_has_work(t) && (config_write(&t->s->config, CONFIG_OF_RUN, path, err) ||
                                 run_directory_claim(&t->dir, err))) ||
        product_table_write(&t->s->products, t->s, err))
        return -1;
    return metrics_open(&t->metrics, t->s, t->dir.metrics, t->at.step, err);
}

/* Do the weights begin with those of a folder, model.path or lora.path? */
static int has_folders(const struct config *c)
{
    return (c->model_path[0] && c->model_init == INIT_PRETRAINED) || c->lora.path[0];
}

/* Check that these folders hold this model's weights, unless the run has checkpoints: then they may
 * be gone. */
static int check_weights(struct session *s, struct error *err)
{
    const struct config *c = &s->config;
    int goes_on = disk_has(c->run.dir, "checkpoints") && !c->run.fresh;
    if (!has_folders(c) || goes_on || world_rank(s->world))
        return 0;
    return weights_import_check(s, err);
}

/* Fill the weights of a run that resumes no checkpoint.  The folders are checked here as well:
 * check_weights() left them out where the run's directory had checkpoints, of which none was
 * resumed. */
static int begin_weights(struct trainer *t, struct error *err)
{
    struct session *s = t->s;
    if (!has_folders(&s->config))
        return world_agree(s->world, weights_init(s, err), err);
    if (s->config.model_init == INIT_PRETRAINED && !world_rank(s->world))
        tokenizer_check_model(s->log, "data.train", tokenizer_check_name(&t->data.train.data),
                              s->config.model_path);
    int rc = world_rank(s->world) ? 0 : weights_import_check(s, err) || weights_note_base(s, err);
    if (world_agree(s->world, rc ? -1 : 0, err))
        return -1;
    return world_agree(s->world, weights_import(s, err), err);
}

/* Open everything, in an order in which a run that is refused has written nothing into an earlier
 * run's config.yaml and metrics.jsonl.  The first steps' tokens are read only after the checkpoint
 * is loaded, because its position says which tokens these are. */
static int begin(struct trainer *t, struct error *err)
{
    struct session *s = t->s;
    int found = 0;
    if (world_agree(s->world,
                    training_data_open(&t->data, s, err) || check_weights(s, err) ? -1 : 0, err))
        return -1;
    struct run_data data = run_data_of(&t->data.train.data, &t->data.valid.data);
    if (shared_settings_check_data(s->world, &s->config.data, &data, err) ||
        run_forecast_open(&t->forecast, s, err) || run_directory_open(&t->dir, s, data, err) ||
        stop_early(t->stop, s->log, err) || run_directory_begin(&t->dir, &found, &t->at, err) ||
        run_directory_saving_open(&t->dir, err))
        return -1;
    run_directory_keep_best(&t->dir, &t->at.best);
    t->at.evaluation_due &= s->evaluate != NULL;
    t->epoch_ms = t->at.samples % t->data.train.data.windows < s->layout.global_batch ? 0 : -1;
    int64_t steps = trainer_is_over(t) ? 0 : s->config.train.steps - t->at.step;
    if (training_data_begin(&t->data, s, t->at.samples, steps, err))
        return -1;
    if (!found && begin_weights(t, err))
        return -1;
    if (s->config.sync_module_states && weights_compare_ranks(s, err))
        return -1;
    if (stop_early(t->stop, s->log, err) || world_agree(s->world, open_records(t, err), err) ||
        run_forecast_make(&t->forecast, s, err) || samples_open(&t->samples, s, t->at.step, err))
        return -1;
    t->comparison = comparison_open(s, &t->forecast, t->at.step + 1);
    return 0;
}

int trainer_open(struct trainer **trainer, struct session *session, struct stop *stop,
                 struct error *err)
{
    struct trainer *t = array_make(1, sizeof *t);
    *t = (struct trainer){.s = session, .stop = stop, .dir = {.lock = -1}};
    t->at.scaler = scaler_begin(&session->config);
    if (begin(t, err)) {
        trainer_close(t);
        return -1;
    }
    *trainer = t;
    return 0;
}

void trainer_close(struct trainer *t)
{
    if (!t)
        return;
    metrics_close(&t->metrics);
    samples_close(t->samples);
    comparison_close(t->comparison);
    run_forecast_close(&t->forecast);
    training_data_close(&t->data);
    run_directory_saving_close(&t->dir);
    run_directory_close(&t->dir);
    breakdown_free(&t->breakdown[0]);
    breakdown_free(&t->breakdown[1]);
    free(t);
}

/* Is this the state of the lowest loss so far, of which checkpoint.keep_best wants a checkpoint? */
static int is_best(const struct trainer *t)
{
    return t->s->config.checkpoint.keep_best && t->at.best.step == t->at.step;
}

enum { NEWEST_TEXT = 80 };

/* From which checkpoint the run would go on, where a newer one could not be saved. */
static const char *newest_text(const struct trainer *t, char text[NEWEST_TEXT])
{
    snprintf(text, NEWEST_TEXT, "this run has no checkpoint yet");
    if (t->dir.saved_step >= 0)
        snprintf(text, NEWEST_TEXT, "the newest checkpoint is still that of step %lld",
                 (long long)t->dir.saved_step);
    return text;
}

/* What becomes of the run where rc says that the checkpoint of a step could not be saved, and why:
 * a warning, and the run goes on, unless its directory is lost.  Returns 0, or -1 with err set. */
static int go_on(const struct trainer *t, int rc, int64_t step, const struct error *why,
                 struct error *err)
{
    if (rc && t->dir.lost) {
        *err = *why;
        return error_prefix(err, "training ends at step %lld", (long long)t->at.step);
    }
    char newest[NEWEST_TEXT];
    if (rc && !world_rank(t->s->world))
        log_warn(t->s->log, "checkpoint of step %lld failed, training goes on: %s; %s",
                 (long long)step, why->text, newest_text(t, newest));
    return 0;
}

/* Commit the checkpoint that is being written in the background, where it is written or the run has
 * to wait for it.  Returns as go_on() does. */
static int end_saving(struct trainer *t, enum run_save_wait wait, struct error *err)
{
    struct error why = {0};
    int rc = run_directory_save_end(&t->dir, wait, &why);
    return go_on(t, rc, t->dir.saving.position.step, &why, err);
}

/* Delete what the newest checkpoint replaces, once a step after it has updated something. */
static void prune_if_replaced(struct trainer *t)
{
    if (t->at.step > t->dir.saved_step && !t->skips)
        run_directory_prune(&t->dir);
}

/* Is a checkpoint due after a step: by checkpoint.every, or where that is set and the schedule's
 * decay begins, for runs that go on from there? */
static int is_save_due(const struct config *c, const struct run_position *at)
{
    return trainer_is_due(c->checkpoint.every, at->step) ||
           (c->checkpoint.every &&
            at->step - at->scaler.skipped == lr_schedule_stable_end(&c->train));
}

/* Save a checkpoint where one is due, in the background if checkpoint.async says so.  While steps
 * update nothing, none is written, because the weights are still those of the newest checkpoint;
 * but that of the best evaluation is written at once, because a later checkpoint would have another
 * step.  Old ones are deleted first where a checkpoint in the background has kept them so far.
 * Returns 0, or -1 with err set: the directory is lost (go_on()), or the pending update failed. */
static int save_if_due(struct trainer *t, struct error *err)
{
    struct error why = {0};
    const struct config *c = &t->s->config;
    t->save_due |= is_save_due(c, &t->at);
    if (!t->save_due || t->at.step >= c->train.steps || t->is_stopping || (t->skips && !is_best(t)))
        return 0;
    t->save_due = 0;
    training_data_warn_changed(&t->data, t->s);
    if (trainer_make_pending_update(t, err) || end_saving(t, SAVE_WAIT, err))
        return -1;
    prune_if_replaced(t);
    int rc = run_directory_save_begin(&t->dir, t->at, &why);
    return go_on(t, rc, t->at.step, &why, err);
}

static struct step_input input_of(struct trainer *t, int64_t step)
{
    const struct config_train *c = &t->s->config.train;
    return (struct step_input){
        .load = read_ahead_load,
        .load_positions = read_ahead_load_positions,
        .user = t->data.ahead,
        .rule = lr_schedule_rule(c, step - t->at.scaler.skipped),
        .seed = (uint64_t)t->s->config.seed,
        .step = step,
        .decay_all = c->decay == DECAY_ALL,
        .clip = c->clip,
        .nominal_targets = (double)layout_step_tokens(&t->s->layout, &t->s->config),
        .loss_scale = t->at.scaler.scale,
        .stop_vote = stop_asked(t->stop) != 0 || read_ahead_check(t->data.ahead, NULL),
    };
}

/* Count the steps in a row that updated nothing; while the loss scale can still become smaller,
 * they do not count. */
static void count_skips(struct trainer *t, int skipped)
{
    int lost = skipped && (!t->at.scaler.active || scaler_at_end(&t->at.scaler));
    scaler_update(&t->at.scaler, skipped);
    t->skips = lost ? t->skips + 1 : 0;
}

static int check_skips(const struct trainer *t, int64_t step, struct error *err)
{
    if (t->skips < SKIPS_IN_A_ROW)
        return 0;
    if (t->at.scaler.active)
        return error_set(err,
                         "step %lld: gradients were not finite for %d steps in a row at a loss "
                         "scale of %g, which cannot become smaller; lower train.lr or "
                         "train.min_loss_scale or train.loss_scale, or use precision bf16",
                         (long long)step, t->skips, t->at.scaler.scale);
    return error_set(err,
                     "step %lld: the gradient was not finite for %d steps in a row; lower "
                     "train.lr, or resume from an earlier checkpoint",
                     (long long)step, t->skips);
}

/* Add a step's time to that of its epoch, and report that of an epoch which ends with it. */
static void time_epoch(struct trainer *t, struct metrics_step *report)
{
    double before = report->samples - (double)t->s->layout.global_batch;
    double windows = (double)t->data.train.data.windows;
    if (t->epoch_ms >= 0)
        t->epoch_ms += report->step_ms;
    if (floor(report->samples / windows) <= floor(before / windows))
        return;
    report->epoch_s = t->epoch_ms > 0 ? t->epoch_ms / 1e3 : 0;
    t->epoch_ms = 0;
}

/* Start the next step. */
static int start(struct trainer *t, struct error *err)
{
    struct session *s = t->s;
    int64_t step = t->at.step + 1;
    struct trainer_flight *flight = &t->flight[step % 2];
    struct step_input input = input_of(t, step);
    if (pending_update_pass(&t->pending, s, &input, err))
        return world_end_job_if_failed(s->world, -1, err);
    *flight =
        (struct trainer_flight){.traced = s->config.run.trace == step, .start_ns = clock_ns()};
    flight->beside_saving = t->dir.saving.writing != NULL;
    flight->measured =
        !flight->traced && !flight->beside_saving && comparison_measures(t->comparison, step);
    flight->report = (struct metrics_step){
        .step = step,
        .lr = lr_schedule_at(&s->config.train, step - t->at.scaler.skipped),
        .loss_scale = t->at.scaler.active ? t->at.scaler.scale : 0,
        .data = &t->data.train.data,
        .samples = (double)(t->at.samples + s->layout.global_batch),
    };
    flight->report.epoch = dataset_most_epochs(&t->data.train.data, flight->report.samples);
    if (metrics_want_breakdown(&t->metrics, step))
        flight->report.breakdown = input.breakdown = &t->breakdown[step % 2];
    t->data.train.sample = t->at.samples;
    if (flight->measured)
        core_wait_begin(&flight->core_wait);
    struct trace *trace = flight->traced || flight->measured ? &flight->trace : NULL;
    flight->trace.whole_runs = flight->measured;
    if (trace)
        trace_begin(trace);
    int64_t had_core_ns = clock_thread_ns();
    int rc = step_start(s->executor, s->train, &input, trace, &flight->pending, err);
    pending_update_started(&t->pending, s, rc);
    if (world_end_job_if_failed(s->world, rc, err))
        return -1;
    flight->core_ns = s->device->asynchronous ? 0 : clock_thread_ns() - had_core_ns;
    flight->under_way = 1;
    t->at.step = step;
    t->at.samples += s->layout.global_batch;
    if (step - t->at.scaler.skipped <= s->config.train.warmup_steps)
        t->at.warmup_samples = t->at.samples;
    return 0;
}

/* Wait for the end of a step, and take its numbers into the report and the run's position. */
static int finish(struct trainer *t, int64_t step, struct error *err)
{
    struct trainer_flight *flight = &t->flight[step % 2];
    struct metrics_step *report = &flight->report;
    struct step_output *output = &report->output;
    flight->under_way = 0;
    if (world_end_job_if_failed(t->s->world,
                                step_finish(t->s->executor, &flight->pending, output, err), err))
        return -1;
    int64_t now = clock_ns();
    int64_t begin = flight->start_ns > t->finished_ns ? flight->start_ns : t->finished_ns;
    t->finished_ns = now;
    t->is_stopping |= output->votes > 0;
    t->at.loss = output->loss;
    report->tokens_total = t->at.tokens += output->targets;
    report->step_ms = (double)(now - begin + t->pending_update_ns) / 1e6;
    t->pending_update_ns = 0;
    time_epoch(t, report);
    count_skips(t, output->skipped);
    report->skipped_steps = t->at.scaler.skipped;
    return 0;
}

/* Report a step that has ended: write its trace, evaluate if that is due, write its line of
 * metrics. */
static int report_step(struct trainer *t, int64_t step, struct error *err)
{
    struct trainer_flight *flight = &t->flight[step % 2];
    double undisturbed_ms = flight->beside_saving ? 0 : flight->report.step_ms;
    int rc = flight->traced ? tracing_write(t->s, &flight->trace, err) : 0;
    if (!rc)
        rc =
            comparison_step(t->comparison, step, undisturbed_ms,
                            flight->measured ? &flight->trace : NULL, (double)flight->core_ns / 1e9,
                            core_wait_end(&flight->core_wait), &flight->report.compared, err);
    trace_free(&flight->trace);
    if (rc || (step == t->at.step && trainer_evaluate_if_due(t, &flight->report, err)))
        return -1;
    metrics_write(&t->metrics, &flight->report);
    disk_rate_step(&t->disk_rate, t->s, undisturbed_ms);
    return 0;
}

static int end_step(struct trainer *t, int64_t step, struct error *err)
{
    if (step < 1 || !t->flight[step % 2].under_way)
        return 0;
    if (finish(t, step, err) || report_step(t, step, err))
        return -1;
    run_directory_note_loss(&t->dir, step, t->skips ? NAN : t->at.loss);
    if (step > t->dir.saved_step && !t->skips)
        run_directory_prune(&t->dir);
    if (!world_rank(t->s->world) && trainer_is_due(t->s->config.run.log_every, step))
        run_directory_report_moved(&t->dir);
    return check_skips(t, step, err);
}

/* Does anything need the state, or the loss scale, right after the step last started? */
static int must_end(const struct trainer *t)
{
    const struct config *c = &t->s->config;
    int64_t step = t->at.step;
    return !t->s->device->asynchronous || t->at.scaler.active || t->is_stopping ||
           t->flight[step % 2].traced || t->flight[step % 2].measured || step == t->until ||
           t->save_due || is_save_due(c, &t->at) ||
           (t->s->evaluate && trainer_is_due(c->train.eval_every, step));
}

/* Start a step, and end the one before; the device computes the one while the host reports the
 * other. */
static int one_step(struct trainer *t, struct error *err)
{
    if (start(t, err) || end_step(t, t->at.step - 1, err))
        return -1;
    return must_end(t) ? end_step(t, t->at.step, err) : 0;
}

/* Where a run stops because a rank cannot read data, save it and return -1 with what could not be
 * read in err, whether or not saving succeeds; else return 0. */
static int save_if_unread(struct trainer *t, struct error *err)
{
    struct error unread = {0};
    if (!t->is_stopping || !training_data_check(&t->data, t->s->world, &unread))
        return 0;
    if (trainer_save(t, err)) {
        if (!world_rank(t->s->world))
            log_error(t->s->log, "%s", unread.text);
        return -1;
    }
    *err = unread;
    return error_prefix(err, "training ends, and its state is saved, at step %lld",
                        (long long)t->at.step);
}

int trainer_advance(struct trainer *t, int64_t steps, struct error *err)
{
    int64_t left = t->s->config.train.steps - t->at.step;
    t->until = t->at.step + min_i64(left, steps);
    if (t->at.evaluation_due && (trainer_make_up_evaluation(t, err) || save_if_due(t, err)))
        return -1;
    while (t->at.step < t->until && !t->is_stopping && !trainer_is_over(t)) {
        if (one_step(t, err) || end_saving(t, SAVE_NO_WAIT, err) || save_if_due(t, err))
            return -1;
    }
    return save_if_unread(t, err);
}

struct run_position trainer_position(const struct trainer *t)
{
    return t->at;
}

int trainer_save(struct trainer *t, struct error *err)
{
    training_data_warn_changed(&t->data, t->s);
    if (trainer_make_pending_update(t, err) || end_saving(t, SAVE_WAIT, err))
        return -1;
    prune_if_replaced(t);
    if (run_directory_save(&t->dir, t->at, err)) {
        char newest[NEWEST_TEXT];
        err->code = EXIT_NODE; /* once its cause is mended, the same command goes on */
        if (err->text[0] && !t->dir.lost)
            text_append(err->text, sizeof err->text, "; %s", newest_text(t, newest));
        return error_prefix(err, "the state at step %lld could not be saved",
                            (long long)t->at.step);
    }
    if (!t->skips)
        run_directory_prune(&t->dir);
    return 0;
}
