/* offload.h - state that lives where ops cannot work on it: FETCH before use, SPILL after.
 *
 * Where state lives is a matter of pools (state.c); here are the copies that follow from it, woven
 * in where parameters are gathered (shard.c) and around UPDATE (update.c).
 */
#ifndef TRIREME_STEP_OFFLOAD_H
#define TRIREME_STEP_OFFLOAD_H

#include "step/program.h"

/* The pool of state that lives there, where pool is what it has when not offloaded. */
enum mem_pool offload_pool(enum config_offload_to to, enum mem_pool pool);

/* Is the pool one that nothing but FETCH and SPILL reaches? */
static inline int offload_is_far(enum mem_pool pool)
{
    return pool == POOL_DISK;
}

/* Are parameters far, so that each use needs a FETCH? */
int offload_fetches_params(const struct program *program);

/* Append the instruction that copies all of a far buffer to a near one, or back. */
void offload_fetch(struct program *program, int far, int near, int unit, int micro);
void offload_spill(struct program *program, int near, int far, int unit);

/* A passing buffer of pool for what the far one holds. */
int offload_near(struct program *program, int far, enum mem_pool pool);

#endif
