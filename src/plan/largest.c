/* largest.c - see largest.h.
 *
 * Memory grows nearly in proportion to the sequences.  So the next to try is where the line through
 * the last two that were planned meets the limit, between the largest known to fit and the smallest
 * known not to; and, every third time, half way between, which ends in any case.
 */
#include "plan/largest.h"

#include <math.h>
#include <stdio.h>

struct search {
    const struct config *config;
    int ranks, nodes, threads, evaluates;
    const struct memory_limits *limits;
};

/* The configuration with so many sequences at a time.  Gradients in bf16 are those of one
 * micro-batch a step. */
static struct config with(const struct search *s, int64_t sequences)
{
    struct config config = *s->config;
    int is_one = config.train.grad_dtype != DTYPE_F32;
    if (is_one && !s->evaluates) {
        config.train.global_batch = sequences;
        config.train.split_batches = 0;
    }
    if (!s->evaluates)
        config.train.micro_batch = sequences;
    else if (!is_one)
        config.train.micro_batch = 1;
    config.train.eval_micro_batch = s->evaluates ? sequences : 0;
    if (s->evaluates && !config.data.valid[0])
        snprintf(config.data.valid, sizeof config.data.valid, "valid.h5"); /* it is not opened */
    return config;
}

/* The memory of so many sequences, as a share of the limit that is nearest; above 1, or where there
 * is no plan: they do not fit. */
static double share(const struct search *s, int64_t sequences)
{
    struct config config = with(s, sequences);
    struct report report;
    struct report_request request = {
        .config = &config, .ranks = s->ranks, .nodes = s->nodes, .threads = s->threads};
    if (report_measure(&report, &request, NULL))
        return INFINITY;
    int64_t least = sequences * report.layout.data_ranks;
    if (!s->evaluates && report.layout.global_batch < least) {
        report_free(&report);
        config.train.global_batch = config.train.split_batches ? least : sequences;
        if (report_measure(&report, &request, NULL))
            return INFINITY;
    }
    struct memory_limits most = report_most(&report), limit = *s->limits;
    report_free(&report);
    double device = limit.device_bytes ? (double)most.device_bytes / (double)limit.device_bytes : 0;
    double host = limit.host_bytes ? (double)most.host_bytes / (double)limit.host_bytes : 0;
    return device > host ? device : host;
}

struct point {
    int64_t sequences;
    double share;
};

/* The sequences, in whole ones, at which the line through two points of finite shares meets 1. */
static int64_t meets_limit(const struct point *a, const struct point *b)
{
    double slope = (b->share - a->share) / (double)(b->sequences - a->sequences);
    double at = slope > 0 ? (double)a->sequences + (1 - a->share) / slope : LARGEST_MOST;
    return at < 1 ? 1 : at > LARGEST_MOST ? LARGEST_MOST : (int64_t)at;
}

static int64_t search(const struct search *s)
{
    int64_t most = 0, too_many = LARGEST_MOST + 1, next = 1; /* most fits, or is 0 */
    struct point last[2] = {0};
    for (int plans = 1; too_many - most > 1; plans++) {
        last[0] = last[1];
        last[1] = (struct point){.sequences = next, .share = share(s, next)};
        *(last[1].share <= 1 ? &most : &too_many) = next;
        int is_line = isfinite(last[0].share) && isfinite(last[1].share) && plans % 3;
        next = plans == 1 ? 2 : is_line ? meets_limit(&last[0], &last[1]) : (most + too_many) / 2;
        next = next <= most ? most + 1 : next >= too_many ? too_many - 1 : next;
    }
    return most;
}

int64_t largest_training(const struct config *config, int ranks, int nodes, int threads,
                         const struct memory_limits *limits)
{
    return search(&(struct search){
        .config = config, .ranks = ranks, .nodes = nodes, .threads = threads, .limits = limits});
}

int64_t largest_evaluation(const struct config *config, int ranks, int nodes, int threads,
                           const struct memory_limits *limits)
{
    return search(&(struct search){.config = config,
                                   .ranks = ranks,
                                   .nodes = nodes,
                                   .threads = threads,
                                   .evaluates = 1,
                                   .limits = limits});
}
