/* run_summary.c - the lines before the first step, each made by one function, in this order:
 *
 *   log_place    version, time, nodes and job, run directory
 *   log_model    model, precision, strategy, ranks, device, planned memory
 *   log_data     data, its length in sequences, steps to do and their tokens
 *   warn_done    a run that begins with a checkpoint after its last step
 *   warn_repeats steps that have more sequences than the data
 *   warn         what is allowed, but wastes ranks, threads or time, or has no effect
 *
 * All ranks call them; the log prints rank 0's alone, and of the last three the others only take
 * part in what warn() gathers.
 */
#include "train/run_summary.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/text.h"
#include "config/defines.h"
#include "segment/fp8_matrices.h"
#include "train/core_use.h"
#include "train/data_chat.h"
#include "train/lr_schedule.h"

/* "863597", "12.3 M", "1.50 B" */
static const char *count_text(double count, char text[32])
{
    if (count < 1e6)
        snprintf(text, 32, "%.0f", count);
    else if (count < 1e9)
        snprintf(text, 32, "%.3g M", count / 1e6);
    else
        snprintf(text, 32, "%.4g B", count / 1e9);
    return text;
}

const char *run_summary_nodes(const struct world *world, char text[RUN_SUMMARY_NODES])
{
    enum { MOST = 4 };
    int nodes = world_nodes(world);
    snprintf(text, RUN_SUMMARY_NODES, "%s", world_host_of_node(world, 0));
    if (nodes == 1)
        return text;
    snprintf(text, RUN_SUMMARY_NODES, "%d nodes (", nodes);
    for (int n = 0; n < nodes && n < MOST; n++)
        text_append(text, RUN_SUMMARY_NODES, "%s%s", n ? ", " : "", world_host_of_node(world, n));
    return text_append(text, RUN_SUMMARY_NODES, "%s)", nodes > MOST ? ", ..." : "");
}

static void device_text(const struct session *s, char *text, size_t size)
{
    char model[160] = ""; /* of the processor, as the kernel names it */
    if (s->device->kind == DEVICE_CPU)
        text_from_file("/proc/cpuinfo", "model name", model, sizeof model);
    snprintf(text, size, "%s%s%s (%s)", s->device->name, model[0] ? " " : "", model,
             s->device->level);
    if (s->device->kind == DEVICE_CPU)
        text_append(text, size, ", %d thread%s each", s->device->threads,
                    s->device->threads > 1 ? "s" : "");
}

static void log_place(const struct session *s)
{
    char nodes[RUN_SUMMARY_NODES], time[CLOCK_TIME_OF_DAY], job_text[64] = "";
    const char *job = getenv("SLURM_JOB_ID");
    char *dir = realpath(s->config.run.dir, NULL);
    if (job)
        snprintf(job_text, sizeof job_text, ", Slurm job %s", job);
    log_info(s->log, "trireme %s at %s on %s%s; run directory %s", PACKAGE_VERSION,
             clock_time_of_day(time), run_summary_nodes(s->world, nodes), job_text,
             dir ? dir : s->config.run.dir);
    free(dir);
}

static int64_t frozen_params(const struct session *s)
{
    int64_t frozen = 0;
    for (int f = 0; f < s->units->flats; f++)
        frozen += s->units->flat[f].trained ? 0 : flat_whole_elems(&s->units->flat[f]);
    return frozen;
}

/* How many of the frozen parameters are kept in 4 bits. */
static void log_nf4(const struct session *s)
{
    char part[32], all[32];
    log_info(s->log, "lora.quantize_base=nf4: %s of %s frozen parameters are kept in 4 bits",
             count_text((double)units_nf4_elems(s->units), part),
             count_text((double)frozen_params(s), all));
}

enum { PARAMS_TEXT = 96 };

/* "12.3 M parameters", or where some are frozen "12.3 M parameters (65536 trained)" */
static const char *params_text(const struct session *s, char text[PARAMS_TEXT])
{
    char all[32], trained[32];
    int64_t params = model_params(s->model), frozen = frozen_params(s);
    snprintf(text, PARAMS_TEXT, "%s parameters", count_text((double)params, all));
    if (frozen)
        text_append(text, PARAMS_TEXT, " (%s trained)",
                    count_text((double)(params - frozen), trained));
    return text;
}

static void log_model(const struct session *s)
{
    char device[256], strategy[CONFIG_TEXT], precision[CONFIG_TEXT], note[FP8_NOTE], params[32];
    char all[PARAMS_TEXT];
    const char *preset = s->config.model.preset;
    int ranks = world_size(s->world), nodes = world_nodes(s->world);
    device_text(s, device, sizeof device);
    log_info(s->log, "%s%s%s, %s%s, %s, %d rank%s on %d node%s; %s; %.1f MiB planned per rank",
             preset, preset[0] ? ", " : "", params_text(s, all),
             config_value(&s->config, "precision", precision), fp8_matrices_note(s->units, note),
             config_value(&s->config, "parallel.strategy", strategy), ranks, ranks > 1 ? "s" : "",
             nodes, nodes > 1 ? "s" : "", device, (double)mem_bytes(s->mem->now_bytes) / (1 << 20));
    if (s->config.model.experts.count)
        log_info(s->log, "%lld experts a block, of which a token goes through %lld: %s parameters",
                 (long long)s->config.model.experts.count,
                 (long long)s->config.model.experts.per_token,
                 count_text((double)model_params_per_token(s->model), params));
    if (s->config.lora.quantize_base != QUANTIZE_NONE)
        log_nf4(s);
    if (s->train && s->config.precision == PRECISION_FP8 && s->device->kind == DEVICE_CPU &&
        !world_rank(s->world))
        log_warn(s->log, "precision fp8 on CPUs rounds as on GPUs, and takes longer than bf16");
}

enum { HOW_TEXT = 128 };

/* What sequences are made of, and what is in none of them. */
static const char *packing_text(const struct dataset *data, enum config_packing packing,
                                char text[HOW_TEXT])
{
    static const char *const names[] = {[PACKING_STREAM] = "",
                                        [PACKING_DOCUMENTS] = " of packed documents",
                                        [PACKING_PADDED] = ", a document each"};
    int64_t cut = dataset_cut_rows(data), documents = dataset_cut_documents(data);
    char tokens[32];
    snprintf(text, HOW_TEXT, "%s", names[packing]);
    if (cut)
        text_append(text, HOW_TEXT, ", %s tokens after data.seq_len left away",
                    count_text((double)cut, tokens));
    else if (documents)
        text_append(text, HOW_TEXT, ", %s of which %s longer than data.seq_len and cut",
                    count_text((double)documents, tokens), documents == 1 ? "is" : "are");
    return text;
}

static void log_data(const struct session *s, const struct batches *train,
                     const struct batches *valid, int64_t done, int64_t samples)
{
    const struct config *c = &s->config;
    char tokens[32], more[CONFIG_TEXT + 64] = "", each[32], most[80] = "", steps[240] = "no steps";
    char how[HOW_TEXT];
    double batch = (double)s->layout.global_batch;
    double all = (double)samples + (double)(c->train.steps - done) * batch;
    if (valid)
        snprintf(more, sizeof more, ", evaluating on %.*s (%s)", CONFIG_TEXT - 1, c->data.valid,
                 count_text((double)valid->data.tokens, tokens));
    if (train->data.is_mixed)
        snprintf(most, sizeof most, ", %.3g of the file that is read most",
                 dataset_most_epochs(&train->data, all));
    if (done < c->train.steps)
        snprintf(steps, sizeof steps,
                 "steps %lld to %lld of %s tokens (%lld sequence%s), %.3g epochs in all%s",
                 (long long)done + 1, (long long)c->train.steps,
                 count_text(batch * (double)c->data.seq_len, each),
                 (long long)s->layout.global_batch, s->layout.global_batch == 1 ? "" : "s",
                 all / (double)train->data.windows, most);
    log_info(s->log, "training on %s (%s tokens, %lld sequence%s of %lld%s)%s; %s", c->data.train,
             count_text((double)train->data.tokens, tokens), (long long)train->data.windows,
             train->data.windows == 1 ? "" : "s", (long long)c->data.seq_len,
             packing_text(&train->data, c->data.packing, how), more, steps);
    data_chat_report_packing(s->log, &train->data);
}

/* Warn of ranks, and of places in micro-batches, that get no sequence. */
static void warn_idle(const struct session *s)
{
    const struct layout *l = &s->layout;
    int64_t each = (l->global_batch + l->data_ranks - 1) / l->data_ranks;
    int64_t busy = (l->global_batch + l->micro_batch - 1) / l->micro_batch;
    if (busy < l->data_ranks)
        log_warn(s->log,
                 "ranks without a sequence to compute: %lld of %d; a step has %lld sequence%s "
                 "(train.global_batch), of which a rank computes %lld at once (train.micro_batch)",
                 (long long)(l->data_ranks - busy), l->data_ranks, (long long)l->global_batch,
                 l->global_batch == 1 ? "" : "s", (long long)l->micro_batch);
    if (l->micro_batch > each)
        log_warn(
            s->log,
            "train.micro_batch is %lld sequences, and a rank's share of a step %lld: the other "
            "places are masked, and computed all the same",
            (long long)l->micro_batch, (long long)each);
}

/* Warn of steps that read the same sequences several times. */
static void warn_repeats(const struct session *s, const struct batches *train)
{
    double batch = (double)s->layout.global_batch;
    double epochs = dataset_most_epochs(&train->data, batch);
    if (epochs > 1 && !world_rank(s->world))
        log_warn(s->log,
                 "a step takes %.0f sequences (train.global_batch), and %s has fewer for it: each "
                 "step reads the same ones %.3g times",
                 batch, train->data.is_mixed ? "a file of data.train" : "data.train", epochs);
}

/* Texts about training that is over. */
struct done_text {
    char at[96];     /* "step 40 of 40" */
    char longer[64]; /* "train.steps=80": a setting with which it goes on.  Epochs are a multiple of
                        those asked for, so that at least half of these are left to train */
};

static struct done_text done_text(const struct session *s, const struct batches *train,
                                  int64_t done, int64_t samples)
{
    const struct config_train *c = &s->config.train;
    double epochs = (double)samples / (double)train->data.windows;
    struct done_text text;
    if (c->epochs > 0) {
        snprintf(text.at, sizeof text.at, "step %lld, after %.3g of %g epochs", (long long)done,
                 epochs, c->epochs);
        snprintf(text.longer, sizeof text.longer, "train.epochs=%g",
                 c->epochs * fmax(2, floor(epochs / c->epochs + 0.5) + 1));
    } else {
        snprintf(text.at, sizeof text.at, "step %lld of %lld", (long long)done,
                 (long long)c->steps);
        snprintf(text.longer, sizeof text.longer, "train.steps=%lld",
                 (long long)(done ? 2 * done : 100));
    }
    return text;
}

void run_summary_done(const struct session *s, const struct batches *train, int64_t done,
                      int64_t samples, const char *dir)
{
    const struct done_text text = done_text(s, train, done, samples);
    log_info(s->log,
             "nothing to do: the run in %s is at %s; %s trains it longer, run.dir=OTHER begins "
             "another run, and run.fresh=true does so there",
             dir, text.at, text.longer);
}

/* Warn of a run that begins with a checkpoint and trains nothing. */
static void warn_done(const struct session *s, const struct batches *train, int64_t done,
                      int64_t samples)
{
    const struct done_text text = done_text(s, train, done, samples);
    if (done > 0 && done >= s->config.train.steps && !world_rank(s->world))
        log_warn(s->log, "nothing is trained: the checkpoint is at %s; %s trains it longer",
                 text.at, text.longer);
}

/* Warn of a warm-up beyond the last step, an end of a learning rate that stays, and a run whose one
 * step is the end of the decay, to 0. */
static void warn_lr(const struct session *s, int64_t done)
{
    const struct config_train *c = &s->config.train;
    if (c->warmup_steps && c->warmup_steps >= c->steps)
        log_warn(s->log,
                 "train.warmup_steps is %lld, of %lld steps: the learning rate comes to train.lr "
                 "at the end or never",
                 (long long)c->warmup_steps, (long long)c->steps);
    if (c->min_lr > 0 && c->schedule == SCHEDULE_CONSTANT)
        log_warn(s->log,
                 "train.min_lr is %g, and train.schedule is constant: the learning rate stays at "
                 "train.lr",
                 c->min_lr);
    if (c->steps == 1 && !done && c->lr > 0 && lr_schedule_at(c, 1) <= 0)
        log_warn(s->log, "the run has one step, at which the learning rate has come down to 0: "
                         "nothing is trained; more steps, train.schedule=constant or train.min_lr "
                         "train it");
}

/* Warn of adapters beside a frozen model whose weights are drawn from the seed. */
static void warn_frozen(const struct session *s, int64_t done)
{
    const struct config *c = &s->config;
    if (c->lora.r && !done && !c->model_path[0])
        log_warn(s->log, "adapters (lora.r) are trained beside a frozen model of random weights; "
                         "model.path=FOLDER names a model that has its own");
}

/* Is the router of any layer trained? */
static int trains_routers(const struct session *s)
{
    char name[64];
    for (int64_t layer = 0; layer < s->config.model.layers; layer++) {
        snprintf(name, sizeof name, "layers.%lld.mlp.router", (long long)layer);
        for (int f = 0; f < s->units->flats; f++)
            if (s->units->flat[f].trained && flat_find(&s->units->flat[f], name) >= 0)
                return 1;
    }
    return 0;
}

/* Warn of a router to which the loss says nothing: one probability over itself is 1. */
static void warn_router(const struct session *s)
{
    const struct config_experts *e = &s->config.model.experts;
    if (e->count < 2 || e->per_token > 1 || !e->norm_topk_prob || !trains_routers(s))
        return;
    log_warn(s->log,
             "model.experts_per_token is 1, and model.norm_topk_prob true: the weight of a token's "
             "expert is always 1, so that a router learns %s; with model.norm_topk_prob=false the "
             "weight is its probability",
             e->aux_loss > 0 ? "from load balancing alone" : "nothing");
}

/* Warn of settings that are allowed but wasteful or without effect: ranks and sequences without
 * work, more threads than cores, learning rates, adapters of nothing, routers that learn nothing, a
 * trace beyond the last step. */
static void warn(const struct session *s, int64_t done)
{
    const struct config *c = &s->config;
    core_use_warn(s);
    if (world_rank(s->world))
        return;
    session_warn_unused_gpus(s);
    session_warn_far_tensors(s);
    session_warn_lost_overlap(s);
    warn_idle(s);
    warn_lr(s, done);
    warn_frozen(s, done);
    warn_router(s);
    if (c->run.trace && done < c->train.steps &&
        (c->run.trace <= done || c->run.trace > c->train.steps))
        log_warn(s->log, "run.trace is %lld, and this start runs steps %lld to %lld: no trace",
                 (long long)c->run.trace, (long long)done + 1, (long long)c->train.steps);
}

void run_summary(const struct session *s, const struct batches *train, const struct batches *valid,
                 int64_t done, int64_t samples)
{
    log_place(s);
    log_model(s);
    log_data(s, train, valid, done, samples);
    warn_done(s, train, done, samples);
    warn_repeats(s, train);
    warn(s, done);
}
