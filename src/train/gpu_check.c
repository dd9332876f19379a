/* gpu_check.c - see gpu_check.h. */
#include "train/gpu_check.h"

enum { FAMILIES = DEVICE_PRODUCT_FAMILIES + DEVICE_ATTENTION_FAMILIES };

int gpu_check_refuse(const struct self_check *check, const struct device_request *request,
                     struct error *err)
{
    char names[512];
    struct device_gpu gpu;
    if (!check->wrong)
        return 0;
    device_gpu_describe(request->index, &gpu, err);
    return error_set(err,
                     "training on this GPU (%s) would give wrong numbers: what it computes differs "
                     "from the CPU in %s; trireme doctor --gpu shows by how much; take another GPU "
                     "(CUDA_VISIBLE_DEVICES), or train all the same with run.self_check=off",
                     gpu.name, self_check_wrong(check, names, sizeof names));
}

/* Check the GPU of a request, or take the verdicts that are kept for it where run.self_check is
 * auto.  Returns 0, or -1 with err set. */
static int check_one(struct self_check *check, const char *key,
                     const struct device_request *request, enum config_self_check how,
                     struct error *err)
{
    struct mem mem = {
        0}; /* not the run's: its plan does not count what the check allocates and frees */
    if (how == SELF_CHECK_AUTO && !self_check_load(check, key))
        return 0;
    if (self_check_run(check, request, &mem, err))
        return error_prefix(err, "self-check of the GPU");
    return gpu_check_refuse(check, request, err);
}

/* Return the families that are wrong on any rank.  Collective. */
static unsigned on_any_rank(struct world *world, unsigned replaced)
{
    double bit[FAMILIES];
    unsigned any = 0;
    for (int i = 0; i < FAMILIES; i++)
        bit[i] = replaced >> i & 1;
    world_all_reduce(world, bit, FAMILIES, WORLD_MAX);
    for (int i = 0; i < FAMILIES; i++)
        any |= bit[i] > 0 ? 1u << i : 0;
    return any;
}

int gpu_check_all(struct world *world, struct device_request *request, const struct config *config,
                  struct log *log, struct error *err)
{
    const enum config_self_check how = config->run.self_check;
    struct self_check check = {0};
    struct error unkept = {0};
    char names[512], key[1024];
    if (request->kind != DEVICE_CUDA || how == SELF_CHECK_OFF)
        return 0;
    int rc = self_check_key(key, request->index, err) || check_one(&check, key, request, how, err);
    if (world_agree(world, rc ? -1 : 0, err))
        return -1;
    request->replaced = on_any_rank(world, check.replaced);
    const unsigned disputed = request->replaced & on_any_rank(world, ~check.replaced);
    /* Ranks whose GPUs are alike have one file.  Where they found different things, none is kept,
     * and the next start checks again, as it does where keeping fails. */
    if (!disputed && !check.was_kept)
        self_check_store(&check, key, &unkept);
    if (request->replaced && world_rank(world) == 0)
        log_warn(log,
                 "the self-check of the GPU found wrong results of a library: %s; trireme's own "
                 "kernels compute these, more slowly (trireme doctor --gpu)",
                 self_check_replaced(request->replaced, names, sizeof names));
    return 0;
}
