/* run_checkpoint.c - see run_checkpoint.h. */
#include "train/run_checkpoint.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "io/disk.h"
#include "train/weights.h"

/* The scaler, where there is or was one. */
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

static struct js *meta_of(const struct session *s, struct position position)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    struct js *meta = js_object();
    if (out) {
        config_print(out, &s->config);
        fclose(out);
        js_add_string(meta, "config", text);
    }
    free(text);
    js_add_int(meta, "samples", position.samples);
    js_add_int(meta, "tokens", (int64_t)position.tokens);
    add_scaler(meta, &position.scaler);
    js_add_string(meta, "optimizer", optimizer_row(s->config.train.optimizer)->name);
    js_add_int(meta, "parameters", model_params(s->model));
    struct js *mesh = js_object();
    for (int axis = 0; axis < MESH_AXES; axis++)
        js_add_int(mesh, mesh_axis_name(axis), s->layout.shape.degree[axis]);
    js_add(meta, "mesh", mesh);
    return meta;
}

int run_checkpoint_write(struct session *s, const char *dir, struct position position,
                         struct error *err)
{
    struct checkpoint_piece *pieces;
    int count = weights_pieces(s, &pieces);
    struct js *meta = meta_of(s, position);
    int rc = checkpoint_save(s->world, dir, position.step, pieces, count, meta, err);
    js_free(meta);
    weights_free(pieces, count);
    return rc;
}

void run_checkpoint_prune(struct session *s, const char *dir, int64_t written,
                          struct checkpoint_checked *checked)
{
    struct error why = {0};
    struct checkpoint_entry *entries = NULL;
    int rank = world_rank(s->world);
    char *path = disk_path(&why, "%s/step-%08lld", dir, (long long)written);
    int count = rank ? 0 : checkpoint_list(&entries, dir, &why);
    int rc = world_agree(s->world, !path || count < 0 ? -1 : 0, &why);
    if (!rc) {
        checkpoint_checked_set(checked, path, CHECKPOINT_WHOLE);
        rc = checkpoint_prune(s->world, entries, count, (int)s->config.checkpoint.keep, path,
                              checked, s->log, &why);
    }
    if (!rank && !rc)
        rc = checkpoint_clean(dir, &why);
    if (!rank && rc)
        log_warn(s->log, "old checkpoints could not be deleted: %s", why.text);
    checkpoint_list_free(entries, count);
    free(path);
}

static int exists(const char *path, const char *name)
{
    char full[CONFIG_TEXT + 64];
    snprintf(full, sizeof full, "%s/%s", path, name);
    return !access(full, F_OK);
}

int run_checkpoint_open(struct checkpoint **checkpoint, struct world *world, const char *path,
                        struct log *log, struct error *err)
{
    char inside[CONFIG_TEXT + 64];
    if (exists(path, "COMMIT")) {
        int rc = checkpoint_open(checkpoint, path, err);
        if (!rc)
            rc = checkpoint_verify(*checkpoint, world_rank(world), world_size(world), err);
        return world_agree(world, rc, err);
    }
    snprintf(inside, sizeof inside, "%s%s", path,
             exists(path, "checkpoints") ? "/checkpoints" : "");
    if (checkpoint_find(checkpoint, world, inside, log, err))
        return -1;
    if (!*checkpoint)
        return error_set(err, "%s: no checkpoint there", path);
    return 0;
}

/* One optimizer's state means nothing to another. */
static int check_optimizer(const struct session *s, const struct checkpoint *checkpoint,
                           struct error *err)
{
    const char *wanted = optimizer_row(s->config.train.optimizer)->name;
    const char *saved = js_get_string(checkpoint_meta(checkpoint), "optimizer", "adamw");
    if (!s->train || !strcmp(saved, wanted))
        return 0;
    return error_set(err,
                     "it holds the state of train.optimizer %s, and this run's is %s; train on "
                     "with %s, or start anew with checkpoint.resume=none",
                     saved, wanted, saved);
}

static int load(struct session *s, struct checkpoint *checkpoint, struct position *position,
                struct error *err)
{
    int rc = check_optimizer(s, checkpoint, err) || weights_load(s, checkpoint, err) ? -1 : 0;
    if (rc)
        error_prefix(err, "cannot resume from %s", checkpoint_path(checkpoint));
    position->step = checkpoint_step(checkpoint);
    position->samples =
        js_get_int(checkpoint_meta(checkpoint), "samples", position->step * s->layout.global_batch);
    position->tokens =
        js_get_real(checkpoint_meta(checkpoint), "tokens",
                    (double)(position->samples * s->config.data.seq_len)); /* of older versions */
    resume_scaler(checkpoint_meta(checkpoint), &position->scaler);
    return world_agree(s->world, rc, err);
}

int run_checkpoint_resume(struct session *s, const char *dir, int *found, struct position *position,
                          struct error *err)
{
    const char *resume = s->config.checkpoint.resume;
    struct checkpoint *checkpoint = NULL;
    int rc = 0;
    *found = 0;
    if (!strcmp(resume, "none"))
        return 0;
    if (!strcmp(resume, "auto"))
        rc = checkpoint_find(&checkpoint, s->world, dir, s->log, err);
    else
        rc = run_checkpoint_open(&checkpoint, s->world, resume, s->log, err);
    if (rc || !checkpoint)
        return rc;
    rc = load(s, checkpoint, position, err);
    *found = !rc;
    checkpoint_close(checkpoint);
    return rc;
}

int run_checkpoint_config(const struct checkpoint *checkpoint, struct config *config,
                          struct error *err)
{
    const char *text = js_get_string(checkpoint_meta(checkpoint), "config", NULL);
    if (!text)
        return error_set(err, "%s: meta.json holds no config", checkpoint_path(checkpoint));
    int fd = memfd_create("config", MFD_CLOEXEC);
    if (fd < 0)
        return error_errno(err, "cannot hold the config of %s", checkpoint_path(checkpoint));
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    ssize_t length = (ssize_t)strlen(text);
    int rc = write(fd, text, (size_t)length) == length
                 ? config_load(config, path, NULL, 0, err)
                 : error_errno(err, "cannot hold the config of %s", checkpoint_path(checkpoint));
    close(fd);
    return rc ? error_prefix(err, "config of %s", checkpoint_path(checkpoint)) : 0;
}
