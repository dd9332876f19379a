/* fewest.c - the search for the fewest ranks, by few plans.
 *
 *   of each level of offload, of each degree of tensor ranks; here a node has 8 ranks
 *       counts    1 2 3 4 5 6 7 8 | 16 24 32 ...    those that the degrees divide, a node's first
 *       tried     1 2 4 8 72 ...    until one fits, then halves between it and the last that
 *                                   did not
 *
 * More ranks never need more, but for padding.  A degree that does not fit on the count before the
 * best one so far is left after that one plan.
 */
#include "plan/fewest.h"

#include <string.h>

#include "base/text.h"
#include "config/schema.h"
#include "model/model.h"
#include "plan/fit.h"

/* What a row keeps in the node's memory: that of the level with its number (settings.h). */
static const char *const kept[FEWEST_ROWS] = {"nothing", "optimizer state", "and gradients",
                                              "and parameters"};

/* Has a step one micro-batch, whatever its size?  With gradients in bf16 it has. */
static int is_one_micro(const struct config *config)
{
    return config->train.grad_dtype != DTYPE_F32;
}

/* Change the configuration: FULL_SHARD over all data ranks, with state at a level of offload.
 * Returns 0, or -1 where keys do not go together. */
static int vary(struct settings *v, const struct config *config, int level, int tensor)
{
    *v = (struct settings){.config = *config};
    if (config->parallel.strategy != STRATEGY_FULL_SHARD &&
        (settings_strategy(&v->config, STRATEGY_FULL_SHARD, NULL) ||
         settings_add(v, "parallel.strategy", "FULL_SHARD")))
        return -1;
    v->config.parallel.shard = v->config.parallel.replicate = 0;
    v->config.parallel.layout = PARALLEL_LAYOUT_GIVEN;
    if ((tensor != config->parallel.tensor && settings_add(v, "parallel.tensor", "%d", tensor)) ||
        settings_move_to_level(v, level) ||
        (config->offload.path[0] && settings_add(v, "offload.path", "%s", "")) ||
        (is_one_micro(config) && config->train.micro_batch &&
         settings_add(v, "train.micro_batch", "0")))
        return -1;
    return settings_set(&v->config, "");
}

/* ---- counts of ranks ---- */

static int per_node_of(const struct fewest_request *r)
{
    return r->machine->per_node > 1 ? r->machine->per_node : 1;
}

static int nodes_of(const struct fewest_request *r, int ranks)
{
    return (ranks + per_node_of(r) - 1) / per_node_of(r);
}

/* The product of the degrees that are set: the ranks of every layout are a multiple of it. */
static int unit_of(const struct config *config)
{
    const struct config_parallel *p = &config->parallel;
    return (int)((p->tensor > 1 ? p->tensor : 1) * (p->pipeline > 1 ? p->pipeline : 1) *
                 (p->context > 1 ? p->context : 1));
}

/* List all counts in their order; returns how many. */
static int list_counts(const struct fewest_request *r, int unit, int counts[FEWEST_RANKS_MOST])
{
    int per_node = per_node_of(r), count = 0;
    for (int ranks = 1; ranks <= FEWEST_RANKS_MOST; ranks += ranks < per_node ? 1 : per_node)
        if (ranks % unit == 0)
            counts[count++] = ranks;
    return count;
}

/* The memory of a node; 0: without limit. */
static size_t node_bytes_of(const struct fewest_request *r)
{
    if (r->node_bytes || r->machine->gpu[0])
        return r->node_bytes;
    return r->machine->memory_bytes * (size_t)per_node_of(r);
}

static struct memory_limits limits_of(const struct fewest_request *r, int ranks)
{
    const struct machine *machine = r->machine;
    int on_gpu = machine->gpu[0] != 0;
    int on_node = ranks < per_node_of(r) ? ranks : per_node_of(r);
    size_t node = node_bytes_of(r);
    return (struct memory_limits){.device_bytes = on_gpu ? machine->memory_bytes : 0,
                                  .host_bytes = report_node_share(node, on_node, r->config, 0),
                                  .no_disk = 1};
}

/* Does a run fit on so many ranks, with everything recomputed and such a micro-batch? */
static int holds_micro(const struct fewest_request *r, const struct config *config, int ranks,
                       int micro_batch)
{
    struct memory_limits limits = limits_of(r, ranks);
    struct config least = *config;
    struct report report;
    least.recompute = RECOMPUTE_FULL;
    least.train.micro_batch = micro_batch;
    struct report_request request = {
        .config = &least, .ranks = ranks, .nodes = nodes_of(r, ranks), .threads = r->threads};
    if (report_measure(&report, &request, NULL))
        return 0;
    struct memory_limits lack = report_lack(&report, &limits);
    report_free(&report);
    return !lack.device_bytes && !lack.host_bytes;
}

/* Does a run fit on so many ranks, with everything recomputed, and with micro-batches of one
 * sequence where a step may have several, or with all sequences at once, whose gradients take the
 * place of activations? */
static int holds(const struct fewest_request *r, const struct config *config, int ranks)
{
    return (!is_one_micro(config) && holds_micro(r, config, ranks, 1)) ||
           holds_micro(r, config, ranks, 0);
}

/* The fewest ranks that hold a run, fewer than `below`; 0: so few do not hold it. */
static int fewest_ranks(const struct fewest_request *r, const struct config *config, int below)
{
    int counts[FEWEST_RANKS_MOST], end = 0, lacks = -1;
    int all = list_counts(r, unit_of(config), counts);
    while (end < all && counts[end] < below)
        end++;
    if (!end)
        return 0;
    /* Without an upper bound the counts 0, 1, 3, 7, ... of the list are tried, and the last one. */
    int fits = below <= FEWEST_RANKS_MOST ? end - 1 : 0;
    while (!holds(r, config, counts[fits])) {
        if (fits == end - 1)
            return 0;
        lacks = fits;
        fits = 2 * fits + 1 < end ? 2 * fits + 1 : end - 1;
    }
    while (fits - lacks > 1) {
        int half = (fits + lacks) / 2;
        if (holds(r, config, counts[half]))
            fits = half;
        else
            lacks = half;
    }
    return counts[fits];
}

/* ---- rows ---- */

/* Fill a row: with fewest changes from the configuration that let it fit on so many ranks. */
static void fill_row(const struct fewest_request *r, struct settings *v, int ranks,
                     struct fewest_row *row)
{
    struct memory_limits limits = limits_of(r, ranks);
    int nodes = nodes_of(r, ranks);
    struct report report;
    struct fit fit;
    fit_find_here(&fit, &v->config, ranks, nodes, r->threads, &limits);
    struct report_request request = {.config = &v->config,
                                     .ranks = ranks,
                                     .nodes = nodes,
                                     .threads = r->threads,
                                     .speeds = r->machine};
    if (!fit.found || settings_set(&v->config, fit.settings) ||
        report_measure(&report, &request, NULL))
        return;
    *row = (struct fewest_row){.kept = row->kept,
                               .found = 1,
                               .ranks = ranks,
                               .nodes = nodes,
                               .takes = report_most(&report),
                               .step_s = report.forecast.step_s,
                               .tokens_per_s = report_tokens_per_s(&report)};
    snprintf(row->settings, sizeof row->settings, "%s", v->text);
    if (fit.settings[0])
        text_join(row->settings, sizeof row->settings, " ", "%s", fit.settings);
    settings_complete(row->settings, r->config, &v->config);
    report_free(&report);
}

static void find_row(const struct fewest_request *r, int level, struct fewest_row *row)
{
    int own = (int)r->config->parallel.tensor, last = own > 1 ? own : per_node_of(r);
    int best = FEWEST_RANKS_MOST + 1;
    struct settings best_of;
    row->kept = kept[level];
    for (int tensor = own > 1 ? own : 1; tensor <= last; tensor *= 2) {
        struct settings v;
        int ranks = vary(&v, r->config, level, tensor) ? 0 : fewest_ranks(r, &v.config, best);
        if (ranks) {
            best = ranks;
            best_of = v;
        }
    }
    if (best <= FEWEST_RANKS_MOST)
        fill_row(r, &best_of, best, row);
}

int fewest_find(struct fewest *fewest, const struct fewest_request *request, struct error *err)
{
    struct report report;
    struct report node = {.config = *request->config, .ranks = 1, .nodes = 1};
    struct settings v;
    int found = 0, unit = unit_of(request->config);
    report_set_node_memory(&node, node_bytes_of(request));
    *fewest = (struct fewest){.rows = request->machine->gpu[0] ? FEWEST_ROWS : 1};
    if (report_check_node(&node, err))
        return -1;
    if (vary(&v, request->config, 0, (int)request->config->parallel.tensor))
        v.config = *request->config;
    struct report_request wanted = {.config = &v.config,
                                    .ranks = unit,
                                    .nodes = nodes_of(request, unit),
                                    .threads = request->threads};
    if (report_measure(&report, &wanted, err))
        return -1;
    fewest->params = report.params;
    report_free(&report);
    for (int i = 0; i < fewest->rows; i++) {
        find_row(request, i, &fewest->row[i]);
        found |= fewest->row[i].found;
    }
    return found ? 0
                 : error_set(err, "nothing fits on up to %d ranks of %s", FEWEST_RANKS_MOST,
                             request->machine->name);
}
