/* link.c - which group of the mesh is carried by what on a GPU: NCCL, MPI through the host
 * (staged.c), or, in a group of one, copies (gpu_self.c).
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/array.h"
#include "comm/gpu/nccl.h"

const char *comm_stream_name(enum comm_stream stream)
{
    static const char *const names[COMM_STREAMS] = {
        [COMM_GATHER] = "gather", [COMM_REDUCE] = "reduce", [COMM_POINT] = "point"};
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
    l->channels = mesh_channels(&l->request.shape, &l->request.options, list);
    for (int i = 0; i < l->channels; i++) {
        struct channel *c = &l->channel[i];
        *c = (struct channel){
            .link = l, .group = l->request.group[list[i].axes], .stream = list[i].stream};
        snprintf(c->name, sizeof c->name, "group %.40s (%s)", c->group->name,
                 comm_stream_name(c->stream));
    }
    l->root = (struct channel){.link = l, .name = "group world"};
}

/* What this rank can do by itself. */
static int prepare(struct link *l, struct error *err)
{
    const struct link_request *r = &l->request;
    list_channels(l);
    if (r->device_staging_bytes) {
        l->staging = device_alloc(r->device, r->mem, POOL_COMM, r->device_staging_bytes, err);
        if (!l->staging)
            return error_prefix(err, "staging of transfers");
    }
    return r->host_staging_bytes ? staged_open(&l->staged, l, err) : 0;
}

static void attach(struct link *l)
{
    const struct link_request *r = &l->request;
    for (unsigned axes = 0; axes < MESH_SETS; axes++) {
        struct group *g = r->group[axes];
        if (!g)
            continue;
        g->link = l;
        g->transport = g->size == 1                                   ? &transport_gpu_self
                       : mesh_is_staged(&r->shape, &r->options, axes) ? &transport_staged
                                                                      : &transport_nccl;
    }
    for (int i = 0; i < l->channels; i++)
        l->channel[i].group->channel[l->channel[i].stream] = &l->channel[i];
}

static void detach(struct link *l)
{
    for (int i = 0; i < MESH_SETS; i++) {
        struct group *g = l->request.group[i];
        if (!g)
            continue;
        g->link = NULL;
        g->transport = g->size == 1 ? &transport_self : &transport_mpi;
        for (int s = 0; s < COMM_STREAMS; s++)
            g->channel[s] = NULL;
    }
}

int link_open(struct link **link, const struct link_request *request, struct error *err)
{
    struct link *l = array_make(1, sizeof *l);
    *link = NULL;
    pthread_mutex_init(&l->lock, NULL);
    l->request = *request;
    if (world_agree(request->world, prepare(l, err), err) || (l->channels && nccl_start(l, err)))
        goto fail;
    attach(l);
    *link = l;
    return 0;
fail:
    link_close(l);
    return -1;
}

void link_close(struct link *l)
{
    if (!l)
        return;
    detach(l);
    nccl_stop(l);
    if (l->hung)
        return; /* a thread or the GPU still uses what is here */
    staged_close(l->staged);
    if (l->staging)
        device_free(l->request.device, l->request.mem, POOL_COMM, l->request.device_staging_bytes,
                    l->staging);
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
