/* execute.c - the loop over the list of instructions.
 *
 * An executor (executor.c) owns one slab for each pool, as large as the largest of its programs
 * wants; a buffer's memory is its slab and offset.  A step goes through the list of instructions
 * once:
 *
 *   before(i)      what it waits for
 *   an action      what it does, by its kind; most are in execute_actions.c
 *   after(i)       what waits for it
 *
 * A mode fills these in: execute_sync.c does all at once, on a CPU, where the step is over when the
 * loop ends; execute_async.c enqueues it on a GPU, and step_finish() waits for the sums. */
#include "execute/execute.h"

#include <math.h>
#include <string.h>

#include "base/alive.h"
#include "base/clock.h"
#include "execute/execute_private.h"

static enum breakdown_kind kind_of_work(const struct instr *instr)
{
    switch (instr->kind) {
    case INSTR_LOAD: return BREAKDOWN_DATA;
    case INSTR_RUN:
    case INSTR_DECODE:
        return instr->phase == PHASE_FORWARD ? BREAKDOWN_FORWARD : BREAKDOWN_BACKWARD;
    case INSTR_NORM:
    case INSTR_ADD:
    case INSTR_SCALE:
    case INSTR_MOMENTUM:
    case INSTR_ORTHOGONALIZE:
    case INSTR_UPDATE: return BREAKDOWN_UPDATE;
    default: return BREAKDOWN_OTHER;
    }
}

int run_time_work(struct step_run *run, const struct instr *instr)
{
    if (instr->stream != STREAM_COMPUTE && instr->stream != STREAM_HOST)
        return 0;
    if (instr->kind == INSTR_RELEASE)
        return 0;
    return breakdown_enter(run->input->breakdown, kind_of_work(instr), run->err);
}

const struct step_stream step_streams[STREAMS] = {
    [STREAM_COMPUTE] = {.device = DEVICE_COMPUTE},
    [STREAM_GATHER] = {.wait = BREAKDOWN_COMM, .comm = 1 + COMM_GATHER, .device = DEVICE_GATHER},
    [STREAM_REDUCE] = {.wait = BREAKDOWN_COMM, .comm = 1 + COMM_REDUCE, .device = DEVICE_REDUCE},
    [STREAM_POINT] = {.wait = BREAKDOWN_COMM, .comm = 1 + COMM_POINT, .device = DEVICE_POINT},
    [STREAM_POINT_1] = {.wait = BREAKDOWN_COMM, .comm = 1 + COMM_POINT_1, .device = DEVICE_POINT_1},
    [STREAM_POINT_2] = {.wait = BREAKDOWN_COMM, .comm = 1 + COMM_POINT_2, .device = DEVICE_POINT_2},
    [STREAM_POINT_3] = {.wait = BREAKDOWN_COMM, .comm = 1 + COMM_POINT_3, .device = DEVICE_POINT_3},
    [STREAM_POINT_4] = {.wait = BREAKDOWN_COMM, .comm = 1 + COMM_POINT_4, .device = DEVICE_POINT_4},
    [STREAM_POINT_5] = {.wait = BREAKDOWN_COMM, .comm = 1 + COMM_POINT_5, .device = DEVICE_POINT_5},
    [STREAM_POINT_6] = {.wait = BREAKDOWN_COMM, .comm = 1 + COMM_POINT_6, .device = DEVICE_POINT_6},
    [STREAM_POINT_7] = {.wait = BREAKDOWN_COMM, .comm = 1 + COMM_POINT_7, .device = DEVICE_POINT_7},
    [STREAM_FETCH] = {.wait = BREAKDOWN_OFFLOAD, .device = DEVICE_FETCH},
    [STREAM_SPILL] = {.wait = BREAKDOWN_OFFLOAD, .device = DEVICE_SPILL},
    [STREAM_READ] = {.wait = BREAKDOWN_OFFLOAD, .device = DEVICE_READ},
    [STREAM_WRITE] = {.wait = BREAKDOWN_OFFLOAD, .device = DEVICE_WRITE},
    [STREAM_UPDATE] = {.wait = BREAKDOWN_UPDATE, .device = DEVICE_UPDATE},
    [STREAM_HOST] = {.device = DEVICE_COMPUTE},
};

int run_time_wait(struct step_run *run, enum program_stream stream)
{
    if (step_streams[stream].wait == BREAKDOWN_OTHER)
        return 0;
    return breakdown_enter(run->input->breakdown, step_streams[stream].wait, run->err);
}

void run_trace(struct step_run *run, int i, int64_t start_ns, int64_t end_ns, int64_t bytes)
{
    char name[TRACE_NAME];
    const struct instr *instr = &run->program->instr[i];
    if (!run->trace)
        return;
    struct trace_event *event =
        trace_add(run->trace, instr_text(run->program, i, name, sizeof name), (int)instr->stream,
                  start_ns, end_ns, bytes);
    event->instr = i;
    event->is_exchange = instr_is_exchange(instr);
}

int run_name_failure(struct step_run *run, int i)
{
    char name[TRACE_NAME];
    if (run->is_named)
        return -1;
    run->is_named = 1;
    instr_text(run->program, i, name, sizeof name);
    return run->input->step
               ? error_suffix(run->err, "in step %lld: %s", (long long)run->input->step, name)
               : error_suffix(run->err, "in %s", name);
}

/* Wait for what instruction i waits for, do it, and note that it is done. */
static int step(struct step_run *run, int i)
{
    const struct executor_mode *mode = run->x->mode;
    enum instr_kind kind = run->program->instr[i].kind;
    step_action *action = mode->action[kind] ? mode->action[kind] : step_actions[kind];
    if (mode->before(run, i))
        return run_name_failure(run, i);
    int64_t start = run->trace ? clock_ns() : 0;
    if (!action(run, i) && !mode->after(run, i, start)) {
        alive_note();
        return 0;
    }
    return run_name_failure(run, i);
}

int step_start(struct executor *x, const struct program *program, const struct step_input *input,
               struct trace *trace, struct step_pending *pending, struct error *err)
{
    struct step_run run = {
        .x = x, .program = program, .input = input, .trace = trace, .pending = pending, .err = err};
    for (int s = 0; s < STREAMS; s++)
        run.waited[s] = -1;
    *pending = (struct step_pending){.program = program, .trace = trace, .input = *input};
    x->sent_bytes = 0;
    memset(x->moved_bytes, 0, sizeof x->moved_bytes);
    if ((x->mode->begin && x->mode->begin(&run)) ||
        (input->breakdown && breakdown_begin(input->breakdown, x->device, err)))
        return -1;
    for (int i = 0; i < program->instrs; i++)
        if (step(&run, i))
            return -1;
    return x->mode->end(&run);
}

/* Take in the tokens at each expert of a router. */
static void add_router(struct step_experts *load, const double *tokens, int64_t experts)
{
    double all = 0, most = 0;
    int64_t idle = 0;
    for (int64_t e = 0; e < experts; e++) {
        all += tokens[e];
        most = fmax(most, tokens[e]);
        idle += tokens[e] == 0;
    }
    if (all == 0)
        return;
    double largest = most * (double)experts / all;
    load->mean += (largest - load->mean) / ++load->routers;
    load->most = fmax(load->most, largest);
    load->idle += idle;
}

static struct step_experts load_of(const struct program *program, const double *sums)
{
    struct step_experts load = {0};
    int64_t experts = program->units->model->config.experts.count;
    int64_t end = (int64_t)(program->buffer[program->state->sums].bytes / sizeof *sums);
    int64_t all = program->kind == PROGRAM_TRAIN ? state_expert_tokens_elems(program->state) : 0;
    for (int64_t i = end - all; i < end; i += experts)
        add_router(&load, sums + i, experts);
    return load;
}

static void report(const struct step_pending *pending, struct step_output *output)
{
    const double *sums = pending->sums;
    double targets = sums[SUM_TARGETS];
    double nominal = pending->input.nominal_targets;
    double mean = targets > 0 ? nominal / targets / sums[SUM_LOSS_SCALE] : 0;
    *output = (struct step_output){
        .loss = targets > 0 ? sums[SUM_LOSS] / targets : NAN,
        .targets = targets,
        .grad_norm = sqrt(sums[SUM_SQUARES]) * mean,
        .votes = sums[SUM_STOP],
        .skipped = !isfinite(sums[SUM_SQUARES]),
        .experts = load_of(pending->program, sums),
    };
}

int step_finish(struct executor *x, const struct step_pending *pending, struct step_output *output,
                struct error *err)
{
    if (x->mode->finish && x->mode->finish(x, pending, err))
        return -1;
    if (pending->input.breakdown)
        breakdown_read(pending->input.breakdown);
    if (output)
        report(pending, output);
    return 0;
}

int executor_run_step(struct executor *x, const struct program *program,
                      const struct step_input *input, struct step_output *output,
                      struct trace *trace, struct error *err)
{
    struct step_pending pending;
    if (step_start(x, program, input, trace, &pending, err))
        return -1;
    return step_finish(x, &pending, output, err);
}
