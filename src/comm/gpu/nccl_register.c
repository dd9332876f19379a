/* nccl_register.c - make memory known to NCCL that transfers read and write.
 *
 * Where copy engines gather parameters, the memory is allocated by NCCL and made a window of the
 * communicators that gather: every rank of such a communicator has a window of the same size.  With
 * the other communicators memory is registered, so that network cards can read and write it
 * directly; where that fails transfers work all the same, through buffers of NCCL's.
 *
 * NCCL requires that either all ranks of a transfer have registered their memory or none: a sender
 * whose memory is registered waits for its peer's address, which a peer without registered memory
 * never sends.  So nothing is registered with communicators whose ranks send parts of gradients
 * into one another's staging.
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

/* Return the index of the range that begins at memory, NULL: of a free place; -1: there is none. */
static int find(const struct link *l, const void *memory)
{
    for (int i = 0; i < MESH_REGISTERED; i++)
        if (l->registered[i] == memory)
            return i;
    return -1;
}

void nccl_unregister(struct link *l, void *memory)
{
    int at = memory ? find(l, memory) : -1;
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

/* Return 1 where NCCL made a window.  Where GPUs do not reach each other's memory NCCL returns NULL
 * for it, or, in 2.28, the handle of a plain registration.  That case is found by registering the
 * same memory once more, which then returns the same handle. */
static int is_window(struct channel *c, void *memory, size_t bytes, const void *window)
{
    void *handle = NULL;
    if (!window)
        return 0;
    ncclResult_t code = ncclCommRegister(comm_of(c), memory, bytes, &handle);
    if (nccl_wait_for_call(c, "registering memory", code, NULL) || !handle)
        return 1;
    ncclCommDeregister(comm_of(c), handle);
    return handle != window;
}

/* Make range `at` of `bytes` bytes a window of c; all: the bytes that each rank of world has.
 * Collective over c's group.  Returns 0, or -1 with err set where ranks of c have different sizes
 * or NCCL has no window here. */
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
    if (nccl_wait_for_call(c, "a window for copy engines", code, err))
        return -1;
    if (is_window(c, l->registered[at], bytes, l->window[at][c - l->channel]))
        return 0;
    return error_set(err,
                     "comm.copy_engines: NCCL has no windows for %s: its GPUs do not all reach "
                     "each other's memory; leave it at false",
                     c->name);
}

/* Make range `at` a window of every channel whose gathers go by copy engines.  Collective over
 * world; bytes is 0 on a rank without memory.  Returns 0, or -1 on all ranks with err set. */
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

/* Register range `at` with every channel, except those that have a window of it and those whose
 * ranks exchange terms of sums.  Returns 1 where NCCL took it for all of them, else 0. */
static int register_with_all(struct link *l, int at, size_t bytes)
{
    int taken = 1;
    for (int i = 0; i < l->channels && taken; i++) {
        struct channel *c = &l->channel[i];
        if (!l->window[at][i] && !c->swaps)
            taken = !nccl_wait_for_call(
                c, "registering memory",
                ncclCommRegister(comm_of(c), l->registered[at], bytes, &l->handle[at][i]), NULL);
    }
    return taken;
}

int nccl_register(struct link *l, void *memory, size_t bytes, struct error *err)
{
    if (!l->channels)
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
        nccl_unregister(l, memory);
    return all != 0;
}
