/* gradients.c - which runs share a buffer for a gradient, and what becomes of it; see gradients.h.
 *
 * gradients_plan() goes through all runs once and notes, for each gradient a run writes, the run
 * before it in the same window, whether the window ends there, and which sections are added to.
 * gradients_before() and gradients_after() then write the instructions around each run by these
 * notes alone.
 */
#include "program/gradients.h"

#include <stdlib.h>

#include "base/array.h"
#include "program/offload.h"
#include "program/overlap_update.h"

/* Is a gradient reduced to its shard after every micro-batch? */
static int reduces_each(const struct program *program, int flat)
{
    const struct layout_strategy *strategy = &program->layout->strategy;
    return flat_is_sharded(&program->units->flat[flat]) && strategy->grads == GRADS_MICRO &&
           !strategy->accumulate_local;
}

/* Is the buffer of the whole gradient given up after every micro-batch, reduced or spilled? */
static int leaves_each(const struct program *program, int flat)
{
    return reduces_each(program, flat) ||
           (state_fetches_grads(program->state) && !flat_is_sharded(&program->units->flat[flat]));
}

/* What gradients_plan() knows of a flat's present window: one for each flat or, where gradients are
 * reduced after each micro-batch, for each flat and micro-batch. */
struct progress {
    struct run_use *use; /* of the last run that wrote the gradient; NULL: none yet */
    int run, micro;      /* that run and its micro-batch */
    unsigned written;    /* sections that hold a sum already, a bit each */
};

/* Windows of neighbouring micro-batches that are at most this many runs apart become one: a copy to
 * where the gradient lives and back would have no run to overlap. */
enum { RUNS_APART_MOST = 2 };

/* Let use k of run r, which writes a gradient, go on with the flat's present window or begin a new
 * one. */
static void plan_use(const struct program *program, struct progress *progress, struct run *run,
                     int r, int k)
{
    struct run_use *use = &run[r].use[k];
    const struct flat *flat = &program->units->flat[use->flat];
    int micro = reduces_each(program, use->flat) ? run[r].micro : 0;
    struct progress *p = &progress[use->flat * program->micros + micro];
    unsigned sections = segment_sections(run[r].segment, k, flat);
    int goes_on = p->use && (!leaves_each(program, use->flat) || p->micro == run[r].micro ||
                             r - p->run <= RUNS_APART_MOST);
    if (goes_on) {
        use->follows = p->run;
        p->use->finishes = 0;
    }
    for (int s = 0; s < flat->sections; s++)
        if (sections & p->written & 1u << s)
            run[r].accumulate |= segment_adds(k, s);
    use->resumes = !goes_on && p->written;
    use->finishes = 1;
    *p = (struct progress){use, r, run[r].micro, p->written | sections};
}

/* Note which window of each flat is the first, and which the last, to be finished in the step. */
static void plan_ends(const struct program *program, struct run *run, int runs)
{
    struct run_use **last = array_make((size_t)program->units->flats, sizeof(struct run_use *));
    for (int r = 0; r < runs; r++)
        for (int k = 0; k < run[r].uses; k++) {
            struct run_use *use = &run[r].use[k];
            if (!use->finishes)
                continue;
            use->is_first = !last[use->flat];
            use->is_last = 1;
            if (last[use->flat])
                last[use->flat]->is_last = 0;
            last[use->flat] = use;
        }
    free(last);
}

void gradients_plan(const struct program *program, struct run *run, int runs)
{
    size_t windows = (size_t)program->units->flats * (size_t)program->micros;
    struct progress *progress = array_make(windows, sizeof *progress);
    for (int r = 0; r < runs; r++)
        for (int k = 0; k < run[r].uses; k++)
            if (run[r].use[k].writes)
                plan_use(program, progress, run, r, k);
    plan_ends(program, run, runs);
    free(progress);
}

/* ---- to where they live ---- */

/* Replicated values are counted by one rank: the one at 0 on every axis over which they are
 * replicated. */
static int counts_norm(const struct program *program, int flat)
{
    const struct flat *of = &program->units->flat[flat];
    const struct units_request *r = &program->units->request;
    unsigned replicated = (r->data_axes | r->tensor.axes) & ~(of->shard_axes | of->divided_axes);
    for (int axis = 0; axis < MESH_AXES; axis++)
        if (replicated >> axis & 1 && program->state->coord.at[axis])
            return 0;
    return 1;
}

void gradients_norm(struct program *program, int flat, int buffer)
{
    if (!counts_norm(program, flat) || !state_owns(program->state, flat))
        return;
    overlap_update_before_sums(program);
    struct instr *instr = program_add_instr(program, INSTR_NORM, STREAM_COMPUTE);
    instr->flat = flat;
    instr->elems = program->units->flat[flat].shard_elems;
    instr_bind(instr, SLOT_SHARD_GRAD, buffer, ACCESS_READ);
    instr_bind(instr, SLOT_SUMS, program->state->sums, ACCESS_BOTH);
}

/* Write the copies that take the gradients which a run finished to where they live, and before them
 * the norm of those that are complete. */
static void spill_gradients(struct program *program, struct run *run)
{
    for (int k = 0; k < run->uses; k++) {
        struct run_use *use = &run->use[k];
        if (use->finished_grad < 0)
            continue;
        if (use->is_last)
            gradients_norm(program, use->flat, use->finished_grad);
        offload_spill(program, use->finished_grad, program->state->flat[use->flat].grad, use->flat,
                      run->micro);
        use->finished_grad = -1;
    }
}

/* ---- before a run ---- */

/* The buffer for the first run of a window: the state's, or a new one. */
static int new_gradient(struct program *program, const struct run *run, int flat)
{
    const struct state_flat *state = &program->state->flat[flat];
    const struct flat *of = &program->units->flat[flat];
    if (state->whole_grad >= 0)
        return state->whole_grad;
    if (!flat_is_sharded(&program->units->flat[flat]))
        return offload_temporary(program, state->grad, SIDE_DEVICE);
    return program_add_buffer(program, POOL_UNSHARDED,
                              (size_t)of->padded * dtype_bytes(of->grad_dtype), 0,
                              "%s.grad micro %d", of->name, run->micro);
}

/* Fetch the sum of the micro-batches before, for a run that adds to it. */
static void fetch_whole(struct program *program, struct run *run)
{
    for (int k = 0; k < run->uses; k++) {
        struct run_use *use = &run->use[k];
        if (use->writes && use->grad < 0 && use->resumes)
            use->grad = offload_fetch(program, program->state->flat[use->flat].grad, SIDE_DEVICE,
                                      use->flat, run->micro);
    }
}

/* A run's use of a flat; NULL: it has none. */
static const struct run_use *use_of(const struct run *run, int flat)
{
    for (int k = 0; k < run->uses; k++)
        if (run->use[k].flat == flat)
            return &run->use[k];
    return NULL;
}

/* Fetch the shard of each gradient that is reduced after run r, with the sum of the micro-batches
 * before, to which the reduction adds. */
static void fetch_shards(struct program *program, struct run *run, int r)
{
    for (int k = 0; k < run[r].uses && state_fetches_grads(program->state); k++) {
        struct run_use *use = &run[r].use[k];
        if (!use->finishes || use->is_first || !reduces_each(program, use->flat))
            continue;
        const struct run_use *before = r > 0 ? use_of(&run[r - 1], use->flat) : NULL;
        if (before && before->finished_grad >= 0)
            spill_gradients(program, &run[r - 1]);
        use->finished_grad = offload_fetch(program, program->state->flat[use->flat].grad,
                                           SIDE_DEVICE, use->flat, run[r].micro);
    }
}

void gradients_before(struct program *program, struct run *run, int runs, int r)
{
    fetch_whole(program, &run[r]);
    if (r + 1 < runs)
        fetch_whole(program, &run[r + 1]);
    fetch_shards(program, run, r);
    for (int k = 0; k < run[r].uses; k++) {
        struct run_use *use = &run[r].use[k];
        if (use->writes && use->grad < 0)
            use->grad = use->follows >= 0 ? use_of(&run[use->follows], use->flat)->grad
                                          : new_gradient(program, &run[r], use->flat);
    }
}

/* ---- after it ---- */

/* The axes over which a gradient is still to be summed when all micro-batches are in the rank's
 * shard. */
static unsigned lacking_axes(const struct program *program, int flat)
{
    const struct flat *of = &program->units->flat[flat];
    return of->sum_axes & ~of->shard_axes;
}

/* Sum a gradient over the axes it lacks: axes whose ranks divide layers one by one, then those of
 * MESH_DATA at once: replicate alone for a gradient in shards, all of them for a whole one. */
static void sum_axes(struct program *program, int flat, int micro, int buffer, int64_t elems)
{
    unsigned axes = lacking_axes(program, flat);
    enum dtype dtype = program->units->flat[flat].grad_dtype;
    for (int axis = 0; axis < MESH_AXES; axis++)
        if (axes & ~MESH_DATA & 1u << axis)
            program_add_all_reduce(program, flat, micro, 1u << axis, buffer, elems, dtype);
    if (axes & MESH_DATA)
        program_add_all_reduce(program, flat, micro,
                               axes & MESH_SHARDS ? MESH_DATA : 1u << MESH_REPLICATE, buffer, elems,
                               dtype);
}

/* Sum a gradient, whose last window is finished, over the axes it lacks; one in a bucket with the
 * others of that, when all of them are finished. */
static void sum_replicas(struct program *program, int flat, int micro, int sum)
{
    const struct state_flat *state = &program->state->flat[flat];
    if (state->bucket < 0) {
        sum_axes(program, flat, micro, sum, program->units->flat[flat].shard_elems);
        return;
    }
    const struct state_bucket *bucket = &program->state->bucket[state->bucket];
    if (++program->finished[state->bucket] == bucket->flats)
        sum_axes(program, flat, micro, bucket->buffer, bucket->elems);
}

/* The format in which a gradient travels to its shards: its own, where that is 16 bits. */
static enum dtype sent_dtype(const struct program *program, int flat)
{
    enum dtype own = program->units->flat[flat].grad_dtype;
    return own == DTYPE_F32 ? program->layout->reduce_dtype : own;
}

/* The buffer that is sent of the gradient in buffer `whole`: a copy rounded to the format in which
 * it travels, or `whole` itself. */
static int narrow_gradient(struct program *program, const struct run *run, int flat, int whole)
{
    int64_t elems = program->units->flat[flat].padded;
    enum dtype dtype = sent_dtype(program, flat);
    if (dtype == program->units->flat[flat].grad_dtype)
        return whole;
    int narrow =
        program_add_buffer(program, POOL_UNSHARDED, (size_t)elems * dtype_bytes(dtype), 0,
                           "%s.grad sent micro %d", program->units->flat[flat].name, run->micro);
    program_add_cast(program, flat, run->micro, whole, narrow, elems, dtype);
    return narrow;
}

static void reduce(struct program *program, const struct run *run, const struct run_use *use,
                   int sum)
{
    int adds = reduces_each(program, use->flat) && !use->is_first;
    int sent = narrow_gradient(program, run, use->flat, use->grad);
    struct instr *instr = program_add_instr(program, INSTR_REDUCE, STREAM_REDUCE);
    instr->flat = use->flat;
    instr->micro = run->micro;
    instr->axes = program->units->flat[use->flat].shard_axes;
    instr->elems = program->units->flat[use->flat].shard_elems;
    instr->dtype = sent_dtype(program, use->flat);
    instr->result = program->units->flat[use->flat].grad_dtype;
    instr->accumulate = (uint64_t)adds;
    /* A transport may use the memory of `from` for its sums, where it is fp32. */
    instr_bind(instr, SLOT_FROM, sent, adds && sent == use->grad ? ACCESS_BOTH : ACCESS_READ);
    instr_bind(instr, SLOT_TO, sum, adds ? ACCESS_BOTH : ACCESS_WRITE);
}

/* The buffer that holds a finished gradient after it was reduced: of a split flat that of the
 * shard, else the one that the runs wrote. */
static int finished_buffer(struct program *program, const struct run_use *use)
{
    int own = program->state->flat[use->flat].grad;
    if (!flat_is_sharded(&program->units->flat[use->flat]))
        return use->grad;
    if (!state_fetches_grads(program->state))
        return own;
    return use->finished_grad >= 0 ? use->finished_grad
                                   : offload_temporary(program, own, SIDE_DEVICE);
}

void gradients_after(struct program *program, struct run *run, int runs, int r)
{
    int transfers = 0;
    for (int k = 0; k < run[r].uses; k++) {
        struct run_use *use = &run[r].use[k];
        if (!use->finishes)
            continue;
        int sum = finished_buffer(program, use);
        if (flat_is_sharded(&program->units->flat[use->flat]))
            reduce(program, &run[r], use, sum);
        if (use->is_last)
            sum_replicas(program, use->flat, run[r].micro, sum);
        transfers |= flat_is_sharded(&program->units->flat[use->flat]) ||
                     (use->is_last && lacking_axes(program, use->flat));
        use->finished_grad = sum;
    }
    if (!state_fetches_grads(program->state))
        return;
    if (r > 0)
        spill_gradients(program, &run[r - 1]);
    if (!transfers || r + 1 == runs)
        spill_gradients(program, &run[r]);
}
