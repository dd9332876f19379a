/* link.c - connect the groups of a mesh to a GPU.
 *
 * mesh_attach() chooses what carries each group's transfers:
 *   one rank                                    copies on the GPU (gpu_self.c)
 *   several replicas, comm.inter_node=mpi       MPI through host memory (staged.c)
 *   all others                                  NCCL (nccl.c)
 * Groups that NCCL carries have a channel, that is a communicator, for each stream they use.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/clock.h"
#include "comm/gpu/nccl.h"

enum { TIME_LIMIT_S = 600 };

const char *comm_stream_name(enum comm_stream stream)
{
    static const char *const names[COMM_STREAMS] = {
        [COMM_GATHER] = "gather",   [COMM_REDUCE] = "reduce",   [COMM_POINT] = "point",
        [COMM_POINT_1] = "point 1", [COMM_POINT_2] = "point 2", [COMM_POINT_3] = "point 3",
        [COMM_POINT_4] = "point 4", [COMM_POINT_5] = "point 5", [COMM_POINT_6] = "point 6",
        [COMM_POINT_7] = "point 7"};
    return names[stream];
}

int channel_copy(struct operation *op, void *to, const void *from, int64_t bytes, const char *what)
{
    if (!device_copy_async(op_device(op), op_stream(op), to, from, (size_t)bytes, &op->err))
        return GIVEN;
    error_prefix(&op->err, "%s", what);
    return FAILED;
}

static void list_channels(struct link *l)
{
    struct mesh_channel list[MESH_CHANNELS];
    l->channels = mesh_channels(&l->mesh->shape, &l->options, list);
    for (int i = 0; i < l->channels; i++) {
        struct channel *c = &l->channel[i];
        *c = (struct channel){.link = l,
                              .group = l->mesh->group[list[i].axes],
                              .stream = list[i].stream,
                              .swaps = mesh_swaps(&l->options, &list[i]),
                              .least_ctas = mesh_least_ctas(&l->options, &list[i]),
                              .most_ctas = mesh_most_ctas(&l->options, &list[i])};
        snprintf(c->name, sizeof c->name, "group %.40s (%s)", c->group->name,
                 comm_stream_name(c->stream));
    }
    l->root = (struct channel){.link = l,
                               .name = "group world",
                               .least_ctas = l->options.min_ctas,
                               .most_ctas = l->options.max_ctas};
}

/* Replace options.swaps by its union over all ranks.  The ranks of other stages have other
 * groups and may have set other bits, but all ranks must agree on which first transfers are made.
 */
static void share_swaps(struct link *l)
{
    double any[MESH_SETS];
    for (int axes = 0; axes < MESH_SETS; axes++)
        any[axes] = l->options.swaps >> axes & 1;
    world_all_reduce(l->world, any, MESH_SETS, WORLD_MAX);
    l->options.swaps = 0;
    for (int axes = 0; axes < MESH_SETS; axes++)
        l->options.swaps |= (unsigned)(any[axes] > 0) << axes;
}

/* Launch each kernel that transfers need, once, on one element of the staging: beside a transfer
 * CUDA may not be able to load it (execute_async_create.c says why).  With both tensors at the same
 * address modulo 16 bytes a kernel takes four elements at a time, else one. */
static int load_kernels(struct link *l, struct error *err)
{
    static const enum dtype formats[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16};
    char *to = l->staging, *from = to + 64;
    for (int i = 0; i < (int)(sizeof formats / sizeof formats[0]); i++)
        for (int offset = 0; offset < 2; offset++) {
            const enum dtype format = formats[i];
            void *at = from + (size_t)offset * dtype_bytes(format);
            device_sum_parts(l->device, DEVICE_COMPUTE, (float *)to, format, at, 1, 1, 1, 0);
            if (format != DTYPE_F32)
                device_cast(l->device, DEVICE_COMPUTE, format, at, DTYPE_F32, to, 1);
        }
    return device_check(l->device, err) || device_sync(l->device, err) ? -1 : 0;
}

/* Do the part of mesh_attach() that needs no other rank: list channels, allocate staging. */
static int prepare(struct link *l, struct error *err)
{
    list_channels(l);
    if (l->options.peers > MESH_PEERS)
        return error_set(err,
                         "the schedule has this rank send messages to other stages' ranks, or "
                         "receive them, over more than %d connections; place stages so that they "
                         "have fewer ranks as neighbours",
                         MESH_PEERS);
    if (l->device_staging_bytes) {
        l->staging = device_alloc(l->device, l->mem, POOL_COMM, l->device_staging_bytes, err);
        if (!l->staging)
            return error_prefix(err, "staging of transfers");
        if (load_kernels(l, err))
            return -1;
    }
    if (link_open_pieces(l, err))
        return -1;
    return l->host_staging_bytes ? staged_open(&l->staged, l, err) : 0;
}

static void attach(struct link *l)
{
    const struct mesh *mesh = l->mesh;
    for (unsigned axes = 0; axes < MESH_SETS; axes++) {
        struct group *g = mesh->group[axes];
        if (!g)
            continue;
        g->link = l;
        g->transport = g->size == 1                                      ? &transport_gpu_self
                       : mesh_is_staged(&mesh->shape, &l->options, axes) ? &transport_staged
                                                                         : &transport_nccl;
    }
    for (int i = 0; i < l->channels; i++)
        l->channel[i].group->channel[l->channel[i].stream] = &l->channel[i];
}

static void detach(struct link *l)
{
    for (int i = 0; i < MESH_SETS; i++) {
        struct group *g = l->mesh->group[i];
        if (!g)
            continue;
        g->link = NULL;
        g->transport = g->size == 1 ? &transport_self : &transport_mpi;
        for (int s = 0; s < COMM_STREAMS; s++)
            g->channel[s] = NULL;
    }
}

int mesh_attach(struct mesh *mesh, struct world *world, struct device *device, struct mem *mem,
                const struct mesh_options *options, struct error *err)
{
    mesh->keeps_apart = options->keep_apart;
    if (device->kind == DEVICE_CPU)
        return 0;
    struct link *l = array_make(1, sizeof *l);
    *l = (struct link){
        .mesh = mesh,
        .world = world,
        .device = device,
        .mem = mem,
        .options = *options,
        .device_staging_bytes = mesh_device_staging_bytes(&mesh->shape, options),
        .host_staging_bytes = mesh_host_staging_bytes(&mesh->shape, options),
    };
    pthread_mutex_init(&l->lock, NULL);
    share_swaps(l);
    if (world_agree(world, prepare(l, err), err))
        goto fail;
    if (l->channels && nccl_start(l, err)) {
        link_abandon(l); /* peers may never do their part of what was issued */
        goto fail;
    }
    attach(l);
    mesh->link = l;
    return 0;
fail:
    link_close(l);
    return -1;
}

int64_t link_hang_ns(const struct link *l)
{
    int is_watched = __atomic_load_n(&l->world->is_watched, __ATOMIC_ACQUIRE);
    int seconds = __atomic_load_n(&l->world->hang_seconds, __ATOMIC_RELAXED);
    return (int64_t)(is_watched ? seconds : TIME_LIMIT_S) * 1000000000;
}

static int64_t progress_of(const struct link *l)
{
    return l->progress ? l->progress(l->progress_arg) : 0;
}

struct link_limit link_limit_begin(const struct link *l, int64_t most_ns)
{
    struct link_limit limit = {.most_ns = most_ns, .progress = progress_of(l)};
    limit.since_ns = clock_awake_ns(&limit.awake);
    return limit;
}

int link_limit_is_over(const struct link *l, struct link_limit *limit)
{
    const int64_t now_ns = clock_awake_ns(&limit->awake), progress = progress_of(l);
    if (progress != limit->progress) {
        limit->progress = progress;
        limit->since_ns = now_ns;
    }
    return limit->most_ns && now_ns - limit->since_ns > limit->most_ns;
}

void mesh_set_progress(struct mesh *mesh, mesh_progress *progress, void *arg)
{
    if (!mesh->link)
        return;
    mesh->link->progress = progress;
    mesh->link->progress_arg = arg;
}

void link_close(struct link *l)
{
    if (!l)
        return;
    detach(l);
    nccl_stop(l);
    if (l->hung)
        return; /* a thread or the GPU still uses what is here */
    link_close_pieces(l);
    staged_close(l->staged);
    if (l->staging)
        device_free(l->device, l->mem, POOL_COMM, l->device_staging_bytes, l->staging);
    pthread_mutex_destroy(&l->lock);
    free(l);
}

int link_poll(struct link *l, struct error *err)
{
    struct error own = {0};
    if (nccl_poll(l, &own))
        link_note(l, &own);
    return link_failed(l, err);
}

int mesh_poll(struct mesh *mesh, struct error *err)
{
    return mesh->link ? link_poll(mesh->link, err) : 0;
}

void link_abandon(struct link *l)
{
    pthread_mutex_lock(&l->lock);
    int first = !l->abandoned;
    l->abandoned = 1;
    pthread_mutex_unlock(&l->lock);
    if (!first)
        return;
    if (l->staged)
        staged_abandon(l->staged);
    if (l->channels)
        nccl_abandon(l);
}

void mesh_abandon(struct mesh *mesh)
{
    if (mesh->link)
        link_abandon(mesh->link);
}
