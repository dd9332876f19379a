/* attention_memory.c - see attention_memory.h. */
#include "plan/attention_memory.h"

enum { LEFT_FREE = 16 }; /* of so many parts one: for what no plan knows */

static const size_t least_bytes = (size_t)1200 << 20; /* parts have that in any case */

size_t attention_memory(const struct config *config, int ranks, int nodes, int threads,
                        size_t device_bytes)
{
    struct config planned = *config;
    struct report report;
    if (config->train.attention_bytes || !device_bytes || !config->train.reproducible ||
        config->precision == PRECISION_FP32)
        return (size_t)config->train.attention_bytes;
    planned.device = CONFIG_DEVICE_CUDA;
    if (report_probe(&report, &planned, ranks, nodes, threads, NULL))
        return 0;
    size_t taken = report_most(&report).device_bytes + device_bytes / LEFT_FREE;
    report_free(&report);
    return taken + least_bytes < device_bytes ? device_bytes - taken : 0;
}

void attention_memory_note(struct report *report, int threads)
{
    struct config config = report->config;
    struct report with;
    size_t bytes = attention_memory(&config, report->ranks, report->nodes, threads,
                                    report->limits.device_bytes);
    if (!report->on_gpu || config.comm.share_gpu || config.train.attention_bytes || !bytes)
        return;
    config.train.attention_bytes = (int64_t)bytes;
    if (report_probe(&with, &config, report->ranks, report->nodes, threads, NULL))
        return;
    report->attention_bytes = report_most(&with).device_bytes - report_most(report).device_bytes;
    report_free(&with);
}
