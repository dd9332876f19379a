/* plan.c - trireme plan. */
#include <stdlib.h>

#include "cli/arguments.h"
#include "cli/command.h"
#include "comm/topology.h"
#include "plan/report.h"

enum { RANKS_MOST = 4096 };

static int write_json(const struct report *report, const char *path, struct error *err)
{
    struct js *js = report_json(report);
    int rc = js_write(js, JS_INDENTED, path, err);
    js_free(js);
    return rc;
}

int command_plan(struct app *app, int argc, char **argv, struct error *err)
{
    struct config config;
    struct report report;
    double ranks, threads;
    const char *json = arguments_option("--json", &argc, argv);
    if (arguments_number("--ranks", &argc, argv, 1, RANKS_MOST, &ranks, 1, err) ||
        arguments_number("--threads", &argc, argv, 1, 1024, &threads, 0, err) ||
        arguments_config(&config, argc, argv, err))
        return -1;
    if (!threads)
        threads = (double)config.run.threads;
    if (report_make(&report, &config, (int)ranks, (int)threads, err))
        return -1;
    report_print(&report, stdout);
    int rc = json ? write_json(&report, json, err) : 0;
    if (!rc && !report.verified)
        rc = error_set(err, "%s", report.verdict.text);
    report_free(&report);
    return rc;
}
