/* shard.h - the sharding strategies, as what they weave into the list of runs.
 *
 * stage 0, NO_SHARD       every rank holds all: gradients accumulate whole, and an ALLREDUCE per
 *                         bucket of flats follows the last micro-batch's backward.
 * stage 1, SHARD_OPTIM    parameters and gradients whole; each rank updates its shard.  GATHER
 *                         before the first use in a step, REDUCE after the last micro-batch.
 * stage 2, SHARD_GRAD_OP  the same, but REDUCE of each micro-batch's gradient to the own shard.
 * stage 3, FULL_SHARD     GATHER before each use that does not follow the one before, RELEASE
 *                         after; REDUCE as in stage 2.  Of 16-bit parameters no shard is kept:
 *                         a CAST of the fp32 one goes before.
 * HYBRID_SHARD, HYBRID_SHARD_ZERO2: stages 3 and 2 within the shard axis, then an ALLREDUCE of the
 *                         shard's gradient over the replicas.
 *
 * On several pipeline stages FULL_SHARD keeps what it has gathered for the step, unless
 * parallel.pipeline_reshard says otherwise.
 *
 * struct layout_strategy (layout.h) says which; a shard axis of one is stage 0.  Small flats may be
 * whole in any of them (persist_below): their gradients are summed by an ALLREDUCE over all data
 * ranks.
 */
#ifndef TRIREME_PROGRAM_SHARD_H
#define TRIREME_PROGRAM_SHARD_H

#include "program/run.h"

/* Decide for all runs which flats they use and which of those they must gather. */
void shard_plan(const struct program *program, struct run *run, int runs);

/* Write the gathers run r and, by prefetch, the runs after it need; bind r's parameters.
 * gradients_before() comes after it. */
void shard_before(struct program *program, struct run *run, int runs, int r);

/* Write the gathers that are to follow the reductions of run r (gradients_after()). */
void shard_after(struct program *program, struct run *run, int runs, int r);

#endif
