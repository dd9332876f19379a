/* check.c - config_finish(): what follows from other keys, and combinations that cannot work.
 * check_model.c has the checks of the model and its weights, check_train.c those of training.
 *
 * finish_X() sets fields that follow from others, and checks; check_X() only checks.  A key that
 * would have no effect is refused, by comparing it with its default (config_first_set()).
 */
#include "config/schema.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"

static int finish_data(struct config *config, struct error *err)
{
    enum { SEQ_LEN_UNASKED = 512 };
    struct config_data *data = &config->data;
    int64_t most = config->model.max_seq_len;
    if (!data->seq_len)
        data->seq_len = most < SEQ_LEN_UNASKED ? most : SEQ_LEN_UNASKED;
    if (data->seq_len > most)
        return error_set(err, "data.seq_len (%lld) is above model.max_seq_len (%lld)",
                         (long long)data->seq_len, (long long)most);
    return 0;
}

/* Set a degree to the 1 that the strategy makes of it, and *follows to 1 where the user did not
 * give the degree.  A second call finds the 1 of the first, and *follows stays. */
static void set_to_one(int64_t *degree, int *follows)
{
    *follows = !*degree || (*follows && *degree == 1);
    *degree = 1;
}

static int finish_parallel(struct config_parallel *p, struct error *err)
{
    int hybrid = config_sharding[p->strategy].hybrid;
    if (p->strategy == STRATEGY_NO_SHARD && p->shard > 1)
        return error_set(err,
                         "parallel.shard is %lld, but parallel.strategy NO_SHARD keeps whole "
                         "copies; set parallel.replicate instead, or FULL_SHARD",
                         (long long)p->shard);
    if (p->strategy != STRATEGY_NO_SHARD && !hybrid && p->replicate > 1)
        return error_set(err,
                         "parallel.replicate is %lld, but with this parallel.strategy all ranks "
                         "share one copy; several sharded copies are HYBRID_SHARD",
                         (long long)p->replicate);
    if (p->strategy == STRATEGY_NO_SHARD)
        set_to_one(&p->shard, &p->shard_follows);
    else
        p->shard_follows = 0;
    if (p->strategy != STRATEGY_NO_SHARD && !hybrid)
        set_to_one(&p->replicate, &p->replicate_follows);
    else
        p->replicate_follows = 0;
    return 0;
}

/* Check comm.gpu as far as that needs no number of ranks; layout_resolve() checks the rest. */
static int check_gpu_comm(const struct config *config, struct error *err)
{
    const struct config_comm_gpu *g = &config->comm.gpu;
    const char *name = config_first_set(config, g, sizeof *g);
    if (!name)
        return 0;
    if (config->device == CONFIG_DEVICE_CPU)
        return error_set(err, "%s is of transfers between GPUs, and device is cpu; leave it out",
                         name);
    if (g->max_ctas && g->min_ctas > g->max_ctas)
        return error_set(err, "comm.min_ctas (%lld) is above comm.max_ctas (%lld)",
                         (long long)g->min_ctas, (long long)g->max_ctas);
    if (config->comm.share_gpu && (g->min_ctas || g->max_ctas || g->copy_engines || g->nvls))
        return error_set(err,
                         "%s is of transfers from GPU to GPU, and with comm.share_gpu ranks of one "
                         "GPU exchange by the host; leave one out",
                         name);
    if (g->nvls && config->train.reproducible)
        return error_set(err, "comm.nvls adds up in an order that differs from run to run; set "
                              "train.reproducible=false with it, or leave it at false");
    if (g->copy_engines && config->parallel.strategy == STRATEGY_NO_SHARD)
        return error_set(err, "comm.copy_engines is of gathers of parameters, and with "
                              "parallel.strategy NO_SHARD there are none; leave it at false");
    if (g->copy_engines && config->train.optimizer == OPTIMIZER_MUON)
        return error_set(err, "comm.copy_engines needs the same memory on all ranks that share a "
                              "copy of the model, and with train.optimizer muon each has matrices "
                              "of its own; leave it at false");
    return 0;
}

/* Refuse keys that would have no effect. */
static int check_comm(const struct config *config, struct error *err)
{
    enum config_strategy strategy = config->parallel.strategy;
    int reduces = strategy != STRATEGY_NO_SHARD;
    int one_copy = reduces && !config_sharding[strategy].hybrid;
    if (config->comm.reduce_dtype == DTYPE_F16 && config->precision != PRECISION_FP16)
        return error_set(err,
                         "comm.reduce_dtype fp16 needs the loss scale of precision=fp16, which "
                         "skips steps that overflow; here use bf16 or fp32");
    if (config->comm.reduce_dtype != DTYPE_F32 && !reduces)
        return error_set(
            err, "comm.reduce_dtype other than fp32 is of gradients on their way to shards, but "
                 "parallel.strategy is NO_SHARD; leave it at fp32");
    if (config->comm.inter_node == CONFIG_INTER_NODE_MPI && one_copy &&
        config->device != CONFIG_DEVICE_CPU)
        return error_set(err, "comm.inter_node mpi is for sums over copies of the model, and "
                              "with this parallel.strategy there is one copy; leave it at nccl");
    return check_gpu_comm(config, err);
}

static int check_offload(const struct config *config, struct error *err)
{
    const struct config_offload *o = &config->offload;
    int stage = config_sharding[config->parallel.strategy].stage;
    if (o->params != OFFLOAD_NONE && stage < 3)
        return error_set(err, "offload.params needs parameters that are gathered for each use: "
                              "parallel.strategy FULL_SHARD or HYBRID_SHARD; with others leave it "
                              "at none");
    if (o->gradients != OFFLOAD_NONE && stage < 2)
        return error_set(err,
                         "offload.gradients needs gradients that leave after each micro-batch: "
                         "parallel.strategy SHARD_GRAD_OP, FULL_SHARD, HYBRID_SHARD or "
                         "HYBRID_SHARD_ZERO2; with others leave it at none");
    if (o->gradients != OFFLOAD_NONE && config->parallel.pipeline > 1 &&
        config->model.tie_embeddings)
        return error_set(err,
                         "offload.gradients keeps gradients away from the device, where stages "
                         "of parallel.pipeline exchange those of tied embeddings; leave it at "
                         "none");
    if (o->path[0] && o->optimizer != OFFLOAD_DISK && o->params != OFFLOAD_DISK &&
        o->gradients != OFFLOAD_DISK)
        return error_set(err,
                         "offload.path is %s, but nothing is offloaded to disk; set "
                         "offload.optimizer, offload.params or offload.gradients to disk",
                         o->path);
    return 0;
}

static int check_units(const struct config *config, struct error *err)
{
    const struct config_parallel *p = &config->parallel;
    if ((p->wrap == WRAP_LAYERS) != (p->layers_per_unit > 0))
        return error_set(err, "parallel.wrap layers and parallel.layers_per_unit belong together: "
                              "set both or none");
    if ((p->wrap == WRAP_SIZE) != (p->min_num_params > 0))
        return error_set(err, "parallel.wrap size and parallel.min_num_params belong together: set "
                              "both or none");
    if (p->persist_below && p->strategy == STRATEGY_NO_SHARD)
        return error_set(err, "parallel.persist_below is of units that would be sharded, but "
                              "parallel.strategy is NO_SHARD; leave it at 0");
    if (config->recompute == RECOMPUTE_GATHERED && p->tensor == 1 && p->context == 1)
        return error_set(err, "recompute gathered is of rows that tensor or context ranks gather, "
                              "and parallel.tensor and parallel.context are 1; use none");
    if (config->recompute_every > 1 && config->recompute == RECOMPUTE_NONE)
        return error_set(err, "recompute_every is %lld, but recompute is none: no unit recomputes",
                         (long long)config->recompute_every);
    return 0;
}

int config_has_buckets(const struct config_parallel *p)
{
    return p->strategy == STRATEGY_NO_SHARD ||
           (config_sharding[p->strategy].hybrid && p->shard <= 1);
}

/* parallel.layout auto chooses the strategy later. */
static int check_buckets(const struct config *config, struct error *err)
{
    const struct config_parallel *p = &config->parallel;
    if (config_has_buckets(p) || p->layout == PARALLEL_LAYOUT_AUTO ||
        !config_first_set(config, &p->reduce_bucket_bytes, sizeof p->reduce_bucket_bytes))
        return 0;
    return error_set(err, "parallel.reduce_bucket_bytes is of copies of a whole model, and with "
                          "this parallel.strategy ranks have shards, whose gradients are summed "
                          "unit by unit; leave it out");
}

/* parallel.layout auto chooses the strategy later. */
static int check_prefetch(const struct config_parallel *p, struct error *err)
{
    if (p->prefetch_units == 1)
        return 0;
    if (!p->forward_prefetch && p->backward_prefetch == PREFETCH_NONE)
        return error_set(err,
                         "parallel.prefetch_units is %lld, but parallel.forward_prefetch is false "
                         "and parallel.backward_prefetch none: nothing is gathered ahead; leave it "
                         "at 1",
                         (long long)p->prefetch_units);
    if (p->strategy == STRATEGY_NO_SHARD && p->layout != PARALLEL_LAYOUT_AUTO)
        return error_set(err,
                         "parallel.prefetch_units is %lld, but parallel.strategy is NO_SHARD, "
                         "which gathers no parameters; leave it at 1",
                         (long long)p->prefetch_units);
    return 0;
}

static int check_tensor(const struct config_parallel *p, struct error *err)
{
    const char *set = p->tensor_overlap ? "tensor_overlap"
                      : p->tensor_fp32  ? "tensor_reduce_dtype"
                                        : NULL;
    if (p->tensor > 1 || !set)
        return 0;
    return error_set(err,
                     "parallel.%s is of ranks that divide layers, and parallel.tensor is 1; leave "
                     "it at auto",
                     set);
}

/* parallel.layout auto chooses strategy and stages later. */
static int check_reshard(const struct config_parallel *p, struct error *err)
{
    if (!p->pipeline_reshard || p->layout == PARALLEL_LAYOUT_AUTO)
        return 0;
    if (config_sharding[p->strategy].stage < 3)
        return error_set(err, "parallel.pipeline_reshard is of parallel.strategy FULL_SHARD and "
                              "HYBRID_SHARD, which shard parameters; with others leave it at "
                              "false");
    if (p->pipeline > 1)
        return 0;
    return error_set(err,
                     "parallel.pipeline_reshard is of several stages, and parallel.pipeline is "
                     "1, where parameters are gathered for each use anyhow; leave it at false");
}

/* Check the texts that name token files; the files are not looked at. */
static int check_sources(const struct config_data *data, struct error *err)
{
    struct config_source *source = array_make(CONFIG_SOURCES, sizeof *source);
    int rc = config_sources(data->train, source, err) < 0 ? error_prefix(err, "data.train") : 0;
    if (!rc && config_sources(data->valid, source, err) < 0)
        rc = error_prefix(err, "data.valid");
    if (!rc && data->valid[0] && source[0].weight > 0)
        rc = error_set(err, "data.valid: weights are for training; what is evaluated is read "
                            "once, whole");
    free(source);
    return rc;
}

int config_finish(struct config *config, struct error *err)
{
    if (config_check_model(config, err) || finish_data(config, err) ||
        check_sources(&config->data, err) || finish_parallel(&config->parallel, err) ||
        check_comm(config, err) || check_offload(config, err) || check_units(config, err) ||
        check_buckets(config, err) || check_prefetch(&config->parallel, err) ||
        check_tensor(&config->parallel, err) || check_reshard(&config->parallel, err) ||
        config_check_train(config, err) || config_check_weights(config, err))
        return -1;
    if (!config->run.dir[0])
        return error_set(err, "run.dir is empty: it names the directory of the run");
    if (!config->checkpoint.resume[0])
        return error_set(err, "checkpoint.resume is empty: auto, none or a path");
    return 0;
}
