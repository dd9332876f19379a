/* choices.c - see choices.h. */
#include "plan/choices.h"

#include <stdio.h>
#include <string.h>

#include "plan/settings.h"

/* Settings that are changed together are separated by a blank. */
static const char *const changes[] = {
    "recompute=none",
    "recompute=gathered",
    "recompute=selective",
    "recompute=full",
    "recompute=full recompute_every=2",
    "parallel.forward_prefetch=false parallel.backward_prefetch=none",
    "parallel.backward_prefetch=BACKWARD_PRE",
    "parallel.backward_prefetch=BACKWARD_POST",
    "parallel.prefetch_units=1",
    "parallel.prefetch_units=2",
    "parallel.pipeline_reshard=true",
    "parallel.pipeline_reshard=false",
    "parallel.accumulate=shard",
    "parallel.accumulate=local",
    "train.micro_batch=1",
    "precision=bf16",
    "precision=fp8",
    "precision=bf16_pure train.optimizer_dtype=bf16",
    "train.optimizer_dtype=bf16",
    "precision=bf16_pure train.optimizer=adamw8bit",
    "train.optimizer=adamw8bit",
    "train.grad_dtype=bf16",
    "comm.reduce_dtype=bf16",
    "comm.reduce_dtype=fp16",
    "checkpoint.async=false",
    "offload.optimizer=none",
    "offload.optimizer=host",
    "offload.optimizer=disk",
    "offload.params=none",
    "offload.params=host",
    "offload.optimizer=host offload.params=host",
    "offload.gradients=none",
    "offload.gradients=host",
    "offload.gradients=disk",
    "offload.optimizer=host offload.params=host offload.gradients=host",
};

_Static_assert(sizeof changes / sizeof changes[0] <= CHOICES_MOST, "rows for all changes");

/* Is a rank the first of those that have the same stages? */
static int is_first(const struct report_rank *rank)
{
    for (int axis = 0; axis < MESH_AXES; axis++)
        if (axis != MESH_PIPELINE && rank->coord.at[axis])
            return 0;
    return 1;
}

/* Fill a row.  Memory is that of the rank that needs most.  Bytes sent and operations are the most
 * of all stages: with a change another stage may need most memory, and its numbers cannot be
 * compared.
 */
static void measure(struct choices_row *row, const struct report *report, const char *settings)
{
    const struct report_rank *rank = report_largest(report);
    snprintf(row->settings, sizeof row->settings, "%s", settings);
    row->memory_bytes = report->on_gpu ? rank->need.device_bytes : rank->need.total_bytes;
    row->host_bytes = report->on_gpu ? rank->need.host_bytes : 0;
    row->disk_bytes = rank->need.pool_bytes[POOL_DISK];
    row->sent_bytes = 0;
    row->flops = 0;
    for (int r = 0; r < report->measured; r++) {
        const struct report_rank *one = &report->rank[r];
        if (!is_first(one))
            continue;
        row->sent_bytes = one->sent_bytes > row->sent_bytes ? one->sent_bytes : row->sent_bytes;
        row->flops = one->flops > row->flops ? one->flops : row->flops;
    }
    row->step_s = report->forecast.ranks ? report->forecast.step_s : 0;
}

static int same_numbers(const struct choices_row *a, const struct choices_row *b)
{
    return a->memory_bytes == b->memory_bytes && a->host_bytes == b->host_bytes &&
           a->disk_bytes == b->disk_bytes && a->sent_bytes == b->sent_bytes &&
           a->flops == b->flops && a->step_s == b->step_s;
}

/* Has the machine products in the configuration's format?  Of fp8 that has to be known: without
 * such products it only takes memory, and on CPUs time. */
static int has_products(const struct report *of, const struct config *config)
{
    enum dtype format = layout_product_dtype(config, of->on_gpu);
    if (config->precision == PRECISION_FP8 && (!of->on_gpu || !of->speeds))
        return 0;
    return !of->speeds || machine_peak(of->speeds, format) > 0;
}

/* Is it another rule of the update, whose losses are others?  adamw8bit's are adamw's. */
static int is_other_rule(const struct config *as_is, const struct config *config)
{
    return config->train.optimizer != as_is->train.optimizer &&
           as_is->train.optimizer != OPTIMIZER_ADAMW;
}

static int make(struct choices_row *row, const struct report *of, const char *settings, int threads)
{
    struct report report;
    struct config config = of->config;
    char text[SETTINGS_BYTES];
    config.device = of->on_gpu ? CONFIG_DEVICE_CUDA : CONFIG_DEVICE_CPU;
    const struct config as_is = config;
    struct report_request request = {.config = &config,
                                     .ranks = of->ranks,
                                     .nodes = of->nodes,
                                     .threads = threads,
                                     .speeds = of->speeds};
    if (settings_set(&config, settings) || !memcmp(&config, &as_is, sizeof config) ||
        is_other_rule(&as_is, &config) || !has_products(of, &config) ||
        report_measure(&report, &request, NULL))
        return 0;
    snprintf(text, sizeof text, "%s", settings);
    settings_complete(text, &as_is, &config);
    measure(row, &report, text);
    report_free(&report);
    return 1;
}

void choices_make(struct choices *choices, const struct report *report, int threads)
{
    enum { CHANGES = sizeof changes / sizeof changes[0] };
    struct choices_row row[CHANGES];
    int made[CHANGES];
    *choices = (struct choices){0};
    measure(&choices->as_is, report, "as it is");
#pragma omp parallel for num_threads(report_at_once()) schedule(dynamic)
    for (int i = 0; i < CHANGES; i++)
        made[i] = make(&row[i], report, changes[i], threads);
    for (int i = 0; i < CHANGES; i++)
        if (made[i] && !same_numbers(&row[i], &choices->as_is))
            choices->row[choices->count++] = row[i];
}
