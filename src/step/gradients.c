/* gradients.c - see gradients.h. */
#include "step/gradients.h"

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

/* Is a gradient reduced to its shard after every micro-batch? */
static int reduces_each(const struct program *program, int unit)
{
    const struct strategy *strategy = &program->request.strategy;
    return shard_splits(program, unit) && strategy->grads == GRADS_MICRO &&
           !strategy->accumulate_local;
}

/* The first write of a gradient replaces, later ones add: within a micro-batch where it is
 * reduced each time, within the step where it stays. */
void gradients_plan(const struct program *program, struct run *run, int runs)
{
    int *last = array_make((size_t)program->units->count, sizeof *last); /* run + 1 */
    for (int r = 0; r < runs; r++)
        for (int k = 0; k < 2; k++) {
            int unit = written(program, &run[r], k);
            run[r].finishes[k] = unit;
            run[r].follows[k] = -1;
            if (unit < 0)
                continue;
            int before = last[unit] - 1;
            int follows =
                before >= 0 && (!reduces_each(program, unit) || run[before].micro == run[r].micro);
            if (follows) {
                run[r].follows[k] = before;
                run[before].finishes[run[before].finishes[0] == unit ? 0 : 1] = -1;
            }
            if (follows)
                run[r].accumulate |= 1u << (k ? SPACE_SHARED_GRAD : SPACE_GRAD);
            last[unit] = r + 1;
        }
    free(last);
}

static int new_gradient(struct program *program, const struct run *run, int unit)
{
    if (program->state[unit].whole_grad >= 0)
        return program->state[unit].whole_grad;
    size_t bytes = (size_t)program->units->flat[unit].padded * sizeof(float);
    return program_buffer(program, POOL_UNSHARDED, bytes, 0, "%sgrad micro %d",
                          program->units->model->unit[unit].prefix, run->micro);
}

/* The buffer in which run `from` has the gradient of unit. */
static int gradient_of(const struct program *program, const struct run *from, int unit)
{
    return written(program, from, 0) == unit ? from->grad : from->shared_grad;
}

void gradients_before(struct program *program, struct run *run, int r)
{
    for (int k = 0; k < 2; k++) {
        int unit = written(program, &run[r], k), from = run[r].follows[k];
        int *grad = k ? &run[r].shared_grad : &run[r].grad;
        if (unit >= 0)
            *grad = from >= 0 ? gradient_of(program, &run[from], unit)
                              : new_gradient(program, &run[r], unit);
    }
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

/* Unit's gradient of the step is complete in this replica, or on this rank where it is whole. */
static void sum_replicas(struct program *program, int unit, int micro)
{
    const struct unit_state *state = &program->state[unit];
    if (program->request.shape.degree[MESH_REPLICATE] < 2 &&
        (!shard_is_sharded(program) || shard_splits(program, unit)))
        return;
    if (state->bucket < 0) {
        all_reduce(program, unit, micro, state->grad, program->units->flat[unit].shard_elems);
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

static void reduce(struct program *program, const struct run *run, int unit, int whole)
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
    instr_bind(instr, SLOT_TO, program->state[unit].grad, adds ? ACCESS_BOTH : ACCESS_WRITE);
}

void gradients_after(struct program *program, struct run *run, int r)
{
    int last = run[r].micro == program->request.micros - 1;
    for (int k = 0; k < 2; k++) {
        int unit = run[r].finishes[k];
        if (unit < 0)
            continue;
        if (shard_splits(program, unit) && (last || reduces_each(program, unit)))
            reduce(program, &run[r], unit, k ? run[r].shared_grad : run[r].grad);
        if (last)
            sum_replicas(program, unit, run[r].micro);
    }
}
