/* report_memory.c - the memory that ranks of a plan need, beside what a GPU and a node have. */
#include <stdio.h>

#include "base/round.h"
#include "plan/report.h"
#include "plan/show.h"
#include "simulate/machine.h"

const struct report_rank *report_largest(const struct report *report)
{
    const struct report_rank *largest = &report->rank[0];
    for (int r = 1; r < report->measured && report->layout.shape.degree[MESH_PIPELINE] > 1; r++) {
        const struct report_rank *rank = &report->rank[r];
        if (report->on_gpu ? rank->need.device_bytes > largest->need.device_bytes
                           : rank->need.total_bytes > largest->need.total_bytes)
            largest = rank;
    }
    return largest;
}

void report_set_gpu_memory(struct report *report, const char *name, size_t memory_bytes)
{
    snprintf(report->machine, sizeof report->machine, "%s", name);
    report->limits.device_bytes = memory_bytes;
}

/* What a process takes beside its plan, the most that was measured: program, libraries and MPI; for
 * each layer, its graphs and its part of the checkpoint's index; for each instruction of a step, on
 * rank 0, which compiles and verifies the programs of all ranks once more for plan.json. */
enum { PROCESS_BYTES = 43 << 20, LAYER_BYTES = 100 << 10, INSTR_BYTES = 1536 };

size_t report_process_bytes(const struct config *config, int instrs)
{
    return PROCESS_BYTES + (size_t)config->model.layers * LAYER_BYTES +
           (size_t)instrs * INSTR_BYTES;
}

size_t report_node_share(size_t node_bytes, int ranks, const struct config *config, int instrs)
{
    size_t share = node_bytes / (size_t)ranks, process = report_process_bytes(config, instrs);
    return share > process ? share - process : share ? REPORT_NODE_TAKEN : 0;
}

static int instrs_of(const struct report *report)
{
    return report->measured ? report->rank[0].instrs : 0;
}

void report_set_node_memory(struct report *report, size_t memory_bytes)
{
    report->node_bytes = memory_bytes;
    report->limits.host_bytes =
        report_node_share(memory_bytes, machine_ranks_per_node(report->ranks, report->nodes),
                          &report->config, instrs_of(report));
}

/* What leaves memory of a node whose processes take all of it: of what a process takes the list of
 * a step's instructions is shorter with fewer micro-batches. */
static const char *advice(const struct report *report, int ranks)
{
    size_t least = report_process_bytes(&report->config, 0);
    if (report->node_bytes / (size_t)ranks > least)
        return "a larger train.micro_batch leaves some";
    return ranks > 1 && report->node_bytes > least ? "fewer ranks on a node leave some"
                                                   : "take a node that has more";
}

int report_check_node(const struct report *report, struct error *err)
{
    int ranks = machine_ranks_per_node(report->ranks, report->nodes);
    char node[32], process[32];
    if (report->limits.host_bytes != REPORT_NODE_TAKEN)
        return 0;
    show_bytes((double)report->node_bytes, node, sizeof node);
    show_bytes((double)report_process_bytes(&report->config, instrs_of(report)), process,
               sizeof process);
    return error_set(err,
                     "no memory of a node is left for training: it has %s for %d rank%s, and the "
                     "process of one takes %s; %s",
                     node, ranks, ranks > 1 ? "s" : "", process, advice(report, ranks));
}

static size_t beyond(size_t wanted, size_t limit)
{
    return limit && wanted > limit ? wanted - limit : 0;
}

struct memory_limits report_most(const struct report *report)
{
    struct memory_limits most = {0};
    for (int r = 0; r < report->measured; r++) {
        most.device_bytes = max_bytes(most.device_bytes, report->rank[r].need.device_bytes);
        most.host_bytes = max_bytes(most.host_bytes, report->rank[r].need.host_bytes);
    }
    return most;
}

struct memory_limits report_lack(const struct report *report, const struct memory_limits *limits)
{
    struct memory_limits most = report_most(report);
    return (struct memory_limits){.device_bytes = beyond(most.device_bytes, limits->device_bytes),
                                  .host_bytes = beyond(most.host_bytes, limits->host_bytes)};
}
