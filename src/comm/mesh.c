/* mesh.c - see mesh.h.
 *
 * The rank at (p, r, s, t) is ((p * replicas + r) * shards + s) * tensors + t.  Ranks that differ
 * in one coordinate alone form that axis's group, so that every rank is in one group per axis. With
 * replicate 2 and shard 3:
 *
 *             s=0 s=1 s=2
 *       r=0    0   1   2      shard groups       {0 1 2} {3 4 5}
 *       r=1    3   4   5      replicate groups   {0 3} {1 4} {2 5}
 *                             data group         {0 1 2 3 4 5}
 *
 * Tensor is the fastest axis and shard the next, so that their groups, which exchange most, lie
 * within nodes when ranks are numbered node by node.  The data group is the shard or the replicate
 * group where the other axis is 1.
 */
#include "comm/mesh.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/array.h"
#include "comm/gpu/link.h"
#include "comm/transport.h"
#include "device/device.h"

/* On a GPU: large enough to be worth a launch, small beside everything else. */
static const int64_t piece_bytes = 16 << 20, host_piece_bytes = 8 << 20;

/* Of a communicator of NCCL, its channels to eight GPUs of a node and beyond.  An estimate. */
static const size_t communicator_bytes = (size_t)160 << 20;

struct mesh {
    struct mesh_shape shape;
    struct mesh_coord coord;
    struct group *group[MESH_AXES];
    struct group *data;
    int own_data;      /* whether data is a group beside those of the axes */
    struct link *link; /* to a GPU, or NULL */
};

const char *mesh_axis_name(enum mesh_axis axis)
{
    static const char *const names[MESH_AXES] = {[MESH_PIPELINE] = "pipeline",
                                                 [MESH_REPLICATE] = "replicate",
                                                 [MESH_SHARD] = "shard",
                                                 [MESH_TENSOR] = "tensor"};
    return names[axis];
}

static int does_not_fit(const struct mesh_shape *s, int ranks, struct error *err)
{
    return error_set(err,
                     "parallel: pipeline %d x replicate %d x shard %d x tensor %d does not make "
                     "%d rank%s (0 stands for what is left, once)",
                     s->degree[MESH_PIPELINE], s->degree[MESH_REPLICATE], s->degree[MESH_SHARD],
                     s->degree[MESH_TENSOR], ranks, ranks == 1 ? "" : "s");
}

int mesh_resolve(struct mesh_shape *shape, int ranks, struct error *err)
{
    int64_t product = 1;
    int open = -1;
    for (int axis = 0; axis < MESH_AXES; axis++) {
        int degree = shape->degree[axis];
        if (degree < 0 || (!degree && open >= 0) || product > ranks)
            return does_not_fit(shape, ranks, err);
        if (degree)
            product *= degree;
        else
            open = axis;
    }
    if (product < 1 || ranks % product || (open < 0 && product != ranks))
        return does_not_fit(shape, ranks, err);
    if (open >= 0)
        shape->degree[open] = (int)(ranks / product);
    return 0;
}

struct mesh_coord mesh_place(const struct mesh_shape *shape, int rank)
{
    struct mesh_coord coord;
    for (int axis = MESH_AXES - 1; axis >= 0; axis--) {
        coord.at[axis] = rank % shape->degree[axis];
        rank /= shape->degree[axis];
    }
    return coord;
}

int mesh_rank(const struct mesh_shape *shape, struct mesh_coord coord)
{
    int rank = 0;
    for (int axis = 0; axis < MESH_AXES; axis++)
        rank = rank * shape->degree[axis] + coord.at[axis];
    return rank;
}

/* Ranks that agree in every axis but those in `along` form a group; its color is the rank
 * of the one at 0 along these. */
static int split(struct group **group, struct world *world, const struct mesh *mesh, unsigned along,
                 const char *name, struct error *err)
{
    struct mesh_coord first = mesh->coord;
    int size = 1;
    for (int axis = 0; axis < MESH_AXES; axis++)
        if (along & 1u << axis) {
            first.at[axis] = 0;
            size *= mesh->shape.degree[axis];
        }
    if (size == 1) { /* the same on all ranks */
        *group = group_self(world, name);
        return 0;
    }
    return group_split(group, world, mesh_rank(&mesh->shape, first), world_rank(world), name, err);
}

static int make_data(struct mesh *mesh, struct world *world, struct error *err)
{
    if (mesh->shape.degree[MESH_REPLICATE] == 1) {
        mesh->data = mesh->group[MESH_SHARD];
        return 0;
    }
    if (mesh->shape.degree[MESH_SHARD] == 1) {
        mesh->data = mesh->group[MESH_REPLICATE];
        return 0;
    }
    mesh->own_data = 1;
    return split(&mesh->data, world, mesh, 1u << MESH_REPLICATE | 1u << MESH_SHARD, "data", err);
}

int mesh_create(struct mesh **mesh, struct world *world, struct mesh_shape shape, struct error *err)
{
    struct mesh *m;
    int rc = mesh_resolve(&shape, world_size(world), err);
    *mesh = NULL;
    if (world_agree(world, rc, err))
        return -1;
    m = array_make(1, sizeof *m);
    m->shape = shape;
    m->coord = mesh_place(&shape, world_rank(world));
    for (int axis = 0; axis < MESH_AXES; axis++)
        if (split(&m->group[axis], world, m, 1u << axis, mesh_axis_name(axis), err))
            goto fail;
    if (make_data(m, world, err))
        goto fail;
    *mesh = m;
    return 0;
fail:
    mesh_destroy(m);
    return -1;
}

void mesh_destroy(struct mesh *mesh)
{
    if (!mesh)
        return;
    link_close(mesh->link);
    for (int axis = 0; axis < MESH_AXES; axis++)
        group_destroy(mesh->group[axis]);
    if (mesh->own_data)
        group_destroy(mesh->data);
    free(mesh);
}

size_t mesh_staging_bytes(const struct mesh_shape *shape)
{
    int replicate = shape->degree[MESH_REPLICATE], shard = shape->degree[MESH_SHARD];
    size_t bytes = 0;
    for (int axis = 0; axis < MESH_AXES; axis++)
        bytes += group_staging_bytes(shape->degree[axis]);
    if (replicate > 1 && shard > 1)
        bytes += group_staging_bytes(replicate * shard);
    return bytes;
}

/* Whether sums over replicas go through host memory. */
static int is_staged(const struct mesh_shape *shape, const struct mesh_options *options)
{
    return options->inter_node == COMM_INTER_NODE_MPI && shape->degree[MESH_REPLICATE] > 1;
}

size_t mesh_device_staging_bytes(const struct mesh_shape *shape, const struct mesh_options *options)
{
    int by_nccl = shape->degree[MESH_SHARD] > 1 || shape->degree[MESH_PIPELINE] > 1 ||
                  shape->degree[MESH_TENSOR] > 1 ||
                  (shape->degree[MESH_REPLICATE] > 1 && !is_staged(shape, options));
    return by_nccl ? 2 * (size_t)(options->piece_bytes ? options->piece_bytes : piece_bytes) : 0;
}

/* The communicators that link.c makes: of shards to gather and to reduce, of replicas and of all to
 * reduce, of stages, of tensor ranks to gather and to reduce. */
size_t mesh_reserve_bytes(const struct mesh_shape *shape, const struct mesh_options *options)
{
    int shards = shape->degree[MESH_SHARD] > 1, stages = shape->degree[MESH_PIPELINE] > 1;
    int replicas = shape->degree[MESH_REPLICATE] > 1 && !is_staged(shape, options);
    int tensors = shape->degree[MESH_TENSOR] > 1;
    int communicators = 2 * shards + replicas + (replicas && shards) + stages + 2 * tensors;
    return (size_t)communicators * communicator_bytes;
}

size_t mesh_host_staging_bytes(const struct mesh_shape *shape, const struct mesh_options *options)
{
    if (!is_staged(shape, options))
        return 0;
    return 2 * (size_t)(options->piece_bytes ? options->piece_bytes : host_piece_bytes);
}

int mesh_attach(struct mesh *mesh, struct world *world, struct device *device, struct mem *mem,
                const struct mesh_options *options, struct error *err)
{
    struct link_request request = {.shape = mesh->shape,
                                   .coord = mesh->coord,
                                   .world = world,
                                   .device = device,
                                   .mem = mem,
                                   .options = *options};
    if (device->kind == DEVICE_CPU)
        return 0;
    for (int axis = 0; axis < MESH_AXES; axis++)
        request.group[axis] = mesh->group[axis];
    if (mesh->own_data)
        request.group[LINK_DATA] = mesh->data;
    request.device_staging_bytes = mesh_device_staging_bytes(&mesh->shape, options);
    request.host_staging_bytes = mesh_host_staging_bytes(&mesh->shape, options);
    return link_open(&mesh->link, &request, err);
}

int mesh_register(struct mesh *mesh, void *memory, size_t bytes)
{
    return mesh->link ? link_register(mesh->link, memory, bytes) : 0;
}

void mesh_unregister(struct mesh *mesh, void *memory)
{
    if (mesh->link)
        link_unregister(mesh->link, memory);
}

int mesh_poll(struct mesh *mesh, struct error *err)
{
    return mesh->link ? link_poll(mesh->link, err) : 0;
}

void mesh_abandon(struct mesh *mesh)
{
    if (mesh->link)
        link_abandon(mesh->link);
}

const char *mesh_gpu_library(char text[96])
{
    return link_library(text);
}

struct mesh_shape mesh_shape(const struct mesh *mesh)
{
    return mesh->shape;
}

struct mesh_coord mesh_coord(const struct mesh *mesh)
{
    return mesh->coord;
}

struct group *mesh_group(const struct mesh *mesh, enum mesh_axis axis)
{
    return mesh->group[axis];
}

struct group *mesh_data(const struct mesh *mesh)
{
    return mesh->data;
}
