/* trainer.c - see trainer.h. */
#include "train/trainer.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/array.h"
#include "base/clock.h"
#include "io/disk.h"
#include "train/batches.h"
#include "train/evaluate.h"
#include "train/metrics.h"
#include "train/rate.h"
#include "train/saved.h"
#include "train/stop.h"
#include "train/tracing.h"
#include "train/weights.h"

enum { SKIPS_IN_A_ROW = 10 }; /* steps without an update before the run gives up */

struct trainer {
    struct session *s;
    char checkpoints[CONFIG_TEXT + 16];
    struct batches train, valid;
    struct metrics metrics;
    struct position at;
    int64_t saved_step; /* of the newest checkpoint; -1: none */
    int skips;
    int lock; /* of the run directory, on rank 0; -1: none */
};

/* Two starts in one run directory would spoil each other's files.  The lock goes with the
 * process; a file system that knows no locks does without. */
static int lock_run(struct trainer *t, struct error *err)
{
    char path[CONFIG_TEXT + 16];
    const char *dir = t->s->config.run.dir;
    snprintf(path, sizeof path, "%s/lock", dir);
    t->lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (t->lock < 0)
        return error_errno(err, "cannot create %s", path);
    if (flock(t->lock, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK)
        return error_set(err,
                         "run.dir %s is in use by another start of trireme; end that one, or "
                         "name another directory",
                         dir);
    return 0;
}

/* The run directory with its log, on rank 0. */
static int make_run(struct trainer *t, struct error *err)
{
    char path[CONFIG_TEXT + 16];
    const char *dir = t->s->config.run.dir;
    if (world_rank(t->s->world))
        return 0;
    snprintf(path, sizeof path, "%s/checkpoints", dir);
    if (disk_make_folders(path, err) || lock_run(t, err))
        return -1;
    snprintf(path, sizeof path, "%s/log.txt", dir);
    return log_file(t->s->log, path, err);
}

static int open_data(struct trainer *t, struct error *err)
{
    const struct config_data *data = &t->s->config.data;
    if (!data->train[0])
        return error_set(err, "data.train names no token file; make one: trireme tokenize TEXT "
                              "-o FILE.h5");
    if (batches_open(&t->train, t->s, data->train, LOADER_SHUFFLED, err))
        return error_prefix(err, "data.train");
    if (data->valid[0] && batches_open(&t->valid, t->s, data->valid, LOADER_SEQUENTIAL, err))
        return error_prefix(err, "data.valid");
    return 0;
}

/* The files of the run that tell what was done, on rank 0. */
static int open_records(struct trainer *t, struct error *err)
{
    char path[CONFIG_TEXT + 16];
    const char *dir = t->s->config.run.dir;
    if (world_rank(t->s->world))
        return 0;
    snprintf(path, sizeof path, "%s/config.yaml", dir);
    if (config_write(&t->s->config, path, err))
        return -1;
    snprintf(path, sizeof path, "%s/metrics.jsonl", dir);
    return metrics_open(&t->metrics, t->s, path, t->at.step, err);
}

/* What may be wrong with the request comes before what is written into the run. */
static int begin(struct trainer *t, struct error *err)
{
    struct session *s = t->s;
    int found = 0;
    if (world_agree(s->world, open_data(t, err), err) ||
        world_agree(s->world, make_run(t, err), err) ||
        saved_resume(s, t->checkpoints, &found, &t->at, err))
        return -1;
    t->saved_step = found && !strcmp(s->config.checkpoint.resume, "auto") ? t->at.step : -1;
    if (found)
        log_info(s->log, "resumed at step %lld", (long long)t->at.step);
    else
        weights_init(s);
    return world_agree(s->world, open_records(t, err), err);
}

int trainer_open(struct trainer **trainer, struct session *session, struct error *err)
{
    struct trainer *t = array_make(1, sizeof *t);
    *t = (struct trainer){.s = session, .saved_step = -1, .lock = -1};
    snprintf(t->checkpoints, sizeof t->checkpoints, "%s/checkpoints", session->config.run.dir);
    stop_watch();
    world_watch(session->world, (int)session->config.run.hang_seconds);
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
    batches_close(&t->train);
    batches_close(&t->valid);
    if (t->lock >= 0)
        close(t->lock);
    free(t);
}

static int save(struct trainer *t, struct error *err)
{
    if (t->saved_step == t->at.step)
        return 0;
    int64_t start = clock_ns();
    if (saved_write(t->s, t->checkpoints, t->at, err))
        return -1;
    t->saved_step = t->at.step;
    log_info(t->s->log, "saved %s/step-%08lld in %.2f s", t->checkpoints, (long long)t->at.step,
             (double)(clock_ns() - start) / 1e9);
    return 0;
}

/* A checkpoint that could not be written does not end a run that could go on. */
static void try_save(struct trainer *t)
{
    struct error why = {0};
    if (save(t, &why))
        log_warn(t->s->log, "checkpoint of step %lld failed, training goes on: %s",
                 (long long)t->at.step, why.text);
}

static struct step_input input_of(const struct trainer *t, int64_t step)
{
    const struct config_train *c = &t->s->config.train;
    return (struct step_input){
        .load = batches_load,
        .user = (void *)&t->train,
        .adamw = rate_adamw(c, step),
        .decay_all = c->decay == DECAY_ALL,
        .clip = c->clip,
        .nominal_targets = (double)(t->s->layout.global_batch * t->s->config.data.seq_len),
        .stop_vote = stop_asked(),
    };
}

static int due(int64_t every, int64_t step)
{
    return every && step % every == 0;
}

static int maybe_evaluate(struct trainer *t, double *loss, struct error *err)
{
    const struct config_train *c = &t->s->config.train;
    double targets;
    *loss = NAN;
    if (!t->s->evaluate || !(due(c->eval_every, t->at.step) || t->at.step == c->steps))
        return 0;
    return evaluate(t->s, &t->valid, c->eval_batches, loss, &targets, err);
}

static int count_skips(struct trainer *t, const struct step_output *output, struct error *err)
{
    t->skips = output->skipped ? t->skips + 1 : 0;
    if (t->skips < SKIPS_IN_A_ROW)
        return 0;
    return error_set(err,
                     "step %lld: the gradient was not finite for %d steps in a row; lower "
                     "train.lr, or resume from an earlier checkpoint",
                     (long long)t->at.step, t->skips);
}

/* One step; *stop is set when a rank asked for it. */
static int one_step(struct trainer *t, int *stop, struct error *err)
{
    struct session *s = t->s;
    struct step_input input = input_of(t, t->at.step + 1);
    struct step_output output;
    struct trace trace = {0};
    int traced = s->config.run.trace == t->at.step + 1;
    int64_t start = clock_ns();
    t->train.sample = t->at.samples;
    if (traced)
        trace_begin(&trace);
    if (execute(s->executor, s->train, &input, &output, traced ? &trace : NULL, err))
        return -1;
    double step_ms = (double)(clock_ns() - start) / 1e6;
    t->at.step++;
    t->at.samples += s->layout.global_batch;
    struct metrics_step report = {.step = t->at.step,
                                  .loss = output.loss,
                                  .grad_norm = output.grad_norm,
                                  .lr = input.adamw.lr,
                                  .tokens = output.targets,
                                  .step_ms = step_ms,
                                  .skipped = output.skipped};
    int rc = traced ? tracing_write(s, &trace, err) : 0;
    trace_free(&trace);
    if (rc || maybe_evaluate(t, &report.valid_loss, err))
        return -1;
    metrics_write(&t->metrics, &report);
    *stop = output.votes > 0;
    return count_skips(t, &output, err);
}

static int steps(struct trainer *t, struct error *err)
{
    const struct config *c = &t->s->config;
    int stop = 0;
    while (t->at.step < c->train.steps && !stop) {
        if (one_step(t, &stop, err))
            return -1;
        if (due(c->checkpoint.every, t->at.step) && t->at.step < c->train.steps && !stop)
            try_save(t);
    }
    if (save(t, err))
        return error_prefix(err, "the state at step %lld could not be saved",
                            (long long)t->at.step);
    if (t->at.step >= c->train.steps)
        return 0;
    log_info(t->s->log, "asked to stop: state saved at step %lld, run me again",
             (long long)t->at.step);
    err->code = EXIT_SAVED;
    return -1;
}

static void introduce(const struct trainer *t)
{
    const struct session *s = t->s;
    size_t bytes = 0;
    for (int pool = 0; pool < POOL_COUNT; pool++)
        bytes += s->mem->now_bytes[pool];
    log_info(s->log,
             "%.1f M parameters, %s, %s, %d rank%s on %d node%s, %d thread%s each, %.1f "
             "MiB planned per rank",
             (double)model_params(s->model) / 1e6, dtype_name(s->layout.dtype),
             s->config.parallel.strategy == STRATEGY_FULL_SHARD ? "FULL_SHARD" : "NO_SHARD",
             world_size(s->world), world_size(s->world) > 1 ? "s" : "", world_nodes(s->world),
             world_nodes(s->world) > 1 ? "s" : "", s->device->threads,
             s->device->threads > 1 ? "s" : "", (double)bytes / (1 << 20));
}

int trainer_run(struct trainer *t, struct error *err)
{
    int64_t last = t->s->config.train.steps;
    if (t->at.step < last) {
        introduce(t);
        return steps(t, err);
    }
    log_info(t->s->log, "nothing to do: step %lld of %lld is done", (long long)t->at.step,
             (long long)last);
    return 0;
}
