/* plan_options.c - see plan_options.h. */
#include "cli/plan_options.h"

#include <stdio.h>
#include <string.h>

#include "base/round.h"
#include "base/special_file.h"
#include "cli/arguments.h"
#include "cli/last_start.h"
#include "cli/output_path.h"
#include "simulate/machine_file.h"

enum { RANKS_MOST = 65536 };

int plan_options_has_gpu(const struct plan_options *o)
{
    return o->as_machine && o->machine.gpu[0];
}

/* A machine without GPUs has memory_bytes for each of its ranks; of one with GPUs the host's memory
 * may be known. */
size_t plan_options_node_bytes(const struct plan_options *o)
{
    const struct machine *machine = &o->machine;
    size_t given = (size_t)(o->node_gib * (1 << 30));
    if (given || !o->as_machine)
        return given;
    return plan_options_has_gpu(o) ? machine->host_memory_bytes
                                   : machine->memory_bytes * (size_t)machine->per_node;
}

void plan_options_judge(const struct plan_options *o, struct report *report)
{
    const struct machine *machine = &o->machine;
    struct device_gpu gpu;
    char why[128];
    if (plan_options_has_gpu(o))
        report_set_gpu_memory(report, machine->name, machine->memory_bytes);
    else if (!o->as_machine && report->on_gpu && device_gpu_count(why) &&
             !device_gpu_describe(0, &gpu, NULL))
        report_set_gpu_memory(report, gpu.name, gpu.total_bytes);
    report_set_node_memory(report, plan_options_node_bytes(o));
}

static int take_machine(struct plan_options *o, int *argc, char **argv, struct error *err)
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

static int take_search(struct plan_options *o, int *argc, char **argv, struct error *err)
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
static int take_ranks(struct plan_options *o, int *argc, char **argv, struct error *err)
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
static int take_nodes(struct plan_options *o, int *argc, char **argv, struct error *err)
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
static int take_fewest(struct plan_options *o, int *argc, char **argv, struct error *err)
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
static int64_t usual_nodes(const struct plan_options *o)
{
    const struct machine *machine = &o->machine;
    int is_connected = o->as_machine && machine->per_node && machine->network.bytes_per_s > 0;
    return is_connected ? ceil_div(o->ranks, machine->per_node) : 1;
}

int plan_options_take(struct plan_options *o, int *argc, char **argv, struct error *err)
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

int plan_options_check_outputs(const struct plan_options *o, const struct config *config,
                               const char *input, struct error *err)
{
    const struct {
        const char *option, *path;
        enum output_path_kind kind;
    } rows[] = {
        {.option = "--json", .path = o->json, .kind = OUTPUT_PLAN},
        {.option = "--trace", .path = o->trace, .kind = OUTPUT_TRACE},
        {.option = "--schedule-svg", .path = o->svg, .kind = OUTPUT_PICTURE},
        {.option = "--timeline-svg", .path = o->timeline, .kind = OUTPUT_PICTURE},
        {.option = "--schedule-csv", .path = o->csv, .kind = OUTPUT_SCHEDULE},
        {.option = "--yaml", .path = o->yaml, .kind = OUTPUT_CONFIG},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (output_path_check_report(
                rows[i].path, rows[i].kind,
                rows[i].kind == OUTPUT_SCHEDULE ? config->parallel.schedule : input, err))
            return error_prefix(err, "%s", rows[i].option);
        for (size_t j = 0; j < i; j++)
            if (rows[i].path && rows[j].path && !special_file_kind(rows[i].path) &&
                output_path_is(rows[i].path, rows[j].path))
                return error_set(err, "%s and %s name one file, %s; name two", rows[j].option,
                                 rows[i].option, rows[i].path);
    }
    return 0;
}

int plan_options_set_ranks(struct plan_options *o, int argc, char **argv, struct error *err)
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

void plan_options_show_notes(const struct plan_options *o)
{
    const struct machine *machine = &o->machine;
    int most = o->nodes > 0 ? machine_ranks_per_node((int)o->ranks, (int)o->nodes) : 0;
    if (plan_options_has_gpu(o) && !machine->runs)
        printf("trireme's kernels do not run on %s: this is only a plan\n\n", machine->name);
    if (plan_options_has_gpu(o) && machine->per_node && most > machine->per_node)
        printf("nodes of %s have %d GPUs, and one has %d here: planned as if its links joined them "
               "all\n\n",
               machine->name, machine->per_node, most);
}
