/* world.c - the start and the end of MPI, the ranks of the world, and where they are.
 *
 * MPI is called by one thread, the communication thread (thread.h), which world_start() starts
 * first: it initialises MPI there, groups the ranks by node, and lets the watch (watch.h) look at
 * what it waits for.  world_stop() ends these in the opposite order.
 */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/array.h"
#include "base/log.h"
#include "comm/launch.h"
#include "comm/node_memory.h"
#include "comm/pmix.h"
#include "comm/topology.h"
#include "comm/transport.h"

/* Argument of call_start(), which runs on the communication thread; rc is its result. */
struct starting {
    const struct launch *launch;
    struct world *world;
    struct error *err;
    int rc;
};

#define MPI_TRY(call)                           \
    do {                                        \
        int rc_ = (call);                       \
        if (rc_ != MPI_SUCCESS)                 \
            return mpi_failed(err, #call, rc_); \
    } while (0)

/* Set err: a call of MPI has failed.  Returns -1. */
static int mpi_failed(struct error *err, const char *call, int rc)
{
    char why[MPI_MAX_ERROR_STRING + 1] = "";
    int length = 0;
    MPI_Error_string(rc, why, &length);
    err->code = EXIT_NODE;
    return error_set(err, "%.*s: %s", (int)strcspn(call, "("), call, why);
}

/* Set world->library from the first line of MPI's version. */
static void read_library(struct world *world)
{
    char text[MPI_MAX_LIBRARY_VERSION_STRING + 1] = "";
    int length = 0;
    MPI_Get_library_version(text, &length);
    text[strcspn(text, ",\n")] = 0;
    snprintf(world->library, sizeof world->library, "%s", text);
}

/* Number the nodes in order of their lowest ranks; local: the ranks of this node.  Collective.
 * Returns 0, or -1 with err set. */
static int number_nodes(struct world *world, MPI_Comm local, struct error *err)
{
    int leader = world->rank;
    int *leaders = array_make((size_t)world->size, sizeof *leaders);
    const char *call = "MPI_Bcast";
    int rc = MPI_Bcast(&leader, 1, MPI_INT, 0, local);
    if (rc == MPI_SUCCESS) {
        call = "MPI_Allgather";
        rc = MPI_Allgather(&leader, 1, MPI_INT, leaders, 1, MPI_INT, world->comm);
    }
    world->lowest = array_make((size_t)world->size, sizeof *world->lowest);
    for (int r = 0; rc == MPI_SUCCESS && r < world->size; r++) {
        if (leaders[r] != r)
            continue;
        world->node += r < leader;
        world->lowest[world->nodes++] = r;
    }
    free(leaders);
    return rc == MPI_SUCCESS ? 0 : mpi_failed(err, call, rc);
}

/* Gather the name of every rank's node, for messages about ranks that no longer answer. */
static int gather_hosts(struct world *world, struct error *err)
{
    char mine[HOST_NAME];
    world->hosts = array_make((size_t)world->size, sizeof *world->hosts);
    snprintf(mine, sizeof mine, "%.*s", HOST_NAME - 1, world->host);
    MPI_TRY(MPI_Allgather(mine, sizeof mine, MPI_CHAR, world->hosts, sizeof mine, MPI_CHAR,
                          world->comm));
    return 0;
}

/* Find out how many ranks of the node share this rank's cores, and so how many it may use.
 * Collective over the node. */
static int share_cores(struct world *world, MPI_Comm local, struct error *err)
{
    cpu_set_t mine, *all = array_make((size_t)world->local_size, sizeof *all);
    CPU_ZERO(&mine);
    sched_getaffinity(0, sizeof mine, &mine);
    int rc = MPI_Allgather(&mine, sizeof mine, MPI_BYTE, all, sizeof mine, MPI_BYTE, local);
    if (rc == MPI_SUCCESS) {
        world->core_sharers = topology_count_sharers(&mine, all, world->local_size);
        world->cores = topology_cores_for(world->core_sharers, world->local_size);
    }
    free(all);
    return rc == MPI_SUCCESS ? 0 : mpi_failed(err, "MPI_Allgather", rc);
}

/* Find out which ranks are on this node, and number the nodes.  Collective.  Returns 0, or -1 with
 * err set. */
static int find_nodes(struct world *world, struct error *err)
{
    MPI_Comm local;
    MPI_TRY(
        MPI_Comm_split_type(world->comm, MPI_COMM_TYPE_SHARED, world->rank, MPI_INFO_NULL, &local));
    MPI_TRY(MPI_Comm_rank(local, &world->local_rank));
    MPI_TRY(MPI_Comm_size(local, &world->local_size));
    int rc = number_nodes(world, local, err);
    if (!rc)
        rc = share_cores(world, local, err);
    MPI_Comm_free(&local);
    return rc;
}

/* Start MPI, and fill in world.  Collective.  Returns 0, or -1 with err set. */
static int start_mpi(const struct launch *launch, struct world *world, struct error *err)
{
    int provided, *tag_max, found, was_started = 0, has_ended = 0;
    MPI_Initialized(&was_started);
    MPI_Finalized(&has_ended);
    if (was_started || has_ended)
        return error_set(err,
                         "MPI was started in this process before, and cannot be started again: "
                         "a process opens one run, once; start another process");
    MPI_TRY(MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &provided));
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_TRY(MPI_Comm_rank(MPI_COMM_WORLD, &world->rank));
    MPI_TRY(MPI_Comm_size(MPI_COMM_WORLD, &world->size));
    if (launch->kind == LAUNCH_SRUN && !launch->one_node && pmix_barrier(err))
        return -1;
    MPI_TRY(MPI_Comm_dup(MPI_COMM_WORLD, &world->comm));
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &tag_max, &found);
    world->tag_max = found ? *tag_max : 32767;
    read_library(world);
    return find_nodes(world, err) || gather_hosts(world, err) ? -1 : 0;
}

/* Start MPI.  If one rank fails, it ends the job: the other ranks are waiting for it in their
 * start, and MPI_Finalize would wait for them. */
static void call_start(void *arg)
{
    struct starting *s = arg;
    s->rc = start_mpi(s->launch, s->world, s->err);
    if (!s->rc || s->world->size < 2)
        return;
    log_urgent("error: rank %d (%s): %s", s->world->rank, s->world->host, s->err->text);
    world_end_all(s->err->code);
}

/* End MPI, on the communication thread. */
static void call_stop(void *arg)
{
    struct world *world = arg;
    int started = 0, ended = 0;
    MPI_Initialized(&started);
    MPI_Finalized(&ended);
    if (!started || ended)
        return;
    watch_close(world->watch);
    if (world->comm != MPI_COMM_NULL)
        MPI_Comm_free(&world->comm);
    MPI_Finalize();
}

/* Call MPI, so that it passes on what it may still hold (thread.c). */
static void tick(void *arg)
{
    struct world *world = arg;
    int flag;
    MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, world->comm, &flag, MPI_STATUS_IGNORE);
}

/* End the job, where base/array.h finds that memory is out (array_end_by()). */
static void end_job_without_memory(void *arg, const struct error *err)
{
    world_fail(arg, err);
}

static enum thread_core core_of_thread(const struct world *w)
{
    if (w->core_sharers > topology_own_cores())
        return THREAD_CORE_CROWDED;
    return w->cores > 1 ? THREAD_CORE_OWN : THREAD_CORE_KERNELS;
}

int world_start(struct world **world, struct mem *mem, struct error *err)
{
    struct launch launch = launch_read();
    struct error own = {0};
    struct world *w = array_make(1, sizeof *w);
    struct starting s = {&launch, w, &own, 0};
    *world = NULL;
    w->mem = mem;
    w->comm = MPI_COMM_NULL;
    if (gethostname(w->host, sizeof w->host - 1))
        snprintf(w->host, sizeof w->host, "unknown");
    if (launch_check(&launch, 0, &own) || launch_check_memory(&launch, w->host, &own))
        goto fail;
    if (launch_doubt(&launch))
        log_info(NULL, "%s", launch_doubt(&launch));
    launch_prepare(&launch);
    if (thread_start(&w->thread, &own))
        goto fail;
    thread_call(w->thread, call_start, &s);
    if (s.rc || launch_check(&launch, w->size, &own))
        goto fail;
    w->whole = group_whole(w);
    thread_set_core(w->thread, core_of_thread(w));
    if (w->size > 1) {
        w->watch = watch_open(w);
        thread_set_tick(w->thread, tick, w);
        array_end_by(end_job_without_memory, w);
    }
    *world = w;
    return 0;
fail:
    world_stop(w);
    if (err)
        *err = own;
    return -1;
}

void world_stop(struct world *world)
{
    if (!world)
        return;
    array_end_by(NULL, NULL);
    group_destroy(world->whole);
    node_memory_destroy(world);
    if (world->thread) {
        thread_set_tick(world->thread, NULL, NULL);
        thread_set_watch(world->thread, NULL, NULL);
        thread_call(world->thread, call_stop, world);
    }
    thread_stop(world->thread);
    free(world->hosts);
    free(world->lowest);
    free(world);
}

void world_watch(struct world *world, int seconds)
{
    __atomic_store_n(&world->hang_seconds, seconds, __ATOMIC_RELAXED);
    __atomic_store_n(&world->is_watched, 1, __ATOMIC_RELEASE);
}

int world_rank(const struct world *world)
{
    return world ? world->rank : 0;
}

int world_size(const struct world *world)
{
    return world ? world->size : 1;
}

int world_nodes(const struct world *world)
{
    return world->nodes;
}

int world_node(const struct world *world)
{
    return world ? world->node : 0;
}

int world_local_rank(const struct world *world)
{
    return world->local_rank;
}

int world_local_size(const struct world *world)
{
    return world->local_size;
}

const char *world_host(const struct world *world)
{
    return world->host;
}

const char *world_host_of(const struct world *world, int rank)
{
    return world->hosts[rank];
}

const char *world_host_of_node(const struct world *world, int node)
{
    return world->hosts[world->lowest[node]];
}

int world_core_sharers(const struct world *world)
{
    return world->core_sharers;
}

int world_cores(const struct world *world)
{
    return world->cores;
}

const char *world_library(const struct world *world)
{
    return world->library;
}
