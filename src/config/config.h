/* config.h - the configuration of a run: one struct, filled from the schema table.
 *
 * Every key is one row of schema.c: name, type, default, range or choices, help, and the field it
 * fills.  The same row parses YAML and key=value, prints `config --show`, makes the man page, and
 * writes the effective config.yaml of a run.
 */
#ifndef TRIREME_CONFIG_CONFIG_H
#define TRIREME_CONFIG_CONFIG_H

#include <stdint.h>
#include <stdio.h>

#include "base/dtype.h"
#include "base/error.h"

enum { CONFIG_TEXT = 512 };

enum config_device { CONFIG_DEVICE_AUTO, CONFIG_DEVICE_CPU, CONFIG_DEVICE_CUDA };
enum config_precision {
    PRECISION_FP32,
    PRECISION_BF16,
    PRECISION_BF16_PURE,
    PRECISION_FP16,
    PRECISION_FP8, /* as bf16, and matrices of the blocks multiplied in fp8 */
};
enum config_recompute { RECOMPUTE_NONE, RECOMPUTE_GATHERED, RECOMPUTE_SELECTIVE, RECOMPUTE_FULL };
enum config_loading { LOADING_EACH, LOADING_NODE }; /* who reads weights: each rank its own */
enum config_self_check { SELF_CHECK_AUTO, SELF_CHECK_ALWAYS, SELF_CHECK_OFF };
enum config_init { INIT_PRETRAINED, INIT_SCRATCH };
enum config_rope_scaling {
    ROPE_SCALING_NONE,
    ROPE_SCALING_LLAMA3,
    ROPE_SCALING_LINEAR,
    ROPE_SCALING_YARN
};
enum config_packing { PACKING_STREAM, PACKING_DOCUMENTS, PACKING_PADDED };
enum config_schedule { SCHEDULE_CONSTANT, SCHEDULE_LINEAR, SCHEDULE_COSINE };
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

/* What a strategy is, by enum config_strategy. */
struct config_sharding {
    int stage;  /* of ZeRO, within one copy of the model: 0 to STAGE_MOST */
    int hybrid; /* 1: ranks may keep several such copies */
};
enum { STAGE_MOST = 3 };
extern const struct config_sharding config_sharding[CONFIG_STRATEGIES];

enum config_wrap { WRAP_BLOCK, WRAP_SIZE, WRAP_LAYERS, WRAP_NONE };
enum config_accumulate { ACCUMULATE_SHARD, ACCUMULATE_LOCAL };
enum config_prefetch { PREFETCH_NONE, PREFETCH_BACKWARD_PRE, PREFETCH_BACKWARD_POST };
enum config_inter_node { CONFIG_INTER_NODE_NCCL, CONFIG_INTER_NODE_MPI };
enum config_optimizer { OPTIMIZER_ADAMW, OPTIMIZER_SGD, OPTIMIZER_MUON };
enum config_adjust_lr { ADJUST_LR_ORIGINAL, ADJUST_LR_MATCH_RMS_ADAMW };
enum config_offload_to { OFFLOAD_NONE, OFFLOAD_HOST, OFFLOAD_DISK };
/* What checkpoints hold of frozen tensors beside adapters: those, or where they came from. */
enum config_frozen { FROZEN_AUTO, FROZEN_REFERENCE, FROZEN_FULL };
enum config_decay { DECAY_MATRICES, DECAY_ALL };

/* Of rope scaling yarn; others refuse every key of this struct that is set (check.c). */
struct config_yarn {
    double beta_fast, beta_slow;   /* rotations within original_len above which a frequency is left
                                      alone, and below which it is stretched whole */
    double attention_factor;       /* of cosines and sines; 0: it follows from the others */
    double mscale, mscale_all_dim; /* 0: not given */
    int truncate; /* 1: the range between the betas is widened to whole frequencies */
};

/* Rotary positions, and how their frequencies are stretched.  Model families without them refuse
 * every key of this struct that is set (check.c). */
struct config_rope {
    double theta;
    enum config_rope_scaling scaling;
    double factor, low_freq_factor, high_freq_factor;
    int64_t original_len; /* original_max_position_embeddings */
    struct config_yarn yarn;
};

/* Shares of numbers that training sets to zero. */
struct config_dropout {
    double embed;     /* of what the embedding puts out */
    double residual;  /* of what attention and the feed-forward layer add to the residual stream */
    double attention; /* of the weights of attention */
};

struct config_model {
    char preset[64]; /* "" when defined by its fields alone */
    char family[16]; /* "llama" */
    int64_t layers, hidden, heads, kv_heads, head_dim, ffn, vocab, max_seq_len;
    double norm_eps, init_std;
    struct config_rope rope;
    int tie_embeddings;
    int qkv_bias;           /* 1: queries, keys and values have biases */
    int qk_norm;            /* 1: each head of queries and of keys goes through a norm */
    int64_t sliding_window; /* keys that a query sees at most, its own among them; 0: all before */
    struct config_dropout dropout;
};

/* Matrices of low rank that are trained beside frozen linear layers (model/adapters.h). */
struct config_lora {
    int64_t r; /* their rank; 0: there are none */
    double alpha;
    int use_rslora; /* 1: alpha / sqrt(r), not / r */
    int use_dora;   /* 1: and vectors of the lengths that adapted rows have */
    double dropout; /* share of what they read that training sets to zero */
    char target_modules[CONFIG_TEXT], modules_to_save[CONFIG_TEXT]; /* "q_proj,v_proj" */
    char path[CONFIG_TEXT]; /* folder of an adapter to begin with; "": new ones */
};

enum { CONFIG_FILES = 4096, CONFIG_SOURCES = 64 };

struct config_data {
    char train[CONFIG_FILES], valid[CONFIG_FILES]; /* token files (config_sources()); "" is none */
    int64_t seq_len;
    enum config_packing packing;
};

/* A token file, of those that data.train or data.valid names. */
struct config_source {
    char path[CONFIG_TEXT];
    double weight;   /* 0: none is given */
    int64_t samples; /* sequences of it that are used, or documents; 0: all */
};

/* A loss scale that is halved at overflows.  A fixed one refuses every key of this struct that is
 * set (check.c). */
struct config_dynamic_scale {
    int64_t initial_power; /* of two: where it begins */
    int64_t window;        /* steps without overflow after which it doubles */
    int64_t hysteresis;    /* overflows until it is halved */
    double least;
};

/* What multiplies the loss in precision fp16; DeepSpeed's fp16 section.  Other precisions refuse
 * every key of this struct that is set. */
struct config_loss_scale {
    double fixed; /* 0: dynamic */
    struct config_dynamic_scale dynamic;
};

/* Of the optimizer muon; others refuse every key of this struct that is set. */
struct config_muon {
    double momentum;
    int nesterov;
    int64_t ns_steps; /* Newton-Schulz steps of an orthogonalization */
    enum dtype dtype; /* of the operands of its products */
    enum config_adjust_lr adjust_lr;
};

struct config_train {
    int64_t steps; /* with epochs the session's config has what they come to */
    double epochs; /* 0: not given */
    int64_t ahead; /* no key: the decay of the learning rate is as many steps further than their
                      numbers say (run_length.h) */
    int64_t global_batch, micro_batch; /* sequences; micro_batch per rank */
    int64_t global_batch_tokens;       /* the same as global_batch; 0: not given */
    int split_batches;                 /* 0: global_batch is for each rank */
    double lr, min_lr;                 /* schedules end at min_lr */
    enum config_schedule schedule;
    int64_t warmup_steps;
    double warmup_min_lr; /* where warm-up starts */
    enum config_warmup warmup_type;
    enum config_optimizer optimizer;
    enum dtype optimizer_dtype; /* of its state: fp32 or bf16 */
    enum dtype grad_dtype;      /* of gradients of linear layers' weights: fp32 or bf16 */
    double weight_decay, beta1, beta2, eps, momentum;
    struct config_muon muon;
    struct config_loss_scale loss_scale;
    double clip;                      /* 0: no clipping */
    enum config_decay decay;          /* which parameters decay */
    char freeze[CONFIG_TEXT];         /* patterns of tensors that are not trained: "embed,norm" */
    int64_t eval_every, eval_batches; /* 0: never; 0: the whole file */
    int64_t eval_micro_batch;         /* 0: micro_batch */
    int64_t early_stop; /* evaluations without a better loss after which training ends; 0: never */
    double early_stop_delta; /* by how much a better loss is lower */
    int reproducible;        /* 0: sums of GPUs may be added in any order where that is faster */
    int64_t attention_bytes; /* of scratch for a reproducible backward on GPUs; 0: as chosen */
    enum dtype logits_dtype; /* fp32 or bf16 */
    int64_t logits_chunk;    /* rows at once; 0: as the device likes it */
    int overlap_update;      /* 1: the update of a step is in the next one, beside forward */
    int tune_products;       /* 1: GPUs choose algorithms of products by time, once for the run */
};

enum config_layout { PARALLEL_LAYOUT_GIVEN, PARALLEL_LAYOUT_AUTO };

struct config_parallel {
    enum config_layout layout; /* AUTO: training finds the degrees and what goes with them */
    enum config_strategy strategy;
    int64_t persist_below; /* parameters of a unit that stays whole */
    enum config_wrap wrap;
    int64_t layers_per_unit, min_num_params;             /* of wrap layers, of size */
    int64_t shard, replicate, context, tensor, pipeline; /* degrees; 0: what is left */
    int shard_follows, replicate_follows; /* no keys: the degree is 1 by the strategy, not given */
    char schedule[CONFIG_TEXT]; /* a name (program/schedule.h), or a file's that ends in .csv */
    int64_t virtual_stages;     /* stages of each rank; 0: as the schedule has by itself */
    char stages[CONFIG_TEXT];   /* units of each stage, "3,2,2,1"; "": by cost */
    int tensor_overlap;         /* parts in which rows are exchanged; 0: as many as pay, 1: off */
    int tensor_fp32;            /* 1: terms of sums over tensor ranks are exchanged in fp32 */
    int pipeline_reshard;       /* 1: with several stages, too, FULL_SHARD gathers for each use */
    enum config_prefetch backward_prefetch;
    int forward_prefetch;
    int64_t prefetch_units; /* units ahead, of both */
    enum config_accumulate accumulate;
    int64_t reduce_bucket_bytes;
};

/* Where state is kept that is offloaded. */
struct config_offload {
    enum config_offload_to optimizer, params, gradients;
    char path[CONFIG_TEXT]; /* folder of files; "": in run.dir */
};

/* Between GPUs, by NCCL.  CPUs, and a job of one rank, refuse every key of this struct that is set
 * (check.c, layout.c), but for spare_sms where one GPU updates beside forward. */
struct config_comm_gpu {
    int64_t min_ctas, max_ctas; /* thread blocks of a transfer; 0: as NCCL chooses */
    int64_t spare_sms;          /* multiprocessors that products leave to transfers and updates */
    int copy_engines;           /* 1: gathers of parameters are not done by thread blocks */
    int nvls;                   /* 1: switches may add up */
};

/* Between ranks. */
struct config_comm {
    enum dtype reduce_dtype; /* of gradients on their way to shards: fp32, bf16 or fp16 */
    enum config_inter_node inter_node;
    int share_gpu; /* 1: several ranks may use one GPU */
    struct config_comm_gpu gpu;
};

struct config_checkpoint {
    int64_t every; /* steps; 0: only at the end and on signals */
    int64_t keep;
    int keep_best;            /* 1: that with the lowest loss on data.valid is kept too */
    char resume[CONFIG_TEXT]; /* "auto", "none" or a path */
    enum config_frozen frozen;
    int export_hf; /* 1: the model is written to run.dir/hf when training ends */
};

/* How texts are continued: by trireme generate, and beside evaluations. */
struct config_generate {
    int64_t samples;            /* sequences of data.valid that are continued at each evaluation */
    int64_t batch;              /* texts at a time */
    int64_t longest;            /* no key: tokens of the longest prompt; 0: unknown */
    int64_t tokens, min_tokens; /* new ones of a text, at most and at least */
    double temperature;         /* 0: always the likeliest token */
    int64_t top_k;              /* 0: all */
    double top_p, repetition_penalty;
};

struct config_run {
    char dir[CONFIG_TEXT];
    int fresh;     /* 1: what dir holds is set aside first */
    int64_t trace; /* step whose execution is traced to trace.json; 0: none */
    int64_t log_every;
    int64_t hang_seconds;              /* without progress of a transfer; 0: wait for ever */
    int64_t threads;                   /* per rank; 0: cores of the node / ranks on it */
    enum config_self_check self_check; /* of GPUs, at the start; AUTO: where none is kept */
    char machine[CONFIG_TEXT]; /* of the forecast: a name or file, and @PORTSxRATE; auto, none, off
                                */
};

struct config {
    enum config_device device;
    enum config_precision precision;
    enum config_recompute recompute;
    int64_t recompute_every; /* 1: every unit, 2: every second ... */
    int64_t seed;
    char model_path[CONFIG_TEXT]; /* folder of Hugging Face's files, of a run or of a checkpoint;
                                     "": the model is new */
    enum config_init model_init;  /* of a model of model_path */
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

/* Fill config from defaults, then the preset or the folder (model.path) if one is named anywhere,
 * which may be a name of Hugging Face's hub that the cache has (hub.h), then the YAML file at path
 * (NULL: none), then the count overrides "key=value" in order; then check every value and
 * combination.  Returns 0, or -1 with err naming file:line (or the argument), key, what is allowed
 * and the nearest valid name; where the text is another program's configuration, that program and
 * what its keys are called here. */
int config_load(struct config *config, const char *path, const char *const *overrides, int count,
                struct error *err);

/* The same, other programs' configurations included, of YAML in memory; name: where the text came
 * from, for err ("name:line: ..."). */
int config_load_text(struct config *config, const char *name, const char *text,
                     const char *const *overrides, int count, struct error *err);

/* The token files that the text of data.train or data.valid names: "a.h5,b.h5", with options behind
 * each, "a.h5:weight=0.7:samples=1000", a number alone being a weight.  Returns how many, or -1
 * with err set: an option that is none, weights of some alone, more than CONFIG_SOURCES. */
int config_sources(const char *text, struct config_source source[CONFIG_SOURCES],
                   struct error *err);

/* Set one key from text, as an override does, without the final check. */
int config_set(struct config *config, const char *key, const char *value, struct error *err);

/* The value of a key as text, in buffer of CONFIG_TEXT bytes; "" where there is no such key. */
const char *config_value(const struct config *config, const char *key, char *buffer);

/* The i-th key's dotted name; NULL behind the last. */
const char *config_key_name(int i);

/* Print every key with type, default, range or choices and help.  format: CONFIG_TEXT_TABLE for
 * people, CONFIG_MAN for the man page's body.  only: NULL for all, a key ("train.lr"), or a group
 * ("parallel").  Returns the number of keys shown. */
enum config_format { CONFIG_TEXT_TABLE, CONFIG_MAN };
int config_show(FILE *out, enum config_format format, const char *only);

/* The first key of a part of config that differs from its default, or NULL.  A key at its default
 * does not count as asked for. */
const char *config_first_set(const struct config *config, const void *part, size_t bytes);

/* What a written configuration is, by its first line: what a run was given, which stands as it is,
 * or one for a user to change, which is read as if the user had written it. */
enum config_writing { CONFIG_OF_RUN, CONFIG_FOR_USER };

/* Write the effective configuration as YAML that config_load() reads back to the same struct, but
 * for shard_follows and replicate_follows: what is written counts as given. */
int config_write(const struct config *config, enum config_writing what, const char *path,
                 struct error *err);

/* Is this a file that config_write() wrote as CONFIG_OF_RUN?  0 where there is none, too. */
int config_is_written(const char *path);

/* The configuration with train.steps as it was given, where a session has put there what
 * train.epochs comes to. */
struct config config_given(const struct config *config);

/* The same text to a stream. */
void config_print(FILE *out, const struct config *config);

/* What all ranks of a run must have alike: version and build of trireme, and a line "key=value" of
 * each key but those that a rank may have for itself, such as run.threads; for free(). */
char *config_shared(const struct config *config);

#endif
