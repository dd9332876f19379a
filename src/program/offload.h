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

/* In these functions flat and micro say whose data is copied; -1: of no single flat, of no single
 * micro-batch. */

/* Append the instruction that copies all of buffer `from` into buffer `to`, which has the same size
 * and is on another side. */
void offload_copy(struct program *program, int from, int to, int flat, int micro);

/* Append a buffer on a side for a copy of another one; it does not outlive the step.  Returns its
 * index. */
int offload_temporary(struct program *program, int buffer, enum state_side side);

/* Append the copies that bring a buffer to a side, by way of the host where there is no direct one.
 * Returns the last copy, or the buffer itself where it is on that side. */
int offload_fetch(struct program *program, int buffer, enum state_side side, int flat, int micro);

/* Append the copies that bring `from` back into buffer `to`, which lives on another side. */
void offload_spill(struct program *program, int from, int to, int flat, int micro);

#endif
