/* plan.c - trireme plan. */
#include <stdlib.h>
#include <string.h>

#include "cli/arguments.h"
#include "cli/command.h"
#include "device/machine.h"
#include "plan/report.h"

enum { RANKS_MOST = 4096 };

static int write_json(const struct report *report, const char *path, struct error *err)
{
    struct js *js = report_json(report);
    int rc = js_write(js, JS_INDENTED, path, err);
    js_free(js);
    return rc;
}

/* The machine of --machine; NULL with err set if there is no such row. */
static const struct machine *named(const char *name, struct error *err)
{
    char known[256] = "";
    const struct machine *machine = machine_find(name);
    for (int i = 0; i < machine_count && !machine; i++)
        snprintf(known + strlen(known), sizeof known - strlen(known), "%s%s", i ? ", " : "",
                 machines[i].name);
    if (!machine)
        error_set(err, "--machine %s: known are %s", name, known);
    return machine;
}

/* A machine, or a GPU that is here, stands for device auto too. */
static void resolve_device(struct config *config, const struct machine *machine)
{
    char why[128];
    if (config->device == CONFIG_DEVICE_AUTO)
        config->device = machine || device_gpu_count(why) ? CONFIG_DEVICE_CUDA : CONFIG_DEVICE_CPU;
}

static void judge(struct report *report, const struct machine *machine)
{
    struct device_gpu gpu;
    char why[128];
    if (machine)
        report_judge(report, machine->name, machine->memory_bytes);
    else if (report->on_gpu && device_gpu_count(why) && !device_gpu_describe(0, &gpu, NULL))
        report_judge(report, gpu.name, gpu.total_bytes);
}

/* A plan that cannot be run on what was asked for is a failure. */
static int outcome(const struct report *report, const struct machine *machine, struct error *err)
{
    size_t lacks = report_short_bytes(report);
    if (!report->verified)
        return error_set(err, "%s", report->verdict.text);
    if (machine && lacks)
        return error_set(err, "does not fit on %s: short by %.2f GiB", machine->name,
                         (double)lacks / (1 << 30));
    return 0;
}

int command_plan(struct app *app, int argc, char **argv, struct error *err)
{
    struct config config;
    struct report report;
    double ranks, nodes, threads;
    const char *json = arguments_option("--json", &argc, argv);
    const char *name = arguments_option("--machine", &argc, argv);
    const struct machine *machine = name ? named(name, err) : NULL;
    if ((name && !machine) ||
        arguments_number("--ranks", &argc, argv, 1, RANKS_MOST, &ranks, 1, err) ||
        arguments_number("--nodes", &argc, argv, 1, RANKS_MOST, &nodes, 1, err) ||
        arguments_number("--threads", &argc, argv, 1, 1024, &threads, 0, err) ||
        arguments_config(&config, argc, argv, err))
        return -1;
    if (!threads)
        threads = (double)config.run.threads;
    resolve_device(&config, machine);
    if (machine && config.device == CONFIG_DEVICE_CPU)
        return error_set(err, "--machine %s is a GPU, but device is cpu", name);
    if (report_make(&report, &config, (int)ranks, (int)nodes, (int)threads, err))
        return -1;
    judge(&report, machine);
    report_print(&report, stdout);
    int rc = json ? write_json(&report, json, err) : 0;
    if (!rc)
        rc = outcome(&report, machine, err);
    report_free(&report);
    return rc;
}
