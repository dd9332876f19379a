/* node_memory.h - memory of a rank that the other ranks of its node read where it lies.
 *
 * Private to comm/.  Each rank makes its blocks (shared_memory.h); node_memory_share(), which is
 * collective, maps the blocks of the other ranks of the node, so that an address of theirs can be
 * turned into one of this process:
 *
 *     rank 0    block at 0x7f00, which it uses    rank 1's block, mapped at 0x9900
 *     rank 1    rank 0's block, mapped at 0x4400  block at 0x5200, which it uses
 *
 * A collective then needs only notices (exchange_read.c): Open MPI copies between processes by the
 * kernel, page by page, at two thirds to a third of the speed of a program's own reads.
 */
#ifndef TRIREME_COMM_NODE_MEMORY_H
#define TRIREME_COMM_NODE_MEMORY_H

#include <stddef.h>
#include <stdint.h>

#include "base/shared_memory.h"

struct node_memory_block;
struct world;

/* Make `bytes` bytes that can be shared.  Returns memory for node_memory_free(), or NULL: the node
 * has no other rank, the kernel no such memory, or the address space a limit (ulimit -v), and the
 * caller takes other memory. */
void *node_memory_alloc(struct world *world, size_t bytes);

/* Free what node_memory_alloc() returned; other ranks may go on reading it until they unmap it.
 * Returns 1; 0: memory is not from there, or NULL. */
int node_memory_free(struct world *world, void *memory);

/* Let the ranks of each node read one another's memory, a block of each, NULL on a rank that has
 * none (node_share.c).  sharer: whose blocks they are; its address says which shares without a
 * block of this rank node_memory_unshare() ends.  Collective over world.  Returns 1 on all ranks
 * where all could, or no rank has a block; 0 on all ranks, with nothing changed, where a rank has
 * memory of another kind, or cannot map a block. */
int node_memory_share(struct world *world, const void *memory, const void *sharer);

/* Unmap what the share of this memory mapped, or with NULL what the sharer's shares without a block
 * of this rank mapped.  Memory that is not shared: do nothing. */
void node_memory_unshare(struct world *world, const void *memory, const void *sharer);

/* ---- the parts of node_memory_share() that need no other rank ---- */

/* What a rank lets the others know of its block. */
struct node_memory_offer {
    struct shared_memory_name name;
    uint64_t address, bytes; /* bytes 0: it has none */
    int32_t node, is_made;   /* is_made 0: its memory is of another kind */
};

/* A block of another rank of the node. */
struct node_memory_near {
    int rank;
    uint64_t address; /* in that rank */
    size_t bytes;
    const void *here; /* where this process reads it */
};

/* A block of this rank, and those of the others that were shared with it. */
struct node_share {
    const struct node_memory_block *own; /* NULL: this rank had none */
    const void *sharer;                  /* of node_memory_share() */
    struct node_memory_near *near;       /* NULL: not in use */
    int count;
};

/* Returns this rank's offer. */
struct node_memory_offer node_memory_offer(struct world *world, const void *memory);

/* Map what the other ranks of this node offer; offer[world_size].  Returns 0 and *s for one of the
 * two functions below, or -1 where a block cannot be mapped. */
int node_memory_map(struct world *world, struct node_share *s,
                    const struct node_memory_offer *offer);

/* Let transfers use *s, which becomes the world's; memory as offered.  A rank that offers a block
 * has freed what it had at these addresses before: of that, what is still mapped is unmapped. */
void node_memory_publish(struct world *world, const void *memory, const struct node_share *s,
                         const struct node_memory_offer *offer);

/* Unmap *s again. */
void node_memory_discard(struct node_share *s);

/* ---- */

/* Free all of this; at the end of the world. */
void node_memory_destroy(struct world *world);

/* Returns 1 once blocks were shared, the same on all ranks. */
int node_memory_is_shared(const struct world *world);

/* Returns 1 if blocks were shared and a rank, another one than this, is on this node. */
int node_memory_is_near(const struct world *world, int rank);

/* Returns what other ranks know this address by, if these bytes lie in one shared block of this
 * rank; else 0. */
uint64_t node_memory_address(const struct world *world, const void *memory, size_t bytes);

/* Returns where this process reads these bytes of another rank, which sent their address; NULL:
 * they are in no block of that rank. */
const void *node_memory_find(const struct world *world, int rank, uint64_t address, size_t bytes);

#endif
