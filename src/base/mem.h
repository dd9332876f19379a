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
    POOL_GRADS,       /* gradients (a shard, or whole) that outlive micro-batches */
    POOL_OPTIMIZER,   /* fp32 masters where params are not fp32, and the moments */
    POOL_UNSHARDED,   /* gathered parameters and gradients before their reduction */
    POOL_ACTIVATIONS, /* boundaries, what forward keeps for backward, and gradients that pass */
    POOL_WORKSPACE,   /* temporaries of segments, constants, inputs */
    POOL_COMM,        /* staging of the transport */
    POOL_HOST,        /* offloaded state in host memory, and staging of it; the copy of state that a
                         checkpoint in the background is written from */
    POOL_DISK,        /* offloaded state in a file: no memory */
    POOL_COUNT
};

/* Counters of one process; zero-initialise.  Threads may share them. */
struct mem {
    size_t now_bytes[POOL_COUNT];
    size_t peak_bytes[POOL_COUNT];
    int64_t blocks; /* allocations not yet freed */
};

/* Returns the sum over all pools that are memory, which leaves out POOL_DISK. */
size_t mem_bytes(const size_t pool_bytes[POOL_COUNT]);

/* Returns the lower-case name of a pool, as the plan prints it. */
const char *mem_pool_name(enum mem_pool pool);

/* Allocate `bytes` bytes (0 allowed) of host memory, uninitialised, and count them under pool.
 * Aligned to 64 bytes; 4 MiB or more are aligned to 2 MiB, and huge pages are asked for.  Returns
 * memory for mem_free(), or NULL with err naming pool and size. */
void *mem_alloc(struct mem *mem, enum mem_pool pool, size_t bytes, struct error *err);

/* Free what mem_alloc() of the same mem, pool and bytes returned, and uncount it; block NULL: do
 * nothing. */
void mem_free(struct mem *mem, enum mem_pool pool, size_t bytes, void *block);

/* Allocate as mem_alloc() does, without counting.  Returns memory for free(), or NULL. */
void *mem_block(size_t bytes);

/* Count one allocation that was made elsewhere (in a GPU's memory), or uncount one that was freed
 * there. */
void mem_count(struct mem *mem, enum mem_pool pool, size_t bytes);
void mem_uncount(struct mem *mem, enum mem_pool pool, size_t bytes);

/* Returns the resident memory of this process, shared memory included, in bytes
 * (/proc/self/status); 0 if unknown.  Mapped files do not count: they are in the page cache. */
size_t mem_resident_bytes(void);

/* Returns the bytes of physical memory of this node, or what a control group allows of them to the
 * processes of a job together (cgroup.h); 0 if unknown. */
size_t mem_node_bytes(void);

/* Returns the bytes of this node's memory that programs could be given now, page cache included
 * (/proc/meminfo); 0 if unknown. */
size_t mem_available_bytes(void);

#endif
