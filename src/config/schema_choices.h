/* schema_choices.h - the names that keys of a choice take, a list for each; for schema.c alone.
 *
 * A row is a name, what it stands for, and other spellings that are taken.
 */
#ifndef TRIREME_CONFIG_SCHEMA_CHOICES_H
#define TRIREME_CONFIG_SCHEMA_CHOICES_H

#include "config/schema.h"

static const struct key_choice devices[] = {
    {.name = "auto", .value = CONFIG_DEVICE_AUTO},
    {.name = "cpu", .value = CONFIG_DEVICE_CPU},
    {.name = "cuda", .value = CONFIG_DEVICE_CUDA, .aliases = "gpu"},
    {0},
};

static const struct key_choice precisions[] = {
    {.name = "fp32", .value = PRECISION_FP32, .aliases = "float32|no"},
    {.name = "bf16", .value = PRECISION_BF16, .aliases = "bfloat16|bf16-mixed"},
    {.name = "bf16_pure", .value = PRECISION_BF16_PURE, .aliases = "bf16-true"},
    {.name = "fp16", .value = PRECISION_FP16, .aliases = "float16|fp16-mixed"},
    {.name = "fp8", .value = PRECISION_FP8, .aliases = "float8"},
    {0},
};

static const struct key_choice recomputes[] = {
    {.name = "none", .value = RECOMPUTE_NONE},
    {.name = "gathered", .value = RECOMPUTE_GATHERED},
    {.name = "selective", .value = RECOMPUTE_SELECTIVE},
    {.name = "full", .value = RECOMPUTE_FULL},
    {0},
};

static const struct key_choice inits[] = {
    {.name = "pretrained", .value = INIT_PRETRAINED},
    {.name = "scratch", .value = INIT_SCRATCH, .aliases = "random"},
    {0},
};

static const struct key_choice self_checks[] = {
    {.name = "auto", .value = SELF_CHECK_AUTO},
    {.name = "always", .value = SELF_CHECK_ALWAYS},
    {.name = "off", .value = SELF_CHECK_OFF, .aliases = "none|never"},
    {0},
};

static const struct key_choice loadings[] = {
    {.name = "each", .value = LOADING_EACH}, {.name = "node", .value = LOADING_NODE}, {0}};

static const struct key_choice families[] = {{.name = "llama"}, {.name = "gpt2"}, {0}};

static const struct key_choice rope_scalings[] = {
    {.name = "none", .value = ROPE_SCALING_NONE, .aliases = "default"},
    {.name = "llama3", .value = ROPE_SCALING_LLAMA3},
    {.name = "linear", .value = ROPE_SCALING_LINEAR},
    {.name = "yarn", .value = ROPE_SCALING_YARN},
    {.name = "dynamic", .value = CHOICE_LATER},
    {.name = "longrope", .value = CHOICE_LATER},
    {0},
};

static const struct key_choice packings[] = {
    {.name = "stream", .value = PACKING_STREAM, .aliases = "wrapped"},
    {.name = "documents", .value = PACKING_DOCUMENTS, .aliases = "packed|bfd|ffd"},
    {.name = "padded", .value = PACKING_PADDED, .aliases = "max_length"},
    {0},
};

static const struct key_choice schedules[] = {
    {.name = "constant", .value = SCHEDULE_CONSTANT, .aliases = "WarmupLR|constant_with_warmup"},
    {.name = "linear", .value = SCHEDULE_LINEAR, .aliases = "WarmupDecayLR"},
    {.name = "cosine", .value = SCHEDULE_COSINE, .aliases = "WarmupCosineLR|cosine_with_min_lr"},
    {.name = "wsd", .value = CHOICE_LATER, .aliases = "warmup_stable_decay"},
    {0},
};

static const struct key_choice warmups[] = {
    {.name = "linear", .value = WARMUP_LINEAR}, {.name = "log", .value = WARMUP_LOG}, {0}};

static const struct key_choice optimizers[] = {
    {.name = "adamw", .value = OPTIMIZER_ADAMW, .aliases = "adamw_torch|adamw_torch_fused"},
    {.name = "sgd", .value = OPTIMIZER_SGD},
    {.name = "muon", .value = OPTIMIZER_MUON},
    {.name = "adam", .value = CHOICE_LATER},
    {.name = "adamw8bit", .value = CHOICE_LATER, .aliases = "adamw_8bit|adam8bit|paged_adamw_8bit"},
    {.name = "adafactor", .value = CHOICE_LATER},
    {.name = "lion", .value = CHOICE_LATER},
    {0},
};

static const struct key_choice adjust_lrs[] = {
    {.name = "original", .value = ADJUST_LR_ORIGINAL},
    {.name = "match_rms_adamw", .value = ADJUST_LR_MATCH_RMS_ADAMW},
    {0},
};

static const struct key_choice state_dtypes[] = {
    {.name = "fp32", .value = DTYPE_F32, .aliases = "float32"},
    {.name = "bf16", .value = DTYPE_BF16, .aliases = "bfloat16"},
    {0},
};

/* The numbers are themselves. */
static const struct key_choice overlaps[] = {
    {.name = "auto", .value = 0}, {.name = "off", .value = 1, .aliases = "none|1"},
    {.name = "2", .value = 2},    {.name = "3", .value = 3},
    {.name = "4", .value = 4},    {.name = "6", .value = 6},
    {.name = "8", .value = 8},    {0},
};

static const struct key_choice sum_formats[] = {
    {.name = "auto", .value = 0},
    {.name = "fp32", .value = 1, .aliases = "float32"},
    {0},
};

static const struct key_choice offloads[] = {
    {.name = "none", .value = OFFLOAD_NONE},
    {.name = "host", .value = OFFLOAD_HOST, .aliases = "cpu"},
    {.name = "disk", .value = OFFLOAD_DISK, .aliases = "nvme"},
    {0},
};

static const struct key_choice decays[] = {
    {.name = "matrices", .value = DECAY_MATRICES},
    {.name = "all", .value = DECAY_ALL},
    {0},
};

static const struct key_choice layouts[] = {{.name = "given", .value = PARALLEL_LAYOUT_GIVEN},
                                            {.name = "auto", .value = PARALLEL_LAYOUT_AUTO},
                                            {0}};

static const struct key_choice strategies[] = {
    {.name = "NO_SHARD", .value = STRATEGY_NO_SHARD, .aliases = "ddp|stage0|zero0|0"},
    {.name = "SHARD_OPTIM", .value = STRATEGY_SHARD_OPTIM, .aliases = "stage1|zero1|1"},
    {.name = "SHARD_GRAD_OP", .value = STRATEGY_SHARD_GRAD_OP, .aliases = "stage2|zero2|2"},
    {.name = "FULL_SHARD", .value = STRATEGY_FULL_SHARD, .aliases = "fsdp|stage3|zero3|3"},
    {.name = "HYBRID_SHARD", .value = STRATEGY_HYBRID_SHARD, .aliases = "hsdp|mics"},
    {.name = "HYBRID_SHARD_ZERO2", .value = STRATEGY_HYBRID_SHARD_ZERO2},
    {0},
};

const struct config_sharding config_sharding[CONFIG_STRATEGIES] = {
    [STRATEGY_NO_SHARD] = {.stage = 0},
    [STRATEGY_SHARD_OPTIM] = {.stage = 1},
    [STRATEGY_SHARD_GRAD_OP] = {.stage = 2},
    [STRATEGY_FULL_SHARD] = {.stage = 3},
    [STRATEGY_HYBRID_SHARD] = {.stage = 3, .hybrid = 1},
    [STRATEGY_HYBRID_SHARD_ZERO2] = {.stage = 2, .hybrid = 1},
};

static const struct key_choice wraps[] = {
    {.name = "block", .value = WRAP_BLOCK, .aliases = "TRANSFORMER_BASED_WRAP"},
    {.name = "size", .value = WRAP_SIZE, .aliases = "SIZE_BASED_WRAP"},
    {.name = "layers", .value = WRAP_LAYERS},
    {.name = "none", .value = WRAP_NONE, .aliases = "NO_WRAP"},
    {0},
};

static const struct key_choice pipeline_schedules[] = {
    {.name = "naive"},
    {.name = "gpipe"},
    {.name = "1f1b"},
    {"interleaved_1f1b", .aliases = "interleaved|Interleaved1F1B"},
    {"zb_h1", .aliases = "zbh1"},
    {"zb_v", .aliases = "zbv|ZBVZeroBubble"},
    {0},
};

static const struct key_choice prefetches[] = {
    {.name = "none", .value = PREFETCH_NONE, .aliases = "NO_PREFETCH"},
    {.name = "BACKWARD_PRE", .value = PREFETCH_BACKWARD_PRE},
    {.name = "BACKWARD_POST", .value = PREFETCH_BACKWARD_POST},
    {0},
};

static const struct key_choice reduces[] = {
    {.name = "fp32", .value = DTYPE_F32, .aliases = "float32"},
    {.name = "bf16", .value = DTYPE_BF16, .aliases = "bfloat16"},
    {.name = "fp16", .value = DTYPE_F16, .aliases = "float16"},
    {0},
};

static const struct key_choice inter_nodes[] = {
    {.name = "nccl", .value = CONFIG_INTER_NODE_NCCL},
    {.name = "mpi", .value = CONFIG_INTER_NODE_MPI},
    {0},
};

static const struct key_choice frozens[] = {
    {.name = "auto", .value = FROZEN_AUTO},
    {.name = "reference", .value = FROZEN_REFERENCE},
    {.name = "full", .value = FROZEN_FULL},
    {0},
};

static const struct key_choice accumulates[] = {
    {.name = "shard", .value = ACCUMULATE_SHARD},
    {.name = "local", .value = ACCUMULATE_LOCAL, .aliases = "no_sync"},
    {0},
};

#endif
