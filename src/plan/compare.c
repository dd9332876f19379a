/* compare.c - see compare.h. */
#include "plan/compare.h"

#include "base/nf4.h"
#include "plan/estimate.h"
#include "plan/largest.h"

/* Has the run several copies of the model?  With one, a hybrid strategy is the same as the strategy
 * that it is made of, and has no row. */
static int has_copies(const struct report *report, struct error *err)
{
    if (report->layout.shape.degree[MESH_REPLICATE] > 1)
        return 1;
    error_set(err, "copies are kept on several nodes (--nodes), or where parallel.shard is less "
                   "than the ranks");
    return 0;
}

static int make(struct compare_row *row, const struct report *of, enum config_strategy strategy,
                int threads)
{
    struct config config = of->config;
    config.device = of->on_gpu ? CONFIG_DEVICE_CUDA : CONFIG_DEVICE_CPU;
    struct report_request request = {.config = &config,
                                     .ranks = of->ranks,
                                     .nodes = of->nodes,
                                     .threads = threads,
                                     .speeds = of->speeds};
    if (settings_strategy(&config, strategy, &row->why) ||
        report_measure(&row->report, &request, &row->why))
        return 0;
    snprintf(row->report.machine, sizeof row->report.machine, "%s", of->machine);
    row->report.limits = of->limits;
    if (row->chosen || !config_sharding[strategy].hybrid || has_copies(&row->report, &row->why))
        return 1;
    report_free(&row->report);
    return 0;
}

static void find_largest(struct compare_row *row, int evaluates, int threads)
{
    const struct report *r = &row->report;
    if (!row->made || (!r->limits.device_bytes && !r->limits.host_bytes))
        return;
    struct config config = r->config;
    if (evaluates)
        row->largest_eval = largest_evaluation(&config, r->ranks, r->nodes, threads, &r->limits);
    else
        row->largest = largest_training(&config, r->ranks, r->nodes, threads, &r->limits);
}

void compare_make(struct compare *compare, const struct report *report, int threads)
{
    *compare = (struct compare){0};
#pragma omp parallel for num_threads(report_at_once()) schedule(dynamic)
    for (int s = 0; s < CONFIG_STRATEGIES; s++) {
        struct compare_row *row = &compare->row[s];
        char text[CONFIG_TEXT];
        snprintf(row->name, sizeof row->name, "%s", settings_strategy_name(s, text));
        row->chosen = report->config.parallel.strategy == (enum config_strategy)s;
        row->made = make(row, report, s, threads);
    }
#pragma omp parallel for num_threads(report_at_once()) schedule(dynamic)
    for (int search = 0; search < 2 * CONFIG_STRATEGIES; search++)
        find_largest(&compare->row[search / 2], search % 2, threads);
}

void compare_free(struct compare *compare)
{
    for (int s = 0; s < CONFIG_STRATEGIES; s++)
        report_free(&compare->row[s].report);
}

const struct compare_row *compare_chosen(const struct compare *compare)
{
    const struct compare_row *row = compare->row;
    while (!row->chosen)
        row++;
    return row;
}

double compare_volume(const struct compare_row *row)
{
    return (double)report_largest(&row->report)->sent_elems / (double)row->report.params;
}

double compare_zero_bytes(const struct compare_row *row, enum config_strategy strategy)
{
    const struct report *report = &row->report;
    int stage = config_sharding[strategy].stage;
    int shards = mesh_members(&report->layout.shape, MESH_SHARDS);
    int parts =
        report->layout.shape.degree[MESH_TENSOR] * report->layout.shape.degree[MESH_PIPELINE];
    double trained = (double)(report->params - report->frozen) / parts;
    double nf4 = (double)NF4_BYTES / NF4_BLOCK * (double)report->nf4;
    double frozen = (2.0 * (double)(report->frozen - report->nf4) + nf4) / parts /
                    (stage < STAGE_MOST ? 1 : shards);
    return trained * estimate_state(&estimate_zero, stage, shards) + frozen;
}
