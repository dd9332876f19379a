/* run_checkpoint.c - a run's state to and from a checkpoint.
 *
 * The tensors go through weights.h.  meta.json holds what is not a tensor: the configuration as
 * text, of which run and branch the checkpoint is, the hash of its data, the position (samples,
 * tokens), the best evaluation, the loss scaler, the optimizer's name and the mesh.  Older versions
 * wrote less of it: what is missing is derived where that is possible, else left as a new run has
 * it.
 */
#include "train/run_checkpoint.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "train/lr_schedule.h"
#include "train/weights.h"

/* Add the scaler's state, where the run has one or steps were skipped. */
static void add_scaler(struct js *meta, const struct scaler *scaler)
{
    if (!scaler->active && !scaler->skipped)
        return;
    struct js *js = js_object();
    js_add_int(js, "skipped", scaler->skipped);
    if (scaler->dynamic) {
        js_add_real(js, "scale", scaler->scale);
        js_add_int(js, "finite", scaler->finite);
        js_add_int(js, "spare", scaler->spare);
    }
    js_add(meta, "loss_scale", js);
}

/* Restore the scaler, where meta has one. */
static void resume_scaler(const struct js *meta, struct scaler *scaler)
{
    const struct js *js = js_get(meta, "loss_scale");
    if (!js)
        return;
    struct scaler saved = {
        .dynamic = js_get_real(js, "scale", 0) > 0,
        .scale = js_get_real(js, "scale", 0),
        .finite = js_get_int(js, "finite", 0),
        .spare = (int)js_get_int(js, "spare", 0),
        .skipped = js_get_int(js, "skipped", 0),
    };
    scaler_resume(scaler, &saved);
}

static void add_best(struct js *meta, const struct run_best *best)
{
    if (!best->step && !best->without)
        return;
    struct js *js = js_object();
    js_add_int(js, "best_step", best->step);
    js_add_real(js, "best_loss", best->loss);
    js_add_int(js, "without_better", best->without);
    js_add(meta, "evaluation", js);
}

static struct run_best best_of(const struct js *meta)
{
    const struct js *js = js_get(meta, "evaluation");
    return (struct run_best){.step = js_get_int(js, "best_step", 0),
                             .loss = js_get_real(js, "best_loss", 0),
                             .without = js_get_int(js, "without_better", 0)};
}

static void add_origin(struct js *meta, const struct run_origin *origin)
{
    if (!origin->run)
        return;
    js_add_string(meta, "run", origin->run);
    js_add_int(meta, "branch", origin->branch);
    run_data_add(meta, &origin->data);
}

/* Add where the frozen tensors are that the checkpoint does not hold. */
static void add_base(struct js *meta, const struct session *s)
{
    struct js *base = js_object();
    js_add_string(base, "path", s->config.model_path);
    js_add_string(base, "hash", s->base_hash);
    js_add(meta, "base", base);
}

/* Does the decay of a schedule wsd begin after this position?  Such a checkpoint stays, also when
 * the run is extended later and its decay then begins elsewhere (run_directory_prune()). */
static int is_stable_end(const struct session *s, const struct run_position *at)
{
    int64_t end = lr_schedule_stable_end(&s->config.train);
    return end > 0 && at->step - at->scaler.skipped == end;
}

static struct js *meta_of(const struct session *s, struct run_position position,
                          const struct run_origin *origin)
{
    char *text = NULL;
    char time[CLOCK_TIME_OF_DAY];
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    struct js *meta = js_object();
    if (out) {
        struct config given = config_given(&s->config);
        config_print(out, &given);
        fclose(out);
        js_add_string(meta, "config", text);
    }
    free(text);
    add_origin(meta, origin);
    js_add_string(meta, "time", clock_time_of_day(time));
    if (position.loss > 0)
        js_add_real(meta, "loss", position.loss);
    js_add_int(meta, "samples", position.samples);
    js_add_int(meta, "warmup_samples", position.warmup_samples);
    js_add_int(meta, "tokens", (int64_t)position.tokens);
    add_scaler(meta, &position.scaler);
    add_best(meta, &position.best);
    if (position.evaluation_due)
        js_add_bool(meta, "evaluation_due", 1);
    if (is_stable_end(s, &position))
        js_add_bool(meta, "stable_end", 1);
    js_add_string(meta, "optimizer", optimizer_row(s->config.train.optimizer)->name);
    js_add_int(meta, "parameters", model_params(s->model));
    struct js *mesh = js_object();
    for (int axis = 0; axis < MESH_AXES; axis++)
        js_add_int(mesh, mesh_axis_name(axis), s->layout.shape.degree[axis]);
    js_add(meta, "mesh", mesh);
    return meta;
}

/* The pieces and meta.json of a checkpoint. */
struct content {
    struct checkpoint_piece *piece;
    int count;
    struct js *meta;
};

static struct content make_content(struct session *s, enum weights_saved saved,
                                   struct run_position position, const struct run_origin *origin)
{
    struct content content = {.meta = meta_of(s, position, origin)};
    content.count = weights_pieces(s, saved, &content.piece);
    if (saved == WEIGHTS_TRAINED)
        add_base(content.meta, s);
    return content;
}

static int write(struct session *s, enum weights_saved saved, const char *dir,
                 struct run_position position, const struct run_origin *origin, struct error *err)
{
    struct content content = make_content(s, saved, position, origin);
    int rc = checkpoint_save(s->world, dir, position.step, content.piece, content.count,
                             content.meta, err);
    js_free(content.meta);
    weights_pieces_free(content.piece, content.count);
    return rc;
}

int run_checkpoint_write(struct session *s, const char *dir, struct run_position position,
                         const struct run_origin *origin, struct error *err)
{
    return write(s, weights_choose_saved(s), dir, position, origin, err);
}

int run_checkpoint_begin(struct checkpoint_writing **writing, struct session *s, const char *dir,
                         struct run_position position, const struct run_origin *origin, void *copy,
                         struct error *err)
{
    enum weights_saved saved = weights_choose_saved(s);
    *writing = NULL;
    if (saved == WEIGHTS_ALL && s->layout.copy != COPY_ALL)
        return write(s, saved, dir, position, origin, err);
    struct content content = make_content(s, saved, position, origin);
    int rc = checkpoint_begin(writing, s->world, dir, position.step, content.piece, content.count,
                              content.meta, copy, s->need.copy_bytes, err);
    weights_pieces_free(content.piece, content.count);
    return rc;
}

/* Refuse, in training, a checkpoint with the state of another optimizer. */
static int check_optimizer(const struct session *s, const struct checkpoint *checkpoint,
                           struct error *err)
{
    const char *wanted = optimizer_row(s->config.train.optimizer)->name;
    const char *saved = js_get_string(checkpoint->meta, "optimizer", "adamw");
    if (!s->train || !strcmp(saved, wanted))
        return 0;
    return error_set(err,
                     "it holds the state of train.optimizer %s, and this run's is %s; train on "
                     "with %s, or start another run: run.dir=OTHER",
                     saved, wanted, saved);
}

static int load(struct session *s, struct checkpoint *checkpoint, struct error *err)
{
    struct config saved;
    if (check_optimizer(s, checkpoint, err))
        return -1;
    if (run_checkpoint_config(checkpoint, &saved, NULL, 0, NULL))
        return weights_load(s, checkpoint, NULL, err); /* of another version: the tensors decide */
    if (run_changes_model(&saved, &s->config, err))
        return -1;
    return weights_load(s, checkpoint, saved.train.freeze, err);
}

/* The sequences that the warm-up read, where every step read as many. */
static int64_t guess_warmup_samples(const struct config_train *train,
                                    const struct run_position *position)
{
    int64_t steps = train->warmup_steps + position->scaler.skipped;
    if (steps >= position->step)
        return position->samples;
    return (int64_t)((double)position->samples * (double)steps / (double)position->step + 0.5);
}

/* The sequences that the warm-up read: guessed where the checkpoint is of an older version, which
 * did not say, or of a run with a warm-up of other steps. */
static int64_t find_warmup_samples(const struct session *s, const struct checkpoint *checkpoint,
                                   const struct run_position *position)
{
    struct config saved;
    int64_t guess = guess_warmup_samples(&s->config.train, position);
    int is_same = !run_checkpoint_config(checkpoint, &saved, NULL, 0, NULL) &&
                  saved.train.warmup_steps == s->config.train.warmup_steps;
    return is_same ? js_get_int(checkpoint->meta, "warmup_samples", guess) : guess;
}

int run_checkpoint_load(struct session *s, struct checkpoint *checkpoint,
                        struct run_position *position, struct error *err)
{
    const struct js *meta = checkpoint->meta;
    int rc = load(s, checkpoint, err);
    if (rc)
        error_prefix(err, "cannot use %s", checkpoint->path);
    position->step = checkpoint->step;
    position->samples = js_get_int(meta, "samples", position->step * s->layout.global_batch);
    position->tokens =
        js_get_real(meta, "tokens",
                    (double)(position->samples * s->config.data.seq_len)); /* of older versions */
    resume_scaler(meta, &position->scaler);
    position->warmup_samples = find_warmup_samples(s, checkpoint, position);
    position->best = best_of(meta);
    position->evaluation_due = js_get_bool(meta, "evaluation_due", 0);
    return world_agree(s->world, rc, err);
}

int run_checkpoint_config(const struct checkpoint *checkpoint, struct config *config,
                          const char *const *overrides, int count, struct error *err)
{
    const char *text = js_get_string(checkpoint->meta, "config", NULL);
    if (!text)
        return error_set(err, "%s: meta.json holds no config", checkpoint->path);
    if (!config_load_text(config, "config", text, overrides, count, err))
        return 0;
    return error_prefix(err, "%s", checkpoint->path);
}
