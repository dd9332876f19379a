/* offload.h - state that lives where ops cannot work on it: copied up before use, down after.
 *
 * Where state lives is a matter of pools (state.c).  Here are the copies that follow from it, woven
 * in where parameters are gathered (shard.c), where gradients are summed (gradients.c) and around
 * UPDATE (update.c): FETCH towards the device, SPILL away from it.
 *
 * Optimizer state that lives on the host is updated there.  Where the host's memory is apart from
 * the device's that is UPDATE on STREAM_HOST: gradients and the step's sums go down, parameters
 * come up.
 */
#ifndef TRIREME_PROGRAM_OFFLOAD_H
#define TRIREME_PROGRAM_OFFLOAD_H

#include "program/program.h"

/* Append the instruction that copies all of a buffer into one of the same size on another side, on
 * behalf of a flat (-1: of none). */
void offload_copy(struct program *program, int from, int to, int flat, int micro);

/* Make a buffer on a side, of the size of another one and for a copy of it; it does not outlive the
 * step. */
int offload_temporary(struct program *program, int buffer, enum state_side side);

/* Append what copies a buffer to a side, over the host where it must.  Returns the copy, or the
 * buffer itself where it lives there. */
int offload_fetch(struct program *program, int buffer, enum state_side side, int flat, int micro);

/* Append the copies that bring `from` back into buffer `to`, which lives on another side. */
void offload_spill(struct program *program, int from, int to, int flat, int micro);

#endif
