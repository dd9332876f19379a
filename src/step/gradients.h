/* gradients.h - gradients from the runs that make them to what UPDATE uses: the part of the
 * sharding strategies (shard.h) that follows backward.
 *
 * A run writes the gradient of its unit, and adds to that of a unit it shares parameters with.
 * The first write replaces and later ones add: within a micro-batch where each micro-batch's
 * gradient is reduced to the ranks' shards, else within the step.
 */
#ifndef TRIREME_STEP_GRADIENTS_H
#define TRIREME_STEP_GRADIENTS_H

#include "step/shard.h"

/* Decide for all runs which of them begin, go on with and finish a gradient. */
void gradients_plan(const struct program *program, struct run *run, int runs);

/* Bind the buffers run r writes gradients to. */
void gradients_before(struct program *program, struct run *run, int r);

/* Write what follows run r: the sums over ranks of the gradients it finished. */
void gradients_after(struct program *program, struct run *run, int r);

#endif
