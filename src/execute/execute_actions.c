/* execute_actions.c - what an instruction does where that is the same on all devices: an action for
 * each kind of instruction (step_actions, at the end), and what the actions of the two executors
 * share (run_*()). */
#include <math.h>

#include "base/philox.h"
#include "base/round.h"
#include "device/ops.h"
#include "execute/execute_private.h"
#include "segment/orthogonalize.h"

void *run_operand(const struct step_run *run, const struct instr *instr, int slot)
{
    int buffer = instr->buffer[slot];
    return buffer < 0 ? NULL : executor_buffer(run->x, &run->program->buffer[buffer]);
}

static int zero(struct step_run *run, int i)
{
    struct device *d = run->x->device;
    const double loss_scale = run->input->loss_scale;
    const double none = NAN; /* until SCALE there is nothing to update by */
    const double values[SUM_COUNT] = {[SUM_FACTOR] = none,
                                      [SUM_STOP] = run->input->stop_vote,
                                      [SUM_LOSS_SCALE] = loss_scale > 0 ? loss_scale : 1};
    const struct instr *instr = &run->program->instr[i];
    double *sums = run_operand(run, instr, SLOT_SUMS);
    d->ops->set(d, sums, values, SUM_COUNT);
    d->ops->fill_zero(d, sums + SUM_COUNT,
                      run->program->buffer[instr->buffer[SLOT_SUMS]].bytes - sizeof values);
    return 0;
}

/* Check the values of the rows of a micro-batch's sequence (NULL: there are none): that each is
 * from 0 to below limit; with a limit of 0, from the value of the row before to the row's own
 * position. */
static int check_rows(const struct step_run *run, const struct step_batch *batch, const char *what,
                      const int32_t *value, int sequence, int64_t limit)
{
    const struct units_request *r = &run->program->units->request;
    int64_t seq = program_seq(run->program, sequence), rows = program_batch(run->program) * seq;
    const struct sequence_part part = graph_sequence_part(seq, r->context);
    for (int64_t row = 0; value && row < rows; row++) {
        int64_t most = limit ? limit : sequence_position(&part, row % seq) + 1;
        int32_t least = limit || row % seq == 0 ? 0 : value[row - 1];
        if (value[row] < least || value[row] >= most)
            return error_set(run->err, "%s %d of row %lld, micro-batch %d, is not from %d to %lld",
                             what, value[row], (long long)row, batch->micro, least,
                             (long long)most - 1);
    }
    return 0;
}

/* Have the caller fill the positions, documents and samples of a batch, if it has some, and check
 * them. */
static int load_positions(const struct step_run *run, const struct step_batch *batch)
{
    const struct step_input *input = run->input;
    const char *what = batch->positions[0] || batch->positions[1]   ? "positions of rows"
                       : batch->documents[0] || batch->documents[1] ? "documents of rows"
                       : batch->samples[0] || batch->samples[1]     ? "the numbers of samples"
                                                                    : NULL;
    if (!what)
        return 0;
    if (!input->load_positions)
        return error_set(run->err, "the model reads %s, which this data does not have", what);
    if (input->load_positions(input->user, batch, run->err))
        return -1;
    const struct units *units = run->program->units;
    int64_t limit =
        program_generates(run->program) < 0 ? units->positions : units->generate_positions;
    for (int s = 0; s < SEQUENCES; s++)
        if (check_rows(run, batch, "position", batch->positions[s], s, limit) ||
            check_rows(run, batch, "document", batch->documents[s], s, 0))
            return -1;
    return 0;
}

int run_load(struct step_run *run, const struct instr *instr, int32_t *const to[LOAD_SLOTS])
{
    struct step_batch batch = {.micro = instr->micro};
    for (int s = 0; s < SEQUENCES; s++) {
        batch.tokens[s] = to[SLOT_LOAD_TOKENS + s];
        batch.positions[s] = to[SLOT_LOAD_POSITIONS + s];
        batch.documents[s] = to[SLOT_LOAD_DOCUMENTS + s];
        batch.samples[s] = (uint32_t *)to[SLOT_LOAD_SAMPLES + s];
        if (to[SLOT_LOAD_TARGETS + s])
            batch.targets = to[SLOT_LOAD_TARGETS + s];
    }
    if (run->input->load(run->input->user, &batch, run->err))
        return -1;
    return load_positions(run, &batch);
}

void run_bases(const struct step_run *run, const struct instr *instr, void *base[SPACE_COUNT])
{
    for (int s = 0; s < SPACE_COUNT; s++)
        base[s] = run_operand(run, instr, s);
}

size_t run_count_moved(struct step_run *run, const struct instr *instr)
{
    size_t bytes = run->program->buffer[instr->buffer[SLOT_FROM]].bytes;
    run->x->moved_bytes[instr->stream] += (int64_t)bytes;
    return bytes;
}

int run_segment(struct step_run *run, int i, struct segment_watch *watch)
{
    const struct instr *instr = &run->program->instr[i];
    const struct flat *flat[FLAT_USES];
    void *base[SPACE_COUNT];
    run_bases(run, instr, base);
    units_flats(run->program->units, instr->unit, flat);
    return segment_run_piece(program_segment(run->program, instr->unit, instr->phase), instr->piece,
                             run->program->units->model->unit[instr->unit].first, flat,
                             run->x->device, base, instr->accumulate, watch, run->err);
}

static int cast(struct step_run *run, int i)
{
    const struct instr *instr = &run->program->instr[i];
    struct device *d = run->x->device;
    d->ops->cast(d, instr->dtype, run_operand(run, instr, SLOT_TO), DTYPE_F32,
                 run_operand(run, instr, SLOT_FROM), instr->elems);
    return 0;
}

static int decode(struct step_run *run, int i)
{
    const struct instr *instr = &run->program->instr[i];
    struct device *d = run->x->device;
    d->ops->decode_nf4(d, instr->dtype, run_operand(run, instr, SLOT_TO),
                       run_operand(run, instr, SLOT_FROM), instr->elems);
    return 0;
}

static int add(struct step_run *run, int i)
{
    const struct instr *instr = &run->program->instr[i];
    struct device *d = run->x->device;
    void *to = run_operand(run, instr, SLOT_TO);
    d->ops->add(d, instr->dtype, to, to, run_operand(run, instr, SLOT_FROM), instr->elems);
    return 0;
}

/* Begin a transfer over a group; the mode ends it. */
static int transfer(struct step_run *run, int i)
{
    const struct instr *instr = &run->program->instr[i];
    enum comm_stream stream = step_streams[instr->stream].comm - 1;
    if (!step_streams[instr->stream].comm)
        return error_set(run->err, "no transfer can be on stream %s",
                         program_stream_name(instr->stream));
    struct group *group = mesh_group_of(run->x->mesh, instr->axes);
    struct comm_op *op = &run->x->op[i];
    void *to = run_operand(run, instr, SLOT_TO), *from = run_operand(run, instr, SLOT_FROM);
    int64_t elems = instr->elems;
    enum dtype dtype = instr->dtype;
    switch (instr->kind) {
    case INSTR_GATHER: group_all_gather(group, stream, op, to, from, elems, dtype); break;
    case INSTR_ALLREDUCE:
        group_all_reduce(group, stream, op, to, elems, dtype, instr->reduction);
        break;
    case INSTR_ALLTOALL:
        group_all_to_all(group, stream, op, to, from, &run->program->part[instr->first_part],
                         dtype);
        break;
    case INSTR_SEND: group_send(group, stream, op, from, elems, dtype, instr->peer); break;
    case INSTR_RECV: group_recv(group, stream, op, to, elems, dtype, instr->peer); break;
    case INSTR_REDUCE:
        group_reduce_scatter(group, stream, op, to, instr->result, from, elems, dtype,
                             (int)instr->accumulate);
        break;
    default: return error_set(run->err, "%s is no transfer", instr_name(instr->kind));
    }
    return 0;
}

static int norm(struct step_run *run, int i)
{
    const struct instr *instr = &run->program->instr[i];
    struct device *d = run->x->device;
    double *sums = run_operand(run, instr, SLOT_SUMS);
    d->ops->sumsq(d, sums + SUM_FLATS + instr->flat,
                  run->program->units->flat[instr->flat].grad_dtype,
                  run_operand(run, instr, SLOT_SHARD_GRAD), instr->elems);
    return 0;
}

/* SCALE: gradients were summed as if there were nominal_targets; the update is by the mean over the
 * targets that there were. */
static int scale(struct step_run *run, int i)
{
    struct device *d = run->x->device;
    double *sums = run_operand(run, &run->program->instr[i], SLOT_SUMS);
    d->ops->sum_from_last(d, sums + SUM_SQUARES, sums + SUM_FLATS, run->program->units->flats);
    d->ops->update_factor(d, sums + SUM_FACTOR, sums + SUM_TARGETS, sums + SUM_SQUARES,
                          sums + SUM_LOSS_SCALE, run->input->nominal_targets, run->input->clip);
    return 0;
}

/* The update of a flat's shard. */
struct update {
    struct device *device;
    const struct step_input *input;
    const struct optimizer *optimizer;
    enum dtype configured; /* train.optimizer_dtype */
    const double *factor;
    int64_t step; /* whose gradients these are */
    struct optimizer_range shard;
};

static void *plus(void *base, enum dtype dtype, int64_t elems)
{
    return (char *)base + (size_t)elems * dtype_bytes(dtype);
}

static int decays(const struct update *u, const struct flat_tensor *tensor)
{
    return u->input->decay_all || tensor->box.dims > 1;
}

/* Update elements [start, end) of the shard with one weight decay.  The first of them is of part's
 * tensor, whose name is the key of their random numbers, and lies in the whole tensor as `rows`
 * says. */
static void update_range(const struct update *u, const struct flat_part *part, struct box_rows rows,
                         int64_t start, int64_t end)
{
    struct optimizer_range range = u->shard;
    range.master = plus(range.master, range.master_dtype, start);
    for (int k = 0; k < u->optimizer->slots; k++)
        range.slot[k] = range.slot[k]
                            ? (char *)range.slot[k] +
                                  optimizer_slot_bytes(u->optimizer, k, start, u->configured)
                            : NULL;
    range.grad = (const char *)range.grad + (size_t)start * dtype_bytes(range.grad_dtype);
    range.param = range.param ? plus(range.param, range.param_dtype, start) : NULL;
    range.elems = end - start;
    range.rows = part->tensor->box.whole[0];
    range.cols = part->tensor->box.whole[1];
    range.decays = decays(u, part->tensor);
    range.rounding = (struct rounding){.key = philox_key(u->input->seed, part->tensor->name),
                                       .step = (uint64_t)u->step,
                                       .first = (uint64_t)rows.first,
                                       .run = rows.run < range.elems ? rows.run : 0,
                                       .stride = rows.stride};
    u->optimizer->update(u->device, &u->input->rule, u->factor, &range);
}

/* Update a part by itself, and the padding after it up to element `end` of the shard: the random
 * numbers of an element follow from its place in the whole tensor.  Rows at regular distances there
 * are one range. */
static void update_part(const struct update *u, const struct flat_part *part, int64_t end)
{
    int64_t from = part->start, left = part->count, start = part->at;
    while (left) {
        struct box_rows rows;
        int64_t count = min_i64(box_rows(&part->tensor->box, from, &rows), left);
        left -= count;
        update_range(u, part, rows, start, left ? start + count : end);
        from += count;
        start += count;
    }
}

/* Update a flat's shard.  Neighbouring tensors with the same decay, and the padding between them,
 * are one range, unless each tensor has its own random numbers or, by a rule of matrices, learning
 * rate.
 */
static void update_flat(const struct update *u, const struct flat *flat, int64_t shard_start)
{
    struct flat_part part, next;
    int64_t from = shard_start, to = from + u->shard.elems, start = 0;
    int apart = optimizer_rounds(&u->shard) || u->optimizer->of_matrices;
    int t = flat_next_part(flat, from, to, -1, &part);
    while (t >= 0) {
        t = flat_next_part(flat, from, to, t, &next);
        int64_t end = t < 0 ? u->shard.elems : next.at;
        if (apart) {
            update_part(u, &part, end);
        } else if (t < 0 || decays(u, next.tensor) != decays(u, part.tensor)) {
            update_range(u, &part, (struct box_rows){0}, start, end);
            start = end;
        }
        part = next;
    }
}

static int momentum(struct step_run *run, int i)
{
    const struct instr *instr = &run->program->instr[i];
    struct device *d = run->x->device;
    const double *sums = run_operand(run, instr, SLOT_SUMS);
    d->ops->momentum(d, &run->input->rule.momentum, sums + SUM_FACTOR,
                     run_operand(run, instr, SLOT_OPTIMIZER),
                     run_operand(run, instr, SLOT_SHARD_GRAD), instr->elems);
    return 0;
}

static int orthogonalize_flat(struct step_run *run, int i)
{
    const struct instr *instr = &run->program->instr[i];
    const struct flat *flat = &run->program->units->flat[instr->flat];
    float *matrices = run_operand(run, instr, SLOT_MATRICES);
    int64_t first = instr->first_elem[SLOT_MATRICES];
    struct flat_part part;
    for (int t = -1;
         (t = flat_next_part(flat, instr->from, instr->from + instr->elems, t, &part)) >= 0;) {
        const struct orthogonalize matrix = {.rows = part.tensor->box.whole[0],
                                             .cols = part.tensor->box.whole[1],
                                             .steps = run->input->rule.ns_steps,
                                             .dtype = run->input->rule.ns_dtype};
        if (orthogonalize(run->x->device, &matrix, matrices + part.tensor->offset - first,
                          run_operand(run, instr, SLOT_WORK), run->err))
            return -1;
    }
    return 0;
}

/* The number of the step whose gradients UPDATE uses: the one before, in a step that updates first.
 */
static int64_t updated_step(const struct step_run *run)
{
    int is_before = run->program->kind == PROGRAM_TRAIN && program_updates_first(run->program);
    return run->input->step - is_before;
}

static int update(struct step_run *run, int i)
{
    const struct instr *instr = &run->program->instr[i];
    const struct flat *flat = &run->program->units->flat[instr->flat];
    const double *sums = run_operand(run, instr, SLOT_SUMS);
    struct update u = {
        .device = instr->stream == STREAM_HOST ? run->x->host : run->x->device,
        .input = run->input,
        .optimizer = optimizer_row(flat->optimizer),
        .configured = run->program->layout->optimizer_dtype,
        .factor = sums + SUM_FACTOR,
        .step = updated_step(run),
        .shard = {.master_dtype = state_master_dtype(run->program->state),
                  .master = run_operand(run, instr, SLOT_MASTER),
                  .grad_dtype = flat->grad_dtype,
                  .grad = run_operand(run, instr, SLOT_SHARD_GRAD),
                  .param_dtype = run->program->units->request.dtype,
                  .param = run_operand(run, instr, SLOT_PARAM),
                  .elems = flat->shard_elems},
    };
    u.shard.slot_dtype = optimizer_slot_dtype(u.optimizer, 0, u.configured);
    for (int k = 0; k < u.optimizer->slots; k++)
        u.shard.slot[k] = run_operand(run, instr, SLOT_OPTIMIZER + k);
    device_ops_on(u.device, step_streams[instr->stream].device);
    update_flat(&u, flat, state_shard_start(run->program->state, instr->flat));
    device_ops_on(u.device, DEVICE_COMPUTE);
    return 0;
}

static int release(struct step_run *run, int i)
{
    return 0; /* the plan reuses the memory; nothing is done */
}

step_action *const step_actions[INSTR_KINDS] = {
    [INSTR_ZERO] = zero,          [INSTR_CAST] = cast,
    [INSTR_DECODE] = decode,      [INSTR_ADD] = add,
    [INSTR_GATHER] = transfer,    [INSTR_REDUCE] = transfer,
    [INSTR_ALLREDUCE] = transfer, [INSTR_ALLTOALL] = transfer,
    [INSTR_SEND] = transfer,      [INSTR_RECV] = transfer,
    [INSTR_NORM] = norm,          [INSTR_SCALE] = scale,
    [INSTR_MOMENTUM] = momentum,  [INSTR_ORTHOGONALIZE] = orthogonalize_flat,
    [INSTR_UPDATE] = update,      [INSTR_RELEASE] = release,
};
