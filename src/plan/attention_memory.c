/* attention_memory.c - see attention_memory.h. */
#include "plan/attention_memory.h"

#include "device/device.h"

enum { LEFT_FREE = 16 }; /* a sixteenth stays free, for what no plan knows */

size_t attention_memory(const struct config *config, size_t need_bytes, size_t free_bytes)
{
    size_t taken = need_bytes + free_bytes / LEFT_FREE;
    if (config->train.attention_bytes || !config->train.reproducible ||
        config->precision == PRECISION_FP32)
        return 0;
    return taken + DEVICE_ATTENTION_BYTES < free_bytes ? free_bytes - taken : 0;
}

/* The device memory, with so many attention_bytes, of the rank that needs most among those that are
 * probed; 0: it cannot be planned. */
static size_t probe(const struct report *report, size_t attention_bytes, int threads)
{
    struct config config = report->config;
    struct report probed;
    config.train.attention_bytes = (int64_t)attention_bytes;
    struct report_request request = {
        .config = &config, .ranks = report->ranks, .nodes = report->nodes, .threads = threads};
    if (report_probe(&probed, &request, NULL))
        return 0;
    size_t bytes = report_most(&probed).device_bytes;
    report_free(&probed);
    return bytes;
}

void attention_memory_note(struct report *report, int threads)
{
    if (!report->on_gpu || !report->limits.device_bytes || report->config.comm.share_gpu)
        return;
    size_t bytes = attention_memory(&report->config, report_most(report).device_bytes,
                                    report->limits.device_bytes);
    if (!bytes)
        return;
    size_t least = probe(report, 0, threads), with = probe(report, bytes, threads);
    report->attention_bytes = least && with > least ? with - least : 0;
}
