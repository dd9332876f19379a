/* execute_async.h - what the files of the asynchronous executor share; see execute_async.c. */
#ifndef TRIREME_EXECUTE_EXECUTE_ASYNC_H
#define TRIREME_EXECUTE_EXECUTE_ASYNC_H

#include "execute/execute_private.h"

/* A piece of a segment on certain memory, as a CUDA graph. */
struct async_capture {
    const struct segment *segment;
    int piece;
    int unit; /* of a segment that drops numbers; else -1 */
    uint64_t accumulate;
    void *base[SPACE_COUNT];
    struct device_recording *graph;
};

/* What belongs to one program. */
struct async_program {
    const struct program *program;
    /* Per slot and instruction, NULL for most: the event after an instruction that another stream
     * or the host waits for, or that shows how far a step is. */
    struct device_event **event[MEMORY_STEPS];
    struct copy_call *call; /* per instruction: of its read or write of the file */
    struct async_capture *capture;
    int captures, capture_capacity;
    int *capture_of; /* per instruction, of RUNs: index of its capture */
};

/* Something to be timed in a traced step. */
struct async_span {
    char name[TRACE_NAME];
    int lane, instr, is_exchange;
    int64_t bytes;
    struct device_event *from, *to;
};

struct async {
    struct async_program *program;
    int programs;
    char uses[STREAMS];                /* 1: a program has instructions on this stream */
    struct device_event *begin;        /* in the compute stream, before a step: others wait */
    struct device_event *end[STREAMS]; /* after a step, per stream: the compute stream waits */
    struct device_event *done[MEMORY_STEPS]; /* per slot, after its step: step_finish() waits */
    char *host;    /* pinned: per slot the sums, then what each micro-batch loads; then logits */
    float *logits; /* in that */
    size_t host_bytes; /* of all of it */
    size_t slot_bytes; /* of a slot */
    int slot;          /* slot of the step last started: 0, 1, 0, 1 ... */
    /* Of the step that is being started: its program and how many instructions were enqueued.  By
     * slot: up to which instruction a step has ended, at the last look. */
    const struct program *issuing;
    int issued, ended[MEMORY_STEPS];
    /* by slot: the program of a step that was started whole and is not finished; else NULL */
    const struct program *under_way[MEMORY_STEPS];
    struct async_span *span; /* spans of the traced step */
    int spans, span_capacity;
    struct device_event *origin; /* before the traced step: its time 0 */
};

/* Functions of struct executor_mode.  async_create() makes the events of steps and host memory,
 * async_note_products() lets the device note products, async_prepare() makes the programs' events
 * and CUDA graphs, and has the GPU load all other kernels of a step. */
int async_create(struct executor *x, int programs, struct error *err);
int async_note_products(struct executor *x, const struct program *const *programs, int count,
                        const struct optimizer_rule *rule, struct error *err);
int async_prepare(struct executor *x, const struct program *const *programs, int count,
                  const struct optimizer_rule *rule, struct error *err);
void async_destroy(struct executor *x); /* what async_create() made, or a part of it */

/* The instructions before number `end` of the step of a slot, which the host waits for. */
struct async_waited {
    const struct program *program;
    int slot, end;
};

/* Return the first instruction, from number `from` on, whose event has not come; w->end: none. */
int async_first_open(const struct executor *x, const struct async_waited *w, int from);

/* Return a number that changes whenever an instruction of the steps under way has ended.  arg: the
 * executor. */
int64_t async_progress(void *arg);

/* The asynchronous executor's part of a program; NULL if it is none of the executor's. */
struct async_program *async_program(const struct executor *x, const struct program *program);

/* ---- spans of a traced step: a timed event on either side of what is timed ---- */

/* Begin the trace of a step: free the spans of an earlier one. */
int async_trace_begin(struct executor *x, struct error *err);

/* Append a span that begins after what the stream has been given; end span number `index` after
 * what the stream has been given since.  0, or -1 with err set. */
int async_span_open(struct executor *x, const char *name, int lane, enum device_stream stream,
                    struct error *err);
int async_span_close(struct executor *x, int index, enum device_stream stream, int64_t bytes,
                     struct error *err);

/* Run RUN instruction index with a span for each of its ops. */
int async_run_traced(struct step_run *run, int index);

/* Add the spans of a step that is done to its trace, and free them. */
void async_trace_end(struct executor *x, struct trace *trace);
void async_spans_free(struct executor *x);

#endif
