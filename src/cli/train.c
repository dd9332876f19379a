/* train.c - trireme train: reading the configuration, opening session and trainer, training. */
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "cli/arguments.h"
#include "cli/command.h"
#include "comm/gpu/gpu.h"
#include "comm/launch.h"
#include "comm/world.h"
#include "io/checkpoint.h"
#include "plan/fit.h"
#include "train/trainer.h"

/* Write plan.json on rank 0, before the first step.  Returns 0, or -1 with err set: the file cannot
 * be written, or the program does not pass its checks and must not run.  Not collective. */
static int write_plan(struct app *app, const struct session *session, struct error *err)
{
    char path[CONFIG_TEXT + 16];
    struct config config = session->config;
    struct report report;
    if (world_rank(app->world))
        return 0;
    config.device = session->device->kind == DEVICE_CUDA ? CONFIG_DEVICE_CUDA : CONFIG_DEVICE_CPU;
    struct report_request request = {.config = &config,
                                     .ranks = world_size(app->world),
                                     .nodes = world_nodes(app->world),
                                     .threads = session->device->threads};
    if (report_make(&report, &request, err))
        return -1;
    snprintf(path, sizeof path, "%s/plan.json", session->config.run.dir);
    struct js *js = report_json(&report);
    int rc = js_write(js, JS_INDENTED, WHOLE_FILE_REPORT, path, err);
    js_free(js);
    if (!rc && !report.verified)
        rc = error_set(err, "%s", report.verdict.text);
    report_free(&report);
    return rc;
}

/* Add the nearest configuration that fits to err, on rank 0, where the run was refused for lack of
 * memory or disk.  Collective. */
static void advise(struct app *app, const struct config *asked, const struct memory_limits *limits,
                   struct error *err)
{
    struct config config = *asked;
    struct fit fit;
    char nearest[sizeof err->text] = "";
    if (config.device == CONFIG_DEVICE_AUTO)
        config.device = gpu_everywhere(app->world) ? CONFIG_DEVICE_CUDA : CONFIG_DEVICE_CPU;
    if (world_rank(app->world))
        return;
    fit_find(&fit, &config, world_size(app->world), world_nodes(app->world),
             (int)config.run.threads, limits, NULL);
    fit_text(&fit, world_size(app->world), nearest, sizeof nearest);
    text_append(err->text, sizeof err->text, "; %s", nearest);
}

/* Would the same command find a checkpoint to resume?  Collective. */
static int is_resumable(const struct app *app, const struct config *config)
{
    char path[CONFIG_TEXT + 16];
    struct checkpoint_entry *entries = NULL;
    const char *resume = config->checkpoint.resume;
    int found = strcmp(resume, "none") && strcmp(resume, "auto"), count = 0;
    snprintf(path, sizeof path, "%s/checkpoints", config->run.dir);
    if (!world_rank(app->world) && !strcmp(resume, "auto"))
        count = checkpoint_list(&entries, path, NULL);
    found |= count < 0; /* a folder that cannot be read may hold some */
    for (int i = 0; i < count; i++)
        found |= entries[i].committed;
    checkpoint_list_free(entries, count);
    world_broadcast(app->world, &found, sizeof found, 0);
    return found;
}

static int train(struct app *app, const struct config *config, struct stop *stop, struct error *err)
{
    struct session *session = NULL;
    struct trainer *trainer = NULL;
    struct memory_limits limits;
    if (session_open(&session, app->world, &app->log, &app->mem, config, SESSION_TRAIN, &limits,
                     err)) {
        if (limits.device_bytes || limits.host_bytes || limits.no_disk)
            advise(app, config, &limits, err);
        return -1;
    }
    int rc = stop_early(stop, &app->log, err) || trainer_open(&trainer, session, stop, err) ||
             world_agree(app->world, write_plan(app, session, err), err) ||
             stop_early(stop, &app->log, err);
    if (!rc) {
        stop_begin(stop);
        rc = trainer_run(trainer, err);
    }
    trainer_close(trainer);
    session_close(session);
    return rc ? -1 : 0;
}

int command_train(struct app *app, int argc, char **argv, struct error *err)
{
    struct config config;
    struct stop *stop = NULL;
    const struct launch launch = launch_read();
    if (launch_check_nodes(&launch, err) || stop_open(&stop, err))
        return -1;
    int rc = app_start_world(app, err);
    if (!rc) {
        stop_join(stop, app->world);
        rc = world_agree(app->world, arguments_config(&config, ARGUMENTS_TRAIN, argc, argv, err),
                         err);
    }
    if (!rc) {
        stop_resumable(stop, is_resumable(app, &config));
        rc = stop_early(stop, &app->log, err);
    }
    if (!rc)
        rc = train(app, &config, stop, err);
    stop_end(stop);
    return rc;
}
