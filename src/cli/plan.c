/* plan.c - trireme plan: printing what a run needs and how long its steps take, or searching
 * layouts.
 *
 *     trireme plan CONFIG                      show(): one layout, other strategies, single changes
 *     ... --machine M --search                 find_layout(): the fastest layouts
 *     ... --machine M --search --nodes N-M     find_layouts(): the fastest for each number of nodes
 *     ... --machine M --fewest                 find_fewest(): the fewest ranks that hold the run
 *
 * All plan for options.machine where --machine names one, else for this machine.
 */
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#include "base/round.h"
#include "base/text.h"
#include "cli/arguments.h"
#include "cli/command.h"
#include "cli/last_start.h"
#include "comm/topology.h"
#include "io/dataset.h"
#include "plan/attention_memory.h"
#include "plan/choices.h"
#include "plan/compare.h"
#include "plan/fewest.h"
#include "plan/fit.h"
#include "plan/report_pipeline.h"
#include "plan/search.h"
#include "plan/search_nodes.h"
#include "plan/show.h"
#include "plan/step_svg.h"
#include "simulate/machine_file.h"
#include "train/run_length.h"

enum { RANKS_MOST = 65536 };

struct options {
    const char *json, *csv, *svg; /* files to write; NULL: none */
    const char *yaml;             /* file for the configuration that a search found; NULL: none */
    const char *trace,
        *timeline;           /* files for the forecast step, as JSON, as a picture; NULL: none */
    int search, fewest;      /* 1: --search, --fewest, in place of a plan */
    struct machine machine;  /* that --machine names */
    int as_machine;          /* 1: --machine was given */
    int64_t ranks, nodes;    /* 0: not known yet (set_ranks()) */
    int64_t threads;         /* of a rank on CPUs; 0: as OMP_NUM_THREADS says */
    int threads_given;       /* 1: by --threads */
    int64_t most_nodes;      /* above 0: a search over `nodes` to this many nodes */
    enum search_keeps keeps; /* what stays the same in such a search */
    double node_gib;         /* --node-memory: GiB of a node's memory; 0: not given */
    int unasked_cpu;         /* 1: device=auto found no GPU here, and no machine was named */
};

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

static int machine_has_gpu(const struct options *options)
{
    return options->as_machine && options->machine.gpu[0];
}

/* Resolve device=auto: what --machine has, or, without --machine, a GPU if this machine has one. */
static void resolve_device(struct config *config, struct options *options)
{
    char why[128];
    if (config->device != CONFIG_DEVICE_AUTO)
        return;
    options->unasked_cpu = !options->as_machine && !device_gpu_count(why);
    int on_gpu = options->as_machine ? machine_has_gpu(options) : !options->unasked_cpu;
    config->device = on_gpu ? CONFIG_DEVICE_CUDA : CONFIG_DEVICE_CPU;
}

/* Return the bytes of a node's memory; 0: not known.  A machine without GPUs has memory_bytes for
 * each of its ranks; of one with GPUs the host's memory may be known. */
static size_t node_bytes_of(const struct options *options)
{
    const struct machine *machine = &options->machine;
    size_t given = (size_t)(options->node_gib * (1 << 30));
    if (given || !options->as_machine)
        return given;
    return machine_has_gpu(options) ? machine->host_memory
                                    : machine->memory_bytes * (size_t)machine->per_node;
}

/* Set in the report how much memory the GPU and the node have, for its verdicts. */
static void judge(struct report *report, const struct options *options)
{
    const struct machine *machine = &options->machine;
    struct device_gpu gpu;
    char why[128];
    if (machine_has_gpu(options))
        report_set_gpu_memory(report, machine->name, machine->memory_bytes);
    else if (!options->as_machine && report->on_gpu && device_gpu_count(why) &&
             !device_gpu_describe(0, &gpu, NULL))
        report_set_gpu_memory(report, gpu.name, gpu.total_bytes);
    report_set_node_memory(report, node_bytes_of(options));
}

/* Return 0, or -1 with err set where the plan was not verified, or does not fit the machine or the
 * node's memory; err then has the nearest configuration that fits. */
static int outcome(const struct report *report, const struct options *options, struct error *err)
{
    struct memory_limits lack = report_lack(report, &report->limits);
    size_t host = lack.host_bytes;
    double short_gib = gib_of(host ? host : lack.device_bytes);
    struct config config = report->config;
    struct fit fit;
    char text[400];
    if (!report->verified)
        return error_set(err, "%s", report->verdict.text);
    if (!host && !(options->as_machine && lack.device_bytes))
        return 0;
    config.device = report->on_gpu ? CONFIG_DEVICE_CUDA : CONFIG_DEVICE_CPU;
    fit_find(&fit, &config, report->ranks, report->nodes, (int)options->threads, &report->limits);
    fit_text(&fit, report->ranks, text, sizeof text);
    return error_set(err, "does not fit on %s: short by %.2f GiB; %s",
                     host ? "the node" : report->machine, short_gib, text);
}

static int take_machine(struct options *o, int *argc, char **argv, struct error *err)
{
    const char *name = arguments_option("--machine", argc, argv);
    const char *network = arguments_option("--network", argc, argv);
    if (name && machine_open(&o->machine, name, err))
        return error_prefix(err, "--machine");
    o->as_machine = name != NULL;
    if (network && !name)
        return error_set(err, "--network %.40s: of which machine?  Name it with --machine",
                         network);
    return network && machine_set_network(&o->machine, network, err)
               ? error_prefix(err, "--network")
               : 0;
}

/* Read a whole number of an option, in [least, RANKS_MOST]. */
static int count_of(const char *name, const char *text, int64_t least, int64_t *value,
                    struct error *err)
{
    char *argument[] = {NULL, (char *)name, (char *)text, NULL};
    int count = 3;
    return arguments_count(name, &count, argument, least, RANKS_MOST, value, 0, err);
}

static int take_search(struct options *o, int *argc, char **argv, struct error *err)
{
    o->search = arguments_flag("--search", argc, argv);
    o->yaml = arguments_option("--yaml", argc, argv);
    if (o->search && !o->as_machine)
        return error_set(err, "--search: on which machine?  Name it with --machine");
    if (o->search && (o->csv || o->svg || o->trace || o->timeline))
        return error_set(err, "--search writes no schedule and no step: plan the layout that it "
                              "finds");
    return o->yaml && !o->search
               ? error_set(err,
                           "--yaml writes the layout that --search finds, which is not asked for")
               : 0;
}

/* Read --ranks, or --gpus, which means the same. */
static int take_ranks(struct options *o, int *argc, char **argv, struct error *err)
{
    int64_t gpus;
    if (arguments_count("--ranks", argc, argv, 1, RANKS_MOST, &o->ranks, 0, err) ||
        arguments_count("--gpus", argc, argv, 1, RANKS_MOST, &gpus, 0, err))
        return -1;
    if (gpus && o->ranks)
        return error_set(err, "--gpus is another name of --ranks: say one of them");
    o->ranks = gpus ? gpus : o->ranks;
    return 0;
}

/* Read --nodes N, or for a search --nodes N-M and --keep. */
static int take_nodes(struct options *o, int *argc, char **argv, struct error *err)
{
    const char *nodes = arguments_option("--nodes", argc, argv);
    const char *keep = arguments_option("--keep", argc, argv);
    const char *most = nodes ? strchr(nodes, '-') : NULL;
    char least[32];
    if (keep && !(o->search && most && most > nodes))
        return error_set(err, "--keep says what stays while nodes are added: with --search and "
                              "--nodes 2-64");
    if (keep && strcmp(keep, "global_batch") && strcmp(keep, "batch_per_rank"))
        return error_set(err, "--keep %.40s: global_batch or batch_per_rank", keep);
    o->keeps = keep && !strcmp(keep, "batch_per_rank") ? SEARCH_KEEPS_BATCH_PER_RANK
                                                       : SEARCH_KEEPS_GLOBAL_BATCH;
    if (!nodes)
        return 0;
    if (!most || most == nodes)
        return count_of("--nodes", nodes, 1, &o->nodes, err);
    if (!o->search || o->yaml)
        return error_set(err, "--nodes %.40s: several numbers of nodes go with --search%s", nodes,
                         o->yaml ? ", and --yaml writes one layout: name one number" : " alone");
    if (!most[1])
        return error_set(err, "--nodes %.40s: from how many to how many, as in --nodes 2-64",
                         nodes);
    snprintf(least, sizeof least, "%.*s", (int)(most - nodes), nodes);
    if (count_of("--nodes", least, 1, &o->nodes, err) ||
        count_of("--nodes", most + 1, 1, &o->most_nodes, err))
        return -1;
    return o->nodes > o->most_nodes
               ? error_set(err, "--nodes %.40s: the smaller number comes first", nodes)
               : 0;
}

/* Read --fewest. */
static int take_fewest(struct options *o, int *argc, char **argv, struct error *err)
{
    o->fewest = arguments_flag("--fewest", argc, argv);
    if (!o->fewest)
        return 0;
    if (!o->as_machine)
        return error_set(err, "--fewest: of which machine?  Name it with --machine");
    if (o->search)
        return error_set(err, "--fewest and --search: one after the other, please: --search finds "
                              "the fastest layout of the ranks that --ranks says");
    return o->csv || o->svg || o->trace || o->timeline
               ? error_set(err, "--fewest writes no schedule and no step: plan the layout that it "
                                "finds")
               : 0;
}

/* Return the number of nodes that the ranks need on the machine; 1 where the machine does not say
 * how nodes are connected. */
static int64_t usual_nodes(const struct options *o)
{
    const struct machine *machine = &o->machine;
    int is_connected = o->as_machine && machine->per_node && machine->network.bytes_per_s > 0;
    return is_connected ? ceil_div(o->ranks, machine->per_node) : 1;
}

static int take_options(struct options *o, int *argc, char **argv, struct error *err)
{
    o->json = arguments_option("--json", argc, argv);
    o->csv = arguments_option("--schedule-csv", argc, argv);
    o->svg = arguments_option("--schedule-svg", argc, argv);
    o->trace = arguments_option("--trace", argc, argv);
    o->timeline = arguments_option("--timeline-svg", argc, argv);
    if (take_machine(o, argc, argv, err) || take_search(o, argc, argv, err) ||
        take_fewest(o, argc, argv, err) || take_ranks(o, argc, argv, err) ||
        take_nodes(o, argc, argv, err) ||
        arguments_count("--threads", argc, argv, 1, 1024, &o->threads, 0, err))
        return -1;
    if (o->fewest && (o->ranks || o->nodes))
        return error_set(err, "--fewest finds the ranks and nodes: leave out --ranks and --nodes");
    if ((o->trace || o->timeline) && !o->as_machine)
        return error_set(err, "%s: how long a step takes on which machine?  Name it with --machine",
                         o->trace ? "--trace" : "--timeline-svg");
    return arguments_number("--node-memory", argc, argv, 0.001, 1e6, &o->node_gib, 0, err);
}

/* Set the ranks and nodes that no option names: for a run those of its last start, else one rank.
 */
static int set_ranks(struct options *o, int argc, char **argv, struct error *err)
{
    struct last_start last = {0};
    if (o->most_nodes)
        return 0;
    if (!o->ranks && !o->fewest && argc > 1 && !last_start_read(&last, argv[1])) {
        printf("planned for the ranks with which %s last started, %d; for others say --ranks N\n\n",
               last.run, last.ranks);
        o->ranks = last.ranks;
        o->nodes = o->nodes || o->as_machine ? o->nodes : last.nodes;
    }
    int are_given = o->ranks > 0;
    o->ranks = o->ranks ? o->ranks : 1;
    o->nodes = o->nodes ? o->nodes : usual_nodes(o);
    if (o->ranks >= o->nodes)
        return 0;
    if (!are_given)
        return error_set(err, "--nodes %lld needs the number of ranks on them: --ranks N",
                         (long long)o->nodes);
    return error_set(err, "--ranks %lld is less than --nodes %lld: a node has at least one rank",
                     (long long)o->ranks, (long long)o->nodes);
}

/* Print what holds of the machine whatever is found: that trireme does not run there, and that
 * links within a node are taken to join more GPUs than its nodes have. */
static void show_notes(const struct options *o)
{
    const struct machine *machine = &o->machine;
    int most = o->nodes > 0 ? machine_ranks_per_node((int)o->ranks, (int)o->nodes) : 0;
    if (machine_has_gpu(o) && !machine->runs)
        printf("trireme's kernels do not run on %s: this is only a plan\n\n", machine->name);
    if (machine_has_gpu(o) && machine->per_node && most > machine->per_node)
        printf("nodes of %s have %d GPUs, and one has %d here: planned as if its links joined them "
               "all\n\n",
               machine->name, machine->per_node, most);
}

/* Print the plan, then those of other strategies and of single changes, and write the files that
 * were asked for. */
static int show(const struct report *report, const struct options *options, struct error *err)
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
    show_notes(options);
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
                      const struct options *o, struct error *err)
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
static int check_machine(const struct config *config, const struct options *options,
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

/* Make the request of a search.  *limits is set, belongs to the caller, and has to outlive the
 * request. */
static struct search_request request_of(const struct config *config, const struct options *o,
                                        struct report *limits)
{
    *limits = (struct report){.ranks = (int)o->ranks, .nodes = (int)o->nodes};
    judge(limits, o);
    return (struct search_request){.config = config,
                                   .ranks = (int)o->ranks,
                                   .nodes = (int)o->nodes,
                                   .threads = (int)o->threads,
                                   .machine = &o->machine,
                                   .limits = &limits->limits};
}

/* With parallel.layout=auto, replace the configuration by the one that training would choose on the
 * machine. */
static int set_layout(struct config *config, const struct options *o, struct error *err)
{
    struct report limits;
    struct search search;
    const struct search_request request = request_of(config, o, &limits);
    if (!o->as_machine)
        return error_set(err, "parallel.layout auto: which layout training takes depends on the "
                              "machine.  Name it with --machine");
    if (search_find(&search, &request, err))
        return error_prefix(err, "parallel.layout auto");
    printf("parallel.layout auto takes\n    ");
    show_wrapped(stdout, 4, 4, search.row[0].settings);
    printf("\n");
    *config = search.best;
    return 0;
}

/* --search: find and print the fastest layouts.  In the configuration that is written
 * parallel.layout is given, as it has the layout's keys. */
static int find_layout(const struct config *config, const struct options *o, struct error *err)
{
    struct report limits;
    struct search search;
    const struct search_request request = request_of(config, o, &limits);
    if (search_find(&search, &request, err))
        return -1;
    search.best.parallel.layout = PARALLEL_LAYOUT_GIVEN;
    show_notes(o);
    search_print(&search, &request, stdout);
    if (fflush(stdout) || ferror(stdout))
        return error_errno(err, "the layouts cannot be written");
    if (o->yaml && config_write(&search.best, CONFIG_FOR_USER, o->yaml, err))
        return -1;
    if (!o->json)
        return 0;
    struct js *js = search_json(&search);
    int rc = js_write(js, JS_INDENTED, WHOLE_FILE_REPORT, o->json, err);
    js_free(js);
    return rc;
}

/* --search --nodes N-M: find and print the fastest layout for each of several numbers of nodes. */
static int find_layouts(const struct config *config, const struct options *o, struct error *err)
{
    struct report limits = {.ranks = 1,
                            .nodes = 1}; /* of a node; each row shares it by its ranks */
    struct search_nodes found;
    judge(&limits, o);
    const struct search_request request = {.config = config,
                                           .ranks = (int)o->ranks,
                                           .threads = (int)o->threads,
                                           .machine = &o->machine,
                                           .limits = &limits.limits};
    search_nodes_find(&found, &request, (int)o->nodes, (int)o->most_nodes, o->keeps);
    show_notes(o);
    search_nodes_print(&found, &request, stdout);
    if (fflush(stdout) || ferror(stdout))
        return error_errno(err, "the layouts cannot be written");
    if (!o->json)
        return 0;
    struct js *js = search_nodes_json(&found);
    int rc = js_write(js, JS_INDENTED, WHOLE_FILE_REPORT, o->json, err);
    js_free(js);
    return rc;
}

/* --fewest: find and print the fewest ranks that hold the run. */
static int find_fewest(const struct config *config, const struct options *o, struct error *err)
{
    const struct fewest_request request = {.config = config,
                                           .machine = &o->machine,
                                           .threads = (int)o->threads,
                                           .node_bytes = (size_t)(o->node_gib * (1 << 30))};
    struct fewest fewest;
    if (fewest_find(&fewest, &request, err))
        return -1;
    show_notes(o);
    fewest_print(&fewest, &request, stdout);
    if (fflush(stdout) || ferror(stdout))
        return error_errno(err, "the ranks cannot be written");
    if (!o->json)
        return 0;
    struct js *js = fewest_json(&fewest);
    int rc = js_write(js, JS_INDENTED, WHOLE_FILE_REPORT, o->json, err);
    js_free(js);
    return rc;
}

/* Return the threads of a rank on CPUs: those given, those of the machine that is named, or those
 * that a run on this machine would have; 0: as OMP_NUM_THREADS says. */
static int64_t threads_of(const struct config *config, const struct options *o)
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

static int plan(struct options *options, int argc, char **argv, struct error *err)
{
    struct config config;
    struct report report;
    if (take_options(options, &argc, argv, err) ||
        arguments_config(&config, ARGUMENTS_PLAN, argc, argv, err) ||
        set_ranks(options, argc, argv, err))
        return -1;
    resolve_device(&config, options);
    options->threads_given = options->threads > 0;
    options->threads = threads_of(&config, options);
    keep_memory();
    if (check_machine(&config, options, err))
        return -1;
    if (options->most_nodes)
        return find_layouts(&config, options, err);
    if (options->search)
        return find_layout(&config, options, err);
    if (options->fewest)
        return find_fewest(&config, options, err);
    if (config.parallel.layout == PARALLEL_LAYOUT_AUTO && set_layout(&config, options, err))
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
    judge(&report, options);
    attention_memory_note(&report, (int)options->threads);
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
    struct options options = {0};
    int rc = plan(&options, argc, argv, err);
    machine_free(&options.machine);
    return rc;
}
