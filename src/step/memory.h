/* memory.h - where every buffer of a program lies. */
#ifndef TRIREME_STEP_MEMORY_H
#define TRIREME_STEP_MEMORY_H

#include "step/program.h"

/* Give every buffer an offset in its pool's slab and set pool_bytes.  Persistent buffers come
 * first, in order; the others share the rest by their lifetimes in list order. */
void memory_plan(struct program *program);

/* Slab sizes for programs that take turns in the same slabs: the larger of each pool. */
void memory_join(size_t pool_bytes[POOL_COUNT], const struct program *program);

/* Lifetime of a buffer in list order: first and last instruction that names it; -1 if none. */
struct lifetime {
    int first, last;
};
struct lifetime *memory_lifetimes(const struct program *program); /* per buffer; free() it */

#endif
