/* train.c - trireme train. */
#include <stdio.h>
#include <string.h>

#include "cli/arguments.h"
#include "cli/command.h"
#include "comm/gpu.h"
#include "comm/world.h"
#include "plan/fit.h"
#include "train/trainer.h"

/* plan.json, before the first step: what this run was promised, by rank 0.  A program that does
 * not pass is not run. */
static int write_plan(struct app *app, const struct session *session, struct error *err)
{
    char path[CONFIG_TEXT + 16];
    struct config config = session->config;
    struct report report;
    if (world_rank(app->world))
        return 0;
    config.device = session->device->kind == DEVICE_CUDA ? CONFIG_DEVICE_CUDA : CONFIG_DEVICE_CPU;
    if (report_make(&report, &config, world_size(app->world), world_nodes(app->world),
                    session->device->threads, err))
        return -1;
    snprintf(path, sizeof path, "%s/plan.json", session->config.run.dir);
    struct js *js = report_json(&report);
    int rc = js_write(js, JS_INDENTED, path, err);
    js_free(js);
    if (!rc && !report.verified)
        rc = error_set(err, "%s", report.verdict.text);
    report_free(&report);
    return rc;
}

/* A run that was refused for its memory or disk: what is nearest and has room, by rank 0, which
 * tells. Collective. */
static void advise(struct app *app, const struct config *asked, struct error *err)
{
    struct config config = *asked;
    struct fit fit;
    size_t used = strlen(err->text);
    if (config.device == CONFIG_DEVICE_AUTO)
        config.device = gpu_everywhere(app->world) ? CONFIG_DEVICE_CUDA : CONFIG_DEVICE_CPU;
    struct report_room room = {err->room.device_bytes, err->room.host_bytes, err->room.no_disk};
    if (world_rank(app->world))
        return;
    fit_find(&fit, &config, world_size(app->world), world_nodes(app->world),
             (int)config.run.threads, &room);
    used += (size_t)snprintf(err->text + used, sizeof err->text - used, "; ");
    if (used < sizeof err->text)
        fit_text(&fit, world_size(app->world), err->text + used, sizeof err->text - used);
}

int command_train(struct app *app, int argc, char **argv, struct error *err)
{
    struct config config;
    struct session *session = NULL;
    struct trainer *trainer = NULL;
    if (app_start_world(app, err) ||
        world_agree(app->world, arguments_config(&config, argc, argv, err), err))
        return -1;
    if (session_open(&session, app->world, &app->log, &app->mem, &config, SESSION_TRAIN, err)) {
        if (err->room.device_bytes || err->room.host_bytes || err->room.no_disk)
            advise(app, &config, err);
        return -1;
    }
    int rc = trainer_open(&trainer, session, err);
    if (!rc)
        rc = world_agree(app->world, write_plan(app, session, err), err);
    if (!rc)
        rc = trainer_run(trainer, err);
    trainer_close(trainer);
    session_close(session);
    return rc;
}
