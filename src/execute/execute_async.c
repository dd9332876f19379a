/* execute_async.c - the executor on devices with streams.
 *
 * Every instruction is enqueued on the device's stream of its own; the waits of the program are
 * waits for marks there; a file is read and written by functions of the host that streams call. The
 * host runs ahead: nothing in a step waits for the device or a file, unless the program has work
 * for the host itself (STREAM_HOST: the update of offloaded state).  A step begins on all streams
 * when the one before has ended on the compute stream, and its sums come to the host as its last
 * act, into one of two places, so that they may be read a step later.
 *
 * Segments are recorded once and replayed with one call; a traced step enqueues their ops one by
 * one, with a timed mark on either side of each.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/array.h"
#include "base/clock.h"
#include "execute/execute_private.h"
#include "program/memory.h"

enum { TURNS = MEMORY_TURNS };

/* A segment on certain memory, recorded. */
struct take {
    const struct segment *segment;
    unsigned accumulate;
    void *base[SPACE_COUNT];
    struct device_recording *recording;
};

/* What belongs to one program. */
struct tape {
    const struct program *program;
    struct device_event **mark; /* per instruction that others or the host wait for */
    struct copy_call *call;    /* per instruction */
    struct take *take;
    int takes, take_capacity;
    int *use; /* per RUN: its take */
};

/* Something to be timed in a traced step. */
struct span {
    char name[TRACE_NAME];
    int lane;
    int64_t bytes;
    struct device_event *from, *to;
};

struct tapes {
    struct tape *tape;
    int count;
    struct device_event *begin, *end[STREAMS], *done[TURNS];
    char *host; /* pinned: per turn the sums, then tokens and targets of each micro-batch */
    size_t host_bytes, turn_bytes, batch_bytes;
    int turn;
    struct span *span; /* of the traced step */
    int spans, span_capacity;
    struct device_event *origin;
};

static enum device_stream device_stream_of(enum stream stream)
{
    static const enum device_stream streams[STREAMS] = {
        [STREAM_COMPUTE] = DEVICE_COMPUTE, [STREAM_GATHER] = DEVICE_GATHER,
        [STREAM_REDUCE] = DEVICE_REDUCE,   [STREAM_POINT] = DEVICE_POINT,
        [STREAM_FETCH] = DEVICE_FETCH,     [STREAM_SPILL] = DEVICE_SPILL,
        [STREAM_READ] = DEVICE_READ,       [STREAM_WRITE] = DEVICE_WRITE,
    };
    return streams[stream];
}

static struct tape *tape_of(const struct executor *x, const struct program *program)
{
    struct tapes *t = x->tapes;
    for (int i = 0; i < t->count; i++)
        if (t->tape[i].program == program)
            return &t->tape[i];
    return NULL;
}

/* Marks where another stream waits, and behind transfers, so that a hang can be named. */
static int make_marks(struct executor *x, struct tape *tape, struct error *err)
{
    const struct program *program = tape->program;
    char *wanted = array_make((size_t)program->instrs, 1);
    int rc = 0;
    for (int i = 0; i < program->instrs; i++) {
        wanted[i] |= (char)instr_is_transfer(&program->instr[i]);
        for (int s = 0; s < STREAMS; s++)
            if (program->instr[i].wait[s] >= 0)
                wanted[program->instr[i].wait[s]] = 1;
    }
    tape->mark = array_make((size_t)program->instrs, sizeof *tape->mark);
    for (int i = 0; i < program->instrs && !rc; i++)
        if (wanted[i] && program->instr[i].stream < STREAM_HOST) {
            tape->mark[i] = device_event_create(x->device, 0, err);
            rc = tape->mark[i] ? 0 : -1;
        }
    free(wanted);
    return rc;
}

/* The take that RUN i is; a new one where no earlier RUN does the same on the same memory, as
 * those of many micro-batches do. */
static int find_take(struct run_state *run, struct tape *tape, int i)
{
    const struct instr *instr = &tape->program->instr[i];
    struct take wanted = {
        program_segment(tape->program, instr->unit, instr->phase), instr->accumulate, {0}, NULL};
    run_bases(run, instr, wanted.base);
    for (int k = 0; k < tape->takes; k++)
        if (tape->take[k].segment == wanted.segment &&
            tape->take[k].accumulate == wanted.accumulate &&
            !memcmp(tape->take[k].base, wanted.base, sizeof wanted.base))
            return k;
    tape->take = array_grow(tape->take, tape->takes, &tape->take_capacity, sizeof wanted);
    tape->take[tape->takes] = wanted;
    return tape->takes++;
}

/* Takes that begin a gradient and takes that add to it use other kernels of the libraries. */
static int has_new_kernels(const struct tape *tape, int take)
{
    const struct take *t = tape->take;
    for (int k = 0; k < take; k++)
        if (t[k].segment == t[take].segment && t[k].accumulate == t[take].accumulate)
            return 0;
    return 1;
}

static int record(struct run_state *run, struct take *take, int i)
{
    struct device *d = run->x->device;
    if (device_record_begin(d, run->err))
        return -1;
    int rc = run_segment(run, i, NULL);
    take->recording = device_record_end(d, rc ? NULL : run->err);
    return rc || !take->recording || device_check(d, run->err) ? -1 : 0;
}

/* Libraries load their kernels and plan at the first use of a shape, which a recording does not
 * allow: each segment runs once on what the cleared slabs hold before it is recorded, and where it
 * also adds to gradients, once more that way. */
static int make_takes(struct executor *x, struct tape *tape, struct error *err)
{
    const struct program *program = tape->program;
    struct run_state run = {.x = x, .program = program, .err = err};
    tape->use = array_make((size_t)program->instrs, sizeof *tape->use);
    for (int i = 0; i < program->instrs; i++) {
        if (program->instr[i].kind != INSTR_RUN)
            continue;
        int before = tape->takes, take = tape->use[i] = find_take(&run, tape, i);
        if (take < before)
            continue;
        if (has_new_kernels(tape, take) &&
            (run_segment(&run, i, NULL) || device_check(x->device, err) ||
             device_sync(x->device, err)))
            return -1;
        if (record(&run, &tape->take[take], i))
            return -1;
    }
    return device_sync(x->device, err);
}

static int make_tape(struct executor *x, struct tape *tape, const struct program *program,
                     struct error *err)
{
    char name[TRACE_NAME];
    tape->program = program;
    tape->call = array_make((size_t)program->instrs, sizeof *tape->call);
    for (int i = 0; i < program->instrs; i++)
        tape->call[i] = (struct copy_call){x, program, i};
    if (!make_marks(x, tape, err) && !make_takes(x, tape, err))
        return 0;
    return error_prefix(err, "preparing the program that starts with %s",
                        instr_text(program, 0, name, sizeof name));
}

static int clear(struct executor *x, struct error *err)
{
    if (x->slab[POOL_HOST])
        memset(x->slab[POOL_HOST], 0, x->slab_bytes[POOL_HOST]);
    for (int pool = 0; pool < POOL_COUNT; pool++)
        if (x->slab[pool] && pool != POOL_HOST)
            x->device->ops->fill_zero(x->device, x->slab[pool], x->slab_bytes[pool]);
    return device_sync(x->device, err);
}

static size_t batch_bytes(const struct program *program)
{
    const struct units_request *r = &program->units->request;
    return (size_t)(r->batch * r->seq) * sizeof(int32_t);
}

static int make_host(struct executor *x, const struct program *const *programs, int count,
                     struct error *err)
{
    struct tapes *t = x->tapes;
    for (int i = 0; i < count; i++) {
        size_t bytes = memory_turn_bytes(programs[i]);
        t->batch_bytes = batch_bytes(programs[i]);
        t->turn_bytes = bytes > t->turn_bytes ? bytes : t->turn_bytes;
    }
    t->host_bytes = TURNS * t->turn_bytes;
    t->host = device_host_alloc(x->device, x->mem, POOL_HOST, t->host_bytes, err);
    return t->host ? 0 : -1;
}

static int make_common_marks(struct executor *x, struct error *err)
{
    struct tapes *t = x->tapes;
    t->begin = device_event_create(x->device, 0, err);
    for (int s = 0; s < STREAM_HOST; s++)
        t->end[s] = device_event_create(x->device, 0, err);
    for (int k = 0; k < TURNS; k++)
        t->done[k] = device_event_create(x->device, 0, err);
    for (int s = 0; s < STREAM_HOST; s++)
        if (!t->end[s])
            return -1;
    return t->begin && t->done[0] && t->done[1] ? 0 : -1;
}

static int create(struct executor *x, const struct program *const *programs, int count,
                  struct error *err)
{
    struct tapes *t = array_make(1, sizeof *t);
    x->tapes = t;
    t->tape = array_make((size_t)count, sizeof *t->tape);
    if (make_common_marks(x, err) || make_host(x, programs, count, err) || clear(x, err))
        return -1;
    for (int i = 0; i < count; i++) {
        t->count++;
        if (make_tape(x, &t->tape[i], programs[i], err))
            return -1;
    }
    return clear(x, err);
}

static void destroy_tape(struct executor *x, struct tape *tape)
{
    for (int i = 0; tape->mark && i < tape->program->instrs; i++)
        device_event_destroy(x->device, tape->mark[i]);
    for (int k = 0; k < tape->takes; k++)
        device_recording_destroy(x->device, tape->take[k].recording);
    free(tape->mark);
    free(tape->call);
    free(tape->take);
    free(tape->use);
}

static void forget_spans(struct executor *x)
{
    struct tapes *t = x->tapes;
    for (int i = 0; i < t->spans; i++) {
        device_event_destroy(x->device, t->span[i].from);
        device_event_destroy(x->device, t->span[i].to);
    }
    device_event_destroy(x->device, t->origin);
    free(t->span);
    t->span = NULL;
    t->origin = NULL;
    t->spans = t->span_capacity = 0;
}

static void destroy(struct executor *x)
{
    struct tapes *t = x->tapes;
    if (!t)
        return;
    device_sync(x->device, NULL);
    forget_spans(x);
    for (int i = 0; i < t->count; i++)
        destroy_tape(x, &t->tape[i]);
    device_event_destroy(x->device, t->begin);
    for (int s = 0; s < STREAMS; s++)
        device_event_destroy(x->device, t->end[s]);
    for (int k = 0; k < TURNS; k++)
        device_event_destroy(x->device, t->done[k]);
    device_host_free(x->device, x->mem, POOL_HOST, t->host_bytes, t->host);
    free(t->tape);
    free(t);
    x->tapes = NULL;
}

static char *turn_host(const struct tapes *t, int turn)
{
    return t->host + (size_t)turn * t->turn_bytes;
}

static int begin(struct run_state *run)
{
    struct executor *x = run->x;
    struct tapes *t = x->tapes;
    t->turn = (t->turn + 1) % TURNS;
    run->pending->turn = t->turn;
    if (run->trace) {
        forget_spans(x);
        t->origin = device_event_create(x->device, 1, run->err);
        if (!t->origin || device_event_record(x->device, t->origin, DEVICE_COMPUTE, run->err))
            return -1;
    }
    if (device_event_record(x->device, t->begin, DEVICE_COMPUTE, run->err))
        return -1;
    for (int s = 0; s < STREAM_HOST; s++)
        if (s != STREAM_COMPUTE &&
            device_event_wait(x->device, device_stream_of(s), t->begin, run->err))
            return -1;
    return 0;
}

/* The place of this turn was last read by a step that the caller has finished since. */
static int load(struct run_state *run, int micro, int32_t *tokens, int32_t *targets)
{
    const struct tapes *t = run->x->tapes;
    char *host = turn_host(t, t->turn) + SUM_COUNT * sizeof(double);
    char *host_tokens = host + 2 * (size_t)micro * t->batch_bytes;
    char *host_targets = host_tokens + t->batch_bytes;
    size_t bytes = run->program->request.kind == PROGRAM_LOGITS
                       ? t->batch_bytes / (size_t)run->program->units->request.batch
                       : t->batch_bytes;
    if (run->input->load(run->input->user, micro, (int32_t *)host_tokens, (int32_t *)host_targets,
                         run->err) ||
        device_upload_async(run->x->device, tokens, host_tokens, bytes, run->err))
        return -1;
    return device_upload_async(run->x->device, targets, host_targets, bytes, run->err);
}

/* A timed mark now on either side of what follows; the second by close_span(). */
static int open_span(struct executor *x, const char *name, int lane, enum device_stream stream,
                     struct error *err)
{
    struct tapes *t = x->tapes;
    t->span = array_grow(t->span, t->spans, &t->span_capacity, sizeof *t->span);
    struct span *span = &t->span[t->spans++];
    *span = (struct span){.lane = lane,
                          .from = device_event_create(x->device, 1, err),
                          .to = device_event_create(x->device, 1, err)};
    snprintf(span->name, sizeof span->name, "%s", name);
    if (!span->from || !span->to)
        return -1;
    return device_event_record(x->device, span->from, stream, err);
}

static int close_span(struct executor *x, int index, enum device_stream stream, int64_t bytes,
                      struct error *err)
{
    x->tapes->span[index].bytes = bytes;
    return device_event_record(x->device, x->tapes->span[index].to, stream, err);
}

struct tracer {
    struct segment_watch watch;
    struct executor *x;
};

static int op_begins(struct segment_watch *watch, const char *name, struct error *err)
{
    return open_span(((struct tracer *)watch)->x, name, TRACE_OPS, DEVICE_COMPUTE, err);
}

static int op_ended(struct segment_watch *watch, const char *name, struct error *err)
{
    struct executor *x = ((struct tracer *)watch)->x;
    return close_span(x, x->tapes->spans - 1, DEVICE_COMPUTE, 0, err);
}

static int run_ops(struct run_state *run, int i)
{
    struct tracer tracer = {{op_begins, op_ended}, run->x};
    struct tape *tape = tape_of(run->x, run->program);
    if (run->trace)
        return run_segment(run, i, &tracer.watch);
    return device_replay(run->x->device, tape->take[tape->use[i]].recording, run->err);
}

/* The first transfer that has not ended is what everything waits for. */
static int hang(const struct executor *x, const struct program *program, struct error *err)
{
    const struct tape *tape = tape_of(x, program);
    char name[TRACE_NAME];
    err->code = EXIT_HANG;
    for (int i = 0; i < program->instrs; i++)
        if (instr_is_transfer(&program->instr[i]) &&
            device_event_done(x->device, tape->mark[i], NULL) == 0)
            return error_set(err,
                             "nothing has moved for %d s: instruction %d (%s) waits in group %s "
                             "for the other members",
                             x->patience_s, i, instr_text(program, i, name, sizeof name),
                             group_name(x->group[program->instr[i].group]));
    return error_set(err, "a step has not ended for %d s on the GPU, though no transfer is open",
                     x->patience_s);
}

/* Wait as one who looks now and then whether the peers are alive. */
static int wait_for(struct executor *x, const struct program *program, struct device_event *mark,
                    struct error *err)
{
    enum { SPINS = 2000, NAP_NS = 50000, LOOK_NS = 20000000 };
    struct clock_awake awake = {0}; /* a job that was suspended was not waiting */
    int64_t begin_ns = clock_awake_ns(&awake), looked_ns = clock_ns();
    const struct timespec nap = {.tv_nsec = NAP_NS};
    const struct timespec courtesy = {.tv_sec =
                                          3}; /* who failed itself knows more: it speaks first */
    for (int spins = 0;; spins++) {
        int done = device_event_done(x->device, mark, err);
        if (done)
            return done > 0 ? copy_check(x, err) : -1;
        if (spins < SPINS)
            continue;
        int64_t now = clock_ns();
        if (now - looked_ns > LOOK_NS) {
            looked_ns = now;
            if (x->mesh && mesh_poll(x->mesh, err)) {
                nanosleep(&courtesy, NULL);
                return -1;
            }
            int64_t waited_ns = clock_awake_ns(&awake);
            if (swap_busy(x->swap))
                begin_ns = waited_ns; /* swap_watch() looks after it */
            if (x->patience_s && waited_ns - begin_ns > (int64_t)x->patience_s * 1000000000)
                return hang(x, program, err);
        }
        nanosleep(&nap, NULL);
    }
}

/* A failure is known here alone: the others are not left waiting. */
static int wait_done(struct executor *x, const struct program *program, struct device_event *mark,
                     struct error *err)
{
    if (!wait_for(x, program, mark, err))
        return 0;
    if (x->mesh)
        mesh_abandon(x->mesh);
    return -1;
}

static int is_traced(const struct run_state *run, const struct instr *instr)
{
    return run->trace && instr->kind != INSTR_RELEASE && instr->stream < STREAM_HOST;
}

/* The host waits for what its own instruction needs of the device. */
static int wait_for_device(struct run_state *run, const struct instr *instr)
{
    const struct tape *tape = tape_of(run->x, run->program);
    for (int s = 0; s < STREAM_HOST; s++)
        if (instr->wait[s] >= 0 &&
            (run_enters_wait(run, s) ||
             wait_done(run->x, run->program, tape->mark[instr->wait[s]], run->err)))
            return -1;
    return run_enters_work(run, instr);
}

static int copy(struct run_state *run, int i)
{
    const struct instr *instr = &run->program->instr[i];
    enum device_stream stream = device_stream_of(instr->stream);
    if (instr_is_file(instr))
        return device_call(run->x->device, stream, copy_call,
                           &tape_of(run->x, run->program)->call[i], run->err);
    return device_copy_async(run->x->device, stream, run_operand(run, instr, SLOT_TO),
                             run_operand(run, instr, SLOT_FROM),
                             run->program->buffer[instr->buffer[SLOT_FROM]].bytes, run->err);
}

static int before(struct run_state *run, int i)
{
    const struct instr *instr = &run->program->instr[i];
    const struct tape *tape = tape_of(run->x, run->program);
    enum device_stream stream = device_stream_of(instr->stream);
    char name[TRACE_NAME];
    if (instr->stream == STREAM_HOST) /* UPDATE is done when it was issued */
        return wait_for_device(run, instr);
    for (int s = 0; s < STREAM_HOST; s++)
        if (instr->wait[s] >= 0 &&
            ((instr->stream == STREAM_COMPUTE && run_enters_wait(run, s)) ||
             device_event_wait(run->x->device, stream, tape->mark[instr->wait[s]], run->err)))
            return -1;
    if (run_enters_work(run, instr))
        return -1;
    if (!is_traced(run, instr))
        return 0;
    run->waited[0] = run->x->tapes->spans; /* the span of this instruction */
    return open_span(run->x, instr_text(run->program, i, name, sizeof name), (int)instr->stream,
                     stream, run->err);
}

static int after_on_host(struct run_state *run, int i, int64_t start_ns)
{
    char name[TRACE_NAME];
    if (run->trace && run->program->instr[i].kind == INSTR_UPDATE)
        trace_add(run->trace, instr_text(run->program, i, name, sizeof name), STREAM_HOST, start_ns,
                  clock_ns(), 0);
    return 0;
}

static int after(struct run_state *run, int i, int64_t start_ns)
{
    struct executor *x = run->x;
    const struct instr *instr = &run->program->instr[i];
    const struct tape *tape = tape_of(x, run->program);
    enum device_stream stream = device_stream_of(instr->stream);
    int64_t bytes = 0;
    if (instr->stream == STREAM_HOST)
        return after_on_host(run, i, start_ns);
    if (instr_is_transfer(instr)) {
        if (comm_wait(&x->op[i], run->err))
            return -1;
        bytes = x->op[i].sent_bytes;
        x->sent_bytes += bytes;
    }
    if (instr_is_copy(instr))
        bytes = (int64_t)run->program->buffer[instr->buffer[SLOT_FROM]].bytes;
    if (is_traced(run, instr) && close_span(x, run->waited[0], stream, bytes, run->err))
        return -1;
    if (tape->mark[i] && device_event_record(x->device, tape->mark[i], stream, run->err))
        return -1;
    return device_check(x->device, run->err);
}

static int end(struct run_state *run)
{
    struct executor *x = run->x;
    struct tapes *t = x->tapes;
    struct step_pending *pending = run->pending;
    for (int s = 0; s < STREAM_HOST; s++) {
        if (s == STREAM_COMPUTE)
            continue;
        if (device_event_record(x->device, t->end[s], device_stream_of(s), run->err) ||
            run_enters_wait(run, s) ||
            device_event_wait(x->device, DEVICE_COMPUTE, t->end[s], run->err))
            return -1;
    }
    pending->sums = (const double *)turn_host(t, pending->turn);
    pending->done = t->done[pending->turn];
    void *sums = executor_buffer(x, run->program, run->program->sums);
    if (device_download_async(x->device, turn_host(t, pending->turn), sums,
                              SUM_COUNT * sizeof(double), run->err))
        return -1;
    return device_event_record(x->device, pending->done, DEVICE_COMPUTE, run->err);
}

static void tell_spans(struct executor *x, struct trace *trace)
{
    const struct tapes *t = x->tapes;
    for (int i = 0; i < t->spans; i++) {
        const struct span *span = &t->span[i];
        int64_t from = device_event_ns(x->device, t->origin, span->from);
        int64_t to = device_event_ns(x->device, t->origin, span->to);
        trace_add(trace, span->name, span->lane, trace->origin_ns + from, trace->origin_ns + to,
                  span->bytes);
    }
    forget_spans(x);
}

static int finish(struct executor *x, const struct step_pending *pending, struct error *err)
{
    if (wait_done(x, pending->program, pending->done, err))
        return -1;
    if (pending->trace)
        tell_spans(x, pending->trace);
    return 0;
}

const struct executor_mode executor_enqueued = {2,    create, destroy, begin, load,  run_ops,
                                                copy, before, after,   end,   finish};
