/* control.c - world.h's small collectives, on a lane of their own.
 *
 * All use the group of all ranks.  None blocks the communication thread, so the streams
 * advance meanwhile.  They have no way to report a failure of MPI itself: it ends the job.
 */
#include <stdlib.h>
#include <string.h>

#include "comm/transport.h"

/* The one thing left to do when the ranks cannot even agree any more. */
static void must(struct world *world, int rc, const struct error *err)
{
    struct error last = *err;
    last.code = EXIT_NODE;
    if (rc)
        world_fail(world, &last);
}

void world_broadcast(struct world *world, void *data, size_t bytes, int root)
{
    struct comm_op op = {.peer = root, .recv = data, .elems = (int64_t)bytes, .dtype = DTYPE_U8};
    struct error err = {0};
    group_start(world->whole, LANE_CONTROL, &op, &kind_broadcast);
    must(world, comm_wait(&op, &err), &err);
}

void world_all_gather(struct world *world, void *all, const void *mine, size_t bytes)
{
    struct comm_op op = {.send = mine, .recv = all, .elems = (int64_t)bytes, .dtype = DTYPE_U8};
    struct error err = {0};
    group_start(world->whole, LANE_CONTROL, &op, &kind_all_gather);
    must(world, comm_wait(&op, &err), &err);
}

/* Each of the two values becomes the lowest of all ranks.  Every rank hears from every other by
 * itself, so that one that stays away is missed by name (world_watch()). */
static void world_lowest(struct world *world, int value[2])
{
    struct error err = {0};
    if (world->size == 1)
        return;
    int(*all)[2] = calloc((size_t)world->size, sizeof *all);
    must(world, all ? 0 : error_set(&err, "out of memory: agreement of all ranks"), &err);
    world_all_gather(world, all, value, sizeof *all);
    for (int r = 0; r < world->size; r++)
        for (int i = 0; i < 2; i++)
            value[i] = all[r][i] < value[i] ? all[r][i] : value[i];
    free(all);
}

void world_barrier(struct world *world)
{
    int nothing[2] = {0, 0};
    world_lowest(world, nothing);
}

/* Every rank takes all values and reduces them in rank order: the same bits on all. */
void world_all_reduce(struct world *world, double *values, int count, enum world_reduction how)
{
    size_t bytes = (size_t)count * sizeof *values;
    double *all = malloc((size_t)world->size * bytes + 1);
    struct error err = {0};
    must(world, all ? 0 : error_set(&err, "out of memory: reduction of %d values", count), &err);
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
    struct error said = {0};
    int found[2] = {rc ? world->rank : world->size, rc ? 1 : 0}; /* who failed; did all? */
    world_lowest(world, found);
    if (found[0] == world->size)
        return 0;
    if (found[0] == world->rank && err) {
        said = *err;
        if (!found[1] && said.text[0])
            error_prefix(&said, "rank %d (%s)", world->rank, world->host);
    }
    if (world->size > 1)
        world_broadcast(world, &said, sizeof said, found[0]);
    if (err)
        *err = said;
    return -1;
}

/* Root takes the messages one after another; the others send theirs.  Agreed. */
static void collect(struct world *world, char *all, const size_t *sizes, const void *mine,
                    size_t bytes, int root)
{
    struct error err = {0};
    if (world->rank != root) {
        struct comm_op op = {
            .peer = root, .send = mine, .elems = (int64_t)bytes, .dtype = DTYPE_U8};
        group_start(world->whole, LANE_CONTROL, &op, &kind_send);
        must(world, comm_wait(&op, &err), &err);
        return;
    }
    for (int r = 0; r < world->size; all += sizes[r++]) {
        struct comm_op op = {.peer = r, .recv = all, .elems = (int64_t)sizes[r], .dtype = DTYPE_U8};
        if (r == root) {
            if (bytes)
                memcpy(all, mine, bytes);
            continue;
        }
        group_start(world->whole, LANE_CONTROL, &op, &kind_recv);
        must(world, comm_wait(&op, &err), &err);
    }
}

int world_gather(struct world *world, char **all, size_t *sizes, const void *mine, size_t bytes,
                 int root, struct error *err)
{
    size_t total = 0, *every = calloc((size_t)world->size, sizeof *every);
    int rc = every ? 0 : error_set(err, "out of memory: sizes of %d ranks", world->size);
    *all = NULL;
    if (world_agree(world, rc, err))
        goto fail;
    world_all_gather(world, every, &bytes, sizeof bytes);
    for (int r = 0; r < world->size; r++)
        total += every[r];
    if (world->rank == root && !(*all = malloc(total ? total : 1)))
        rc = error_set(err, "out of memory: %zu bytes gathered from all ranks", total);
    if (world_agree(world, rc, err))
        goto fail;
    collect(world, *all, every, mine, bytes, root);
    if (world->rank == root)
        memcpy(sizes, every, (size_t)world->size * sizeof *sizes);
    free(every);
    return 0;
fail:
    free(every);
    free(*all);
    *all = NULL;
    return -1;
}
