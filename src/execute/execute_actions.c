/* execute_actions.c - what each kind of instruction does, on any device. */
#include "base/philox.h"
#include "device/ops.h"
#include "execute/execute_private.h"

void *run_operand(const struct run_state *run, const struct instr *instr, int slot)
{
    int buffer = instr->buffer[slot];
    return buffer < 0 ? NULL : executor_buffer(run->x, run->program, buffer);
}

static int do_zero(struct run_state *run, int i)
{
    struct device *d = run->x->device;
    const double scale = run->input->loss_scale;
    const double values[SUM_COUNT] = {
        [SUM_STOP] = run->input->stop_vote, [SUM_LOSS_SCALE] = scale > 0 ? scale : 1};
    d->ops->set(d, run_operand(run, &run->program->instr[i], SLOT_SUMS), values, SUM_COUNT);
    return 0;
}

static int do_load(struct run_state *run, int i)
{
    const struct instr *instr = &run->program->instr[i];
    return run->x->mode->load(run, instr->micro, run_operand(run, instr, SLOT_LOAD_TOKENS),
                              run_operand(run, instr, SLOT_LOAD_TARGETS));
}

void run_bases(const struct run_state *run, const struct instr *instr, void *base[SPACE_COUNT])
{
    for (int s = 0; s < SPACE_COUNT; s++)
        base[s] = run_operand(run, instr, s);
}

int run_segment(struct run_state *run, int i, struct segment_watch *watch)
{
    const struct instr *instr = &run->program->instr[i];
    void *base[SPACE_COUNT];
    run_bases(run, instr, base);
    return segment_run(program_segment(run->program, instr->unit, instr->phase), run->x->device,
                       base, instr->accumulate, watch, run->err);
}

static int do_run(struct run_state *run, int i)
{
    return run->x->mode->run(run, i);
}

static int do_cast(struct run_state *run, int i)
{
    const struct instr *instr = &run->program->instr[i];
    struct device *d = run->x->device;
    d->ops->cast(d, instr->dtype, run_operand(run, instr, SLOT_TO), DTYPE_F32,
                 run_operand(run, instr, SLOT_FROM), instr->elems);
    return 0;
}

static int do_gather(struct run_state *run, int i)
{
    const struct instr *instr = &run->program->instr[i];
    group_all_gather(run->x->group[instr->group], COMM_GATHER, &run->x->op[i],
                     run_operand(run, instr, SLOT_TO), run_operand(run, instr, SLOT_FROM),
                     instr->elems, instr->dtype);
    return 0;
}

static int do_reduce(struct run_state *run, int i)
{
    const struct instr *instr = &run->program->instr[i];
    group_reduce_scatter(run->x->group[instr->group], COMM_REDUCE, &run->x->op[i],
                         run_operand(run, instr, SLOT_TO), run_operand(run, instr, SLOT_FROM),
                         instr->elems, instr->dtype, (int)instr->accumulate);
    return 0;
}

static int do_all_reduce(struct run_state *run, int i)
{
    const struct instr *instr = &run->program->instr[i];
    group_all_reduce(run->x->group[instr->group], COMM_REDUCE, &run->x->op[i],
                     run_operand(run, instr, SLOT_TO), instr->elems, instr->dtype);
    return 0;
}

static int do_send(struct run_state *run, int i)
{
    const struct instr *instr = &run->program->instr[i];
    group_send(run->x->group[instr->group], COMM_POINT, &run->x->op[i],
               run_operand(run, instr, SLOT_FROM), instr->elems, instr->dtype, instr->peer);
    return 0;
}

static int do_recv(struct run_state *run, int i)
{
    const struct instr *instr = &run->program->instr[i];
    group_recv(run->x->group[instr->group], COMM_POINT, &run->x->op[i],
               run_operand(run, instr, SLOT_TO), instr->elems, instr->dtype, instr->peer);
    return 0;
}

static int do_norm(struct run_state *run, int i)
{
    const struct instr *instr = &run->program->instr[i];
    struct device *d = run->x->device;
    double *sums = run_operand(run, instr, SLOT_SUMS);
    d->ops->sumsq(d, sums + SUM_SQUARES, run_operand(run, instr, SLOT_SHARD_GRAD), instr->elems);
    return 0;
}

/* Gradients were summed as if there were nominal_targets; the mean is over those there were. */
static int do_scale(struct run_state *run, int i)
{
    struct device *d = run->x->device;
    double *sums = run_operand(run, &run->program->instr[i], SLOT_SUMS);
    d->ops->update_factor(d, sums + SUM_FACTOR, sums + SUM_TARGETS, sums + SUM_SQUARES,
                          sums + SUM_LOSS_SCALE, run->input->nominal_targets, run->input->clip);
    return 0;
}

/* The update of a unit's shard. */
struct update {
    struct device *device;
    const struct step_input *input;
    const struct optimizer *optimizer;
    const struct optimizer_rule *rule;
    const double *factor;
    struct optimizer_range shard;
    int64_t shard_start;
};

static void *plus(void *base, enum dtype dtype, int64_t elems)
{
    return (char *)base + (size_t)elems * dtype_bytes(dtype);
}

/* The part [start, end) of the unit's flat parameter that is in this shard, updated with one
 * weight decay; start is that of tensor, which names its random numbers. */
static void update_range(struct update *u, const struct flat_tensor *tensor, int64_t start,
                         int64_t end, int decays)
{
    struct optimizer_range part = u->shard;
    int64_t skipped = u->shard_start > start ? u->shard_start - start : 0;
    start = start > u->shard_start ? start - u->shard_start : 0;
    end = end - u->shard_start < part.elems ? end - u->shard_start : part.elems;
    if (start >= end)
        return;
    part.master = plus(part.master, part.master_dtype, start);
    for (int k = 0; k < u->optimizer->slots; k++)
        part.slot[k] = plus(part.slot[k], part.slot_dtype, start);
    part.grad += start;
    part.param = part.param ? plus(part.param, part.param_dtype, start) : NULL;
    part.elems = end - start;
    part.decays = decays;
    part.rounding = (struct rounding){philox_key(u->input->seed, tensor->name),
                                      (uint64_t)u->input->step, (uint64_t)skipped};
    u->optimizer->update(u->device, u->rule, u->factor, &part);
}

/* Neighbouring tensors that agree on decay, with the padding between, are one range, unless each
 * has random numbers of its own. */
static void update_unit(struct update *u, const struct flat *flat)
{
    int64_t start = 0;
    int decay_all = u->input->decay_all, rounds = optimizer_rounds(&u->shard);
    for (int t = 0; t < flat->tensors; t++) {
        int decays = decay_all || flat->tensor[t].dims > 1;
        int last = t + 1 == flat->tensors;
        int changes = last || rounds || decays != (decay_all || flat->tensor[t + 1].dims > 1);
        if (!changes)
            continue;
        int64_t end = last ? flat->padded : flat->tensor[t + 1].offset;
        update_range(u, &flat->tensor[t], start, end, decays);
        start = end;
    }
}

static int do_update(struct run_state *run, int i)
{
    const struct instr *instr = &run->program->instr[i];
    const struct flat *flat = &run->program->units->flat[instr->unit];
    const double *sums = run_operand(run, instr, SLOT_SUMS);
    struct update u = {
        .device = instr->stream == STREAM_HOST ? run->x->host : run->x->device,
        .input = run->input,
        .optimizer = optimizer_row(run->program->request.optimizer),
        .rule = &run->input->rule,
        .factor = sums + SUM_FACTOR,
        .shard = {.master_dtype = program_master_dtype(run->program),
                  .slot_dtype = run->program->request.optimizer_dtype,
                  .master = run_operand(run, instr, SLOT_MASTER),
                  .grad = run_operand(run, instr, SLOT_SHARD_GRAD),
                  .param_dtype = run->program->units->request.dtype,
                  .param = run_operand(run, instr, SLOT_PARAM),
                  .elems = flat->shard_elems},
        .shard_start = flat_shard_start(flat, run->program->request.coord.at[MESH_SHARD]),
    };
    for (int k = 0; k < u.optimizer->slots; k++)
        u.shard.slot[k] = run_operand(run, instr, SLOT_OPTIMIZER + k);
    update_unit(&u, flat);
    return 0;
}

static int do_copy(struct run_state *run, int i)
{
    const struct instr *instr = &run->program->instr[i];
    size_t bytes = run->program->buffer[instr->buffer[SLOT_FROM]].bytes;
    run->x->moved_bytes[instr->stream] += (int64_t)bytes;
    return run->x->mode->copy(run, i);
}

static int do_release(struct run_state *run, int i)
{
    return 0; /* the plan reuses the memory; nothing is done */
}

int (*const run_action[INSTR_KINDS])(struct run_state *run, int index) = {
    [INSTR_ZERO] = do_zero,     [INSTR_LOAD] = do_load,     [INSTR_RUN] = do_run,
    [INSTR_GATHER] = do_gather, [INSTR_REDUCE] = do_reduce, [INSTR_ALLREDUCE] = do_all_reduce,
    [INSTR_SEND] = do_send,     [INSTR_RECV] = do_recv,     [INSTR_FETCH] = do_copy,
    [INSTR_SPILL] = do_copy,    [INSTR_NORM] = do_norm,     [INSTR_SCALE] = do_scale,
    [INSTR_CAST] = do_cast,     [INSTR_UPDATE] = do_update, [INSTR_RELEASE] = do_release,
};
