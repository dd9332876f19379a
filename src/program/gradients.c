/* gradients.c - see gradients.h. */
#include "program/gradients.h"

#include <stdlib.h>

#include "base/array.h"

static int writes(const struct run *run, enum segment_space space)
{
    return run->segment->writes >> space & 1;
}

/* The unit whose gradient run writes as its own / by sharing, or -1. */
static int written(const struct program *program, const struct run *run, int by_sharing)
{
    if (!writes(run, by_sharing ? SPACE_SHARED_GRAD : SPACE_GRAD))
        return -1;
    return by_sharing ? units_shared(program->units, run->unit) : run->unit;
}

static unsigned accumulate_bit(int by_sharing)
{
    return 1u << (by_sharing ? SPACE_SHARED_GRAD : SPACE_GRAD);
}

static int *grad_of(struct run *run, int by_sharing)
{
    return by_sharing ? &run->shared_grad : &run->grad;
}

/* Is a gradient reduced to its shard after every micro-batch? */
static int reduces_each(const struct program *program, int unit)
{
    const struct strategy *strategy = &program->request.strategy;
    return shard_splits(program, unit) && strategy->grads == GRADS_MICRO &&
           !strategy->accumulate_local;
}

/* Does the buffer runs write it to end with every micro-batch? */
static int leaves_each(const struct program *program, int unit)
{
    return reduces_each(program, unit) ||
           (offload_fetches_grads(program) && !shard_splits(program, unit));
}

void gradients_plan(const struct program *program, struct run *run, int runs)
{
    int *last = array_make((size_t)program->units->count, sizeof *last); /* run + 1 */
    for (int r = 0; r < runs; r++)
        for (int k = 0; k < 2; k++) {
            int unit = written(program, &run[r], k);
            run[r].grad = run[r].shared_grad = run[r].sum[k] = run[r].follows[k] = -1;
            run[r].finishes[k] = unit;
            if (unit < 0)
                continue;
            int before = last[unit] - 1;
            int follows =
                before >= 0 && (!leaves_each(program, unit) || run[before].micro == run[r].micro);
            if (follows) {
                run[r].follows[k] = before;
                run[before].finishes[run[before].finishes[0] == unit ? 0 : 1] = -1;
            }
            if (follows || (before >= 0 && !reduces_each(program, unit)))
                run[r].accumulate |= accumulate_bit(k);
            last[unit] = r + 1;
        }
    free(last);
}

/* ---- before a run ---- */

static int new_gradient(struct program *program, const struct run *run, int unit)
{
    const struct unit_state *state = &program->state[unit];
    if (state->whole_grad >= 0)
        return state->whole_grad;
    if (!shard_splits(program, unit))
        return offload_near(program, state->grad, SIDE_DEVICE);
    size_t bytes = (size_t)program->units->flat[unit].padded * sizeof(float);
    return program_buffer(program, POOL_UNSHARDED, bytes, 0, "%sgrad micro %d",
                          program->units->model->unit[unit].prefix, run->micro);
}

/* The sum of the micro-batches before, brought for a run that begins with it. */
static void fetch_whole(struct program *program, struct run *run)
{
    for (int k = 0; k < 2; k++) {
        int unit = written(program, run, k), *grad = grad_of(run, k);
        if (unit >= 0 && *grad < 0 && run->follows[k] < 0 && run->accumulate & accumulate_bit(k))
            *grad =
                offload_bring(program, program->state[unit].grad, SIDE_DEVICE, unit, run->micro);
    }
}

/* The same for a reduction to the shard. */
static void fetch_shards(struct program *program, struct run *run)
{
    for (int k = 0; k < 2; k++) {
        int unit = run->finishes[k];
        if (unit >= 0 && run->micro > 0 && reduces_each(program, unit))
            run->sum[k] =
                offload_bring(program, program->state[unit].grad, SIDE_DEVICE, unit, run->micro);
    }
}

/* The buffer in which run `from` has the gradient of unit. */
static int gradient_of(const struct program *program, const struct run *from, int unit)
{
    return written(program, from, 0) == unit ? from->grad : from->shared_grad;
}

void gradients_before(struct program *program, struct run *run, int runs, int r)
{
    fetch_whole(program, &run[r]);
    if (r + 1 < runs)
        fetch_whole(program, &run[r + 1]);
    fetch_shards(program, &run[r]);
    for (int k = 0; k < 2; k++) {
        int unit = written(program, &run[r], k), from = run[r].follows[k];
        int *grad = grad_of(&run[r], k);
        if (unit >= 0 && *grad < 0)
            *grad = from >= 0 ? gradient_of(program, &run[from], unit)
                              : new_gradient(program, &run[r], unit);
    }
}

/* ---- after it ---- */

/* Is a unit's gradient, once complete in this replica or on this rank, a sum that lacks others? */
static int lacks_ranks(const struct program *program, int unit)
{
    return program->request.shape.degree[MESH_REPLICATE] > 1 ||
           (shard_is_sharded(program) && !shard_splits(program, unit));
}

static void all_reduce(struct program *program, int unit, int micro, int buffer, int64_t elems)
{
    int whole = shard_is_sharded(program) && !shard_splits(program, unit);
    int index = program_instr(program, INSTR_ALLREDUCE, STREAM_REDUCE);
    struct instr *instr = &program->instr[index];
    instr->unit = unit;
    instr->micro = micro;
    instr->group = whole ? GROUP_DATA : MESH_REPLICATE;
    instr->elems = elems;
    instr->dtype = DTYPE_F32;
    instr_bind(instr, SLOT_TO, buffer, ACCESS_BOTH);
}

static void sum_replicas(struct program *program, int unit, int micro, int sum)
{
    const struct unit_state *state = &program->state[unit];
    if (!lacks_ranks(program, unit))
        return;
    if (state->bucket < 0) {
        all_reduce(program, unit, micro, sum, program->units->flat[unit].shard_elems);
        return;
    }
    struct bucket *bucket = &program->bucket[state->bucket];
    if (++bucket->finished == bucket->units)
        all_reduce(program, unit, micro, bucket->buffer, bucket->elems);
}

/* The gradient in whole as it is sent: rounded, so that half the bytes travel. */
static int narrow_gradient(struct program *program, const struct run *run, int unit, int whole)
{
    int64_t elems = program->units->flat[unit].padded;
    enum dtype dtype = program->request.reduce_dtype;
    if (dtype == DTYPE_F32)
        return whole;
    int narrow = program_buffer(program, POOL_UNSHARDED, (size_t)elems * dtype_bytes(dtype), 0,
                                "%sgrad sent micro %d", program->units->model->unit[unit].prefix,
                                run->micro);
    shard_cast(program, run, unit, whole, narrow, elems, dtype);
    return narrow;
}

static void reduce(struct program *program, const struct run *run, int unit, int whole, int sum)
{
    int adds = reduces_each(program, unit) && run->micro > 0;
    int sent = narrow_gradient(program, run, unit, whole);
    int index = program_instr(program, INSTR_REDUCE, STREAM_REDUCE);
    struct instr *instr = &program->instr[index];
    instr->unit = unit;
    instr->micro = run->micro;
    instr->group = MESH_SHARD;
    instr->elems = program->units->flat[unit].shard_elems;
    instr->dtype = program->request.reduce_dtype;
    instr->accumulate = (unsigned)adds;
    /* A transport may use the memory of `from` for its sums, where it is fp32. */
    instr_bind(instr, SLOT_FROM, sent, adds && sent == whole ? ACCESS_BOTH : ACCESS_READ);
    instr_bind(instr, SLOT_TO, sum, adds ? ACCESS_BOTH : ACCESS_WRITE);
}

/* Where a unit's gradient, whole in one buffer, is summed. */
static int sum_buffer(struct program *program, const struct run *run, int k, int whole)
{
    int unit = run->finishes[k], home = program->state[unit].grad;
    if (!shard_splits(program, unit))
        return whole;
    if (!offload_fetches_grads(program))
        return home;
    return run->sum[k] >= 0 ? run->sum[k] : offload_near(program, home, SIDE_DEVICE);
}

static int is_last(const struct program *program, const struct run *run)
{
    return run->micro == program->request.micros - 1;
}

/* What several ranks hold alike, all of a unit that is whole or replicas of its shard, the first of
 * them counts. */
static int counts_norm(const struct program *program, int unit)
{
    const int *at = program->request.coord.at;
    return at[MESH_REPLICATE] == 0 && (shard_splits(program, unit) || at[MESH_SHARD] == 0);
}

void gradients_norm(struct program *program, int unit, int buffer)
{
    if (!counts_norm(program, unit))
        return;
    int index = program_instr(program, INSTR_NORM, STREAM_COMPUTE);
    struct instr *instr = &program->instr[index];
    instr->unit = unit;
    instr->elems = program->units->flat[unit].shard_elems;
    instr_bind(instr, SLOT_SHARD_GRAD, buffer, ACCESS_READ);
    instr_bind(instr, SLOT_SUMS, program->sums, ACCESS_BOTH);
}

/* The gradients that a run finished go home, those of the step measured. */
static void put_away(struct program *program, struct run *run)
{
    for (int k = 0; k < 2; k++) {
        int unit = run->finishes[k], sum = run->sum[k];
        if (sum < 0)
            continue;
        if (is_last(program, run))
            gradients_norm(program, unit, sum);
        offload_take(program, sum, program->state[unit].grad, unit, run->micro);
        run->sum[k] = -1;
    }
}

void gradients_after(struct program *program, struct run *run, int runs, int r)
{
    int last = is_last(program, &run[r]), transfers = 0;
    for (int k = 0; k < 2; k++) {
        int unit = run[r].finishes[k];
        if (unit < 0)
            continue;
        int whole = *grad_of(&run[r], k), sum = sum_buffer(program, &run[r], k, whole);
        if (shard_splits(program, unit))
            reduce(program, &run[r], unit, whole, sum);
        if (last)
            sum_replicas(program, unit, run[r].micro, sum);
        transfers |= shard_splits(program, unit) || (last && lacks_ranks(program, unit));
        run[r].sum[k] = sum;
    }
    if (!offload_fetches_grads(program))
        return;
    if (r > 0)
        put_away(program, &run[r - 1]);
    if (!transfers || r + 1 == runs)
        put_away(program, &run[r]);
}
