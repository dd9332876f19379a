/* layout_auto.c - see layout_auto.h. */
#include "train/layout_auto.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "plan/search.h"
#include "plan/show.h"
#include "train/memory_budget.h"
#include "train/run_machine.h"

/* Find the least that a rank has of its GPU's memory, and of its node's as its share.  Collective.
 */
static struct memory_limits find_limits(struct world *world, const struct config *config,
                                        const struct device_gpu *gpu)
{
    double least[] = {(double)gpu->total_bytes, (double)memory_budget_node_share(world, config, 0)};
    world_all_reduce(world, least, 2, WORLD_MIN);
    return (struct memory_limits){.device_bytes = (size_t)least[0], .host_bytes = (size_t)least[1]};
}

static int search(char settings[SEARCH_SETTINGS], const struct config *config, struct world *world,
                  struct log *log, const struct device_request *request,
                  const struct run_machine *machine, const struct memory_limits *limits,
                  struct error *err)
{
    struct config base = *config;
    const struct report node = {.config = base,
                                .ranks = world_size(world),
                                .nodes = world_nodes(world),
                                .limits = *limits,
                                .node_bytes = mem_node_bytes()};
    struct search search;
    char step[32];
    int64_t start_ns = clock_ns();
    if (!machine->is_known)
        return error_set(err,
                         "parallel.layout auto: how fast is this machine?  run.machine=NAME or "
                         "run.machine=FILE says it (trireme doctor --measure FILE)");
    base.parallel.layout =
        PARALLEL_LAYOUT_GIVEN; /* so that settings do not say it: it stays auto */
    base.device = request->kind == DEVICE_CUDA ? CONFIG_DEVICE_CUDA : CONFIG_DEVICE_CPU;
    if (report_check_node(&node, err) ||
        search_find(&search,
                    &(struct search_request){.config = &base,
                                             .ranks = world_size(world),
                                             .nodes = world_nodes(world),
                                             .threads = request->threads,
                                             .machine = &machine->machine,
                                             .limits = limits},
                    err))
        return error_prefix(err, "parallel.layout auto");
    snprintf(settings, SEARCH_SETTINGS, "%s", search.row[0].settings);
    log_info(log, "layout: %s: %s a step, by the forecast for %s the fastest of %d (%.1f s)",
             settings, show_time(search.row[0].step_s, step), machine->machine.name,
             search.candidates, (double)(clock_ns() - start_ns) / 1e9);
    return 0;
}

int layout_auto_set(struct config *config, struct world *world, struct log *log,
                    const struct device_request *request, struct error *err)
{
    struct run_machine machine = {0};
    struct device_gpu gpu = {0};
    char settings[SEARCH_SETTINGS] = "";
    int on_gpu = request->kind == DEVICE_CUDA;
    if (config->parallel.layout != PARALLEL_LAYOUT_AUTO)
        return 0;
    if (world_agree(world, on_gpu && device_gpu_describe(request->index, &gpu, err), err))
        return -1;
    struct memory_limits limits = find_limits(world, config, &gpu);
    int rc = 0;
    if (!world_rank(world)) {
        rc = run_machine_find(&machine, config, on_gpu ? gpu.name : NULL, err) ||
             search(settings, config, world, log, request, &machine, &limits, err);
        run_machine_free(&machine);
    }
    if (world_agree(world, rc, err))
        return -1;
    world_broadcast(world, settings, sizeof settings, 0);
    struct config base = *config;
    return world_agree(world, search_apply(config, &base, settings), err);
}
