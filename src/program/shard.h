/* shard.h - the sharding strategies, as what they weave into the list of runs.
 *
 * stage 0, NO_SHARD       every rank holds all: gradients accumulate whole, and an ALLREDUCE per
 *                         bucket of units follows the last micro-batch's backward.
 * stage 1, SHARD_OPTIM    parameters and gradients whole; each rank updates its shard.  GATHER
 *                         before the first use in a step, REDUCE after the last micro-batch.
 * stage 2, SHARD_GRAD_OP  the same, but REDUCE of each micro-batch's gradient to the own shard.
 * stage 3, FULL_SHARD     GATHER before each use that does not follow the one before, RELEASE
 *                         after; REDUCE as in stage 2.  Of 16-bit parameters no shard is kept:
 *                         a CAST of the fp32 one goes before.
 * HYBRID_SHARD, HYBRID_SHARD_ZERO2: stages 3 and 2 within the shard axis, then an ALLREDUCE of the
 *                         shard's gradient over the replicas.
 *
 * struct strategy (program.h) says which; a shard axis of one is stage 0.  Small units may be whole
 * in any of them (persist_below): their gradients are summed by an ALLREDUCE over all data ranks.
 */
#ifndef TRIREME_STEP_SHARD_H
#define TRIREME_STEP_SHARD_H

#include "program/offload.h"
#include "program/program.h"

/* One RUN to be written. */
struct run {
    enum segment_phase phase;
    const struct segment *segment;
    int unit, micro;
    int param, shared;     /* buffers to compute with; -1: not gathered yet or not read */
    int gather[2];         /* flat parameters whose gather must precede this run, or -1 */
    int fetched[2];        /* their shards, where those were far; -1: not fetched yet */
    int grad, shared_grad; /* buffers, or -1 */
    unsigned accumulate;   /* bits of SPACE_GRAD and SPACE_SHARED_GRAD */
    int follows[2];        /* run of this micro-batch that wrote the same gradient, or -1 */
    int finishes[2];       /* units whose gradient it has written last in a micro-batch, or -1 */
    int sum[2];            /* where those are summed, until they are home; or -1 */
};

/* Decide for all runs which need a gather and which finish a gradient. */
void shard_plan(const struct program *program, struct run *run, int runs);

/* Write the gathers run r and, by prefetch, the runs after it need; bind r's parameters. */
void shard_before(struct program *program, struct run *run, int runs, int r);

/* Write what follows run r: reductions of the gradients it finished, and gathers. */
void shard_after(struct program *program, struct run *run, int runs, int r);

/* Append a CAST of elements on behalf of a run. */
void shard_cast(struct program *program, const struct run *run, int unit, int from, int to,
                int64_t elems, enum dtype dtype);

/* Is the parameter sharded in this program? */
static inline int shard_is_sharded(const struct program *program)
{
    return program->request.shape.degree[MESH_SHARD] > 1;
}

/* Are parameters brought together, or near, before they are used? */
static inline int shard_gathers(const struct program *program)
{
    return shard_is_sharded(program) || offload_fetches_params(program);
}

/* The same of one unit: a small one may be whole where others are sharded. */
static inline int shard_splits(const struct program *program, int unit)
{
    return flat_is_sharded(&program->units->flat[unit]);
}

/* Is what is gathered cast from the masters each time, so that no 16-bit shard is kept?  Where
 * parameters are gathered for each use, and the masters are where that happens. */
static inline int shard_casts_unit(const struct program *program, int unit)
{
    const struct program_request *request = &program->request;
    enum mem_pool masters = offload_pool(request->offload.optimizer, POOL_OPTIMIZER);
    return request->training && request->strategy.params == PARAMS_USE &&
           request->offload.params == OFFLOAD_NONE &&
           offload_side(program, masters) == SIDE_DEVICE &&
           program->units->request.dtype != program_master_dtype(program) &&
           shard_splits(program, unit);
}

static inline int shard_gathers_unit(const struct program *program, int unit)
{
    return shard_splits(program, unit) || offload_fetches_params(program);
}

#endif
