/* evaluate.c - trireme evaluate: printing the loss on data.valid of a run's newest checkpoint, of a
 * checkpoint, or of a model's folder. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/text.h"
#include "io/disk.h"
#include "cli/arguments.h"
#include "cli/command.h"
#include "cli/unused.h"
#include "train/data_files.h"
#include "train/evaluate.h"
#include "train/run_checkpoint.h"
#include "train/shared_settings.h"
#include "train/tokenizer_check.h"
#include "train/weights.h"

/* What the command line names. */
struct named {
    int folder; /* 1: a folder, by model.path= */
    int run;    /* 1: a configuration, run or checkpoint, also by run.dir= or checkpoint.resume= */
    const char *const *argument;
    int arguments;
};

static int begins(const char *text, const char *with)
{
    return !strncmp(text, with, strlen(with));
}

static struct named find_named(int argc, char **argv)
{
    struct named named = {.run = argc > 1 && !arguments_is_setting(argv[1]),
                          .argument = (const char *const *)argv + 1,
                          .arguments = argc - 1};
    for (int i = 1; i < argc; i++) {
        named.folder |= begins(argv[i], "model.path=");
        named.run |= begins(argv[i], "run.dir=") || begins(argv[i], "checkpoint.resume=");
    }
    return named;
}

/* Refuse arguments that name nothing to evaluate, by no path and no key of a model. */
static int check_named(int argc, char **argv, struct error *err)
{
    const struct named named = find_named(argc, argv);
    int has_model = named.folder || named.run;
    for (int i = 1; i < argc; i++)
        has_model |= begins(argv[i], "model.") || begins(argv[i], "lora.path=");
    return has_model ? 0
                     : error_set(err, "name what to evaluate: trireme evaluate RUN "
                                      "data.valid=FILE.h5");
}

/* Are the weights to evaluate those of a model's folder, model.path?  They are where no run is
 * named, and where the named run does not exist yet, which would begin from them.  Collective. */
static int is_of_folder(struct session *session, const struct named *named)
{
    const struct config *config = &session->config;
    int is_folder = config->model_path[0] && !strcmp(config->checkpoint.resume, "auto") &&
                    (!named->run || !disk_has(config->run.dir, "checkpoints"));
    world_broadcast(session->world, &is_folder, sizeof is_folder, 0);
    return is_folder;
}

/* Load the weights of a model's folder; *from becomes its name, for free().  Collective.  Returns
 * 0, or -1 on every rank with err set. */
static int load_folder(struct session *session, char **from, struct error *err)
{
    if (world_agree(session->world,
                    world_rank(session->world) ? 0 : weights_import_check(session, err), err) ||
        world_agree(session->world, weights_import(session, err), err))
        return -1;
    *from = array_text(session->config.model_path);
    return 0;
}

/* Load the weights of the checkpoint that checkpoint.resume asks for: the newest of the run, a step
 * of the run, or a path.  Else like load_folder(). */
static int load_checkpoint(struct session *session, char **from, struct error *err)
{
    const struct config *config = &session->config;
    const char *asked = config->checkpoint.resume;
    struct checkpoint *checkpoint = NULL;
    if (!strcmp(asked, "none"))
        return error_set(err, "checkpoint.resume is none: there is nothing to evaluate");
    char step[CONFIG_TEXT + 48];
    if (!strcmp(asked, "auto"))
        asked = config->run.dir;
    if (text_is_digits(asked)) { /* a step of the run */
        snprintf(step, sizeof step, "%s/checkpoints/step-%08lld", config->run.dir, atoll(asked));
        asked = step;
    }
    if (run_checkpoint_open(&checkpoint, session->world, asked, session->log, err))
        return -1;
    struct run_position position = {0};
    int rc = run_checkpoint_load(session, checkpoint, &position, err);
    *from = array_text(checkpoint->path);
    checkpoint_close(checkpoint);
    return rc;
}

/* Log what is evaluated, and on how much of data.valid where train.eval_batches ends before it
 * does: a run's own number, which also holds here. */
static void log_what(const struct session *session, const struct dataset *valid, const char *from)
{
    int64_t batches = session->config.train.eval_batches;
    int64_t sequences = batches * session->layout.global_batch;
    if (batches && sequences < valid->windows)
        log_info(session->log,
                 "evaluating %s on the first %lld of the %lld sequences of data.valid, by "
                 "train.eval_batches=%lld; 0 takes all",
                 from, (long long)sequences, (long long)valid->windows, (long long)batches);
    else
        log_info(session->log, "evaluating %s", from);
}

static int load(struct session *session, const struct named *named, char **from, struct error *err)
{
    const struct config *config = &session->config;
    int of_folder = is_of_folder(session, named);
    if (!of_folder && named->folder && !config->lora.r)
        return error_set(err,
                         "model.path=%.400s has no effect here: the weights are those of the run's "
                         "checkpoint; leave out one or the other",
                         config->model_path);
    if (of_folder ? load_folder(session, from, err) : load_checkpoint(session, from, err))
        return -1;
    if (!world_rank(session->world))
        unused_warn(session->log, UNUSED_OF_EVALUATE, named->argument, named->arguments);
    return 0;
}

static int run(struct session *session, const struct named *named, struct error *err)
{
    struct batches valid = {0};
    double loss, targets;
    char *from = NULL;
    const char *path = session->config.data.valid;
    int rc = batches_open(&valid, session, path, LOADER_SEQUENTIAL, err)
                 ? error_prefix(err, "data.valid")
                 : 0;
    rc = world_agree(session->world, rc, err);
    if (!rc) {
        struct run_data data = run_data_of(&(struct dataset){0}, &valid.data);
        rc = shared_settings_check_data(session->world, &session->config.data, &data, err);
    }
    if (!rc) {
        session_warn_unused_gpus(session);
        session_warn_far_tensors(session);
        session_warn_lost_overlap(session);
        rc = load(session, named, &from, err);
    }
    if (!rc)
        log_what(session, &valid.data, from);
    if (!rc && !world_rank(session->world)) {
        data_files_warn_valid(session->log, path);
        batches_warn_left(&valid, session->log);
        tokenizer_check_model(session->log, "data.valid", tokenizer_check_name(&valid.data), from);
    }
    if (!rc)
        rc = evaluate(session, &valid, session->config.train.eval_batches, NULL, &loss, &targets,
                      err)
                 ? -1
                 : 0;
    if (!rc && targets <= 0)
        rc = error_set(err,
                       "%s: no targets: all that was read is masked (loss_mask), so that there "
                       "is no loss",
                       path);
    if (!rc && !isfinite(loss))
        rc = error_set(err,
                       "%s: the loss on %s is not finite: what the model computes overflows, or "
                       "its weights are damaged",
                       from, path);
    if (!rc && world_rank(session->world) == 0)
        printf("loss %.6f  perplexity %.4f  tokens %.0f\n", loss, exp(loss), targets);
    batches_close(&valid);
    free(from);
    return rc;
}

int command_evaluate(struct app *app, int argc, char **argv, struct error *err)
{
    struct config config;
    struct session *session = NULL;
    if (app_start_world(app, err))
        return -1;
    int rc = check_named(argc, argv, err) ||
             arguments_config(&config, ARGUMENTS_EVALUATE, argc, argv, err);
    if (world_agree(app->world, rc ? -1 : 0, err))
        return -1;
    if (!config.data.valid[0])
        return error_set(err, "data.valid names no token file to evaluate on; give one: "
                              "data.valid=FILE.h5");
    if (session_open(&session, app->world, &app->log, &app->mem, &config, SESSION_EVALUATE, NULL,
                     err))
        return -1;
    const struct named named = find_named(argc, argv);
    rc = run(session, &named, err);
    session_close(session);
    return rc;
}
