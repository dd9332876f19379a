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
    int rc = js_write(document, JS_ONE_LINE, JS_REPORT, path, err);
    js_free(document);
    return rc;
}

int tracing_write(struct session *s, const struct trace *trace, struct error *err)
{
    char *all = NULL;
    size_t *sizes = array_make((size_t)world_size(s->world), sizeof *sizes);
    int rc = world_gather(s->world, &all, sizes, trace->event,
                          (size_t)trace->events * sizeof *trace->event, 0, err);
    if (!rc && all)
        rc = write_file(s, all, sizes, err);
    free(all);
    free(sizes);
    return world_agree(s->world, rc, err);
}
