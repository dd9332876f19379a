/* execute_async.c - the executor on devices with streams.
 *
 * The host only enqueues, and runs ahead of the device.  Every instruction goes to a stream of its
 * own; a wait of the program is a wait for an event there, recorded after the instruction waited
 * for:
 *
 *   gather   | GATHER unit 1 |event   | GATHER unit 2 |event
 *   compute         RUN unit 0 |wait event| RUN unit 1 |wait event| RUN unit 2
 *
 * A file is read and written by functions of the host that streams call.  The host waits for the
 * device in a step so as to stay within a few hundred instructions of it (limit_ahead()), and where
 * the program has work for the host itself (STREAM_HOST: the update of offloaded state).
 *
 * A step begins on all streams when the one before has ended on the compute stream.  Its last act
 * is to copy its sums to pinned memory of the host, where they are read a step later: inputs and
 * sums are double buffered, the steps use the two slots alternately.
 *
 * A segment is a CUDA graph, launched with one call; a traced step enqueues its ops one by one,
 * with a timed event on either side of each (execute_async_trace.c), unless it is to show whole
 * runs.
 */
#include <time.h>

#include "base/alive.h"
#include "base/clock.h"
#include "execute/execute_async.h"

static char *slot_host(const struct async *a, int slot)
{
    return a->host + (size_t)slot * a->slot_bytes;
}

static int begin(struct step_run *run)
{
    struct executor *x = run->x;
    struct async *a = x->async;
    a->slot = (a->slot + 1) % MEMORY_STEPS;
    run->pending->slot = a->slot;
    a->issuing = run->program;
    a->issued = a->ended[a->slot] = 0;
    if ((run->trace && async_trace_begin(x, run->err)) ||
        device_event_record(x->device, a->begin, DEVICE_COMPUTE, run->err))
        return -1;
    for (int s = 0; s < STREAM_HOST; s++)
        if (s != STREAM_COMPUTE && a->uses[s] &&
            device_event_wait(x->device, step_streams[s].device, a->begin, run->err))
            return -1;
    return 0;
}

/* The byte of a slot at which what a LOAD loads begins: the LOADs of a program load equally much.
 */
static size_t slot_bytes_before(const struct program *program, const struct instr *instr)
{
    size_t bytes = 0;
    for (int k = 0; k < LOAD_SLOTS; k++)
        if (instr->buffer[k] >= 0)
            bytes += program->buffer[instr->buffer[k]].bytes;
    return program->buffer[program->state->sums].bytes + (size_t)instr->micro * bytes;
}

/* The slot was last read by the step before the previous one, which the caller has finished.  What
 * is loaded lies in it one after the other, in the order of LOAD's operands. */
static int load(struct step_run *run, int i)
{
    const struct async *a = run->x->async;
    const struct instr *instr = &run->program->instr[i];
    size_t at = slot_bytes_before(run->program, instr);
    int32_t *from[LOAD_SLOTS];
    for (int k = 0; k < LOAD_SLOTS; k++) {
        int b = instr->buffer[k];
        from[k] = b < 0 ? NULL : (int32_t *)(slot_host(a, a->slot) + at);
        at += b < 0 ? 0 : run->program->buffer[b].bytes;
    }
    if (run_load(run, instr, from))
        return -1;
    for (int k = 0; k < LOAD_SLOTS; k++)
        if (from[k] &&
            device_copy_async(run->x->device, DEVICE_COMPUTE, run_operand(run, instr, k), from[k],
                              run->program->buffer[instr->buffer[k]].bytes, run->err))
            return -1;
    return 0;
}

/* Does a trace show each op of a RUN?  Then ops are enqueued one by one. */
static int traces_ops(const struct step_run *run)
{
    return run->trace && !run->trace->whole_runs;
}

static int run_ops(struct step_run *run, int i)
{
    const struct async_program *own = async_program(run->x, run->program);
    if (traces_ops(run))
        return async_run_traced(run, i);
    return device_replay(run->x->device, own->capture[own->capture_of[i]].graph, run->err);
}

/* The event after instruction i of the step that is being started. */
static struct device_event *event_of(const struct step_run *run, int i)
{
    return async_program(run->x, run->program)->event[run->x->async->slot][i];
}

/* Is instruction i open: enqueued, with an event that has not come? */
static int is_open(const struct executor *x, const struct async_waited *w, int i)
{
    struct device_event *event = async_program(x, w->program)->event[w->slot][i];
    return event && device_event_done(x->device, event, NULL) == 0;
}

/* Has all come that instruction i waits for on other streams? */
static int may_begin(const struct executor *x, const struct async_waited *w, int i)
{
    for (int s = 0; s < STREAM_HOST; s++)
        if (w->program->instr[i].wait[s] >= 0 && is_open(x, w, w->program->instr[i].wait[s]))
            return 0;
    return 1;
}

/* Return the first transfer that has begun and not ended, or -1.  One that waits for a kernel of
 * this rank's own GPU has not begun, nor has any behind it on its stream. */
static int first_begun(const struct executor *x, const struct async_waited *w)
{
    int waits[STREAMS] = {0};
    for (int i = 0; i < w->end; i++) {
        const struct instr *instr = &w->program->instr[i];
        if (!instr_is_transfer(instr) || waits[instr->stream] || !is_open(x, w, i))
            continue;
        if (may_begin(x, w, i))
            return i;
        waits[instr->stream] = 1;
    }
    return -1;
}

/* Set err to name what everything waits for: the first transfer that has begun and not ended, or
 * where there is none, the first instruction that this rank's GPU has not ended.  Returns -1. */
static int hang(const struct executor *x, const struct async_waited *w, struct error *err)
{
    const struct program *program = w->program;
    const int at = first_begun(x, w), open = async_first_open(x, w, 0);
    char name[TRACE_NAME];
    err->code = EXIT_HANG;
    if (at >= 0)
        return error_set(err,
                         "nothing has moved for %d s: instruction %d (%s) waits in group %s for "
                         "the other members",
                         x->hang_seconds, at, instr_text(program, at, name, sizeof name),
                         group_name(mesh_group_of(x->mesh, program->instr[at].axes)));
    if (open < w->end)
        return error_set(err,
                         "a step has not ended for %d s: this rank's GPU has not finished "
                         "instruction %d (%s)",
                         x->hang_seconds, open, instr_text(program, open, name, sizeof name));
    return error_set(err, "a step has not ended for %d s on the GPU, though no transfer is open",
                     x->hang_seconds);
}

/* Has a transfer failed?  A rank that failed prints a better message: wait 3 s so that it is
 * printed first. */
static int poll_transfers(struct executor *x, struct error *err)
{
    const struct timespec others_first = {.tv_sec = 3};
    if (!x->mesh || !mesh_poll(x->mesh, err))
        return 0;
    nanosleep(&others_first, NULL);
    return -1;
}

/* How far a step was at the last look. */
struct advance {
    struct clock_awake awake; /* its clock leaves out time in which the job was suspended */
    int64_t moved_ns;         /* when the step was last found further than before */
    int open;                 /* its first instruction whose event had not come */
};

/* Look whether the peers are alive, and how far step w is: one that advances does not hang, however
 * long it takes.  0, or -1 with err set. */
static int check_progress(struct executor *x, const struct async_waited *w, struct advance *advance,
                          struct error *err)
{
    if (poll_transfers(x, err))
        return -1;
    int64_t now_ns = clock_awake_ns(&advance->awake);
    int before = advance->open;
    advance->open = async_first_open(x, w, before);
    if (advance->open > before)
        alive_note();
    if (advance->open > before || swap_busy(x->swap)) /* swap_watch() looks after a file */
        advance->moved_ns = now_ns;
    int64_t hang_ns = (int64_t)x->hang_seconds * 1000000000;
    return hang_ns && now_ns - advance->moved_ns > hang_ns ? hang(x, w, err) : 0;
}

/* Wait for an event of step w, and check_progress() from time to time. */
static int wait_for(struct executor *x, const struct async_waited *w, struct device_event *event,
                    struct error *err)
{
    enum { SPINS = 2000, NAP_NS = 50000, LOOK_NS = 20000000 };
    const struct timespec nap = {.tv_nsec = NAP_NS};
    struct advance advance = {0};
    advance.moved_ns = clock_awake_ns(&advance.awake);
    int64_t looked_ns = clock_ns();
    for (int spins = 0;; spins++) {
        int done = device_event_done(x->device, event, err);
        if (done)
            return done > 0 ? copy_check(x, err) : -1;
        if (spins < SPINS)
            continue;
        if (clock_ns() - looked_ns > LOOK_NS) {
            looked_ns = clock_ns();
            if (check_progress(x, w, &advance, err))
                return -1;
        }
        nanosleep(&nap, NULL);
    }
}

/* wait_for(), and after a failure, of which only this rank knows, end its transfers, so that the
 * others do not wait for them. */
static int wait_done(struct executor *x, const struct async_waited *w, struct device_event *event,
                     struct error *err)
{
    if (!wait_for(x, w, event, err))
        return 0;
    if (x->mesh)
        mesh_abandon(x->mesh);
    return -1;
}

static int is_traced(const struct step_run *run, const struct instr *instr)
{
    return run->trace && instr->kind != INSTR_RELEASE && instr->stream < STREAM_HOST;
}

/* All instructions of the step before this one; their program is NULL if that step is finished. */
static struct async_waited step_before(const struct step_run *run)
{
    const struct async *a = run->x->async;
    int slot = (a->slot + MEMORY_STEPS - 1) % MEMORY_STEPS;
    const struct program *program = a->under_way[slot];
    return (struct async_waited){program, slot, program ? program->instrs : 0};
}

static int wait_for_step_before(struct step_run *run)
{
    const struct async_waited w = step_before(run);
    return w.program ? wait_done(run->x, &w, run->x->async->done[w.slot], run->err) : 0;
}

enum waited_stream { ANY_STREAM, COMPUTE_STREAM };

/* Wait for the last instruction up to number `at` that has an event, on whatever stream or on that
 * of computation. */
static int wait_for_last(struct step_run *run, const struct async_waited *w, int at,
                         enum waited_stream stream)
{
    struct device_event *const *event = async_program(run->x, w->program)->event[w->slot];
    while (at >= 0 && (!event[at] || (stream == COMPUTE_STREAM &&
                                      w->program->instr[at].stream != STREAM_COMPUTE)))
        at--;
    return at < 0 ? 0 : wait_done(run->x, w, event[at], run->err);
}

/* Before instruction i is enqueued, wait until the device is at most about 256 instructions behind:
 * a stream of CUDA holds about a thousand calls, and one more waits inside CUDA, where this rank
 * cannot notice that a peer is gone.  The host looks at every 16th instruction.  Where each op of
 * an instruction is traced, which makes up to a hundred calls of it, the numbers are 8 and 4.
 *
 * Of the step before, it waits for any instruction: all ranks that wait here have issued all of
 * that.  Of the same step, for those that compute, not for transfers: a RECV may be issued long
 * before the SEND without which the peer has nothing to send.  That no ranks wait for one another
 * where each instruction is issued when those before it have computed, verify_some_ranks() has
 * found of training; other programs receive only just before they compute. */
static int limit_ahead(struct step_run *run, int i)
{
    const struct async_waited own = {run->program, run->x->async->slot, i},
                              first = step_before(run);
    const int most_ahead = traces_ops(run) ? 8 : 256, look_every = traces_ops(run) ? 4 : 16;
    int behind = i - most_ahead;
    if (i % look_every)
        return 0;
    if (behind <= 0)
        return first.program ? wait_for_last(run, &first, first.end - 1 + behind, ANY_STREAM) : 0;
    return wait_for_step_before(run) || wait_for_last(run, &own, behind, COMPUTE_STREAM) ? -1 : 0;
}

/* Wait on the host for what its own instruction i needs of the device, and for the step before: the
 * instruction comes after all of that. */
static int wait_for_device(struct step_run *run, int i)
{
    const struct instr *instr = &run->program->instr[i];
    const struct async_waited w = {run->program, run->x->async->slot, i};
    if (wait_for_step_before(run))
        return -1;
    for (int s = 0; s < STREAM_HOST; s++)
        if (instr->wait[s] >= 0 && (run_time_wait(run, s) ||
                                    wait_done(run->x, &w, event_of(run, instr->wait[s]), run->err)))
            return -1;
    return run_time_work(run, instr);
}

/* CUDA may call the functions of all streams on one thread.  So one of them begins the copy and
 * another one waits for it: what the read stream has ready begins before the write stream waits. */
static int call_copy(struct step_run *run, int i, enum device_stream stream)
{
    struct copy_call *call = &async_program(run->x, run->program)->call[i];
    return device_call(run->x->device, stream, copy_call_begin, call, run->err) ||
                   device_call(run->x->device, stream, copy_call_end, call, run->err)
               ? -1
               : 0;
}

/* FETCH and SPILL. */
static int copy(struct step_run *run, int i)
{
    const struct instr *instr = &run->program->instr[i];
    enum device_stream stream = step_streams[instr->stream].device;
    size_t bytes = run_count_moved(run, instr);
    if (instr_is_file(instr))
        return call_copy(run, i, stream);
    return device_copy_async(run->x->device, stream, run_operand(run, instr, SLOT_TO),
                             run_operand(run, instr, SLOT_FROM), bytes, run->err);
}

static int before(struct step_run *run, int i)
{
    const struct instr *instr = &run->program->instr[i];
    enum device_stream stream = step_streams[instr->stream].device;
    char name[TRACE_NAME];
    run->x->async->issued = i;
    if (limit_ahead(run, i))
        return -1;
    if (instr->stream == STREAM_HOST) /* UPDATE is done when the call returns */
        return wait_for_device(run, i);
    for (int s = 0; s < STREAM_HOST; s++)
        if (instr->wait[s] >= 0 &&
            ((instr->stream == STREAM_COMPUTE && run_time_wait(run, s)) ||
             device_event_wait(run->x->device, stream, event_of(run, instr->wait[s]), run->err)))
            return -1;
    if (run_time_work(run, instr))
        return -1;
    if (!is_traced(run, instr))
        return 0;
    run->span = run->x->async->spans;
    if (async_span_open(run->x, instr_text(run->program, i, name, sizeof name), (int)instr->stream,
                        stream, run->err))
        return -1;
    run->x->async->span[run->span].instr = i;
    run->x->async->span[run->span].is_exchange = instr_is_exchange(instr);
    return 0;
}

/* Record after an instruction the end of its span, and its event. */
static int end_instr(struct step_run *run, int i)
{
    struct executor *x = run->x;
    const struct instr *instr = &run->program->instr[i];
    struct device_event *event = event_of(run, i);
    enum device_stream stream = step_streams[instr->stream].device;
    int64_t bytes = 0;
    if (instr_is_transfer(instr)) {
        struct comm_op *op = &x->op[i];
        if (comm_wait(op, run->err))
            return -1;
        bytes = op->sent_bytes;
        x->sent_bytes += bytes;
    }
    if (instr_is_copy(instr))
        bytes = (int64_t)run->program->buffer[instr->buffer[SLOT_FROM]].bytes;
    if (is_traced(run, instr) && async_span_close(x, run->span, stream, bytes, run->err))
        return -1;
    return event ? device_event_record(x->device, event, stream, run->err) : 0;
}

static int after(struct step_run *run, int i, int64_t start_ns)
{
    if (run->program->instr[i].stream == STREAM_HOST) {
        if (run->trace && run->program->instr[i].kind == INSTR_UPDATE)
            run_trace(run, i, start_ns, clock_ns(), 0);
        return 0;
    }
    if (end_instr(run, i))
        return -1;
    return device_check(run->x->device, run->err);
}

static int end(struct step_run *run)
{
    struct executor *x = run->x;
    struct async *a = x->async;
    struct step_pending *pending = run->pending;
    for (int s = 0; s < STREAM_HOST; s++) {
        if (s == STREAM_COMPUTE || !a->uses[s])
            continue;
        if (device_event_record(x->device, a->end[s], step_streams[s].device, run->err) ||
            run_time_wait(run, s) ||
            device_event_wait(x->device, DEVICE_COMPUTE, a->end[s], run->err))
            return -1;
    }
    pending->sums = (const double *)slot_host(a, pending->slot);
    pending->done = a->done[pending->slot];
    const struct program_buffer *sums = &run->program->buffer[run->program->state->sums];
    if (device_copy_async(x->device, DEVICE_COMPUTE, slot_host(a, pending->slot),
                          executor_buffer(x, sums), sums->bytes, run->err) ||
        breakdown_end(run->input->breakdown, run->err) ||
        device_event_record(x->device, pending->done, DEVICE_COMPUTE, run->err))
        return -1;
    a->under_way[pending->slot] = run->program;
    a->issuing = NULL;
    return 0;
}

static int finish(struct executor *x, const struct step_pending *pending, struct error *err)
{
    const struct async_waited w = {pending->program, pending->slot, pending->program->instrs};
    if (wait_done(x, &w, pending->done, err))
        return -1;
    x->async->under_way[pending->slot] = NULL;
    if (poll_transfers(x, err)) { /* what failed meanwhile was not summed */
        mesh_abandon(x->mesh);
        return -1;
    }
    if (pending->trace)
        async_trace_end(x, pending->trace);
    return 0;
}

static float *fetch_logits(struct executor *x, const struct program_buffer *buffer,
                           struct error *err)
{
    int rc = device_download(x->device, x->async->logits, executor_buffer(x, buffer), buffer->bytes,
                             err);
    return rc ? NULL : x->async->logits;
}

const struct executor_mode executor_async = {
    .action =
        {[INSTR_LOAD] = load, [INSTR_RUN] = run_ops, [INSTR_FETCH] = copy, [INSTR_SPILL] = copy},
    .before = before,
    .after = after,
    .begin = begin,
    .end = end,
    .finish = finish,
    .logits = fetch_logits,
    .create = async_create,
    .note_products = async_note_products,
    .prepare = async_prepare,
    .destroy = async_destroy,
};
