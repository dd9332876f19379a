/* plan.c - trireme plan: printing what a run needs and how long its steps take; plan_options.c
 * reads the options, plan_search.c searches layouts.
 *
 *     trireme plan CONFIG                   show(): one layout, other strategies, single changes
 *     ... --machine M --search              plan_search_layout(): the fastest layouts
 *     ... --machine M --search --nodes N-M  plan_search_nodes(): the fastest on so many nodes each
 *     ... --machine M --fewest              plan_search_fewest(): the fewest ranks that hold it
 *
 * All plan for options.machine where --machine names one, else for this machine.
 */
#include <malloc.h>
#include <stdlib.h>

#include "base/round.h"
#include "cli/arguments.h"
#include "cli/command.h"
#include "cli/plan_options.h"
#include "cli/plan_search.h"
#include "comm/topology.h"
#include "io/dataset.h"
#include "plan/attention_memory.h"
#include "plan/choices.h"
#include "plan/compare.h"
#include "plan/fit.h"
#include "plan/report_pipeline.h"
#include "plan/show.h"
#include "plan/step_svg.h"
#include "simulate/machine_file.h"
#include "train/data_files.h"
#include "train/run_length.h"

static int write_json(const struct report *report, const struct compare *compare,
                      const struct choices *choices, const char *path, struct error *err)
{
    if (!path)
        return 0;
    struct js *js = report_json(report);
    js_add(js, "strategies", compare_json(compare));
    js_add(js, "choices", choices_json(choices));
    int rc = js_write(js, JS_INDENTED, WHOLE_FILE_REPORT, path, err);
    js_free(js);
    return rc;
}

/* Resolve device=auto: what --machine has, or, without --machine, a GPU if this machine has one. */
static void resolve_device(struct config *config, struct plan_options *options)
{
    char why[128];
    if (config->device != CONFIG_DEVICE_AUTO)
        return;
    options->unasked_cpu = !options->as_machine && !device_gpu_count(why);
    int on_gpu = options->as_machine ? plan_options_has_gpu(options) : !options->unasked_cpu;
    config->device = on_gpu ? CONFIG_DEVICE_CUDA : CONFIG_DEVICE_CPU;
}

/* Return 0, or -1 with err set where the plan was not verified, or does not fit the machine or the
 * node's memory; err then has the nearest configuration that fits. */
static int outcome(const struct report *report, const struct plan_options *options,
                   struct error *err)
{
    struct memory_limits lack = report_lack(report, &report->limits);
    size_t host = lack.host_bytes;
    double short_gib = gib_of(host ? host : lack.device_bytes);
    struct config config = report->config;
    struct fit fit;
    char text[400];
    if (!report->verified)
        return error_set(err, "%s", report->verdict.text);
    if (report_check_node(report, err))
        return -1;
    if (!host && !(options->as_machine && lack.device_bytes))
        return 0;
    config.device = report->on_gpu ? CONFIG_DEVICE_CUDA : CONFIG_DEVICE_CPU;
    fit_find(&fit, &config, report->ranks, report->nodes, (int)options->threads, &report->limits,
             report->speeds);
    fit_text(&fit, report->ranks, text, sizeof text);
    return error_set(err, "does not fit on %s: short by %.2f GiB; %s",
                     host ? "the node" : report->machine, short_gib, text);
}

/* Print the plan, then those of other strategies and of single changes, and write the files that
 * were asked for. */
static int show(const struct report *report, const struct plan_options *options, struct error *err)
{
    struct compare compare;
    struct choices choices = {0};
    char known[512];
    compare_make(&compare, report, (int)options->threads);
    if (compare_chosen(&compare)->made)
        choices_make(&choices, &compare_chosen(&compare)->report, (int)options->threads);
    if (options->unasked_cpu) {
        printf(
            "planned for CPUs: device is auto, and there is no GPU here.  For GPUs name one with "
            "--machine:\n");
        show_wrapped(stdout, 0, 0, machine_names(known, sizeof known, ", "));
        printf("\n");
    }
    plan_options_show_notes(options);
    report_print(report, stdout);
    compare_print(&compare, stdout);
    choices_print(&choices, stdout);
    report_verdicts(report, stdout);
    int rc = 0;
    if (fflush(stdout) || ferror(stdout)) /* so that it comes before a line on stderr */
        rc = error_errno(err, "the plan cannot be written");
    if (!rc && (write_json(report, &compare, &choices, options->json, err) ||
                (options->csv && report_pipeline_csv(report, options->csv, err)) ||
                (options->svg && report_pipeline_svg(report, options->svg, err))))
        rc = -1;
    compare_free(&compare);
    return rc;
}

/* Write the forecast step as a trace and as a picture, where that was asked for. */
static int write_step(const struct report *report, const struct record *record,
                      const struct plan_options *o, struct error *err)
{
    char heading[256], step[32], precision[CONFIG_TEXT];
    if (!record->ranks)
        return o->trace || o->timeline
                   ? error_set(err, "there is no step to write: the programs were not verified")
                   : 0;
    if (o->trace) {
        struct js *js = record_json(record, report->speeds->name);
        int rc = js_write(js, JS_ONE_LINE, WHOLE_FILE_REPORT, o->trace, err);
        js_free(js);
        if (rc)
            return -1;
    }
    snprintf(heading, sizeof heading, "%s on %d ranks of %s, %s: %s a step, forecast",
             report->config.model.preset[0] ? report->config.model.preset : "model", report->ranks,
             report->speeds->name, config_value(&report->config, "precision", precision),
             show_time(record->step_s, step));
    return o->timeline ? step_svg_write(record, heading, o->timeline, err) : 0;
}

/* Let malloc() keep memory that is freed, also that of long lists, which it would map and unmap one
 * by one: programs of hundreds of ranks are made and freed one after the other. */
static void keep_memory(void)
{
    mallopt(M_MMAP_MAX, 0);
    mallopt(M_TRIM_THRESHOLD, -1);
}

/* Check that the GPU of this machine multiplies in fp8 where precision asks for it. */
static int check_own_gpu(const struct config *config, struct error *err)
{
    struct device_gpu gpu;
    struct error lacking = {0};
    char why[128];
    if (config->precision != PRECISION_FP8 || config->device != CONFIG_DEVICE_CUDA ||
        !device_gpu_count(why) || device_gpu_describe(0, &gpu, NULL) ||
        !device_gpu_check_fp8(&gpu, &lacking))
        return 0;
    return error_set(err, "precision fp8 needs %s; use precision bf16", lacking.text);
}

/* Check that the machine has what the configuration asks for. */
static int check_machine(const struct config *config, const struct plan_options *options,
                         struct error *err)
{
    int on_gpu = config->device == CONFIG_DEVICE_CUDA;
    if (on_gpu && options->threads_given)
        return error_set(err, "--threads is of ranks on CPUs, and these are on GPUs; leave it out");
    if (!options->as_machine)
        return check_own_gpu(config, err);
    return machine_check(&options->machine, on_gpu, layout_product_dtype(config, on_gpu),
                         "--machine", err);
}

/* Return the threads of a rank on CPUs: those given, those of the machine that is named, or those
 * that a run on this machine would have; 0: as OMP_NUM_THREADS says. */
static int64_t threads_of(const struct config *config, const struct plan_options *o)
{
    int per_node = (int)(o->ranks / (o->nodes > 0 ? o->nodes : 1));
    int64_t given = o->threads ? o->threads : config->run.threads;
    if (given)
        return given;
    if (o->as_machine && o->machine.threads)
        return o->machine.threads;
    return getenv("OMP_NUM_THREADS") || per_node < 1 ? 0 : topology_cores_for(per_node, per_node);
}

/* Set report->steps to the steps of train.epochs; where data.train cannot be opened here, say why
 * in report->no_data.  train.steps in the configuration stays as it is: variants of the
 * configuration are checked again, and train.steps beside train.epochs is an error. */
static int set_steps(struct report *report, struct error *err)
{
    const struct config *config = &report->config;
    struct config_train train = config->train;
    const struct loader_options loading = {.seq_len = config->data.seq_len,
                                           .vocab = config->model.vocab,
                                           .order = LOADER_SHUFFLED,
                                           .packing = config->data.packing};
    struct dataset data = {0};
    struct run_position start = {0};
    int rc = 0;
    if (!(config->train.epochs > 0))
        return 0;
    if (!config->data.train[0])
        error_set(&report->no_data, "data.train names no file");
    else if (!dataset_open(&data, config->data.train, &loading, &report->no_data)) {
        rc = run_length_set(&train, &start, data.windows, report->layout.global_batch, err);
        report->steps = train.steps;
    }
    dataset_close(&data);
    return rc;
}

static int plan(struct app *app, struct plan_options *options, int argc, char **argv,
                struct error *err)
{
    struct config config;
    struct report report;
    if (plan_options_take(options, &argc, argv, err) ||
        arguments_config(&config, ARGUMENTS_PLAN, argc, argv, err) ||
        plan_options_check_outputs(options, &config, argc > 1 ? argv[1] : NULL, err) ||
        plan_options_set_ranks(options, argc, argv, err))
        return -1;
    resolve_device(&config, options);
    options->threads_given = options->threads > 0;
    options->threads = threads_of(&config, options);
    keep_memory();
    if (check_machine(&config, options, err))
        return -1;
    if (options->most_nodes)
        return plan_search_nodes(&config, options, err);
    if (options->search)
        return plan_search_layout(&config, options, err);
    if (options->fewest)
        return plan_search_fewest(&config, options, err);
    if (config.parallel.layout == PARALLEL_LAYOUT_AUTO && plan_search_auto(&config, options, err))
        return -1;
    const struct machine *speeds = options->as_machine ? &options->machine : NULL;
    struct record record = {0};
    int records = options->trace || options->timeline;
    struct report_request request = {.config = &config,
                                     .ranks = (int)options->ranks,
                                     .nodes = (int)options->nodes,
                                     .threads = (int)options->threads,
                                     .speeds = speeds};
    if (records ? report_make_recorded(&report, &record, &request, err)
                : report_make(&report, &request, err))
        return -1;
    plan_options_judge(options, &report);
    attention_memory_note(&report, (int)options->threads);
    data_files_warn(&app->log, &config.data);
    int rc = set_steps(&report, err);
    if (!rc)
        rc = show(&report, options, err);
    if (!rc)
        rc = write_step(&report, &record, options, err);
    record_free(&record);
    if (!rc)
        rc = outcome(&report, options, err);
    report_free(&report);
    return rc;
}

int command_plan(struct app *app, int argc, char **argv, struct error *err)
{
    struct plan_options options = {0};
    int rc = plan(app, &options, argc, argv, err);
    machine_free(&options.machine);
    return rc;
}
