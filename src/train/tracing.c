/* tracing.c - see tracing.h. */
#include "train/tracing.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/array.h"

static int write_file(const struct session *s, const char *all, const size_t *sizes,
                      struct error *err)
{
    struct js *events, *document = trace_document(&events);
    char path[CONFIG_TEXT + 16];
    for (int r = 0; r < world_size(s->world); r++) {
        trace_json(events, r, world_host_of(s->world, r), (const struct trace_event *)all,
                   (int)(sizes[r] / sizeof(struct trace_event)));
        all += sizes[r];
    }
    snprintf(path, sizeof path, "%s/trace.json", s->config.run.dir);
    int rc = js_write(document, JS_ONE_LINE, WHOLE_FILE_REPORT, path, err);
    js_free(document);
    return rc;
}

/* Log, on rank 0, how much of the time in which tensor ranks exchange rows lay beside products;
 * warn where that is little and the user set the number of chunks. */
static void report_overlap(const struct session *s, const struct trace *trace)
{
    enum { HARDLY_PERCENT = 10 };
    struct trace_overlap overlap = trace_overlap(trace);
    double percent = 100.0 * (double)overlap.beside_ns / (double)overlap.exchange_ns;
    if (s->layout.row_chunks < 2 || !overlap.exchange_ns || world_rank(s->world))
        return;
    if (s->config.parallel.tensor_overlap && percent < HARDLY_PERCENT)
        log_warn(s->log,
                 "parallel.tensor_overlap %d: of %.2f ms in which tensor ranks exchanged rows, "
                 "only %.0f %% lay beside products",
                 s->layout.row_chunks, (double)overlap.exchange_ns / 1e6, percent);
    else
        log_info(s->log,
                 "of %.2f ms in which tensor ranks exchanged rows, %.0f %% lay beside "
                 "products",
                 (double)overlap.exchange_ns / 1e6, percent);
}

int tracing_write(struct session *s, const struct trace *trace, struct error *err)
{
    char *all = NULL;
    size_t *sizes = array_make((size_t)world_size(s->world), sizeof *sizes);
    int rc = world_gather(s->world, &all, sizes, trace->event,
                          (size_t)trace->events * sizeof *trace->event, 0, err);
    struct error why = {0};
    if (!rc && all && write_file(s, all, sizes, &why))
        log_warn(s->log, "there is no trace of this step, training goes on: %s", why.text);
    free(all);
    free(sizes);
    report_overlap(s, trace);
    return world_agree(s->world, rc, err);
}
