/* trace.h - what a step did and when, one that ran or one that is forecast, for Perfetto or
 * chrome://tracing. */
#ifndef TRIREME_PROGRAM_TRACE_H
#define TRIREME_PROGRAM_TRACE_H

#include <stdint.h>

#include "base/json.h"
#include "program/program.h"

enum { TRACE_NAME = 72 };

/* The lanes of a rank: its streams, and the ops inside compute instructions. */
enum { TRACE_OPS = STREAMS };

struct trace_event {
    char name[TRACE_NAME];
    int lane;        /* enum program_stream, or TRACE_OPS */
    int instr;       /* of the program; -1: an op */
    int is_exchange; /* 1: of what ranks exchange within a unit */
    int64_t start_ns, end_ns;
    int64_t bytes; /* sent, for transfers */
};

/* A flat list, so that ranks can send theirs to rank 0 as bytes. */
struct trace {
    struct trace_event *event;
    int events, capacity;
    int64_t origin_ns; /* start of the step */
    int whole_runs;    /* 1: a RUN is not divided into its ops, and is as fast as untraced */
};

/* Empty a trace, keeping its memory, and let its times count from now.  It was zero-initialised
 * once, and is for trace_free(). */
void trace_begin(struct trace *trace);
/* Append an event from start_ns to end_ns of clock_ns(), whose instr is -1.  Returns it; the
 * pointer is valid until the next one is added. */
struct trace_event *trace_add(struct trace *trace, const char *name, int lane, int64_t start_ns,
                              int64_t end_ns, int64_t bytes);

/* Time of a rank's exchanges within units, summed over the streams, and the part of it in which the
 * compute stream works too. */
struct trace_overlap {
    int64_t exchange_ns, beside_ns;
};
struct trace_overlap trace_overlap(const struct trace *trace);

void trace_free(struct trace *trace);

/* Append a rank's events (times relative to its step's start) to a Chrome trace's traceEvents,
 * where the process is called after the rank and its host. */
void trace_json(struct js *events, int rank, const char *host, const struct trace_event *event,
                int count);

/* Make a Chrome trace without events; *events is its array traceEvents, which the document owns. */
struct js *trace_document(struct js **events);

#endif
