/* gpu.c - which GPU a rank takes, agreed on by all.
 *
 * Each rank makes its choice alone, from its number on the node, and sends it to all with the uuid
 * of the GPU.  Every rank then looks at the same list for a GPU that two have, so that all refuse
 * it without another agreement.
 */
#include "comm/gpu/gpu.h"

#include <glob.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/text.h"
#include "comm/gpu/gpu_choice.h"
#include "comm/gpu/link.h"
#include "comm/topology.h"
#include "comm/transport.h"

/* Set err to why this rank has no GPU; in a Slurm job also to how GPUs are requested. */
static int no_gpu(const struct world *world, const char *why, struct error *err)
{
    if (device_gpu_built_in() && getenv("SLURM_JOB_ID"))
        return error_set(err,
                         "no GPU to use: %s (Slurm gives GPUs to jobs that ask: "
                         "--gpus-per-node=%d)",
                         why, world->local_size);
    return error_set(err, "no GPU to use: %s; device=cpu needs none", why);
}

/* Choose this rank's GPU from what this rank sees alone. */
static int choose(const struct world *world, enum gpu_sharing sharing, struct gpu_choice *mine,
                  struct error *err)
{
    char why[128];
    int local = world->local_rank;
    mine->node = world->node;
    mine->count = device_gpu_count(why);
    if (!mine->count)
        return no_gpu(world, why, err);
    if (mine->count > 1 && local >= mine->count && sharing == GPU_OWN)
        return error_set(err,
                         "%d ranks on this node, but %d GPUs: start one rank per GPU "
                         "(--ntasks-per-node=%d), or ask for more (--gpus-per-node=%d)",
                         world->local_size, mine->count, mine->count, world->local_size);
    mine->index = local % mine->count;
    return device_gpu_describe(mine->index, &mine->gpu, err);
}

/* Set err to the two ranks that would use one GPU, and to what mends it; returns -1. */
static int refuse(const struct gpu_choice *all, const int ranks[2], struct error *err)
{
    const struct gpu_choice *a = &all[ranks[0]];
    if (a->count == 1)
        return error_set(err,
                         "ranks %d and %d would use the same GPU (%s, %s), the only one they see: "
                         "ask for one per rank (--gpus-per-node=N and --gpu-bind=none, or fewer "
                         "ranks); comm.share_gpu=true lets ranks share it, for tests",
                         ranks[0], ranks[1], a->gpu.name, a->gpu.bus);
    return error_set(
        err,
        "ranks %d and %d would use the same GPU (%s, %s): CUDA_VISIBLE_DEVICES differs "
        "between the ranks of a node; let all see all GPUs (--gpu-bind=none)",
        ranks[0], ranks[1], a->gpu.name, a->gpu.bus);
}

/* Choose this rank's GPU and compare it with those of all ranks; *shared is 1 where two ranks have
 * the same one.  All ranks find that in the same list, so they fail together without an agreement.
 */
static int pick(struct world *world, enum gpu_sharing sharing, struct gpu_choice *mine, int *shared,
                struct error *err)
{
    struct gpu_choice *all = array_make((size_t)world->size, sizeof *all);
    int ranks[2], rc = world_agree(world, choose(world, sharing, mine, err), err);
    if (!rc) {
        world_all_gather(world, all, mine, sizeof *mine);
        *shared = gpu_choice_find_shared(all, world->size, ranks);
        if (*shared && sharing == GPU_OWN)
            rc = refuse(all, ranks, err);
    }
    free(all);
    return rc;
}

/* Count the cores of this rank again: world counted them before topology_bind_near() bound ranks.
 */
static void count_cores(struct world *world)
{
    struct rank_cores {
        int node;
        cpu_set_t set;
    } mine = {.node = world->node}, *all = array_make((size_t)world->size, sizeof *all);
    cpu_set_t *local = array_make((size_t)world->size, sizeof *local);
    int locals = 0;
    CPU_ZERO(&mine.set);
    sched_getaffinity(0, sizeof mine.set, &mine.set);
    world_all_gather(world, all, &mine, sizeof mine);
    for (int r = 0; r < world->size; r++)
        if (all[r].node == mine.node)
            local[locals++] = all[r].set;
    world->core_sharers = topology_count_sharers(&mine.set, local, locals);
    world->cores = topology_cores_for(world->core_sharers, world->local_size);
    free(local);
    free(all);
}

int gpu_choose(struct world *world, enum gpu_sharing sharing, int *index, struct error *err)
{
    struct gpu_choice mine = {0};
    int shared = 0;
    if (pick(world, sharing, &mine, &shared, err))
        return -1;
    if (shared)
        link_share_gpu(world);
    topology_bind_near(mine.gpu.bus);
    count_cores(world);
    *index = mine.index;
    return 0;
}

int gpu_everywhere(struct world *world)
{
    struct gpu_choice mine = {0};
    int shared = 0;
    return !pick(world, GPU_OWN, &mine, &shared, NULL);
}

const char *gpu_signs(char text[GPU_SIGNS])
{
    static const char *const variables[] = {
        "CUDA_VISIBLE_DEVICES", "SLURM_JOB_GPUS",      "SLURM_STEP_GPUS",    "SLURM_GPUS",
        "SLURM_GPUS_PER_NODE",  "SLURM_GPUS_PER_TASK", "SLURM_GPUS_ON_NODE",
    };
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    glob_t files = {0};
    text[0] = 0;
    if (visible && (!visible[0] || !strcmp(visible, "-1") || !strcmp(visible, "NoDevFiles")))
        return NULL;
    for (size_t i = 0; i < sizeof variables / sizeof variables[0]; i++) {
        const char *value = getenv(variables[i]);
        if (value && value[0])
            text_join(text, GPU_SIGNS, ", ", "%s=%.32s", variables[i], value);
    }
    if (!glob("/dev/nvidia[0-9]*", 0, NULL, &files))
        text_join(text, GPU_SIGNS, ", ", "%s", files.gl_pathv[0]);
    globfree(&files);
    return text[0] ? text : NULL;
}
