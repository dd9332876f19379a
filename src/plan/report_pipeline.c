/* report_pipeline.c - see report_pipeline.h. */
#include "plan/report_pipeline.h"

#include <string.h>

#include "base/text.h"
#include "base/whole_file.h"
#include "plan/schedule_svg.h"
#include "plan/show.h"
#include "simulate/timeline.h"

/* Write to text the stages of a rank, "0, 7"; of many the first ones. */
static const char *stages_of(const struct schedule *s, int rank, char *text, size_t size)
{
    enum { MOST = 12, MORE = 5 };
    text[0] = 0;
    for (int stage = 0; stage < s->stages; stage++) {
        if (s->rank_of[stage] != rank)
            continue;
        if (strlen(text) + MORE > MOST) {
            text_append(text, size, ", ...");
            return text;
        }
        text_join(text, size, ", ", "%d", stage);
    }
    return text;
}

static size_t most_memory(const struct report *report)
{
    size_t most = 0;
    for (int at = 0; at < report->layout.shape.degree[MESH_PIPELINE]; at++)
        if (report->pipeline[at].memory_bytes > most)
            most = report->pipeline[at].memory_bytes;
    return most;
}

static void print_line(const struct report *report, const struct timeline *timeline, int at,
                       size_t most, FILE *out)
{
    const struct report_pipeline *p = &report->pipeline[at];
    char stages[32], activations[32], memory[32];
    fprintf(out, "  %-6d %-17s %5d %16lld %12s %14s %8.1f %%%s\n", at,
            stages_of(timeline->schedule, at, stages, sizeof stages), p->units,
            (long long)p->params,
            show_bytes((double)p->activation_bytes, activations, sizeof activations),
            show_bytes((double)p->memory_bytes, memory, sizeof memory),
            100 * timeline_idle(timeline, at), p->memory_bytes == most ? "  largest" : "");
}

void report_pipeline_print(const struct report *report, FILE *out)
{
    struct timeline timeline;
    int ranks = report->layout.shape.degree[MESH_PIPELINE];
    if (ranks == 1)
        return;
    timeline_fill(&timeline, report->layout.schedule, report->cost);
    fprintf(out, "\neach rank of the pipeline, schedule %s\n  %-6s %-17s %5s %16s %12s %14s %10s\n",
            report->config.parallel.schedule, "rank", "stages", "units", "parameters",
            "activations", report->on_gpu ? "device memory" : "total", "waits");
    for (int at = 0; at < ranks; at++)
        print_line(report, &timeline, at, most_memory(report), out);
    fputs("  ", out);
    show_wrapped(out, 2, 2,
                 "memory: of the largest of its ranks; waits: of the step, by the operations of "
                 "units alone; trireme plan --schedule-svg FILE draws it, --schedule-csv FILE.csv "
                 "writes it");
    timeline_free(&timeline);
}

void report_pipeline_json(const struct report *report, struct js *to)
{
    const struct schedule *s = report->layout.schedule;
    struct timeline timeline;
    struct js *ranks = js_array();
    timeline_fill(&timeline, s, report->cost);
    for (int at = 0; at < s->ranks; at++) {
        const struct report_pipeline *p = &report->pipeline[at];
        struct js *rank = js_object();
        js_add_int(rank, "units", p->units);
        js_add_int(rank, "parameters", p->params);
        js_add_int(rank, "activation_bytes", (int64_t)p->activation_bytes);
        js_add_int(rank, "memory_bytes", (int64_t)p->memory_bytes);
        js_add_real(rank, "waits", timeline_idle(&timeline, at));
        js_add(ranks, NULL, rank);
    }
    js_add(to, "pipeline", ranks);
    timeline_free(&timeline);
}

int report_pipeline_csv(const struct report *report, const char *path, struct error *err)
{
    struct whole_file file;
    if (!schedule_is_file(path))
        return error_set(err,
                         "--schedule-csv %s: parallel.schedule reads files whose names end in "
                         ".csv; name it %s.csv",
                         path, path);
    if (whole_file_begin(&file, path, err))
        return -1;
    schedule_write(report->layout.schedule, file.out);
    return whole_file_end(&file, WHOLE_FILE_REPORT, err);
}

int report_pipeline_svg(const struct report *report, const char *path, struct error *err)
{
    struct timeline timeline;
    struct whole_file file;
    if (whole_file_begin(&file, path, err))
        return -1;
    timeline_fill(&timeline, report->layout.schedule, report->cost);
    schedule_svg_print(&timeline, report->config.parallel.schedule, file.out);
    timeline_free(&timeline);
    return whole_file_end(&file, WHOLE_FILE_REPORT, err);
}
