/* nccl_register.c - memory that transfers read and write, as NCCL knows it.
 *
 * Where parameters are gathered by copy engines, it is memory of NCCL's own, and a window of the
 * communicators that gather: every rank of such a communicator has one of the same size.  With
 * other communicators it is registered, so that networks can reach it directly; where that fails
 * transfers work all the same.
 *
 * NCCL requires that the memory of all ranks of a transfer is registered, or of none: a sender that
 * may write to its peer directly waits for an address that a receiver without one never gives.  So
 * communicators whose ranks send parts of gradients into one another's staging have none.
 */
#include <stdlib.h>

#include "base/array.h"
#include "comm/gpu/nccl_call.h"

int nccl_gathers_by_copies(const struct channel *c)
{
    return c->link->options.copy_engines && c->group && c->stream == COMM_GATHER &&
           c->group == mesh_group_of(c->link->mesh, MESH_SHARDS);
}

void *nccl_alloc(size_t bytes)
{
    void *block = NULL;
    return ncclMemAlloc(&block, bytes) == ncclSuccess ? block : NULL;
}

void nccl_free(void *block)
{
    ncclMemFree(block);
}

static int find(const struct link *l, const void *memory)
{
    for (int i = 0; i < MESH_REGISTERED; i++)
        if (l->registered[i] == memory)
            return i;
    return -1;
}

void mesh_unregister(struct mesh *mesh, void *memory)
{
    struct link *l = mesh->link;
    int at = l && memory ? find(l, memory) : -1;
    if (at < 0)
        return;
    for (int i = 0; i < l->channels; i++) {
        struct channel *c = &l->channel[i];
        if (l->window[at][i] && c->comm)
            nccl_window_close(c, l->window[at][i]);
        if (l->handle[at][i] && c->comm)
            ncclCommDeregister(comm_of(c), l->handle[at][i]);
        l->window[at][i] = l->handle[at][i] = NULL;
    }
    l->registered[at] = NULL;
}

/* Did NCCL make a window?  Where GPUs do not reach each other's memory it returns NULL, or,
 * in 2.28, the handle of an ordinary registration: registering the same memory once more then
 * returns the same handle. */
static int is_window(struct channel *c, void *memory, size_t bytes, const void *window)
{
    void *handle = NULL;
    if (!window)
        return 0;
    ncclResult_t code = ncclCommRegister(comm_of(c), memory, bytes, &handle);
    if (nccl_settle(c, "registering memory", code, NULL) || !handle)
        return 1;
    ncclCommDeregister(comm_of(c), handle);
    return handle != window;
}

/* 0, or -1 where memory of the ranks of c is not alike, or NCCL has no window here.  Collective
 * over c. */
static int open_window(struct channel *c, int at, size_t bytes, const double *all,
                       struct error *err)
{
    struct link *l = c->link;
    for (int m = 0; m < c->group->size; m++)
        if (all[c->group->ranks[m]] != (double)bytes)
            return error_set(err,
                             "comm.copy_engines needs the same memory on all ranks that share a "
                             "copy of the model: rank %d has %zu bytes, rank %d has %.0f; leave it "
                             "at false",
                             l->world->rank, bytes, c->group->ranks[m], all[c->group->ranks[m]]);
    if (!bytes)
        return 0;
    ncclResult_t code =
        nccl_window_open(c, l->registered[at], bytes, &l->window[at][c - l->channel]);
    if (nccl_settle(c, "a window for copy engines", code, err))
        return -1;
    if (is_window(c, l->registered[at], bytes, l->window[at][c - l->channel]))
        return 0;
    return error_set(err,
                     "comm.copy_engines: NCCL has no windows for %s: its GPUs do not all reach "
                     "each other's memory; leave it at false",
                     c->name);
}

static int open_windows(struct link *l, int at, size_t bytes, struct error *err)
{
    double mine = (double)bytes, *all = array_make((size_t)l->world->size, sizeof *all);
    int rc = 0;
    world_all_gather(l->world, all, &mine, sizeof mine);
    for (int i = 0; i < l->channels && !rc; i++)
        if (nccl_gathers_by_copies(&l->channel[i]))
            rc = open_window(&l->channel[i], at, bytes, all, err);
    free(all);
    return world_agree(l->world, rc, err);
}

/* Returns 1 if every channel took the memory that is to have it: not those that have a window of
 * it, nor those whose ranks exchange terms of sums. */
static int register_with_all(struct link *l, int at, size_t bytes)
{
    int taken = 1;
    for (int i = 0; i < l->channels && taken; i++) {
        struct channel *c = &l->channel[i];
        if (!l->window[at][i] && !c->messages)
            taken = !nccl_settle(
                c, "registering memory",
                ncclCommRegister(comm_of(c), l->registered[at], bytes, &l->handle[at][i]), NULL);
    }
    return taken;
}

int mesh_register(struct mesh *mesh, void *memory, size_t bytes, struct error *err)
{
    struct link *l = mesh->link;
    if (!l || !l->channels)
        return 0;
    int at = find(l, NULL), has_place = !memory || (at >= 0 && !link_check(l, NULL));
    if (memory && has_place)
        l->registered[at] = memory;
    double all = has_place;
    if (l->options.copy_engines) {
        int rc = has_place ? 0 : error_set(err, "no place to register memory");
        if (world_agree(l->world, rc, err) || open_windows(l, at, memory ? bytes : 0, err))
            return -1;
    }
    if (memory && has_place)
        all = register_with_all(l, at, bytes);
    world_all_reduce(l->world, &all, 1, WORLD_MIN);
    if (all == 0 && !l->options.copy_engines)
        mesh_unregister(mesh, memory);
    return all != 0;
}
