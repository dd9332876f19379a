/* memory.h - where every buffer of a program lies. */
#ifndef TRIREME_STEP_MEMORY_H
#define TRIREME_STEP_MEMORY_H

#include "program/program.h"

/* Give every buffer an offset in its pool's slab and set pool_bytes.  Persistent buffers come
 * first, in order; the others share the rest by their lifetimes in list order. */
void memory_plan(struct program *program);

/* Slab sizes for programs that take turns in the same slabs: the larger of each pool. */
void memory_join(size_t pool_bytes[POOL_COUNT], const struct program *program);

/* Bytes of the pools that are the device's: all but POOL_HOST and POOL_DISK. */
size_t memory_device_bytes(const size_t pool_bytes[POOL_COUNT]);

/* Do the pools, and reserve beside them, fit into free_bytes of a device?  Returns 0, or -1 with
 * err giving each pool's size, what is missing, and what takes less. */
int memory_fits(const size_t pool_bytes[POOL_COUNT], size_t reserve, size_t free_bytes,
                struct error *err);

/* Host memory of one step in flight on a device that only enqueues: the tokens and targets of its
 * micro-batches, and its sums.  MEMORY_TURNS steps are in flight. */
enum { MEMORY_TURNS = 2 };
size_t memory_turn_bytes(const struct program *program);

/* Lifetime of a buffer in list order: first and last instruction that names it; -1 if none. */
struct lifetime {
    int first, last;
};
struct lifetime *memory_lifetimes(const struct program *program); /* per buffer; free() it */

#endif
