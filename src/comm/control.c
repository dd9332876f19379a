/* control.c - world.h's small collectives and messages, on a queue of their own.
 *
 * All use the group of all ranks, and the control queue of the communication thread, beside which
 * the streams go on.  A failure of MPI itself ends the job, because the ranks could not agree on
 * it.
 */
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/round.h"
#include "comm/transport.h"

/* With at most DIRECT_RANKS ranks, each sends to every other one.  More gather in rounds, at most
 * ROUNDS_BYTES of all together at a time. */
enum { DIRECT_RANKS = 32, ROUNDS_BYTES = 16 << 20 };

/* Start an operation on bytes.  peer: the other rank of a message, the root of a broadcast. */
static void start(struct world *world, struct comm_op *handle, const struct comm_kind *kind,
                  const void *send, void *recv, size_t bytes, int peer)
{
    struct operation *op =
        operation_make(world->whole, handle, send, recv, (int64_t)bytes, DTYPE_U8);
    op->peer = peer;
    operation_start(op, QUEUE_CONTROL, kind);
}

/* Wait for an operation; if it has failed, end the job. */
static void finish(struct world *world, struct comm_op *handle)
{
    struct error err = {0};
    if (!comm_wait(handle, &err))
        return;
    err.code = EXIT_NODE;
    world_fail(world, &err);
}

/* Start an operation on bytes and wait for it. */
static void run(struct world *world, const struct comm_kind *kind, const void *send, void *recv,
                size_t bytes, int peer)
{
    struct comm_op handle;
    start(world, &handle, kind, send, recv, bytes, peer);
    finish(world, &handle);
}

void world_broadcast(struct world *world, void *data, size_t bytes, int root)
{
    if (world)
        run(world, &kind_broadcast, NULL, data, bytes, root);
}

/* Gather in rounds (exchange.c), in which a rank exchanges messages with log2(size) others: to send
 * to each of a thousand ranks it would open a thousand connections.  If all bytes together exceed
 * ROUNDS_BYTES, the ranks gather a slice of their bytes after the other. */
static void gather_in_rounds(struct world *world, char *all, const char *mine, size_t bytes)
{
    size_t size = (size_t)world->size, rank = (size_t)world->rank;
    size_t most = min_bytes(bytes, max_bytes(ROUNDS_BYTES / size, 1));
    char *after = array_make(size, most); /* the own slice, and then those of the next ranks */
    for (size_t first = 0; first < bytes; first += most) {
        size_t slice = min_bytes(bytes - first, most);
        memcpy(after, mine + first, slice);
        run(world, &kind_all_gather_doubling, NULL, after, slice, 0);
        for (size_t i = 0; i < size; i++)
            memcpy(all + (rank + i) % size * bytes + first, after + i * slice, slice);
    }
    free(after);
}

void world_all_gather(struct world *world, void *all, const void *mine, size_t bytes)
{
    if (world->size > DIRECT_RANKS && bytes)
        gather_in_rounds(world, all, mine, bytes);
    else
        run(world, &kind_all_gather, mine, all, bytes, 0);
}

/* Replace each of the two values by the lowest of all ranks.  Collective. */
static void lowest_of_all(struct world *world, int value[2])
{
    if (world->size == 1)
        return;
    int(*all)[2] = array_make((size_t)world->size, sizeof *all);
    world_all_gather(world, all, value, sizeof *all);
    for (int r = 0; r < world->size; r++)
        for (int i = 0; i < 2; i++)
            value[i] = all[r][i] < value[i] ? all[r][i] : value[i];
    free(all);
}

void world_barrier(struct world *world)
{
    int nothing[2] = {0, 0};
    lowest_of_all(world, nothing);
}

/* Every rank takes all values and reduces them in rank order: the same bits on all. */
void world_all_reduce(struct world *world, double *values, int count, enum world_reduction how)
{
    size_t bytes = (size_t)count * sizeof *values;
    double *all = array_make((size_t)world->size, bytes);
    world_all_gather(world, all, values, bytes);
    memcpy(values, all, bytes);
    for (int r = 1; r < world->size; r++)
        for (int i = 0; i < count; i++) {
            double x = all[(size_t)r * (size_t)count + (size_t)i];
            if (how == WORLD_SUM)
                values[i] += x;
            else if (how == WORLD_MIN ? x < values[i] : x > values[i])
                values[i] = x;
        }
    free(all);
}

int world_agree(struct world *world, int rc, struct error *err)
{
    struct error lowest = {0};
    if (!world)
        return rc;
    /* lowest of all ranks: the first rank that failed; 1 if all failed */
    int found[2] = {rc ? world->rank : world->size, rc ? 1 : 0};
    lowest_of_all(world, found);
    if (found[0] == world->size)
        return 0;
    if (found[0] == world->rank && err) {
        lowest = *err;
        if (!found[1] && lowest.text[0])
            error_prefix(&lowest, "rank %d (%s)", world->rank, world->host);
    }
    if (world->size > 1)
        world_broadcast(world, &lowest, sizeof lowest, found[0]);
    if (err)
        *err = lowest;
    return -1;
}

/* Root receives the ranks' bytes one after another; the others send theirs.  To be called when all
 * ranks have agreed that root has the memory. */
static void collect(struct world *world, char *all, const size_t *sizes, const void *mine,
                    size_t bytes, int root)
{
    if (world->rank != root) {
        run(world, &kind_send, mine, NULL, bytes, root);
        return;
    }
    for (int r = 0; r < world->size; all += sizes[r++]) {
        if (r != root)
            run(world, &kind_recv, NULL, all, sizes[r], r);
        else if (bytes)
            memcpy(all, mine, bytes);
    }
}

int world_gather(struct world *world, char **all, size_t *sizes, const void *mine, size_t bytes,
                 int root, struct error *err)
{
    if (!world) {
        *all = memcpy(array_make(bytes, 1), mine, bytes);
        *sizes = bytes;
        return 0;
    }
    size_t total = 0, *every = array_make((size_t)world->size, sizeof *every);
    int rc = 0;
    *all = NULL;
    world_all_gather(world, every, &bytes, sizeof bytes);
    for (int r = 0; r < world->size; r++)
        total += every[r];
    if (world->rank == root && !(*all = malloc(total ? total : 1)))
        rc = error_set(err, "out of memory: %zu bytes gathered from all ranks", total);
    rc = world_agree(world, rc, err);
    if (!rc)
        collect(world, *all, every, mine, bytes, root);
    if (!rc && world->rank == root)
        memcpy(sizes, every, (size_t)world->size * sizeof *sizes);
    free(every);
    return rc;
}

void world_send(struct world *world, const struct world_message *messages, int count)
{
    struct comm_op *handles = array_make((size_t)count + 1, sizeof *handles);
    for (int i = 0; i < count; i++)
        start(world, &handles[i], &kind_send, messages[i].data, NULL, messages[i].bytes,
              messages[i].rank);
    for (int i = 0; i < count; i++)
        finish(world, &handles[i]);
    free(handles);
}

void world_recv(struct world *world, void *data, size_t bytes, int rank)
{
    run(world, &kind_recv, NULL, data, bytes, rank);
}
