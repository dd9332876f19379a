/* config.h - the configuration of a run: one struct, filled from the schema table.
 *
 * Every key is one row of schema_*.c: name, type, default, range or choices, help, and the field it
 * fills.  The same row parses YAML and key=value, prints `config --show`, makes the man page, and
 * writes the effective config.yaml of a run.
 */
#ifndef TRIREME_CONFIG_CONFIG_H
#define TRIREME_CONFIG_CONFIG_H

#include <stdint.h>
#include <stdio.h>

#include "base/dtype.h"
#include "base/error.h"

enum { CONFIG_TEXT = 512 }; /* bytes of a field of text, its 0 included */

enum config_device { CONFIG_DEVICE_AUTO, CONFIG_DEVICE_CPU, CONFIG_DEVICE_CUDA };
enum config_precision {
    PRECISION_FP32,
    PRECISION_BF16,
    PRECISION_BF16_PURE,
    PRECISION_FP16,
    PRECISION_FP8, /* like bf16, but the matrices of the blocks are multiplied in fp8 */
};
enum config_recompute { RECOMPUTE_NONE, RECOMPUTE_GATHERED, RECOMPUTE_SELECTIVE, RECOMPUTE_FULL };
/* Who reads weights from files: each rank its own parts, or one rank of each node for all there. */
enum config_loading { LOADING_EACH, LOADING_NODE };
enum config_self_check { SELF_CHECK_AUTO, SELF_CHECK_ALWAYS, SELF_CHECK_OFF };
enum config_init { INIT_PRETRAINED, INIT_SCRATCH };
enum config_rope_scaling {
    ROPE_SCALING_NONE,
    ROPE_SCALING_LLAMA3,
    ROPE_SCALING_LINEAR,
    ROPE_SCALING_YARN
};
enum config_packing { PACKING_STREAM, PACKING_DOCUMENTS, PACKING_PADDED };
enum config_schedule {
    SCHEDULE_CONSTANT,
    SCHEDULE_LINEAR,
    SCHEDULE_COSINE,
    SCHEDULE_WSD, /* this and those below are warm-up, stable, decay */
    SCHEDULE_WSD_COSINE,
    SCHEDULE_WSD_SQRT
};
enum config_warmup { WARMUP_LINEAR, WARMUP_LOG };
enum config_strategy {
    STRATEGY_NO_SHARD,
    STRATEGY_SHARD_OPTIM,
    STRATEGY_SHARD_GRAD_OP,
    STRATEGY_FULL_SHARD,
    STRATEGY_HYBRID_SHARD,
    STRATEGY_HYBRID_SHARD_ZERO2,
    CONFIG_STRATEGIES
};

/* What a strategy shards: a row for each of enum config_strategy. */
struct config_sharding {
    int stage;  /* ZeRO's stage within one copy of the model: 0 to STAGE_MOST */
    int hybrid; /* 1: the ranks may hold several sharded copies of the model */
};
enum { STAGE_MOST = 3 };
extern const struct config_sharding config_sharding[CONFIG_STRATEGIES];

enum config_wrap { WRAP_BLOCK, WRAP_SIZE, WRAP_LAYERS, WRAP_NONE };
enum config_accumulate { ACCUMULATE_SHARD, ACCUMULATE_LOCAL };
enum config_prefetch { PREFETCH_NONE, PREFETCH_BACKWARD_PRE, PREFETCH_BACKWARD_POST };
enum config_inter_node { CONFIG_INTER_NODE_NCCL, CONFIG_INTER_NODE_MPI };
enum config_optimizer { OPTIMIZER_ADAMW, OPTIMIZER_SGD, OPTIMIZER_MUON, OPTIMIZER_ADAMW8BIT };
enum config_adjust_lr { ADJUST_LR_ORIGINAL, ADJUST_LR_MATCH_RMS_ADAMW };
enum config_offload_to { OFFLOAD_NONE, OFFLOAD_HOST, OFFLOAD_DISK };
/* What a checkpoint of adapters holds of the frozen model: the folder that it came from
 * (REFERENCE), or its tensors (FULL). */
enum config_frozen { FROZEN_AUTO, FROZEN_REFERENCE, FROZEN_FULL };
enum config_decay { DECAY_MATRICES, DECAY_ALL };

/* Settings of rope scaling yarn.  With another scaling, every key of this struct that is set is an
 * error (check_model.c). */
struct config_yarn {
    double beta_fast, beta_slow;   /* rotations within original_len above which a frequency is left
                                      alone, and below which it is stretched by all of factor */
    double attention_factor;       /* multiplies cosines and sines; 0: it follows from factor, or
                                      from the two mscales */
    double mscale, mscale_all_dim; /* 0: not given */
    int truncate; /* 1: the range between the betas is widened to whole frequencies */
};

/* Rotary positions, and how their frequencies are stretched.  In a model family without rotary
 * positions, every key of this struct that is set is an error (check_model.c). */
struct config_rope {
    double theta; /* base of the frequencies */
    enum config_rope_scaling scaling;
    double factor;                            /* by which a scaling stretches wavelengths */
    double low_freq_factor, high_freq_factor; /* of llama3: wavelengths above original_len /
                                                 low_freq_factor are stretched by factor, those
                                                 below original_len / high_freq_factor are not */
    int64_t original_len; /* tokens; Hugging Face's original_max_position_embeddings */
    struct config_yarn yarn;
};

/* Dropout: the share, 0 to 1, of the numbers of each kind that training sets to zero. */
struct config_dropout {
    double embed;     /* of the embedding's output */
    double residual;  /* of what attention and the feed-forward layer add to the residual stream */
    double attention; /* of the attention weights, after the softmax */
};

/* A mixture of experts in place of each block's feed-forward layer (device/ops_experts.h). */
struct config_experts {
    int64_t count;      /* feed-forward layers of width ffn in a block; 0: one, and no router */
    int64_t per_token;  /* of which each token goes through so many */
    int norm_topk_prob; /* 1: their weights are divided by their sum */
    double aux_loss;    /* coefficient of the loss that evens the load out; 0: none */
};

struct config_model {
    char preset[64]; /* "" when defined by its fields alone */
    char family[16]; /* "llama" or "gpt2" */
    int64_t layers;
    int64_t hidden;          /* width of the residual stream */
    int64_t heads, kv_heads; /* of queries; of keys and values */
    int64_t head_dim, ffn;   /* width of a head; inner width of the feed-forward layer */
    int64_t vocab;           /* token ids that the model knows */
    int64_t max_seq_len;     /* tokens */
    double norm_eps;         /* added under the root of a norm */
    double init_std;         /* standard deviation of initial weights */
    struct config_rope rope;
    int tie_embeddings;     /* 1: the token embedding is the output head, too */
    int qkv_bias;           /* 1: queries, keys and values have biases */
    int qk_norm;            /* 1: each head of queries and of keys goes through a norm */
    int64_t sliding_window; /* keys that a query sees at most, its own among them; 0: all before */
    struct config_dropout dropout;
    struct config_experts experts;
};

/* Formats of fewer bits than are computed with, in which weights are kept. */
enum config_quantize { QUANTIZE_NONE, QUANTIZE_NF4 };

/* Matrices of low rank that are trained beside frozen linear layers (model/adapters.h). */
struct config_lora {
    int64_t r;      /* rank of the matrices; 0: there are no adapters */
    double alpha;   /* what an adapter adds is scaled by alpha / r */
    int use_rslora; /* 1: it is scaled by alpha / sqrt(r) */
    int use_dora;   /* 1: DoRA; the lengths of the adapted rows are trained, too */
    double dropout; /* share of the adapters' inputs that training sets to zero */
    enum config_quantize quantize_base; /* how the frozen matrices are kept */
    char target_modules[CONFIG_TEXT], modules_to_save[CONFIG_TEXT]; /* "q_proj,v_proj" */
    char path[CONFIG_TEXT]; /* folder of an adapter to begin with; "": adapters begin new */
};

enum {
    CONFIG_FILES = 4096, /* bytes of a text that names token files */
    CONFIG_SOURCES = 64  /* token files that such a text may name */
};

struct config_data {
    char train[CONFIG_FILES], valid[CONFIG_FILES]; /* token files (config_sources()); "": none */
    int64_t seq_len;                               /* tokens of a sequence */
    enum config_packing packing;
};

/* One of the token files that data.train or data.valid names. */
struct config_source {
    char path[CONFIG_TEXT];
    double weight;   /* share of the samples, relative to the other files' weights; 0: not given */
    int64_t samples; /* the file's first sequences, or documents, that are used; 0: all */
};

/* A loss scale that is halved at overflows.  With a fixed loss scale, every key of this struct that
 * is set is an error (check_train.c). */
struct config_dynamic_scale {
    int64_t initial_power; /* the scale begins at 2 to this power */
    int64_t window;        /* steps without overflow after which the scale doubles */
    int64_t hysteresis;    /* overflows until the scale is halved */
    double least;          /* the scale is not halved below this */
};

/* What multiplies the loss in precision fp16; DeepSpeed's fp16 section.  In another precision,
 * every key of this struct that is set is an error (check_train.c). */
struct config_loss_scale {
    double fixed; /* 0: the scale is dynamic */
    struct config_dynamic_scale dynamic;
};

/* Settings of the optimizer muon.  With another optimizer, every key of this struct that is set is
 * an error (check_train.c). */
struct config_muon {
    double momentum;
    int nesterov;     /* 1: Nesterov's momentum */
    int64_t ns_steps; /* Newton-Schulz steps of an orthogonalization */
    enum dtype dtype; /* of the operands of the orthogonalization's matrix products */
    enum config_adjust_lr adjust_lr;
};

struct config_train {
    int64_t steps; /* where epochs are given, a session sets it to the steps that they make */
    double epochs; /* 0: not given */
    int64_t ahead; /* not a key: by how much the steps that the decay of the learning rate counts
                      with, of the batch of now, are more than `steps` (train/run_length.c) */
    int64_t global_batch, micro_batch; /* sequences; micro_batch: of one rank */
    int64_t global_batch_tokens;       /* global_batch * data.seq_len; 0: not given */
    int split_batches;                 /* 0: global_batch counts the sequences of each rank */
    double lr, min_lr;                 /* the highest, and the one at which schedules end */
    enum config_schedule schedule;
    int64_t warmup_steps;
    int64_t decay_steps;  /* the last steps, which decay, of schedules wsd; 0: a tenth of steps */
    double warmup_min_lr; /* learning rate at which warm-up starts */
    enum config_warmup warmup_type;
    enum config_optimizer optimizer;
    enum dtype optimizer_dtype; /* of the optimizer's state: fp32 or bf16 */
    enum dtype grad_dtype;      /* of gradients of linear layers' weights: fp32 or bf16 */
    double weight_decay, beta1, beta2, eps, momentum;
    struct config_muon muon;
    struct config_loss_scale loss_scale;
    double clip;              /* largest norm of the gradient; 0: no clipping */
    enum config_decay decay;  /* the parameters that weight_decay is for */
    char freeze[CONFIG_TEXT]; /* patterns of tensors that are not trained: "embed,norm" */
    int64_t eval_every;       /* steps between evaluations; 0: never */
    int64_t eval_batches;     /* global batches of an evaluation; 0: the whole of data.valid */
    int64_t eval_micro_batch; /* sequences that a rank evaluates at once; 0: micro_batch */
    int64_t early_stop; /* evaluations without a better loss after which training ends; 0: never */
    double early_stop_delta; /* a loss is better if it is lower than the lowest by more than this */
    int reproducible;        /* 0: GPUs may add terms in any order where that is faster */
    int64_t attention_bytes; /* scratch of attention's backward on GPUs; 0: chosen by free memory */
    enum dtype logits_dtype; /* fp32 or bf16 */
    int64_t logits_chunk;    /* rows whose logits are in memory at once; 0: the device chooses */
    int overlap_update;      /* 1: a step's update runs in the next step, beside its forward */
    int tune_products;       /* 1: GPUs choose algorithms of products by time, once for the run */
};

enum config_layout { PARALLEL_LAYOUT_GIVEN, PARALLEL_LAYOUT_AUTO };

struct config_parallel {
    enum config_layout layout; /* AUTO: a start chooses degrees, strategy and what goes with them */
    enum config_strategy strategy;
    int64_t persist_below; /* units with fewer parameters than this are not sharded */
    enum config_wrap wrap;
    int64_t layers_per_unit; /* with wrap layers, else 0 */
    int64_t min_num_params;  /* with wrap size: parameters of a unit, at least; else 0 */
    int64_t shard, replicate, context, tensor, pipeline; /* degrees; 0: what is left */
    int shard_follows, replicate_follows; /* not keys; 1: the degree is 1 because of the strategy,
                                             and was not given */
    char schedule[CONFIG_TEXT]; /* a name (program/schedule.h), or the path of a .csv file */
    int64_t virtual_stages;     /* stages of each rank; 0: as many as the schedule has by default */
    char stages[CONFIG_TEXT];   /* units of each stage, "3,2,2,1"; "": chosen by cost */
    int tensor_overlap;         /* chunks in which rows are exchanged; 0: as many as pay, 1: off */
    int tensor_fp32;            /* 1: terms of sums over tensor ranks are exchanged in fp32 */
    int pipeline_reshard;       /* 1: FULL_SHARD gathers for each use also with several stages */
    enum config_prefetch backward_prefetch;
    int forward_prefetch;   /* 1: parameters are gathered ahead of forward */
    int64_t prefetch_units; /* units gathered ahead, in forward and in backward */
    enum config_accumulate accumulate;
    int64_t reduce_bucket_bytes; /* least bytes of gradients in one all-reduce; 0: a unit each */
};

/* Where offloaded state is kept. */
struct config_offload {
    enum config_offload_to optimizer, params, gradients;
    char path[CONFIG_TEXT]; /* folder for files of OFFLOAD_DISK; "": in run.dir */
};

/* Transfers between GPUs, by NCCL.  On CPUs, and in a job of one rank, every key of this struct
 * that is set is an error (check.c, program/layout.c), but for spare_sms where one GPU updates
 * beside forward. */
struct config_comm_gpu {
    int64_t min_ctas, max_ctas; /* thread blocks of a transfer; 0: as NCCL chooses */
    int64_t spare_sms;          /* multiprocessors that products leave to transfers and updates */
    int copy_engines;           /* 1: the GPUs' copy engines gather parameters, not thread blocks */
    int nvls;                   /* 1: NVLink's switches may add up (NVLS) */
};

/* Transfers between ranks. */
struct config_comm {
    enum dtype reduce_dtype; /* of gradients on their way to shards: fp32, bf16 or fp16 */
    enum config_inter_node inter_node;
    int share_gpu;     /* 1: several ranks may use one GPU */
    int shared_memory; /* 1: on CPUs ranks of a node read one another's memory */
    struct config_comm_gpu gpu;
};

struct config_checkpoint {
    int64_t every;            /* steps between checkpoints; 0: only at the end and on signals */
    int64_t keep;             /* newest checkpoints that are not deleted */
    int async;                /* 1: written in the background, from a copy */
    int keep_best;            /* 1: the checkpoint with the lowest loss on data.valid is kept too */
    char resume[CONFIG_TEXT]; /* "auto", "none" or a path */
    enum config_frozen frozen;
    int export_hf; /* 1: the model is written to run.dir/hf when training ends */
};

/* How texts are continued: by trireme generate, and beside evaluations. */
struct config_generate {
    int64_t samples;    /* sequences of data.valid that are continued at each evaluation */
    int64_t batch;      /* texts that are continued at a time */
    int64_t longest;    /* not a key: tokens of the longest prompt; 0: unknown */
    int64_t tokens;     /* most new tokens of a text */
    int64_t min_tokens; /* least new tokens of a text */
    double temperature; /* 0: always the likeliest token */
    int64_t top_k;      /* likeliest tokens that are drawn from; 0: all */
    double top_p;       /* tokens are drawn from the likeliest whose shares make this sum */
    double repetition_penalty;
};

struct config_run {
    char dir[CONFIG_TEXT];
    int fresh;            /* 1: what dir holds is set aside first */
    int64_t trace;        /* step whose execution is traced to trace.json; 0: none */
    int64_t log_every;    /* steps between lines of the log */
    int64_t hang_seconds; /* seconds without progress after which the run ends; 0: wait for ever */
    int64_t threads;      /* of a rank; 0: cores of the node / ranks on the node */
    enum config_self_check self_check; /* of GPUs, at the start; AUTO: where no result is kept */
    char machine[CONFIG_TEXT];         /* what forecasts steps: the name or the file of a machine,
                                          also with another network, "h100@8x400Gb"; "auto"; "none":
                                          no forecast; "off": no comparison of steps, either */
};

struct config {
    enum config_device device;
    enum config_precision precision;
    enum config_recompute recompute;
    int64_t recompute_every; /* 1: every unit recomputes, 2: every second one, ... */
    int64_t seed;
    char model_path[CONFIG_TEXT]; /* folder of Hugging Face's files, of a run or of a checkpoint;
                                     "": the model is new */
    enum config_init model_init;  /* where model_path is set: its weights, or new ones */
    enum config_loading model_loading;
    int sync_module_states;         /* 1: ranks with the same weights compare them at the start */
    char model_note[CONFIG_TEXT];   /* what config.json there asks for and does not get; no key */
    char adapter_note[CONFIG_TEXT]; /* the same of adapter_config.json in lora.path */
    struct config_model model;
    struct config_lora lora;
    struct config_data data;
    struct config_train train;
    struct config_parallel parallel;
    struct config_offload offload;
    struct config_comm comm;
    struct config_checkpoint checkpoint;
    struct config_generate generate;
    struct config_run run;
};

/* Fill config in this order, of which what comes later wins:
 *   1. the defaults;
 *   2. the model of model.preset or of the folder model.path, which the file or an override may
 *      name; model.path may also be a name of Hugging Face's hub that is in the cache (hub.h);
 *   3. the YAML file at path (NULL: none);
 *   4. the `count` overrides "key=value" (NULL allowed where count is 0), in their order.
 * Then check every value and combination.  Returns 0, or -1 with config in no defined state and err
 * naming file:line (or the argument), key, what is allowed and the nearest valid name; where the
 * file is another program's configuration, err names that program and what its keys are called
 * here. */
int config_load(struct config *config, const char *path, const char *const *overrides, int count,
                struct error *err);

/* Do what config_load() does, with a YAML text in memory in place of the file; name: where the text
 * came from, for err ("name:line: ..."). */
int config_load_text(struct config *config, const char *name, const char *text,
                     const char *const *overrides, int count, struct error *err);

/* Read the text of data.train or data.valid, "a.h5,b.h5", into source.  Options may follow a path,
 * "a.h5:weight=0.7:samples=1000"; a number alone is a weight.  Returns the number of files, 0 for
 * "", or -1 with err set: a weight or a number of samples that is none, an empty or too long path,
 * weights of some files and not of others, more than CONFIG_SOURCES files. */
int config_sources(const char *text, struct config_source source[CONFIG_SOURCES],
                   struct error *err);

/* Set one key from text, as an override does, without checking it against other keys.  Returns 0,
 * or -1 with err set and config unchanged. */
int config_set(struct config *config, const char *key, const char *value, struct error *err);

/* Return the value of a key as text: in buffer, of CONFIG_TEXT bytes, or in config itself; "" where
 * there is no such key. */
const char *config_value(const struct config *config, const char *key, char *buffer);

/* The i-th key's dotted name; NULL after the last. */
const char *config_key_name(int i);

/* Print every key with type, default, range or choices and help.  format: CONFIG_TEXT_TABLE for
 * people, CONFIG_MAN for the man page's body.  only: NULL for all, a key ("train.lr"), or a group
 * ("parallel").  Returns the number of keys shown. */
enum config_format { CONFIG_TEXT_TABLE, CONFIG_MAN };
int config_show(FILE *out, enum config_format format, const char *only);

/* Refuse what can be evaluated, and not trained.  Returns 0, or -1 with err naming the keys. */
int config_check_training(const struct config *config, struct error *err);

/* Refuse a train->decay_steps that is more than the steps after warm-up.  Returns 0, or -1 with err
 * set. */
int config_check_decay_steps(const struct config_train *train, struct error *err);

/* Return the first key of a part of config that differs from its default, or NULL.  part: a member
 * of config, of so many bytes.  A key that the user set to its default counts as not set. */
const char *config_first_set(const struct config *config, const void *part, size_t bytes);

/* What a written configuration is; its first line says it.  CONFIG_OF_RUN: what a run was given,
 * which config_load() does not check for "~" again.  CONFIG_FOR_USER: one to be changed, which is
 * read as if the user had written it. */
enum config_writing { CONFIG_OF_RUN, CONFIG_FOR_USER };

/* Write config_given() of the configuration as YAML, which config_load() reads back to the same
 * values.  Only shard_follows and replicate_follows differ then: degrees in a file count as given.
 * Returns 0, or -1 with err set. */
int config_write(const struct config *config, enum config_writing what, const char *path,
                 struct error *err);

/* Is this a file that config_write() wrote as CONFIG_OF_RUN, as CONFIG_FOR_USER?  0 also where
 * there is no file. */
int config_is_written(const char *path);
int config_is_written_for_user(const char *path);

/* Return the configuration as it was given: with train.epochs, train.steps is at its default again,
 * which a session had set to the steps of these epochs. */
struct config config_given(const struct config *config);

/* Write the file of another trainer at path as YAML of trireme's keys (foreign_write()).  Returns
 * 0, or -1 with err set: it cannot be read, or is not recognised. */
int config_translate(FILE *out, const char *path, struct error *err);

/* Print every key with its value, as the YAML of config_write() without its first line.  config is
 * printed as it is, not as it was given. */
void config_print(FILE *out, const struct config *config);

/* Return, for free(), the text that must be the same on all ranks of a run: version and build of
 * trireme, then a line "key=value" of each key but those of which ranks may have different values,
 * such as run.threads. */
char *config_shared(const struct config *config);

#endif
