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
#ifndef TRIREME_STEP_OFFLOAD_H
#define TRIREME_STEP_OFFLOAD_H

#include "program/program.h"

/* The sides memory is on, away from the device first. */
enum side { SIDE_DISK, SIDE_HOST, SIDE_DEVICE };

enum side offload_side(const struct program *program, enum mem_pool pool);

/* The pool of state that lives there, where pool is what it has when not offloaded. */
enum mem_pool offload_pool(enum config_offload_to to, enum mem_pool pool);

/* Where the optimizer works. */
enum side offload_update_side(const struct program *program);

/* Are parameters so far that each use needs a FETCH? */
int offload_fetches_params(const struct program *program);

/* Are gradients so far that what adds to them needs a FETCH, and a SPILL after? */
int offload_fetches_grads(const struct program *program);

/* Is what the optimizer works on a copy of the parameters, in fp32 too? */
int offload_splits_params(const struct program *program);

/* Append the instruction that copies all of a buffer into one of the same size on another side. */
void offload_copy(struct program *program, int from, int to, int unit, int micro);

/* A passing buffer on side for what another one holds. */
int offload_near(struct program *program, int buffer, enum side side);

/* Append what brings a buffer to a side, over the host where it must: a passing buffer there, or
 * itself.  And what takes one back to where `home` is. */
int offload_bring(struct program *program, int buffer, enum side side, int unit, int micro);
void offload_take(struct program *program, int near, int home, int unit, int micro);

#endif
