/* nccl_settings.c - set NCCL's environment variables and the configuration of communicators.
 *
 * Variables that users have set stay.  NCCL prefers such a variable to the configuration of a
 * communicator, so a key comm.* that sets the same thing as a variable in the environment is
 * refused, and so is a variable with which a run would hang.
 */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "comm/gpu/nccl_call.h"
#include "comm/gpu/nccl_cuda.h"
#include "comm/gpu/nccl_faults.h"

enum { COPY_ENGINES_SINCE = NCCL_VERSION(2, 28, 0) };

/* Return 1 where NCCL can make a kernel start once another one has started. */
static int has_order_of_starts(void)
{
    int driver = 0;
    cudaDriverGetVersion(&driver);
    return nccl_orders_starts(nccl_version(), nccl_cuda(), driver);
}

/* Set NCCL's variables, except those that users have set.
 *
 * NCCL_LAUNCH_ORDER_IMPLICIT has the kernels of all communicators start in the order of the calls,
 * which is the same on every rank, so that they cannot wait for one another.  Where NCCL was
 * compiled with a CUDA older than 12.3, or the driver is older, NCCL would have each kernel wait
 * until the one before has ended, which is for ever where a stage receives before it sends; there
 * no order is requested, as the kernels of the streams that transfer (ten at most) fit on the GPU
 * beside one another.
 *
 * NCCL_NVLS_ENABLE is off by default, because sums by NVLink SHARP differ from run to run. */
static void prepare_environment(const struct mesh_options *options)
{
    if (!getenv("NCCL_LAUNCH_ORDER_IMPLICIT") && has_order_of_starts())
        setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", 0);
    setenv("NCCL_NVLS_ENABLE", options->nvls ? "2" : "0", 0); /* 2: where there are switches */
}

void link_share_gpu(const struct world *world)
{
    char host[32];
    snprintf(host, sizeof host, "rank%d", world_rank(world));
    if (nccl_version() >= NCCL_VERSION(2, 30, 0))
        setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 0);
    else
        setenv("NCCL_HOSTID", host, 0); /* ranks of different hosts may look alike */
    setenv("NCCL_NET", "Socket", 0);
    if (world_nodes(world) == 1)
        setenv("NCCL_SOCKET_IFNAME", "lo", 0);
    setenv("NCCL_P2P_DISABLE", "1", 0);
    setenv("NCCL_SHM_DISABLE", "1", 0);
    setenv("NCCL_ALGO", "Ring", 0);
    setenv("NCCL_PROTO", "Simple", 0);
    setenv("NCCL_MAX_CTAS", "2", 0);
    setenv("NCCL_NVLS_ENABLE", "0", 0);
}

/* Refuse variables with which a run hangs, as NCCL prefers them to the configuration of trireme's
 * communicators.  Returns 0, or -1 with err set. */
static int check_hanging(struct error *err)
{
    static const struct {
        const char *name, *text;
    } hanging[] = {
        {.name = "NCCL_COMM_SPLIT_SHARE_RESOURCES",
         .text = "transfers of all groups then wait for one another, and the first step hangs"},
        {.name = "NCCL_COMM_BLOCKING",
         .text = "calls of NCCL then wait where a peer that is gone is not noticed"},
    };
    for (size_t i = 0; i < sizeof hanging / sizeof hanging[0]; i++) {
        const char *value = getenv(hanging[i].name);
        if (value && atoi(value) == 1)
            return error_set(err, "%s=%s is set in the environment: %s; unset it", hanging[i].name,
                             value, hanging[i].text);
    }
    return 0;
}

/* Refuse variables that NCCL would prefer to a key that is set.  To be called before trireme sets
 * any variable.  Returns 0, or -1 with err set. */
static int check_rivals(const struct mesh_options *options, struct error *err)
{
    const struct {
        const char *key, *variable, *good; /* good: a value that asks for the same, or NULL */
        int is_set;
    } rivals[] = {
        {.key = "comm.min_ctas", .variable = "NCCL_MIN_CTAS", .is_set = options->min_ctas > 0},
        {.key = "comm.max_ctas", .variable = "NCCL_MAX_CTAS", .is_set = options->max_ctas > 0},
        {.key = "comm.copy_engines",
         .variable = "NCCL_CTA_POLICY",
         .good = "2",
         .is_set = options->copy_engines},
        {.key = "comm.copy_engines",
         .variable = "NCCL_CUMEM_ENABLE",
         .good = "1",
         .is_set = options->copy_engines},
        {.key = "comm.copy_engines",
         .variable = "NCCL_P2P_DISABLE",
         .good = "0",
         .is_set = options->copy_engines},
        {.key = "comm.nvls", .variable = "NCCL_NVLS_ENABLE", .good = "2", .is_set = options->nvls},
    };
    for (size_t i = 0; i < sizeof rivals / sizeof rivals[0]; i++) {
        const char *value = rivals[i].is_set ? getenv(rivals[i].variable) : NULL;
        if (value && (!rivals[i].good || strcmp(value, rivals[i].good) != 0))
            return error_set(err,
                             "%s is set, and so is %s=%s in the environment, which NCCL "
                             "follows instead; unset one",
                             rivals[i].key, rivals[i].variable, value);
    }
    return 0;
}

/* Return 0 where all ranks from which this one gathers parameters are on its node; else -1 with err
 * set. */
static int check_node(const struct link *l, struct error *err)
{
    const struct group *shards = mesh_group_of(l->mesh, MESH_SHARDS);
    const char *own = world_host_of(l->world, l->world->rank); /* cut short, as all in the table */
    for (int m = 0; m < shards->size; m++) {
        const char *other = world_host_of(l->world, shards->ranks[m]);
        if (strcmp(other, own) != 0)
            return error_set(err,
                             "comm.copy_engines is of GPUs of one node, and ranks %d (%s) and %d "
                             "(%s) share one copy of the model; HYBRID_SHARD keeps a copy in each "
                             "node, or leave it at false",
                             l->world->rank, own, shards->ranks[m], other);
    }
    return 0;
}

/* Return 0 where NCCL, as loaded and as compiled for, has copy engines; else -1 with err set. */
static int check_version(struct error *err)
{
    int is = nccl_version(), built = NCCL_VERSION_CODE;
    int old = is < built ? is : built;
    if (old >= COPY_ENGINES_SINCE)
        return 0;
    return error_set(err, "comm.copy_engines needs NCCL 2.28 or newer, and this %s %d.%d.%d",
                     is < built ? "is" : "was built for", old / 10000, old / 100 % 100, old % 100);
}

/* Return 0 unless this version may hang where copy engines gather, as here, between two GPUs; else
 * -1 with err set. */
static int check_pair(const struct link *l, struct error *err)
{
    const char *nvls = getenv("NCCL_NVLS_ENABLE");
    const int is_on = nvls ? strcmp(nvls, "0") != 0 : l->options.nvls;
    const int is_pair = mesh_group_of(l->mesh, MESH_SHARDS)->size == 2;
    const char *fault = is_on && is_pair ? nccl_fault(nccl_version(), NCCL_USE_PAIR_COPIES) : NULL;
    char library[96];
    return fault ? error_set(err, "comm.copy_engines: NCCL %s %s", mesh_gpu_library(library), fault)
                 : 0;
}

static int check_copy_engines(const struct link *l, struct error *err)
{
    return check_version(err) || check_node(l, err) || check_pair(l, err) ? -1 : 0;
}

/* Variables of CUDA's that users bring along, and which hold up transfers: values from `least` to
 * `most`. */
static const struct {
    const char *name, *text;
    int least, most;
} slow_settings[] = {
    {.name = "CUDA_DEVICE_MAX_CONNECTIONS",
     .text = "streams then wait for one another, and transfers are not beside kernels (Megatron-LM "
             "asks for 1; trireme for 32 where nothing is set)",
     .least = 1,
     .most = DEVICE_STREAMS - 1},
    {.name = "CUDA_LAUNCH_BLOCKING",
     .text = "each transfer is then waited for where it is started, and stages that send to each "
             "other hang",
     .least = 1,
     .most = INT_MAX},
};

/* Warn on rank 0 of what may hang or be slow here. */
static void warn_of_settings(const struct link *l)
{
    const char *fault = world_nodes(l->world) > 1 ? mesh_gpu_library_fault() : NULL;
    char library[96];
    if (world_rank(l->world) != 0)
        return;
    if (fault)
        log_warn(NULL, "NCCL %s %s", mesh_gpu_library(library), fault);
    for (size_t i = 0; i < sizeof slow_settings / sizeof slow_settings[0]; i++) {
        const char *value = getenv(slow_settings[i].name);
        int number = value ? atoi(value) : 0;
        if (number >= slow_settings[i].least && number <= slow_settings[i].most)
            log_warn(NULL, "%s=%s is set in the environment: %s; unset it", slow_settings[i].name,
                     value, slow_settings[i].text);
    }
}

int nccl_prepare(struct link *l, struct error *err)
{
    const struct mesh_options *options = &l->options;
    int rc = check_hanging(err) || check_rivals(options, err) ? -1 : 0;
    if (!rc && options->copy_engines)
        rc = check_copy_engines(l, err);
    if (world_agree(l->world, rc, err))
        return -1;
    warn_of_settings(l);
    prepare_environment(options);
    return 0;
}

ncclConfig_t nccl_config(const struct channel *c)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    if (c->least_ctas)
        config.minCTAs = c->least_ctas;
    if (c->most_ctas)
        config.maxCTAs = c->most_ctas;
    nccl_config_newer(&config, c, nccl_gathers_by_copies(c));
    return config;
}
