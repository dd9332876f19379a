/* node_memory.c - the blocks of this rank, and where those of its node's other ranks are mapped.
 *
 *   alloc     makes a block, which has a name by which other processes open it;
 *   offer     its name, address and size, which node_share.c lets all ranks know;
 *   map       opens what the other ranks of the node offer;
 *   publish   where all ranks could: transfers find the mappings.  A mapping whose rank has its new
 *             block at the same addresses is unmapped, as that rank has freed the old block.  The
 *             name is closed: the kernel frees the memory with its last mapping;
 *   unshare   unmaps what was published together with a block;
 *   free      ends the share of a block, then the block.
 *
 * The communication thread calls address() and find() beside these functions.  Therefore share[]
 * changes under the lock alone.
 */
#include "comm/node_memory.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/array.h"
#include "comm/mesh.h"
#include "comm/transport.h"

enum { PLACES = MESH_REGISTERED };

/* A block of this rank; memory NULL: the place is free. */
struct node_memory_block {
    void *memory;
    size_t bytes;
    struct shared_memory_name name;
    int is_open; /* 1: others can open it */
};

struct node_memory {
    pthread_mutex_t lock; /* the communication thread looks addresses up */
    struct node_memory_block block[PLACES];
    struct node_share share[PLACES];
    int is_shared;
    size_t mapped_bytes; /* of all blocks of others */
    char is_near[];      /* [world_size] */
};

static struct node_memory *memory_of(struct world *world)
{
    if (!world->node_memory) {
        size_t bytes = sizeof *world->node_memory + (size_t)world->size;
        world->node_memory = array_make(1, bytes);
        pthread_mutex_init(&world->node_memory->lock, NULL);
    }
    return world->node_memory;
}

/* Returns the block that begins at memory, for NULL a free place; NULL: there is none. */
static struct node_memory_block *find_block(struct node_memory *n, const void *memory)
{
    for (struct node_memory_block *b = n->block; b < n->block + PLACES; b++)
        if (b->memory == memory)
            return b;
    return NULL;
}

static struct node_share *free_share(struct node_memory *n)
{
    for (struct node_share *s = n->share; s < n->share + PLACES; s++)
        if (!s->near)
            return s;
    return NULL;
}

/* Would the blocks of others take the address space that this rank may still need? */
static int space_is_limited(void)
{
    struct rlimit limit;
    return !getrlimit(RLIMIT_AS, &limit) && limit.rlim_cur != RLIM_INFINITY;
}

void *node_memory_alloc(struct world *world, size_t bytes)
{
    if (!world || world->local_size < 2 || !bytes || space_is_limited())
        return NULL;
    struct node_memory_block *b = find_block(memory_of(world), NULL),
                             made = {.bytes = bytes, .is_open = 1};
    made.memory = b ? shared_memory_make(bytes, &made.name) : NULL;
    if (made.memory)
        *b = made;
    return made.memory;
}

static void close_block(struct node_memory_block *b)
{
    if (b->is_open)
        shared_memory_close(&b->name);
    b->is_open = 0;
}

int node_memory_free(struct world *world, void *memory)
{
    struct node_memory *n = world ? world->node_memory : NULL;
    struct node_memory_block *b = n && memory ? find_block(n, memory) : NULL;
    if (!b)
        return 0;
    node_memory_unshare(world, memory, NULL);
    close_block(b);
    shared_memory_unmap(b->memory, b->bytes);
    *b = (struct node_memory_block){0};
    return 1;
}

static void unmap_all(struct node_share *s)
{
    for (int i = 0; i < s->count; i++)
        shared_memory_unmap(s->near[i].here, s->near[i].bytes);
    free(s->near);
    *s = (struct node_share){0};
}

/* Do two blocks have addresses of the same rank in common? */
static int overlap(const struct node_memory_near *a, const struct node_memory_near *b)
{
    return a->rank == b->rank && a->address < b->address + b->bytes &&
           b->address < a->address + a->bytes;
}

/* Unmap the blocks in whose place a rank has the new block. */
static void unmap_replaced(struct node_memory *n, const struct node_memory_near *new)
{
    for (struct node_share *s = n->share; s < n->share + PLACES; s++)
        for (int i = s->count - 1; i >= 0; i--) {
            struct node_memory_near *old = &s->near[i];
            if (!overlap(old, new))
                continue;
            n->mapped_bytes -= old->bytes;
            shared_memory_unmap(old->here, old->bytes);
            *old = s->near[--s->count];
        }
}

struct node_memory_offer node_memory_offer(struct world *world, const void *memory)
{
    struct node_memory *n = memory_of(world);
    const struct node_memory_block *own = memory ? find_block(n, memory) : NULL;
    struct node_memory_offer offer = {.node = world->node};
    offer.is_made = free_share(n) && (own || !memory || world->local_size < 2);
    if (own) {
        offer.name = own->name;
        offer.address = (uintptr_t)own->memory;
        offer.bytes = own->bytes;
    }
    return offer;
}

int node_memory_map(struct world *world, struct node_share *s,
                    const struct node_memory_offer *offer)
{
    *s = (struct node_share){.near = array_make((size_t)world->local_size, sizeof *s->near)};
    for (int rank = 0; rank < world->size; rank++) {
        const struct node_memory_offer *o = &offer[rank];
        if (rank == world->rank || o->node != world->node || !o->bytes)
            continue;
        struct node_memory_near b = {
            .rank = rank, .address = o->address, .bytes = (size_t)o->bytes};
        b.here = shared_memory_open(&o->name, b.bytes);
        if (!b.here) {
            unmap_all(s);
            return -1;
        }
        s->near[s->count++] = b;
    }
    return 0;
}

void node_memory_publish(struct world *world, const void *memory, const struct node_share *s,
                         const struct node_memory_offer *offer)
{
    struct node_memory *n = world->node_memory;
    struct node_memory_block *own = memory ? find_block(n, memory) : NULL;
    pthread_mutex_lock(&n->lock);
    for (int i = 0; i < s->count; i++)
        unmap_replaced(n, &s->near[i]);
    struct node_share *place = free_share(n);
    *place = *s;
    place->own = own;
    if (!own && !s->count)
        unmap_all(place); /* nothing to hold: the blocks are other nodes' */
    n->is_shared = 1;
    for (int rank = 0; rank < world->size; rank++)
        n->is_near[rank] = rank != world->rank && offer[rank].node == world->node;
    for (int i = 0; i < s->count; i++)
        n->mapped_bytes += s->near[i].bytes;
    pthread_mutex_unlock(&n->lock);
    if (own)
        close_block(own);
}

void node_memory_discard(struct node_share *s)
{
    unmap_all(s);
}

void node_memory_unshare(struct world *world, const void *memory, const void *sharer)
{
    struct node_memory *n = world ? world->node_memory : NULL;
    const struct node_memory_block *own = n && memory ? find_block(n, memory) : NULL;
    if (!n || (memory && !own))
        return;
    pthread_mutex_lock(&n->lock);
    for (struct node_share *s = n->share; s < n->share + PLACES; s++) {
        if (!s->near || s->own != own || (!own && s->sharer != sharer))
            continue;
        for (int i = 0; i < s->count; i++)
            n->mapped_bytes -= s->near[i].bytes;
        unmap_all(s);
    }
    pthread_mutex_unlock(&n->lock);
}

void node_memory_destroy(struct world *world)
{
    struct node_memory *n = world->node_memory;
    if (!n)
        return;
    for (int i = 0; i < PLACES; i++) {
        unmap_all(&n->share[i]);
        close_block(&n->block[i]);
        shared_memory_unmap(n->block[i].memory, n->block[i].bytes);
    }
    pthread_mutex_destroy(&n->lock);
    free(n);
    world->node_memory = NULL;
}

int node_memory_is_shared(const struct world *world)
{
    return world && world->node_memory && world->node_memory->is_shared;
}

int node_memory_is_near(const struct world *world, int rank)
{
    return node_memory_is_shared(world) && world->node_memory->is_near[rank];
}

uint64_t node_memory_address(const struct world *world, const void *memory, size_t bytes)
{
    struct node_memory *n = world->node_memory;
    uintptr_t from = (uintptr_t)memory, found = 0;
    pthread_mutex_lock(&n->lock);
    for (int i = 0; i < PLACES && !found; i++) {
        const struct node_memory_block *own = n->share[i].own;
        uintptr_t at = own ? (uintptr_t)own->memory : 0;
        if (own && from >= at && from + bytes <= at + own->bytes)
            found = from;
    }
    pthread_mutex_unlock(&n->lock);
    return found;
}

const void *node_memory_find(const struct world *world, int rank, uint64_t address, size_t bytes)
{
    struct node_memory *n = world->node_memory;
    const char *found = NULL;
    pthread_mutex_lock(&n->lock);
    for (int i = 0; i < PLACES && !found; i++)
        for (int k = 0; k < n->share[i].count && !found; k++) {
            const struct node_memory_near *b = &n->share[i].near[k];
            if (b->rank == rank && address >= b->address &&
                address + bytes <= b->address + b->bytes)
                found = (const char *)b->here + (address - b->address);
        }
    pthread_mutex_unlock(&n->lock);
    return found;
}

size_t world_mapped_bytes(const struct world *world)
{
    return world && world->node_memory ? world->node_memory->mapped_bytes : 0;
}
