/* mem.h - counted memory.
 *
 * Everything whose size depends on the model, the batch or the number of ranks is allocated here,
 * in the pool in which the memory plan counts it, so that planned and allocated bytes can be
 * compared exactly.  When the program ends, every counter is 0 again.
 */
#ifndef TRIREME_BASE_MEM_H
#define TRIREME_BASE_MEM_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

enum mem_pool {
    POOL_PARAMS,      /* what a rank keeps of the parameters the model computes with */
    POOL_GRADS,       /* accumulated gradients (a shard, or whole) */
    POOL_OPTIMIZER,   /* fp32 masters where params are not fp32, and the moments */
    POOL_UNSHARDED,   /* gathered parameters and gradients before their reduction */
    POOL_ACTIVATIONS, /* boundaries and what forward keeps for backward */
    POOL_WORKSPACE,   /* temporaries of segments, constants, inputs */
    POOL_COMM,        /* staging of the transport */
    POOL_HOST,        /* offloaded state in host memory, and staging of it */
    POOL_DISK,        /* offloaded state in a file: no memory */
    POOL_COUNT
};

/* Counters of one process; zero-initialise.  Safe to use from several threads. */
struct mem {
    size_t now_bytes[POOL_COUNT];
    size_t peak_bytes[POOL_COUNT];
    int64_t blocks; /* allocations not yet freed */
};

/* Bytes of all pools that are memory: without POOL_DISK. */
size_t mem_bytes(const size_t pool_bytes[POOL_COUNT]);

/* Lower-case name of a pool, as the plan prints it. */
const char *mem_pool_name(enum mem_pool pool);

/* Allocate bytes (0 allowed) under pool, aligned to 64 (to 2 MiB and advised
 * for huge pages from 4 MiB on).  Contents are undefined.  Exactly the asked
 * bytes are counted.  Returns NULL with err naming pool and size on failure.
 * Free with mem_free(). */
void *mem_alloc(struct mem *mem, enum mem_pool pool, size_t bytes, struct error *err);

/* Free what mem_alloc() of the same mem, pool and bytes returned; NULL is allowed. */
void mem_free(struct mem *mem, enum mem_pool pool, size_t bytes, void *block);

/* Memory as mem_alloc() makes it, for the caller to count; NULL if there is none.  free() it. */
void *mem_block(size_t bytes);

/* Count bytes that were allocated elsewhere (a GPU's memory), or were freed there. */
void mem_count(struct mem *mem, enum mem_pool pool, size_t bytes);
void mem_uncount(struct mem *mem, enum mem_pool pool, size_t bytes);

/* Resident memory of this process, shared memory included, in bytes (/proc/self/status); 0 if
 * unknown.  Mapped files do not count: they are in the page cache. */
size_t mem_resident_bytes(void);

/* Physical memory of this node; 0 if unknown. */
size_t mem_node_bytes(void);

#endif
