/* execute.c - see execute.h.
 *
 * On the CPU the compute stream is the calling thread, and each transfer stream is a queue
 * of the communication thread: an instruction that waits for another stream waits for its
 * operations there, in order.
 */
#include "step/execute.h"

#include <math.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/clock.h"
#include "step/memory.h"

struct executor {
    struct device *device;
    struct mem *mem;
    struct group *group[GROUPS]; /* the mesh's */
    char *slab[POOL_COUNT];
    size_t slab_bytes[POOL_COUNT];
    struct comm_op *op; /* per instruction */
    int64_t sent_bytes;
};

/* One execution. */
struct run_state {
    struct executor *x;
    const struct program *program;
    const struct step_input *input;
    struct trace *trace;
    int waited[STREAMS]; /* instructions of the stream up to here are complete */
    struct segment_watch watch;
    struct error *err;
};

static void *address(const struct run_state *run, int buffer)
{
    return executor_buffer(run->x, run->program, buffer);
}

static void *operand(const struct run_state *run, const struct instr *instr, int slot)
{
    return instr->buffer[slot] < 0 ? NULL : address(run, instr->buffer[slot]);
}

static int do_zero(struct run_state *run, int i)
{
    double *sums = operand(run, &run->program->instr[i], SLOT_SUMS);
    for (int k = 0; k < SUM_COUNT; k++)
        sums[k] = 0;
    sums[SUM_STOP] = run->input->stop_vote;
    return 0;
}

static int do_load(struct run_state *run, int i)
{
    const struct instr *instr = &run->program->instr[i];
    run->input->load(run->input->user, instr->micro, operand(run, instr, SLOT_LOAD_TOKENS),
                     operand(run, instr, SLOT_LOAD_TARGETS));
    return 0;
}

static void watch_op(struct segment_watch *watch, const char *name, int64_t start_ns,
                     int64_t end_ns)
{
    struct run_state *run = (struct run_state *)((char *)watch - offsetof(struct run_state, watch));
    trace_add(run->trace, name, TRACE_OPS, start_ns, end_ns, 0);
}

/* The segment a RUN of this program stands for. */
static const struct segment *segment_of(const struct program *program, const struct instr *instr)
{
    const struct unit_kind *kind = units_kind(program->units, instr->unit);
    if (program->request.kind == PROGRAM_EVALUATE)
        return &kind->evaluation;
    if (program->request.kind == PROGRAM_LOGITS)
        return &kind->logit;
    return instr->phase == PHASE_FORWARD    ? &kind->forward
           : instr->phase == PHASE_BACKWARD ? &kind->backward
                                            : &kind->both;
}

static int do_run(struct run_state *run, int i)
{
    const struct instr *instr = &run->program->instr[i];
    void *base[SPACE_COUNT];
    for (int s = 0; s < SPACE_COUNT; s++)
        base[s] = operand(run, instr, s);
    return segment_run(segment_of(run->program, instr), run->x->device, base, instr->accumulate,
                       run->trace ? &run->watch : NULL, run->err);
}

static int do_gather(struct run_state *run, int i)
{
    const struct instr *instr = &run->program->instr[i];
    group_all_gather(run->x->group[instr->group], COMM_GATHER, &run->x->op[i],
                     operand(run, instr, SLOT_TO), operand(run, instr, SLOT_FROM), instr->elems,
                     instr->dtype);
    return 0;
}

static int do_reduce(struct run_state *run, int i)
{
    const struct instr *instr = &run->program->instr[i];
    group_reduce_scatter(run->x->group[instr->group], COMM_REDUCE, &run->x->op[i],
                         operand(run, instr, SLOT_TO), operand(run, instr, SLOT_FROM), instr->elems,
                         instr->dtype, (int)instr->accumulate);
    return 0;
}

static int do_all_reduce(struct run_state *run, int i)
{
    const struct instr *instr = &run->program->instr[i];
    group_all_reduce(run->x->group[instr->group], COMM_REDUCE, &run->x->op[i],
                     operand(run, instr, SLOT_TO), instr->elems, instr->dtype);
    return 0;
}

static int do_send(struct run_state *run, int i)
{
    const struct instr *instr = &run->program->instr[i];
    group_send(run->x->group[instr->group], COMM_POINT, &run->x->op[i],
               operand(run, instr, SLOT_FROM), instr->elems, instr->dtype, instr->peer);
    return 0;
}

static int do_recv(struct run_state *run, int i)
{
    const struct instr *instr = &run->program->instr[i];
    group_recv(run->x->group[instr->group], COMM_POINT, &run->x->op[i],
               operand(run, instr, SLOT_TO), instr->elems, instr->dtype, instr->peer);
    return 0;
}

/* Replicas hold the same gradient: only the first one's counts. */
static int do_norm(struct run_state *run, int i)
{
    const struct instr *instr = &run->program->instr[i];
    double *sums = operand(run, instr, SLOT_SUMS);
    if (run->program->request.coord.at[MESH_REPLICATE] == 0)
        sums[SUM_SQUARES] += run->x->device->ops->sumsq(
            run->x->device, operand(run, instr, SLOT_SHARD_GRAD), instr->elems);
    return 0;
}

/* Gradients were summed as if there were nominal_targets; the mean is over those there were. */
static double mean_factor(const struct step_input *input, const double *sums)
{
    return sums[SUM_TARGETS] > 0 ? input->nominal_targets / sums[SUM_TARGETS] : 0;
}

static double grad_norm(const struct step_input *input, const double *sums)
{
    return sqrt(sums[SUM_SQUARES]) * mean_factor(input, sums);
}

static double grad_scale(const struct step_input *input, const double *sums)
{
    double norm = grad_norm(input, sums), scale = mean_factor(input, sums);
    if (input->clip > 0 && norm + 1e-6 > input->clip)
        scale *= input->clip / (norm + 1e-6);
    return scale;
}

/* The part [start, start + count) of the unit's flat parameter that is in this shard, updated
 * with one weight decay. */
struct update {
    struct device *device;
    struct adamw adamw;
    float decay;
    float *master, *first, *second;
    const float *grad;
    bf16 *param; /* NULL where master is what is computed with */
    int64_t shard_start, shard_elems;
};

static void update_range(struct update *u, int64_t start, int64_t end, int decays)
{
    start = start > u->shard_start ? start - u->shard_start : 0;
    end = end - u->shard_start < u->shard_elems ? end - u->shard_start : u->shard_elems;
    if (start >= end)
        return;
    u->adamw.weight_decay = decays ? u->decay : 0;
    u->device->ops->adamw(u->device, &u->adamw, u->master + start, u->first + start,
                          u->second + start, u->grad + start, u->param ? u->param + start : NULL,
                          end - start);
}

/* Neighbouring tensors that agree on decay, with the padding between, are one range. */
static void update_unit(struct update *u, const struct flat *flat, int decay_all)
{
    int64_t start = 0;
    for (int t = 0; t < flat->tensors; t++) {
        int decays = decay_all || flat->tensor[t].dims > 1;
        int last = t + 1 == flat->tensors;
        int changes = last || decays != (decay_all || flat->tensor[t + 1].dims > 1);
        if (!changes)
            continue;
        int64_t end = last ? flat->padded : flat->tensor[t + 1].offset;
        update_range(u, start, end, decays);
        start = end;
    }
}

static int do_update(struct run_state *run, int i)
{
    const struct instr *instr = &run->program->instr[i];
    const struct flat *flat = &run->program->units->flat[instr->unit];
    const double *sums = operand(run, instr, SLOT_SUMS);
    if (!isfinite(sums[SUM_SQUARES]))
        return 0;
    struct update u = {
        .device = run->x->device,
        .adamw = run->input->adamw,
        .decay = run->input->adamw.weight_decay,
        .master = operand(run, instr, SLOT_MASTER),
        .first = operand(run, instr, SLOT_FIRST),
        .second = operand(run, instr, SLOT_SECOND),
        .grad = operand(run, instr, SLOT_SHARD_GRAD),
        .param = operand(run, instr, SLOT_PARAM),
        .shard_start = run->program->request.coord.at[MESH_SHARD] * flat->shard_elems,
        .shard_elems = flat->shard_elems,
    };
    u.adamw.grad_scale = (float)grad_scale(run->input, sums);
    update_unit(&u, flat, run->input->decay_all);
    return 0;
}

static int do_release(struct run_state *run, int i)
{
    return 0; /* the plan reuses the memory; nothing is done */
}

static int (*const actions[INSTR_KINDS])(struct run_state *, int) = {
    [INSTR_ZERO] = do_zero,     [INSTR_LOAD] = do_load,       [INSTR_RUN] = do_run,
    [INSTR_GATHER] = do_gather, [INSTR_REDUCE] = do_reduce,   [INSTR_ALLREDUCE] = do_all_reduce,
    [INSTR_SEND] = do_send,     [INSTR_RECV] = do_recv,       [INSTR_NORM] = do_norm,
    [INSTR_UPDATE] = do_update, [INSTR_RELEASE] = do_release,
};

static int is_transfer(const struct instr *instr)
{
    return instr->group >= 0;
}

static int finish(struct run_state *run, int i)
{
    struct comm_op *op = &run->x->op[i];
    char name[TRACE_NAME];
    instr_text(run->program, i, name, sizeof name);
    if (comm_wait(op, run->err))
        return error_prefix(run->err, "instruction %d (%s)", i, name);
    run->x->sent_bytes += op->sent_bytes;
    if (run->trace)
        trace_add(run->trace, name, (int)run->program->instr[i].stream, op->start_ns, op->end_ns,
                  op->sent_bytes);
    return 0;
}

static int wait_for(struct run_state *run, enum stream stream, int until)
{
    if (stream == STREAM_COMPUTE)
        return 0; /* this thread: done in order */
    for (int i = run->waited[stream] + 1; i <= until; i++) {
        const struct instr *instr = &run->program->instr[i];
        if (instr->stream == stream && is_transfer(instr) && finish(run, i))
            return -1;
        run->waited[stream] = i;
    }
    return 0;
}

static int step(struct run_state *run, int i)
{
    const struct instr *instr = &run->program->instr[i];
    for (int s = 0; s < STREAMS; s++)
        if (instr->wait[s] >= 0 && wait_for(run, s, instr->wait[s]))
            return -1;
    char name[TRACE_NAME];
    int64_t start = run->trace ? clock_ns() : 0;
    if (actions[instr->kind](run, i))
        return error_prefix(run->err, "instruction %d (%s)", i,
                            instr_text(run->program, i, name, sizeof name));
    if (run->trace && !is_transfer(instr) && instr->kind != INSTR_RELEASE)
        trace_add(run->trace, instr_text(run->program, i, name, sizeof name), (int)instr->stream,
                  start, clock_ns(), 0);
    return 0;
}

static void report(const struct run_state *run, struct step_output *output)
{
    const double *sums = address(run, run->program->sums);
    *output = (struct step_output){
        .loss = sums[SUM_TARGETS] > 0 ? sums[SUM_LOSS] / sums[SUM_TARGETS] : 0,
        .targets = sums[SUM_TARGETS],
        .grad_norm = grad_norm(run->input, sums),
        .votes = sums[SUM_STOP],
        .skipped = !isfinite(sums[SUM_SQUARES]),
    };
}

int execute(struct executor *x, const struct program *program, const struct step_input *input,
            struct step_output *output, struct trace *trace, struct error *err)
{
    struct run_state run = {.x = x,
                            .program = program,
                            .input = input,
                            .trace = trace,
                            .watch = {watch_op},
                            .err = err};
    for (int s = 0; s < STREAMS; s++)
        run.waited[s] = -1;
    x->sent_bytes = 0;
    for (int i = 0; i < program->instrs; i++)
        if (step(&run, i))
            return -1;
    for (int s = 0; s < STREAMS; s++)
        if (wait_for(&run, s, program->instrs - 1))
            return -1;
    if (output)
        report(&run, output);
    return 0;
}

int64_t executor_sent_bytes(const struct executor *x)
{
    return x->sent_bytes;
}

void *executor_buffer(const struct executor *x, const struct program *program, int buffer)
{
    return x->slab[program->buffer[buffer].pool] + program->buffer[buffer].offset;
}

static int create_slabs(struct executor *x, const struct program *const *programs, int count,
                        struct error *err)
{
    int instrs = 0;
    for (int i = 0; i < count; i++) {
        memory_join(x->slab_bytes, programs[i]);
        instrs = programs[i]->instrs > instrs ? programs[i]->instrs : instrs;
    }
    x->op = array_make((size_t)instrs, sizeof *x->op);
    for (int pool = 0; pool < POOL_COUNT; pool++) {
        if (!x->slab_bytes[pool])
            continue;
        x->slab[pool] = mem_alloc(x->mem, pool, x->slab_bytes[pool], err);
        if (!x->slab[pool])
            return -1;
    }
    return 0;
}

int executor_create(struct executor **out, struct device *device, struct mesh *mesh,
                    struct mem *mem, const struct program *const *programs, int count,
                    struct error *err)
{
    struct executor *x = array_make(1, sizeof *x);
    x->device = device;
    x->mem = mem;
    for (int axis = 0; mesh && axis < MESH_AXES; axis++)
        x->group[axis] = mesh_group(mesh, axis);
    x->group[GROUP_DATA] = mesh ? mesh_data(mesh) : NULL;
    if (create_slabs(x, programs, count, err)) {
        executor_destroy(x);
        return -1;
    }
    *out = x;
    return 0;
}

void executor_destroy(struct executor *x)
{
    if (!x)
        return;
    for (int pool = 0; pool < POOL_COUNT; pool++)
        mem_free(x->mem, pool, x->slab_bytes[pool], x->slab[pool]);
    free(x->op);
    free(x);
}
