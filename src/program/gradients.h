/* gradients.h - gradients from the runs that make them to what UPDATE uses: the part of the
 * sharding strategies (shard.h) that follows backward.
 *
 * A run writes the gradient of its unit, and adds to that of a unit it shares parameters with.
 * The first write replaces and later ones add: within a micro-batch where each micro-batch's
 * gradient leaves the run's buffer, reduced to the ranks' shards or because of where it lives;
 * else within the step.
 *
 * Gradients that live elsewhere (offload.gradients) are added to on the device, in a passing
 * buffer, by the same instructions as those that stay; in the list, of unit u and micro-batch m:
 *
 *   sharded   FETCH u (m > 0), RUN u, REDUCE u, RUN u-1, NORM u (the last m), SPILL u
 *   whole     FETCH u (m > 0), RUN u+1, RUN u, ALLREDUCE u (the last m), RUN u-1, NORM, SPILL
 *
 * so that transfers and copies overlap a run each; where nothing is summed over ranks, NORM and
 * SPILL follow the run itself.  UPDATE has them brought back, a unit ahead (update.c).
 */
#ifndef TRIREME_STEP_GRADIENTS_H
#define TRIREME_STEP_GRADIENTS_H

#include "program/shard.h"

/* Decide for all runs which of them begin, go on with and finish a gradient. */
void gradients_plan(const struct program *program, struct run *run, int runs);

/* Bind the buffers run r writes gradients to, and fetch what it and its reduction add to. */
void gradients_before(struct program *program, struct run *run, int runs, int r);

/* Write what follows run r: the sums over ranks of the gradients it finished, and the way home of
 * those of the run before. */
void gradients_after(struct program *program, struct run *run, int runs, int r);

/* Add a unit's gradient, complete in buffer, to the norm, on the rank that counts it. */
void gradients_norm(struct program *program, int unit, int buffer);

#endif
