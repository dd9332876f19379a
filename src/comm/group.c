/* group.c - see group.h: groups of known members, starting operations, waiting for them.
 *
 * A group needs no communicator of its own, only a list of ranks and tags no other group uses.
 */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "comm/transport.h"

/* Staging of one lane: two batches of slots, large enough to be worth a message and small
 * enough for the caches, and for a group of hundreds. */
enum { SLOTS_BYTES = 4 << 20, SLOT_MAX = 512 << 10, SLOT_MIN = 4 << 10, ALIGN = 64 };
enum { SMALL_BYTES = SLOT_MIN, SMALL_SIZE = 16, ROOM_MIN = 8 };

static size_t round_up(size_t bytes)
{
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

static int room_of(int size)
{
    return 4 * (size - 1) < ROOM_MIN ? ROOM_MIN : 4 * (size - 1);
}

static size_t slot_bytes_of(int size)
{
    size_t bytes = SLOTS_BYTES / (2 * (size_t)(size - 1)) / SLOT_MIN * SLOT_MIN;
    return bytes < SLOT_MIN ? SLOT_MIN : bytes > SLOT_MAX ? SLOT_MAX : bytes;
}

static size_t requests_bytes(int size)
{
    return round_up(2 * (size_t)room_of(size) * sizeof(void *));
}

static size_t ranks_bytes(int size)
{
    return round_up((size_t)size * sizeof(int));
}

size_t group_staging_bytes(int size)
{
    if (size <= 1)
        return 0;
    size_t slots = 2 * (size_t)(size - 1) * slot_bytes_of(size);
    return ranks_bytes(size) + COMM_STREAMS * (requests_bytes(size) + slots);
}

static int group_new(struct group **group, struct world *world, const char *name, struct error *err)
{
    struct group *g = calloc(1, sizeof *g);
    if (g) {
        g->world = world;
        g->size = 1;
        g->transport = &transport_self;
        g->name = strdup(name);
    }
    *group = g;
    return g && g->name ? 0 : error_set(err, "out of memory: group %s", name);
}

int group_self(struct group **group, struct world *world, const char *name, struct error *err)
{
    if (!group_new(group, world, name, err))
        return 0;
    group_destroy(*group);
    *group = NULL;
    return -1;
}

void group_destroy(struct group *g)
{
    if (!g)
        return;
    if (g->mem)
        mem_free(g->mem, POOL_COMM, g->block_bytes, g->block);
    else
        free(g->block);
    free(g->name);
    free(g);
}

/* Lay ranks, requests and slots out in the block. */
static void lay_out(struct group *g)
{
    char *at = (char *)g->block + ranks_bytes(g->size);
    g->ranks = g->block;
    g->room = room_of(g->size);
    g->slot_bytes = slot_bytes_of(g->size);
    for (int i = 0; i < COMM_STREAMS; i++) {
        g->area[i].request = (void **)at;
        at += requests_bytes(g->size);
        g->area[i].slots = at;
        at += 2 * (size_t)(g->size - 1) * g->slot_bytes;
    }
}

int group_of(struct group **group, struct world *world, const int *ranks, int size,
             const char *name, struct error *err)
{
    struct group *g;
    if (group_new(&g, world, name, err))
        goto fail;
    g->tag = ++world->splits * LANES;
    if (world->splits > world->tag_max / LANES - 1) {
        error_set(err, "group %s: this MPI has no tags left for it", g->name);
        goto fail;
    }
    if (size > 1) {
        g->block_bytes = group_staging_bytes(size);
        g->block = mem_alloc(world->mem, POOL_COMM, g->block_bytes, err);
        if (!g->block) {
            error_prefix(err, "group %s", g->name);
            goto fail;
        }
        g->transport = &transport_mpi;
        g->size = size;
        g->mem = world->mem;
        lay_out(g);
        memcpy(g->ranks, ranks, (size_t)size * sizeof *ranks);
        while (g->ranks[g->rank] != world->rank)
            g->rank++;
    }
    *group = g;
    return 0;
fail:
    group_destroy(g);
    *group = NULL;
    return -1;
}

/* The group of all ranks, which world.h's own collectives use; it has no slots, and is not
 * counted, because a plan counts the groups of the mesh. */
int group_whole(struct group **group, struct world *world, struct error *err)
{
    struct group *g;
    if (group_new(&g, world, "world", err))
        goto fail;
    if (world->size > 1) {
        g->block = calloc(1, ranks_bytes(world->size) + requests_bytes(world->size));
        if (!g->block) {
            error_set(err, "out of memory: group world");
            goto fail;
        }
        g->transport = &transport_mpi;
        g->rank = world->rank;
        g->size = world->size;
        g->room = room_of(g->size);
        g->ranks = g->block;
        for (int i = 0; i < g->size; i++)
            g->ranks[i] = i;
        g->area[LANE_CONTROL].request = (void **)((char *)g->block + ranks_bytes(g->size));
    }
    *group = g;
    return 0;
fail:
    group_destroy(g);
    *group = NULL;
    return -1;
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

/* --- starting --- */

static void prepare(struct group *g, struct comm_op *op, const void *send, void *recv,
                    int64_t elems, enum dtype dtype)
{
    memset(op, 0, offsetof(struct comm_op, err));
    memset(&op->next, 0, sizeof *op - offsetof(struct comm_op, next));
    op->err.code = EXIT_DONE;
    op->err.text[0] = 0;
    op->submit_ns = clock_ns();
    op->send = send;
    op->recv = recv;
    op->elems = elems;
    op->dtype = dtype;
}

/* Also without any work. */
void transport_finish(struct comm_op *op)
{
    op->start_ns = op->end_ns = clock_ns();
    op->done = 1;
}

/* Payload of an operation that a library carries out, counted as if mpi.c had. */
static int64_t sent_bytes(const struct comm_op *op)
{
    int64_t bytes = op->elems * (int64_t)dtype_bytes(op->dtype);
    int size = op->group->size, rank = op->group->rank;
    int64_t place = (rank - op->peer + size) % size; /* in the tree of a broadcast */
    switch (op->kind->call) {
    case CALL_ALL_GATHER:
    case CALL_REDUCE_SCATTER: return (size - 1) * bytes;
    case CALL_ALL_REDUCE: return group_all_reduce_sent(size, rank, op->elems, op->dtype);
    case CALL_BROADCAST: return ((2 * place + 1 < size) + (2 * place + 2 < size)) * bytes;
    case CALL_SEND: return bytes;
    default: return 0;
    }
}

static void give_to_stream(struct comm_op *op)
{
    const struct transport *transport = op->group->transport;
    int (*enqueue)(struct comm_op * op) = transport->enqueue[op->kind->call];
    int outcome = GIVEN;
    if (!enqueue && !op->err.text[0])
        error_set(&op->err, "%s in group %s: not offered by %s on a GPU", op->kind->name,
                  op->group->name, transport->name);
    if (!op->err.text[0] && op->elems)
        outcome = enqueue(op);
    if (!op->err.text[0])
        op->sent_bytes = sent_bytes(op);
    if (outcome != HELD)
        transport_finish(op);
}

static void bind_op(struct group *g, int lane, struct comm_op *op, const struct comm_kind *kind)
{
    op->active = 1;
    op->group = g;
    op->kind = kind;
    op->lane = lane;
    op->request = kind->message ? op->own : g->area[lane].request;
    op->room = kind->message ? COMM_OWN_TRANSFERS : g->room;
    if (op->elems < 0)
        error_set(&op->err, "%s in group %s: a negative count", kind->name, g->name);
}

/* Give an operation on host memory to the communication thread. */
static void start_on_host(struct comm_op *op, const struct transport *transport)
{
    const struct group *g = op->group;
    struct thread *thread = g->world ? g->world->thread : NULL;
    op->step = transport->step;
    if (!op->err.text[0] && g->size > 1)
        op->kind->plan(op);
    if (op->err.text[0]) {
        transport_finish(op);
    } else if (g->size == 1 && (!thread || thread_lane_idle(thread, op->lane))) {
        op->start_ns = clock_ns();
        op->step(op); /* nothing to wait for: copies are best done here */
        op->end_ns = clock_ns();
        op->done = 1;
    } else {
        thread_submit(thread, op);
    }
}

void group_start(struct group *g, int lane, struct comm_op *op, const struct comm_kind *kind)
{
    bind_op(g, lane, op, kind);
    if (g->transport->step)
        start_on_host(op, g->transport);
    else
        give_to_stream(op);
}

void group_all_gather(struct group *g, enum comm_stream stream, struct comm_op *op, void *recv,
                      const void *send, int64_t elems, enum dtype dtype)
{
    prepare(g, op, send, recv, elems, dtype);
    group_start(g, stream, op, &kind_all_gather);
}

void group_reduce_scatter(struct group *g, enum comm_stream stream, struct comm_op *op, float *recv,
                          const void *send, int64_t elems, enum dtype dtype, int accumulate)
{
    prepare(g, op, send, recv, elems, dtype);
    op->accumulate = accumulate;
    if (!dtype_is_narrow_float(dtype))
        error_set(&op->err, "reduce-scatter in group %s: sums of %s are not offered", g->name,
                  dtype_name(dtype));
    group_start(g, stream, op, &kind_reduce_scatter);
}

/* Little goes whole to everyone. */
static int is_small(int size, int64_t elems, enum dtype dtype)
{
    return elems * (int64_t)dtype_bytes(dtype) <= SMALL_BYTES && size <= SMALL_SIZE;
}

void group_all_reduce(struct group *g, enum comm_stream stream, struct comm_op *op, void *data,
                      int64_t elems, enum dtype dtype)
{
    prepare(g, op, data, data, elems, dtype);
    if (!dtype_is_narrow_float(dtype) && dtype != DTYPE_F64)
        error_set(&op->err, "all-reduce in group %s: sums of %s are not offered", g->name,
                  dtype_name(dtype));
    group_start(g, stream, op,
                is_small(g->size, elems, dtype) ? &kind_all_reduce_small : &kind_all_reduce);
}

void group_all_reduce_host(struct group *g, int lane, struct comm_op *op, void *data, int64_t elems,
                           enum dtype dtype)
{
    prepare(g, op, data, data, elems, dtype);
    bind_op(g, lane, op,
            is_small(g->size, elems, dtype) ? &kind_all_reduce_small : &kind_all_reduce);
    start_on_host(op, g->size > 1 ? &transport_mpi : &transport_self);
}

int64_t group_all_reduce_sent(int size, int rank, int64_t elems, enum dtype dtype)
{
    int64_t bytes = (int64_t)dtype_bytes(dtype);
    if (size < 2 || elems < 1)
        return 0;
    if (is_small(size, elems, dtype))
        return elems * bytes * (size - 1);
    int64_t share = transport_share(elems, size, (int64_t)slot_bytes_of(size) / bytes);
    int64_t batches = elems / (share * size), own = elems % (share * size) - rank * share;
    own = batches * share + (own < 0 ? 0 : own > share ? share : own);
    return (elems - own + own * (size - 1)) * bytes;
}

void group_broadcast(struct group *g, enum comm_stream stream, struct comm_op *op, void *data,
                     int64_t elems, enum dtype dtype, int root)
{
    prepare(g, op, data, data, elems, dtype);
    op->peer = root;
    if (root < 0 || root >= g->size)
        error_set(&op->err, "broadcast in group %s of %d: no member %d", g->name, g->size, root);
    group_start(g, stream, op, &kind_broadcast);
}

static void check_peer(const struct group *g, struct comm_op *op, int peer)
{
    op->peer = peer;
    if (peer < 0 || peer >= g->size || peer == g->rank)
        error_set(&op->err, "message in group %s of %d: member %d cannot be the peer of %d",
                  g->name, g->size, peer, g->rank);
}

void group_send(struct group *g, enum comm_stream stream, struct comm_op *op, const void *data,
                int64_t elems, enum dtype dtype, int peer)
{
    prepare(g, op, data, NULL, elems, dtype);
    check_peer(g, op, peer);
    group_start(g, stream, op, &kind_send);
}

void group_recv(struct group *g, enum comm_stream stream, struct comm_op *op, void *data,
                int64_t elems, enum dtype dtype, int peer)
{
    prepare(g, op, NULL, data, elems, dtype);
    check_peer(g, op, peer);
    group_start(g, stream, op, &kind_recv);
}

/* Messages held back for others to join them wait no longer when somebody waits for one. */
static void flush(const struct comm_op *op)
{
    const struct transport *transport = op->group->transport;
    if (!transport->step && transport->flush && !op->done)
        transport->flush(op->group);
}

int comm_test(struct comm_op *op)
{
    if (op->active)
        flush(op);
    return !op->active || __atomic_load_n(&op->done, __ATOMIC_ACQUIRE);
}

int comm_wait(struct comm_op *op, struct error *err)
{
    if (!op->active)
        return 0;
    flush(op);
    if (!__atomic_load_n(&op->done, __ATOMIC_ACQUIRE))
        thread_wait(op->group->world->thread, op);
    op->active = 0;
    if (!op->err.text[0])
        return 0;
    if (err)
        *err = op->err;
    return -1;
}
