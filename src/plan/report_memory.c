/* report_memory.c - the memory that ranks of a plan need, beside what a GPU and a node have. */
#include <stdio.h>

#include "base/round.h"
#include "plan/report.h"
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

void report_set_node_memory(struct report *report, size_t memory_bytes)
{
    size_t per_node = (size_t)machine_ranks_per_node(report->ranks, report->nodes);
    report->limits.host_bytes = memory_bytes / per_node;
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
