/* memory_budget.c - see memory_budget.h. */
#include "train/memory_budget.h"

#include "base/cgroup.h"
#include "base/round.h"
#include "io/swap.h"
#include "plan/report.h"

/* A quarter is an estimate: the context, kernels and library handles, which an opened device has
 * already, are taken to be the other three. */
size_t memory_budget_reserve(const struct device *device)
{
    return device->reserve_bytes / 4;
}

static int check_gpu(const struct session *s, struct memory_limits *limits, struct error *err)
{
    size_t total, left;
    if (device_memory(s->device, &total, &left, err))
        return -1;
    limits->device_bytes = left + s->device->reserve_bytes - memory_budget_reserve(s->device);
    return memory_fits(&s->need, left, err);
}

size_t memory_budget_node_share(const struct world *world, const struct config *config, int instrs)
{
    return report_node_share(mem_node_bytes(), world_local_size(world), config, instrs);
}

/* The instructions of a step; 0 where nothing is trained. */
static int instrs_of(const struct session *s)
{
    return s->train ? s->train->instrs : 0;
}

static int check_node(const struct session *s, size_t share, struct error *err)
{
    int ranks = world_local_size(s->world);
    size_t need = s->need.host_bytes, process = report_process_bytes(&s->config, instrs_of(s));
    if (!share || need <= share)
        return 0;
    return error_set(err,
                     "the run needs %.2f GiB of the node's memory a rank, and %s %.2f GiB "
                     "for %d of them, each of which takes %.2f GiB beside that: short by %.2f GiB "
                     "each",
                     gib_of(need),
                     mem_node_bytes() == cgroup_memory_bytes()
                         ? "its control group (Slurm's --mem, a container) allows"
                         : "the node has",
                     gib_of(mem_node_bytes()), ranks, gib_of(process),
                     gib_of(need + process - mem_node_bytes() / (size_t)ranks));
}

/* What the ranks of this node lack of the memory that other programs have left; 0: nothing. */
static double lacking_bytes(const struct session *s)
{
    size_t need = s->need.host_bytes * (size_t)world_local_size(s->world);
    size_t available = mem_available_bytes();
    return available && need > available ? (double)(need - available) : 0;
}

/* Warn where other programs have memory of the node that its ranks need.  It is no reason to refuse
 * the run: they may end before it is needed. */
static void warn_of_others(const struct session *s, double lacking)
{
    world_all_reduce(s->world, &lacking, 1, WORLD_MAX);
    if (lacking > 0 && !world_rank(s->world))
        log_warn(s->log,
                 "other programs use memory that this run needs: on a node it lacks %.2f GiB, and "
                 "the kernel may end it (out of memory)",
                 gib_of((size_t)lacking));
}

/* Check that offload.path has space for the file of this rank and of the other ranks of its node.
 */
static int check_disk(const struct session *s, struct memory_limits *limits, struct error *err)
{
    char folder[CONFIG_TEXT + 16];
    size_t need = s->need.pool_bytes[POOL_DISK];
    layout_swap_folder(&s->config, folder);
    limits->no_disk =
        need && swap_check(folder, world_rank(s->world), need, world_local_size(s->world), err);
    return limits->no_disk ? -1 : 0;
}

static int check(const struct session *s, struct memory_limits *limits, struct error *err)
{
    limits->host_bytes = memory_budget_node_share(s->world, &s->config, instrs_of(s));
    if (s->device->kind != DEVICE_CPU && check_gpu(s, limits, err))
        return -1;
    return check_node(s, limits->host_bytes, err) || check_disk(s, limits, err) ? -1 : 0;
}

int memory_budget_check(const struct session *s, struct memory_limits *limits, struct error *err)
{
    struct memory_limits own = {0};
    double lacking = lacking_bytes(s); /* before a rank allocates anything */
    if (!world_agree(s->world, check(s, &own, err), err)) {
        warn_of_others(s, lacking);
        return 0;
    }
    double least[] = {(double)own.device_bytes, (double)own.host_bytes, -own.no_disk};
    world_all_reduce(s->world, least, 3, WORLD_MIN);
    *limits = (struct memory_limits){
        .device_bytes = (size_t)least[0], .host_bytes = (size_t)least[1], .no_disk = least[2] < 0};
    return -1;
}

static int check_attached(const struct session *s, struct error *err)
{
    size_t total, left;
    size_t taken = s->need.nccl_bytes + mesh_device_staging_bytes(&s->layout.shape, &s->comm);
    if (s->device->kind == DEVICE_CPU)
        return 0;
    if (device_memory(s->device, &total, &left, err))
        return -1;
    size_t need = s->need.device_bytes - taken;
    if (need <= left)
        return 0;
    return error_set(err,
                     "NCCL has taken more of the GPU's memory for its connections than the "
                     "%.2f GiB that were planned, or another process has taken some: %.2f GiB are "
                     "needed and %.2f are free, short by %.2f GiB; comm.max_ctas=8 takes less for "
                     "connections, and recompute=full, more shards or a much smaller "
                     "train.micro_batch for the rest",
                     gib_of(s->need.nccl_bytes), gib_of(need), gib_of(left), gib_of(need - left));
}

int memory_budget_check_attached(const struct session *s, struct error *err)
{
    return world_agree(s->world, check_attached(s, err), err);
}
