/* execute_async_trace.c - timing a traced step on a device with streams; see execute_async.h.
 *
 * A span is what lies between two timed events on one stream: an instruction, or an op of a RUN.
 * The times are asked for when the step is done, relative to an event before its first instruction.
 */
#include <stdlib.h>

#include "base/array.h"
#include "execute/execute_async.h"

void async_spans_free(struct executor *x)
{
    struct async *a = x->async;
    for (int i = 0; i < a->spans; i++) {
        device_event_destroy(x->device, a->span[i].from);
        device_event_destroy(x->device, a->span[i].to);
    }
    device_event_destroy(x->device, a->origin);
    free(a->span);
    a->span = NULL;
    a->origin = NULL;
    a->spans = a->span_capacity = 0;
}

int async_trace_begin(struct executor *x, struct error *err)
{
    struct async *a = x->async;
    async_spans_free(x);
    a->origin = device_event_create(x->device, DEVICE_EVENT_TIMED, err);
    return a->origin ? device_event_record(x->device, a->origin, DEVICE_COMPUTE, err) : -1;
}

int async_span_open(struct executor *x, const char *name, int lane, enum device_stream stream,
                    struct error *err)
{
    struct async *a = x->async;
    a->span = array_grow(a->span, a->spans, &a->span_capacity, sizeof *a->span);
    struct async_span *span = &a->span[a->spans++];
    *span = (struct async_span){.lane = lane,
                                .instr = -1,
                                .from = device_event_create(x->device, DEVICE_EVENT_TIMED, err),
                                .to = device_event_create(x->device, DEVICE_EVENT_TIMED, err)};
    snprintf(span->name, sizeof span->name, "%s", name);
    if (!span->from || !span->to)
        return -1;
    return device_event_record(x->device, span->from, stream, err);
}

int async_span_close(struct executor *x, int index, enum device_stream stream, int64_t bytes,
                     struct error *err)
{
    x->async->span[index].bytes = bytes;
    return device_event_record(x->device, x->async->span[index].to, stream, err);
}

struct tracer {
    struct segment_watch watch;
    struct executor *x;
};

static int op_begins(struct segment_watch *watch, const char *name, struct error *err)
{
    return async_span_open(((struct tracer *)watch)->x, name, TRACE_OPS, DEVICE_COMPUTE, err);
}

static int op_ended(struct segment_watch *watch, const char *name, struct error *err)
{
    struct executor *x = ((struct tracer *)watch)->x;
    return async_span_close(x, x->async->spans - 1, DEVICE_COMPUTE, 0, err);
}

int async_run_traced(struct step_run *run, int i)
{
    struct tracer tracer = {{op_begins, op_ended}, run->x};
    return run_segment(run, i, &tracer.watch);
}

void async_trace_end(struct executor *x, struct trace *trace)
{
    const struct async *a = x->async;
    for (int i = 0; i < a->spans; i++) {
        const struct async_span *span = &a->span[i];
        int64_t from = device_event_ns(x->device, a->origin, span->from);
        int64_t to = device_event_ns(x->device, a->origin, span->to);
        struct trace_event *event =
            trace_add(trace, span->name, span->lane, trace->origin_ns + from, trace->origin_ns + to,
                      span->bytes);
        event->instr = span->instr;
        event->is_exchange = span->is_exchange;
    }
    async_spans_free(x);
}
