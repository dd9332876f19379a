/* execute_sync.c - the executor on the CPU.
 *
 * The compute stream is the calling thread, each transfer stream is a queue of the communication
 * thread, and FETCH and SPILL are queues of the swap file: an instruction that waits for another
 * stream waits for its operations there, in order.
 */
#include <string.h>

#include "base/clock.h"
#include "execute/execute_private.h"

static int load(struct step_run *run, int i)
{
    const struct instr *instr = &run->program->instr[i];
    int32_t *to[LOAD_SLOTS];
    for (int k = 0; k < LOAD_SLOTS; k++)
        to[k] = run_operand(run, instr, k);
    return run_load(run, instr, to);
}

/* What watches the ops of a segment when tracing. */
struct tracer {
    struct segment_watch watch;
    struct trace *trace;
    int64_t start_ns;
};

static int op_begins(struct segment_watch *watch, const char *name, struct error *err)
{
    ((struct tracer *)watch)->start_ns = clock_ns();
    return 0;
}

static int op_ended(struct segment_watch *watch, const char *name, struct error *err)
{
    struct tracer *tracer = (struct tracer *)watch;
    trace_add(tracer->trace, name, TRACE_OPS, tracer->start_ns, clock_ns(), 0);
    return 0;
}

static int run_ops(struct step_run *run, int i)
{
    struct tracer tracer = {{op_begins, op_ended}, run->trace, 0};
    return run_segment(run, i, run->trace && !run->trace->whole_runs ? &tracer.watch : NULL);
}

static int finish_transfer(struct step_run *run, int i)
{
    struct comm_op *op = &run->x->op[i];
    if (comm_wait(op, run->err))
        return run_name_failure(run, i);
    run->x->sent_bytes += op->sent_bytes;
    run_trace(run, i, op->start_ns, op->end_ns, op->sent_bytes);
    return 0;
}

/* Wait for all transfers and copies of a stream up to instruction `until`. */
static int wait_for(struct step_run *run, enum program_stream stream, int until)
{
    if (stream == STREAM_COMPUTE || run->waited[stream] >= until)
        return 0; /* this thread: done in order; or waited for before */
    if (run_time_wait(run, stream))
        return -1;
    for (int i = run->waited[stream] + 1; i <= until; i++) {
        const struct instr *instr = &run->program->instr[i];
        if (instr->stream == stream && ((instr_is_transfer(instr) && finish_transfer(run, i)) ||
                                        (instr_is_copy(instr) && copy_end(run, i))))
            return -1;
        run->waited[stream] = i;
    }
    return 0;
}

static int before(struct step_run *run, int i)
{
    const struct instr *instr = &run->program->instr[i];
    for (int s = 0; s < STREAMS; s++)
        if (instr->wait[s] >= 0 && wait_for(run, s, instr->wait[s]))
            return -1;
    return run_time_work(run, instr);
}

static int after(struct step_run *run, int i, int64_t start_ns)
{
    const struct instr *instr = &run->program->instr[i];
    if (run->trace && !instr_is_transfer(instr) && !instr_is_copy(instr) &&
        instr->kind != INSTR_RELEASE)
        run_trace(run, i, start_ns, clock_ns(), 0);
    return 0;
}

static int end(struct step_run *run)
{
    struct executor *x = run->x;
    for (int s = 0; s < STREAMS; s++)
        if (wait_for(run, s, run->program->instrs - 1))
            return -1;
    const struct program_buffer *sums = &run->program->buffer[run->program->state->sums];
    memcpy(x->sums, executor_buffer(x, sums), sums->bytes);
    run->pending->sums = x->sums;
    return breakdown_end(run->input->breakdown, run->err);
}

const struct executor_mode executor_sync = {
    .action = {[INSTR_LOAD] = load,
               [INSTR_RUN] = run_ops,
               [INSTR_FETCH] = copy_begin,
               [INSTR_SPILL] = copy_begin},
    .before = before,
    .after = after,
    .end = end,
};
