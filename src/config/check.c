/* check.c - what follows from other keys, and combinations that cannot work. */
#include "config/schema.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"

static int too_few(const char *name, int64_t value, struct error *err)
{
    if (value > 0)
        return 0;
    return error_set(err,
                     "%s is not set: name a model (model.preset=llama-tiny) or give "
                     "model.layers, hidden, heads, ffn and vocab",
                     name);
}

static int finish_heads(struct config_model *m, struct error *err)
{
    if (!m->kv_heads)
        m->kv_heads = m->heads;
    if (m->heads % m->kv_heads)
        return error_set(err, "model.heads (%lld) is not a multiple of model.kv_heads (%lld)",
                         (long long)m->heads, (long long)m->kv_heads);
    if (!m->head_dim && m->hidden % m->heads)
        return error_set(err,
                         "model.hidden (%lld) is not a multiple of model.heads (%lld); change "
                         "one, or set model.head_dim",
                         (long long)m->hidden, (long long)m->heads);
    if (!m->head_dim)
        m->head_dim = m->hidden / m->heads;
    if (m->head_dim % 2)
        return error_set(err,
                         "model.head_dim is %lld, but attention needs an even number (it is "
                         "model.hidden / model.heads unless set)",
                         (long long)m->head_dim);
    return 0;
}

static int check_rope(const struct config_rope *rope, struct error *err)
{
    const struct config_yarn *yarn = &rope->yarn;
    if (rope->scaling == ROPE_SCALING_LLAMA3 && rope->low_freq_factor >= rope->high_freq_factor)
        return error_set(err,
                         "model.rope_low_freq_factor (%g) must be below "
                         "model.rope_high_freq_factor (%g)",
                         rope->low_freq_factor, rope->high_freq_factor);
    if (rope->scaling != ROPE_SCALING_YARN)
        return 0;
    if (yarn->beta_slow > yarn->beta_fast)
        return error_set(err, "model.rope_beta_slow (%g) is above model.rope_beta_fast (%g)",
                         yarn->beta_slow, yarn->beta_fast);
    if (rope->theta <= 1)
        return error_set(err, "model.rope_theta is %g; rope_scaling yarn needs one above 1",
                         rope->theta);
    return 0;
}

static int finish_model(struct config_model *m, struct error *err)
{
    if (too_few("model.layers", m->layers, err) || too_few("model.hidden", m->hidden, err) ||
        too_few("model.heads", m->heads, err) || too_few("model.ffn", m->ffn, err) ||
        too_few("model.vocab", m->vocab, err) || finish_heads(m, err))
        return -1;
    return check_rope(&m->rope, err);
}

const char *config_first_set(const struct config *config, const void *part, size_t bytes)
{
    size_t from = (size_t)((const char *)part - (const char *)config);
    for (int i = 0; i < config_key_count; i++) {
        const struct key *key = &config_keys[i];
        struct config initial;
        if (key->offset >= from && key->offset < from + bytes &&
            !key_set(&initial, key, key->initial, NULL) &&
            memcmp((const char *)config + key->offset, (const char *)&initial + key->offset,
                   key->bytes) != 0)
            return key->name;
    }
    return NULL;
}

/* Refuse keys that would have no effect. */
static int check_lora(const struct config *config, struct error *err)
{
    const char *name = config_first_set(config, &config->lora, sizeof config->lora);
    enum config_frozen frozen = config->checkpoint.frozen;
    if (frozen == FROZEN_REFERENCE && !config->model_path[0])
        return error_set(err, "checkpoint.frozen is reference, and model.path names no folder to "
                              "refer to; leave it at auto");
    if (!config->lora.r && !name && frozen != FROZEN_AUTO)
        name = "checkpoint.frozen";
    if (config->lora.use_dora && config->lora.dropout > 0)
        return error_set(err, "lora.use_dora scales rows to the lengths of what nothing is dropped "
                              "of; set lora.dropout=0 with it");
    if (config->lora.r || !name)
        return 0;
    return error_set(err, "%s is of adapters, and lora.r, their rank, is 0: there are none; set it",
                     name);
}

/* Of Hugging Face's classes that trireme knows none has both. */
static int check_export(const struct config *config, struct error *err)
{
    if (!config->checkpoint.export_hf || !config->model.qkv_bias || !config->model.qk_norm)
        return 0;
    return error_set(err,
                     "checkpoint.export_hf is set, and no model of Hugging Face's that trireme "
                     "knows has model.qkv_bias and model.qk_norm; leave one out");
}

/* Refuse keys that would have no effect, and adapters of weights that nothing else has. */
static int check_init(const struct config *config, struct error *err)
{
    if (config->model_init == INIT_PRETRAINED)
        return 0;
    if (!config->model_path[0])
        return error_set(err,
                         "model.init is scratch, which is of a model.path; without one weights "
                         "are new anyhow");
    if (config->lora.r)
        return error_set(err, "model.init is scratch, and lora.r trains adapters beside weights "
                              "that would stay as the seed made them; leave one out");
    return 0;
}

/* Refuse keys of other kinds of rope scaling.  With model.path the model's config.json may have set
 * them for a kind that the user then replaced; of those only yarn's are refused. */
static int check_rope_keys(const struct config *config, struct error *err)
{
    enum {
        LINEAR = 1 << ROPE_SCALING_LINEAR,
        LLAMA3 = 1 << ROPE_SCALING_LLAMA3,
        YARN = 1 << ROPE_SCALING_YARN
    };
    const struct config_rope *rope = &config->model.rope;
    const struct {
        const void *part; /* of config */
        size_t bytes;
        unsigned kinds; /* that read it */
        const char *names;
    } keys[] = {
        {.part = &rope->yarn, .bytes = sizeof rope->yarn, .kinds = YARN, .names = "yarn"},
        {.part = &rope->factor,
         .bytes = sizeof rope->factor,
         .kinds = LINEAR | LLAMA3 | YARN,
         .names = "linear, llama3 or yarn"},
        {.part = &rope->low_freq_factor,
         .bytes = sizeof rope->low_freq_factor,
         .kinds = LLAMA3,
         .names = "llama3"},
        {.part = &rope->high_freq_factor,
         .bytes = sizeof rope->high_freq_factor,
         .kinds = LLAMA3,
         .names = "llama3"},
        {.part = &rope->original_len,
         .bytes = sizeof rope->original_len,
         .kinds = LLAMA3 | YARN,
         .names = "llama3 or yarn"},
    };
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        const char *name = config_first_set(config, keys[i].part, keys[i].bytes);
        int may_be_of_file = config->model_path[0] && keys[i].kinds != YARN;
        if (name && !may_be_of_file && !(keys[i].kinds >> rope->scaling & 1))
            return error_set(err, "%s is of model.rope_scaling %s; leave it out, or set that", name,
                             keys[i].names);
    }
    return 0;
}

/* Refuse keys of features that GPT-2 does not have, where they were set. */
static int check_gpt2(const struct config *config, struct error *err)
{
    const struct config_model *m = &config->model;
    if (strcmp(m->family, "gpt2") != 0)
        return 0;
    if (m->kv_heads != m->heads)
        return error_set(err,
                         "model.kv_heads is %lld, but in model.family gpt2 each of the %lld heads "
                         "has its own keys and values; leave it out",
                         (long long)m->kv_heads, (long long)m->heads);
    const char *other = m->qkv_bias         ? "qkv_bias"
                        : m->qk_norm        ? "qk_norm"
                        : m->sliding_window ? "sliding_window"
                                            : NULL;
    if (other)
        return error_set(err, "model.%s is of model.family llama; gpt2 is as it is, leave it out",
                         other);
    const char *name = config_first_set(config, &m->rope, sizeof m->rope);
    if (name)
        return error_set(err,
                         "%s is set, but model.family gpt2 learns its positions and rotates none; "
                         "leave it out",
                         name);
    return 0;
}

/* Refuse dropout that llama does not have. */
static int check_dropout(const struct config *config, struct error *err)
{
    const struct config_dropout *d = &config->model.dropout;
    if (!strcmp(config->model.family, "gpt2") || (!d->embed && !d->residual))
        return 0;
    return error_set(err, "model.%s_dropout is of model.family gpt2; leave it out",
                     d->embed ? "embed" : "residual");
}

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
        p->shard = 1;
    else if (!hybrid)
        p->replicate = 1;
    return 0;
}

/* What is known before the ranks are; layout_resolve() has the rest. */
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

/* The global batch in sequences, whichever way it was given. */
static int finish_batch(struct config *config, struct error *err)
{
    enum { UNASKED = 8 };
    struct config_train *t = &config->train;
    int64_t seq = config->data.seq_len, given = t->global_batch;
    int64_t batch = t->global_batch_tokens / seq;
    if (t->global_batch_tokens % seq)
        return error_set(
            err,
            "train.global_batch_tokens is %lld, not a multiple of data.seq_len (%lld); "
            "%lld is",
            (long long)t->global_batch_tokens, (long long)seq, (long long)((batch + 1) * seq));
    if (given && batch && given != batch)
        return error_set(err,
                         "train.global_batch (%lld) and train.global_batch_tokens (%lld, which are "
                         "%lld sequences of %lld) are both set; leave one out",
                         (long long)given, (long long)t->global_batch_tokens, (long long)batch,
                         (long long)seq);
    if (batch && !t->split_batches)
        return error_set(err, "train.global_batch_tokens is for all ranks together, but "
                              "train.split_batches is false; set train.global_batch, the "
                              "sequences of each rank");
    t->global_batch = given ? given : batch ? batch : UNASKED;
    return 0;
}

/* Refuse keys that would have no effect, unless they are at their defaults. */
static int check_optimizer(const struct config *config, struct error *err)
{
    const struct config_train *t = &config->train;
    const char *name = config_first_set(config, &t->muon, sizeof t->muon);
    if (t->optimizer != OPTIMIZER_MUON && name)
        return error_set(err, "%s is of train.optimizer muon; leave it out, or set that", name);
    if (t->optimizer != OPTIMIZER_SGD && t->momentum != 0.9)
        return error_set(err, "train.momentum is %g, but it is of train.optimizer sgd; %s",
                         t->momentum,
                         t->optimizer == OPTIMIZER_MUON ? "muon has train.muon_momentum"
                                                        : "adamw has train.beta1");
    if (t->optimizer == OPTIMIZER_SGD && (t->beta1 != 0.9 || t->beta2 != 0.95 || t->eps != 1e-8))
        return error_set(err,
                         "train.beta1, train.beta2 and train.eps are of train.optimizer adamw; "
                         "sgd has train.momentum");
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

/* parallel.layout auto chooses stages later. */
static int check_reshard(const struct config_parallel *p, struct error *err)
{
    if (!p->pipeline_reshard || p->pipeline > 1 || p->layout == PARALLEL_LAYOUT_AUTO)
        return 0;
    return error_set(err,
                     "parallel.pipeline_reshard is of several stages, and parallel.pipeline is "
                     "1, where parameters are gathered for each use anyhow; leave it at false");
}

static int computes_in_bf16(const struct config *config)
{
    return config->precision == PRECISION_BF16 || config->precision == PRECISION_BF16_PURE ||
           config->precision == PRECISION_FP8;
}

/* Gradients in bf16 are what products in bf16 make, and steps of single elements. */
static int check_grad_dtype(const struct config *config, struct error *err)
{
    const struct config_train *t = &config->train;
    if (t->grad_dtype == DTYPE_F32)
        return 0;
    if (!computes_in_bf16(config))
        return error_set(err, "train.grad_dtype bf16 is of products in bf16: of precision bf16, "
                              "bf16_pure or fp8; with others leave it at fp32");
    if (t->optimizer == OPTIMIZER_MUON)
        return error_set(err, "train.grad_dtype bf16: train.optimizer muon makes its step in place "
                              "of the gradient, in fp32; leave it at fp32, or use adamw");
    return 0;
}

/* Updates beside forward are those of single elements. */
static int check_overlap_update(const struct config *config, struct error *err)
{
    if (!config->train.overlap_update || config->train.optimizer != OPTIMIZER_MUON)
        return 0;
    return error_set(err,
                     "train.overlap_update: train.optimizer muon exchanges matrices and "
                     "multiplies them, which is not done beside forward; leave it at false, or "
                     "use adamw");
}

static int check_precision(const struct config *config, struct error *err)
{
    const struct config_train *t = &config->train;
    if (check_grad_dtype(config, err) || check_overlap_update(config, err))
        return -1;
    if (t->logits_dtype == DTYPE_BF16 && !computes_in_bf16(config))
        return error_set(err, "train.logits_dtype bf16 is of precision bf16, bf16_pure and fp8, "
                              "whose activations are bf16; leave it at fp32");
    if (t->optimizer == OPTIMIZER_ADAMW)
        return 0;
    if (t->optimizer_dtype != DTYPE_F32)
        return error_set(err, "train.optimizer_dtype bf16 is of train.optimizer adamw; leave it at "
                              "fp32");
    if (config->precision == PRECISION_BF16_PURE)
        return error_set(err, "precision bf16_pure needs train.optimizer adamw, which rounds "
                              "stochastically; use precision bf16");
    if (t->optimizer == OPTIMIZER_MUON && config->parallel.tensor > 1)
        return error_set(err, "train.optimizer muon needs whole matrices, and parallel.tensor "
                              "divides them; leave it at 1, or use adamw");
    if (t->optimizer == OPTIMIZER_MUON && config->comm.inter_node == CONFIG_INTER_NODE_MPI &&
        config->device != CONFIG_DEVICE_CPU)
        return error_set(err, "comm.inter_node mpi only sums, and train.optimizer muon sends "
                              "matrices from rank to rank; leave it at nccl");
    return 0;
}

static int check_loss_scale(const struct config *config, struct error *err)
{
    const struct config_loss_scale *c = &config->train.loss_scale;
    const char *name = NULL;
    if (config->precision != PRECISION_FP16)
        name = config_first_set(config, c, sizeof *c);
    if (name)
        return error_set(err, "%s is of precision fp16; other precisions need no loss scale", name);
    if (c->fixed > 0)
        name = config_first_set(config, &c->dynamic, sizeof c->dynamic);
    if (name)
        return error_set(err,
                         "%s is of a dynamic loss scale, but train.loss_scale fixes it at %g; "
                         "leave one out",
                         name, c->fixed);
    if (c->dynamic.least > ldexp(1, (int)c->dynamic.initial_power))
        return error_set(err,
                         "train.min_loss_scale (%g) is above where the loss scale begins, 2^%lld "
                         "(train.initial_scale_power)",
                         c->dynamic.least, (long long)c->dynamic.initial_power);
    return 0;
}

/* Refuse what waits for evaluations that never come. */
static int check_evaluation(const struct config *config, struct error *err)
{
    const struct config_train *t = &config->train;
    if (t->early_stop_delta > 0 && !t->early_stop && !config->checkpoint.keep_best)
        return error_set(err,
                         "train.early_stop_delta is %g, but neither train.early_stop nor "
                         "checkpoint.keep_best is set",
                         t->early_stop_delta);
    if (t->early_stop && !t->eval_every)
        return error_set(err,
                         "train.early_stop is %lld evaluations, but there are none while training "
                         "goes on; set train.eval_every and data.valid",
                         (long long)t->early_stop);
    if (config->generate.min_tokens > config->generate.tokens)
        return error_set(err, "generate.min_tokens (%lld) is above generate.tokens (%lld)",
                         (long long)config->generate.min_tokens,
                         (long long)config->generate.tokens);
    if (config->generate.samples && !config->data.valid[0])
        return error_set(err, "generate.samples continues texts of data.valid, and that names no "
                              "token file; set it, or generate.samples=0");
    if (config->generate.samples && config->parallel.context > 1)
        return error_set(err,
                         "generate.samples continues texts, whose next token is in no part of a "
                         "sequence; with parallel.context %lld set generate.samples=0",
                         (long long)config->parallel.context);
    if (config->checkpoint.keep_best && !config->data.valid[0])
        return error_set(err, "checkpoint.keep_best is that of the lowest loss on data.valid, "
                              "which names no file");
    if (t->eval_micro_batch && !config->data.valid[0])
        return error_set(err, "train.eval_micro_batch is %lld, but data.valid names no file",
                         (long long)t->eval_micro_batch);
    return 0;
}

/* The texts that name token files. */
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

static int check_train(const struct config *config, struct error *err)
{
    const struct config_train *t = &config->train;
    if (t->min_lr > t->lr)
        return error_set(err, "train.min_lr (%g) is above train.lr (%g)", t->min_lr, t->lr);
    if (t->warmup_min_lr > t->lr)
        return error_set(err, "train.warmup_min_lr (%g) is above train.lr (%g)", t->warmup_min_lr,
                         t->lr);
    if (t->warmup_min_lr > 0 && !t->warmup_steps)
        return error_set(err,
                         "train.warmup_min_lr is %g, but train.warmup_steps is 0: there is "
                         "no warm-up",
                         t->warmup_min_lr);
    if (t->warmup_type != WARMUP_LINEAR && !t->warmup_steps)
        return error_set(err, "train.warmup_type is log, but train.warmup_steps is 0: there is no "
                              "warm-up");
    if (t->epochs > 0 && config_first_set(config, &t->steps, sizeof t->steps))
        return error_set(err,
                         "train.steps (%lld) and train.epochs (%g) both say how long training is; "
                         "leave one out",
                         (long long)t->steps, t->epochs);
    if (check_evaluation(config, err))
        return -1;
    if (t->eval_every && !config->data.valid[0])
        return error_set(err, "train.eval_every is %lld, but data.valid names no file",
                         (long long)t->eval_every);
    return check_optimizer(config, err);
}

/* An adapter's folder says nothing of the model that it belongs to. */
static int check_adapted(const struct config *config, struct error *err)
{
    if (config->model.layers || config->model_path[0] || !config->lora.path[0])
        return 0;
    return error_set(err,
                     "lora.path is set, and model.path is missing: the model to which the adapters "
                     "of %.200s belong",
                     config->lora.path);
}

int config_finish(struct config *config, struct error *err)
{
    if (check_adapted(config, err) || finish_model(&config->model, err) ||
        check_gpt2(config, err) || check_dropout(config, err) || check_rope_keys(config, err) ||
        finish_data(config, err) || check_sources(&config->data, err) ||
        finish_parallel(&config->parallel, err) || check_comm(config, err) ||
        check_offload(config, err) || check_units(config, err) || finish_batch(config, err) ||
        check_train(config, err) || check_tensor(&config->parallel, err) ||
        check_reshard(&config->parallel, err) || check_precision(config, err) ||
        check_loss_scale(config, err) || check_lora(config, err) || check_init(config, err) ||
        check_export(config, err))
        return -1;
    if (!config->run.dir[0])
        return error_set(err, "run.dir is empty: it names the directory of the run");
    if (!config->checkpoint.resume[0])
        return error_set(err, "checkpoint.resume is empty: auto, none or a path");
    return 0;
}
