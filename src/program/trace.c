/* trace.c - see trace.h.  Format: "Trace Event Format", complete events (ph X), microseconds. */
#include "program/trace.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/clock.h"
#include "program/program.h"

void trace_begin(struct trace *trace)
{
    trace->events = 0;
    trace->origin_ns = clock_ns();
}

struct trace_event *trace_add(struct trace *trace, const char *name, int lane, int64_t start_ns,
                              int64_t end_ns, int64_t bytes)
{
    trace->event = array_grow(trace->event, trace->events, &trace->capacity, sizeof *trace->event);
    struct trace_event *event = &trace->event[trace->events++];
    *event = (struct trace_event){.lane = lane,
                                  .instr = -1,
                                  .start_ns = start_ns - trace->origin_ns,
                                  .end_ns = end_ns - trace->origin_ns,
                                  .bytes = bytes};
    snprintf(event->name, sizeof event->name, "%s", name);
    return event;
}

/* The time that two events have in common. */
static int64_t common_ns(const struct trace_event *a, const struct trace_event *b)
{
    int64_t from = a->start_ns > b->start_ns ? a->start_ns : b->start_ns;
    int64_t to = a->end_ns < b->end_ns ? a->end_ns : b->end_ns;
    return to > from ? to - from : 0;
}

struct trace_overlap trace_overlap(const struct trace *trace)
{
    struct trace_overlap overlap = {0};
    for (int i = 0; i < trace->events; i++) {
        const struct trace_event *exchange = &trace->event[i];
        if (!exchange->is_exchange)
            continue;
        overlap.exchange_ns += exchange->end_ns - exchange->start_ns;
        for (int k = 0; k < trace->events; k++)
            if (trace->event[k].lane == STREAM_COMPUTE)
                overlap.beside_ns += common_ns(exchange, &trace->event[k]);
    }
    return overlap;
}

void trace_free(struct trace *trace)
{
    free(trace->event);
    *trace = (struct trace){0};
}

/* Name a rank (kind "process_name"), or a lane of it ("thread_name"). */
static void add_name(struct js *events, const char *kind, int rank, int lane, const char *name)
{
    struct js *meta = js_object(), *args = js_object();
    js_add_string(meta, "name", kind);
    js_add_string(meta, "ph", "M");
    js_add_int(meta, "pid", rank);
    js_add_int(meta, "tid", lane);
    js_add_string(args, "name", name);
    js_add(meta, "args", args);
    js_add(events, NULL, meta);
}

void trace_json(struct js *events, int rank, const char *host, const struct trace_event *event,
                int count)
{
    char process[96];
    snprintf(process, sizeof process, "rank %d (%s)", rank, host);
    add_name(events, "process_name", rank, 0, process);
    for (int s = 0; s < STREAMS; s++)
        add_name(events, "thread_name", rank, s, program_stream_name(s));
    add_name(events, "thread_name", rank, TRACE_OPS, "ops");
    for (int i = 0; i < count; i++) {
        struct js *js = js_object();
        js_add_string(js, "name", event[i].name);
        js_add_string(js, "ph", "X");
        js_add_int(js, "pid", rank);
        js_add_int(js, "tid", event[i].lane);
        js_add_real(js, "ts", (double)event[i].start_ns / 1000);
        js_add_real(js, "dur", (double)(event[i].end_ns - event[i].start_ns) / 1000);
        if (event[i].bytes) {
            struct js *args = js_object();
            js_add_int(args, "bytes", event[i].bytes);
            js_add(js, "args", args);
        }
        js_add(events, NULL, js);
    }
}

struct js *trace_document(struct js **events)
{
    struct js *document = js_object();
    *events = js_array();
    js_add_string(document, "displayTimeUnit", "ms");
    js_add(document, "traceEvents", *events);
    return document;
}
