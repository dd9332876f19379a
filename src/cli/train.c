/* train.c - trireme train. */
#include <stdio.h>

#include "cli/arguments.h"
#include "cli/command.h"
#include "comm/world.h"
#include "plan/report.h"
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

int command_train(struct app *app, int argc, char **argv, struct error *err)
{
    struct config config;
    struct session *session = NULL;
    struct trainer *trainer = NULL;
    if (app_start_world(app, err) ||
        world_agree(app->world, arguments_config(&config, argc, argv, err), err) ||
        session_open(&session, app->world, &app->log, &app->mem, &config, SESSION_TRAIN, err))
        return -1;
    int rc = trainer_open(&trainer, session, err);
    if (!rc)
        rc = world_agree(app->world, write_plan(app, session, err), err);
    if (!rc)
        rc = trainer_run(trainer, err);
    trainer_close(trainer);
    session_close(session);
    return rc;
}
