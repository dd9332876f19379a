/* memory_budget.c - see memory_budget.h. */
#include "train/memory_budget.h"

#include "io/swap.h"
#include "program/memory.h"

/* What comes after the device was opened: CUDA graphs, of the device's reserve, and NCCL. */
static size_t reserve_to_come(const struct session *s)
{
    struct mesh_options options = layout_comm(&s->config);
    return s->device->reserve_bytes / 4 + mesh_reserve_bytes(&s->layout.shape, &options);
}

/* The slabs of all programs, which take turns in them. */
static void join(const struct session *s, size_t bytes[POOL_COUNT])
{
    const struct program *const programs[] = {s->train, s->evaluate, s->logits};
    for (int i = 0; i < 3; i++)
        if (programs[i])
            memory_join(bytes, programs[i]);
}

static double gib(size_t bytes)
{
    return (double)bytes / (1 << 30);
}

/* The ranks of a node share its memory alike. */
static int check_node(const struct session *s, size_t need, struct error *err)
{
    int ranks = world_local_size(s->world);
    size_t share = mem_node_bytes() / (size_t)ranks;
    err->room.host_bytes = share;
    if (!share || need <= share)
        return 0;
    return error_set(
        err,
        "the run needs %.2f GiB of the node's memory a rank, and the node has %.2f GiB "
        "for %d of them: short by %.2f GiB each",
        gib(need), gib(share * (size_t)ranks), ranks, gib(need - share));
}

static int check_gpu(const struct session *s, size_t bytes[POOL_COUNT], struct error *err)
{
    size_t total, left, reserve = reserve_to_come(s);
    if (device_memory(s->device, &total, &left, err))
        return -1;
    err->room.device_bytes = left + s->device->reserve_bytes - s->device->reserve_bytes / 4;
    return memory_fits(bytes, reserve, left, err);
}

/* The file of this rank, among those of the ranks of a node. */
static int check_disk(const struct session *s, size_t need, struct error *err)
{
    char folder[CONFIG_TEXT + 16];
    if (!need)
        return 0;
    layout_swap_folder(&s->config, folder);
    err->room.no_disk = 1;
    return swap_check(folder, world_rank(s->world), need, world_local_size(s->world), err);
}

int memory_budget_check(const struct session *s, struct error *err)
{
    size_t bytes[POOL_COUNT] = {0}, host;
    struct mesh_options options = layout_comm(&s->config);
    const struct mesh_shape *shape = &s->layout.shape;
    join(s, bytes);
    host = mesh_staging_bytes(shape) + mem_bytes(bytes);
    if (s->device->kind != DEVICE_CPU) {
        host = bytes[POOL_HOST] + mesh_host_staging_bytes(shape, &options);
        bytes[POOL_COMM] += mesh_device_staging_bytes(shape, &options);
        if (check_gpu(s, bytes, err)) {
            check_node(s, 0, err);
            return -1;
        }
    }
    if (check_node(s, host, err) || check_disk(s, bytes[POOL_DISK], err))
        return -1;
    err->room = (struct error_room){0};
    return 0;
}
