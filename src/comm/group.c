/* group.c - making and freeing groups (group.h), and the memory that their operations work with.
 *
 * A group needs no communicator of its own, only a list of ranks and tags that no other group uses:
 * every message goes through the communicator of the world.  One block of memory holds the ranks
 * and, for each stream, what its operation works with: the requests of transfers in flight, the
 * addresses at which members read one another's memory, and slots for the terms of two batches of a
 * sum, one from every other member:
 *
 *   ranks | of the gather stream: requests, reads, slots | of the reduce stream | of the point's
 *
 * A group of one has no block.  Operations on groups are started in operation.c.
 */
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/round.h"
#include "comm/transport.h"

/* Bytes of the slots of one queue (for two batches), and of one slot: enough to be worth a message,
 * few enough for the caches, also in a group of hundreds. */
enum { SLOTS_BYTES = 4 << 20, SLOT_MAX = 512 << 10, SLOT_MIN = 4 << 10, ALIGN = 64 };

/* An all-reduce of at most SMALL_BYTES among at most SMALL_SIZE members is one exchange of all
 * terms: its time is the latency of messages, not the transfer of their bytes. */
enum { SMALL_BYTES = SLOT_MIN, SMALL_SIZE = 16 };

/* Transfers in flight on a queue: those of two stages of an all-reduce (exchange.c), each of which
 * has a transfer of terms and one of sums for every other member; at least WINDOW_MIN. */
enum { WINDOW_MIN = 8 };
static int window_of(int size)
{
    return 4 * (size - 1) < WINDOW_MIN ? WINDOW_MIN : 4 * (size - 1);
}

/* Returns the bytes of a slot in a group of this size; below, of a queue's requests, reads and
 * addresses of terms, and of the list of ranks. */
static size_t slot_bytes_of(int size)
{
    size_t bytes = SLOTS_BYTES / (2 * (size_t)(size - 1)) / SLOT_MIN * SLOT_MIN;
    return bytes < SLOT_MIN ? SLOT_MIN : bytes > SLOT_MAX ? SLOT_MAX : bytes;
}

static size_t requests_bytes(int size)
{
    return round_up_bytes(2 * (size_t)window_of(size) * sizeof(void *), ALIGN);
}

static size_t reads_bytes(int size)
{
    return round_up_bytes((size_t)size * sizeof(struct queue_reads), ALIGN);
}

static size_t terms_bytes(int size)
{
    return round_up_bytes((size_t)size * sizeof(char *), ALIGN);
}

static size_t ranks_bytes(int size)
{
    return round_up_bytes((size_t)size * sizeof(int), ALIGN);
}

size_t group_staging_bytes(int size)
{
    if (size <= 1)
        return 0;
    size_t slots = 2 * (size_t)(size - 1) * slot_bytes_of(size);
    size_t lists = requests_bytes(size) + reads_bytes(size) + terms_bytes(size);
    return ranks_bytes(size) + COMM_COLLECTIVES * (lists + slots);
}

struct group *group_self(struct world *world, const char *name)
{
    struct group *g = array_make(1, sizeof *g);
    g->world = world;
    g->size = 1;
    g->transport = &transport_self;
    g->name = array_text(name);
    pthread_mutex_init(&g->lock, NULL);
    return g;
}

void group_destroy(struct group *g)
{
    if (!g)
        return;
    if (g->mem)
        mem_free(g->mem, POOL_COMM, g->block_bytes, g->block);
    else
        free(g->block);
    while (g->newest) {
        struct operation *older = g->newest->older;
        free(g->newest);
        g->newest = older;
    }
    pthread_mutex_destroy(&g->lock);
    free(g->name);
    free(g);
}

/* Lay ranks, requests and slots out in the block. */
static void lay_out(struct group *g)
{
    char *at = (char *)g->block + ranks_bytes(g->size);
    g->ranks = g->block;
    g->window = window_of(g->size);
    g->slot_bytes = slot_bytes_of(g->size);
    for (int i = 0; i < COMM_COLLECTIVES; i++) {
        g->area[i].request = (void **)at;
        at += requests_bytes(g->size);
        g->area[i].reads = (struct queue_reads *)at;
        at += reads_bytes(g->size);
        g->area[i].term = (const char **)at;
        at += terms_bytes(g->size);
        g->area[i].slots = at;
        at += 2 * (size_t)(g->size - 1) * g->slot_bytes;
    }
}

/* Allocate the block of a group of these ranks, fill it in, and find this rank's number in it.
 * Returns 0, or -1 with err set. */
static int take_block(struct group *g, const int *ranks, int size, struct error *err)
{
    g->block_bytes = group_staging_bytes(size);
    g->block = mem_alloc(g->world->mem, POOL_COMM, g->block_bytes, err);
    if (!g->block)
        return error_prefix(err, "group %s", g->name);
    g->transport = &transport_mpi;
    g->size = size;
    g->mem = g->world->mem;
    lay_out(g);
    for (int m = 0; m < size; m++)
        g->ranks[m] = ranks ? ranks[m] : m;
    while (g->rank < size && g->ranks[g->rank] != g->world->rank)
        g->rank++;
    if (g->rank == size)
        return error_set(err, "rank %d is not in group %s", g->world->rank, g->name);
    return 0;
}

int group_create(struct group **group, struct world *world, const int *ranks, int size,
                 const char *name, struct error *err)
{
    struct group *g = group_self(world, name);
    int rc = 0;
    g->tag = ++world->splits * QUEUES;
    if (world->splits > world->tag_max / QUEUES - 1)
        rc = error_set(err, "group %s: this MPI has no tags left for it", g->name);
    else if (size > 1)
        rc = take_block(g, ranks, size, err);
    *group = rc ? NULL : g;
    if (rc)
        group_destroy(g);
    return rc;
}

/* The group of all ranks, which world.h's own collectives use; it has no slots, and is not
 * counted, because a plan counts the groups of the mesh. */
struct group *group_whole(struct world *world)
{
    struct group *g = group_self(world, "world");
    if (world->size > 1) {
        g->block = array_make(1, ranks_bytes(world->size) + requests_bytes(world->size));
        g->transport = &transport_mpi;
        g->rank = world->rank;
        g->size = world->size;
        g->window = window_of(g->size);
        g->ranks = g->block;
        for (int i = 0; i < g->size; i++)
            g->ranks[i] = i;
        g->area[QUEUE_CONTROL].request = (void **)((char *)g->block + ranks_bytes(g->size));
    }
    return g;
}

int group_rank(const struct group *group)
{
    return group->rank;
}

int group_size(const struct group *group)
{
    return group->size;
}

const char *group_name(const struct group *group)
{
    return group->name;
}

int group_sum_is_small(int size, int64_t elems, enum dtype dtype)
{
    return elems * (int64_t)dtype_bytes(dtype) <= SMALL_BYTES && size <= SMALL_SIZE;
}

int64_t group_all_to_all_sent(int size, int rank, const struct comm_part *part)
{
    int64_t elems = 0;
    for (int m = 0; m < size; m++)
        elems += m == rank ? 0 : part[m].send_elems;
    return elems;
}

int64_t group_all_reduce_sent(int size, int rank, int64_t elems, enum dtype dtype)
{
    int64_t bytes = (int64_t)dtype_bytes(dtype);
    if (size < 2 || elems < 1)
        return 0;
    if (group_sum_is_small(size, elems, dtype))
        return elems * bytes * (size - 1);
    int64_t share = transport_share(elems, size, (int64_t)slot_bytes_of(size) / bytes);
    int64_t batches = elems / (share * size), own = elems % (share * size) - rank * share;
    own = batches * share + (own < 0 ? 0 : own > share ? share : own);
    return (elems - own + own * (size - 1)) * bytes;
}
