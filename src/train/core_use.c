/* core_use.c - see core_use.h.
 *
 *     mpirun -n 6 on 2 cores, unbound     each rank shares its 2 cores with 6: crowded
 *     run.threads=4 of a rank with 1 core more threads than cores
 *     mpirun -n 2 on 64 cores             Open MPI binds each of up to two ranks to a core: 62 idle
 *
 * A container's or Slurm's limit is no reason to warn: the launcher has it as well.
 */
#include "train/core_use.h"

#include <stdlib.h>

#include "base/array.h"
#include "comm/launch.h"
#include "comm/topology.h"

/* What rank 0 learns of a rank. */
struct core_use {
    int node, threads;
    int cores;    /* cores that are its own */
    int bound;    /* cores that it is bound to */
    int shared;   /* ranks that are bound to any of these */
    int launcher; /* cores of the program that started it; 0: not known */
    int is_crowded;
};

int core_use_is_crowded(const struct world *world)
{
    return world_core_sharers(world) > topology_own_cores();
}

static struct core_use use_of(const struct session *s)
{
    struct launch launch = launch_read();
    int is_chosen = s->config.run.threads || getenv("OMP_NUM_THREADS");
    int binds = launch.kind == LAUNCH_MPIRUN && s->device->kind == DEVICE_CPU && !is_chosen;
    return (struct core_use){.node = world_node(s->world),
                             .threads = s->device->kind == DEVICE_CPU ? s->device->threads : 0,
                             .cores = world_cores(s->world),
                             .bound = topology_own_cores(),
                             .shared = world_core_sharers(s->world),
                             .launcher = binds ? topology_parent_cores() : 0,
                             .is_crowded = core_use_is_crowded(s->world)};
}

static const char *plural(int n)
{
    return n == 1 ? "" : "s";
}

/* Warn of the node of the first crowded rank.  Returns 1 if there is one, else 0. */
static int warn_crowded(const struct session *s, const struct core_use *all, int ranks)
{
    int r = 0;
    while (r < ranks && !all[r].is_crowded)
        r++;
    if (r < ranks)
        log_warn(s->log, "%d ranks on %d core%s of node %s: they wait for one another",
                 all[r].shared, all[r].bound, plural(all[r].bound), world_host_of(s->world, r));
    return r < ranks;
}

static int warn_threads(const struct session *s, const struct core_use *all, int ranks)
{
    int r = 0;
    while (r < ranks && all[r].threads <= all[r].cores)
        r++;
    if (r < ranks)
        log_warn(s->log,
                 "%d threads of rank %d (%s) on %d core%s of node %s: they wait for one another",
                 all[r].threads, r, s->config.run.threads ? "run.threads" : "OMP_NUM_THREADS",
                 all[r].cores, plural(all[r].cores), world_host_of(s->world, r));
    return r < ranks;
}

/* Cores that the ranks of the first node keep busy. */
static int cores_used(const struct core_use *all, int ranks)
{
    int used = 0;
    for (int r = 0; r < ranks; r++)
        used += all[r].node == all[0].node ? all[r].cores : 0;
    return used;
}

static void warn_bound(const struct session *s, const struct core_use *all, int ranks)
{
    int used = cores_used(all, ranks);
    if (all[0].launcher && 2 * used <= all[0].launcher)
        log_warn(s->log,
                 "mpirun binds ranks to %d of %d cores of node %s; with mpirun --bind-to none "
                 "they have all",
                 used, all[0].launcher, world_host_of(s->world, 0));
}

void core_use_warn(const struct session *s)
{
    int ranks = world_size(s->world);
    struct core_use own = use_of(s), *all = array_make((size_t)ranks, sizeof *all);
    world_all_gather(s->world, all, &own, sizeof own);
    if (!world_rank(s->world)) {
        int is_warned = warn_crowded(s, all, ranks);
        is_warned |= warn_threads(s, all, ranks);
        if (!is_warned)
            warn_bound(s, all, ranks);
    }
    free(all);
}
