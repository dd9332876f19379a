/* largest.c - see largest.h: doubled until it does not fit, then halved in between. */
#include "plan/largest.h"

#include <stdio.h>

struct search {
    const struct config *config;
    int ranks, nodes, threads, evaluates;
    const struct memory_limits *limits;
};

/* The plan of so many sequences at a time. */
static struct config with(const struct search *s, int64_t sequences)
{
    struct config config = *s->config;
    config.train.micro_batch = s->evaluates ? 1 : sequences;
    config.train.eval_micro_batch = s->evaluates ? sequences : 0;
    if (s->evaluates && !config.data.valid[0])
        snprintf(config.data.valid, sizeof config.data.valid, "valid.h5"); /* it is not opened */
    return config;
}

static int fits(const struct search *s, int64_t sequences)
{
    struct config config = with(s, sequences);
    struct report report;
    if (report_measure(&report, &config, s->ranks, s->nodes, s->threads, NULL, NULL))
        return 0;
    int64_t least = sequences * report.layout.data_ranks;
    if (!s->evaluates && config.train.global_batch < least) {
        report_free(&report);
        config.train.global_batch = least;
        if (report_measure(&report, &config, s->ranks, s->nodes, s->threads, NULL, NULL))
            return 0;
    }
    struct memory_limits lack = report_lack(&report, s->limits);
    report_free(&report);
    return !lack.device_bytes && !lack.host_bytes;
}

static int64_t search(const struct search *s)
{
    int64_t most = 0, too_many = 1; /* most fits, or is 0 */
    while (too_many <= LARGEST_MOST && fits(s, too_many)) {
        most = too_many;
        too_many *= 2;
    }
    if (most == LARGEST_MOST)
        return most;
    while (too_many - most > 1) {
        int64_t middle = (most + too_many) / 2;
        *(fits(s, middle) ? &most : &too_many) = middle;
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
