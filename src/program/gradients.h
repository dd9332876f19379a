/* gradients.h - gradients from the runs that make them to what UPDATE uses: the part of the
 * sharding strategies (shard.h) that follows backward.
 *
 * Several runs write the gradient of a flat: those of several micro-batches, and those of several
 * units that use it.  Runs that write to one buffer, until it is summed over ranks or leaves it,
 * are a window (struct run_use).  In a window, or in the step where the sum stays in the buffer,
 * the first run to write a section of the flat replaces what is there, and later ones add.
 *
 * Gradients that live elsewhere (offload.gradients) are added to on the device, in a passing
 * buffer, by the same instructions as those that stay; in the list, of flat u, used by unit u, and
 * micro-batch m:
 *
 *   sharded   FETCH u (m > 0), RUN u, REDUCE u, RUN u-1, NORM u (the last m), SPILL u
 *   whole     FETCH u (m > 0), RUN u+1, RUN u, ALLREDUCE u (the last m), RUN u-1, NORM, SPILL
 *
 * so that transfers and copies overlap a run each; where nothing is summed over ranks, NORM and
 * SPILL follow the run itself.  They are fetched again for UPDATE, a flat ahead (update.c).
 */
#ifndef TRIREME_PROGRAM_GRADIENTS_H
#define TRIREME_PROGRAM_GRADIENTS_H

#include "program/run.h"

/* Decide for all runs which of them begin, go on with and finish a gradient. */
void gradients_plan(const struct program *program, struct run *run, int runs);

/* Bind the buffers run r writes gradients to, and fetch what it and its reduction add to. */
void gradients_before(struct program *program, struct run *run, int runs, int r);

/* Write what follows run r: the sums over ranks of the gradients it finished, and the copies that
 * take those of the run before to where they live. */
void gradients_after(struct program *program, struct run *run, int runs, int r);

/* Add a flat's gradient, complete in buffer, to the norm, on the rank that counts it. */
void gradients_norm(struct program *program, int flat, int buffer);

#endif
