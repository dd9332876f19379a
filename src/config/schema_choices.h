/* schema_choices.h - the names that keys of a choice take, a list for each; for schema.c alone.
 *
 * A row is a name, what it stands for, and other spellings that are taken.
 */
#ifndef TRIREME_CONFIG_SCHEMA_CHOICES_H
#define TRIREME_CONFIG_SCHEMA_CHOICES_H

#include "config/schema.h"

static const struct key_choice devices[] = {
    {"auto", CONFIG_DEVICE_AUTO},
    {"cpu", CONFIG_DEVICE_CPU},
    {"cuda", CONFIG_DEVICE_CUDA, "gpu"},
    {0},
};

static const struct key_choice precisions[] = {
    {"fp32", PRECISION_FP32, "float32|no"},
    {"bf16", PRECISION_BF16, "bfloat16|bf16-mixed"},
    {"bf16_pure", PRECISION_BF16_PURE, "bf16-true"},
    {"fp16", PRECISION_FP16, "float16|fp16-mixed"},
    {"fp8", PRECISION_FP8, "float8"},
    {0},
};

static const struct key_choice recomputes[] = {
    {"none", RECOMPUTE_NONE},
    {"gathered", RECOMPUTE_GATHERED},
    {"selective", RECOMPUTE_SELECTIVE},
    {"full", RECOMPUTE_FULL},
    {0},
};

static const struct key_choice inits[] = {
    {"pretrained", INIT_PRETRAINED},
    {"scratch", INIT_SCRATCH, "random"},
    {0},
};

static const struct key_choice self_checks[] = {
    {"auto", SELF_CHECK_AUTO},
    {"always", SELF_CHECK_ALWAYS},
    {"off", SELF_CHECK_OFF, "none|never"},
    {0},
};

static const struct key_choice loadings[] = {{"each", LOADING_EACH}, {"node", LOADING_NODE}, {0}};

static const struct key_choice families[] = {{"llama"}, {"gpt2"}, {0}};

static const struct key_choice rope_scalings[] = {
    {"none", ROPE_SCALING_NONE, "default"},
    {"llama3", ROPE_SCALING_LLAMA3},
    {"linear", ROPE_SCALING_LINEAR},
    {"yarn", ROPE_SCALING_YARN},
    {"dynamic", CHOICE_LATER},
    {"longrope", CHOICE_LATER},
    {0},
};

static const struct key_choice packings[] = {
    {"stream", PACKING_STREAM, "wrapped"},
    {"documents", PACKING_DOCUMENTS, "packed|bfd|ffd"},
    {"padded", PACKING_PADDED, "max_length"},
    {0},
};

static const struct key_choice schedules[] = {
    {"constant", SCHEDULE_CONSTANT, "WarmupLR|constant_with_warmup"},
    {"linear", SCHEDULE_LINEAR, "WarmupDecayLR"},
    {"cosine", SCHEDULE_COSINE, "WarmupCosineLR"},
    {0},
};

static const struct key_choice warmups[] = {{"linear", WARMUP_LINEAR}, {"log", WARMUP_LOG}, {0}};

static const struct key_choice optimizers[] = {
    {"adamw", OPTIMIZER_ADAMW},
    {"sgd", OPTIMIZER_SGD},
    {"muon", OPTIMIZER_MUON},
    {"adam", CHOICE_LATER},
    {0},
};

static const struct key_choice adjust_lrs[] = {
    {"original", ADJUST_LR_ORIGINAL},
    {"match_rms_adamw", ADJUST_LR_MATCH_RMS_ADAMW},
    {0},
};

static const struct key_choice state_dtypes[] = {
    {"fp32", DTYPE_F32, "float32"},
    {"bf16", DTYPE_BF16, "bfloat16"},
    {0},
};

/* The numbers are themselves. */
static const struct key_choice overlaps[] = {
    {"auto", 0}, {"off", 1, "none|1"}, {"2", 2}, {"3", 3}, {"4", 4}, {"6", 6}, {"8", 8}, {0},
};

static const struct key_choice sum_formats[] = {
    {"auto", 0},
    {"fp32", 1, "float32"},
    {0},
};

static const struct key_choice offloads[] = {
    {"none", OFFLOAD_NONE},
    {"host", OFFLOAD_HOST, "cpu"},
    {"disk", OFFLOAD_DISK, "nvme"},
    {0},
};

static const struct key_choice decays[] = {
    {"matrices", DECAY_MATRICES},
    {"all", DECAY_ALL},
    {0},
};

static const struct key_choice layouts[] = {
    {"given", PARALLEL_LAYOUT_GIVEN}, {"auto", PARALLEL_LAYOUT_AUTO}, {0}};

static const struct key_choice strategies[] = {
    {"NO_SHARD", STRATEGY_NO_SHARD, "ddp|stage0|zero0|0"},
    {"SHARD_OPTIM", STRATEGY_SHARD_OPTIM, "stage1|zero1|1"},
    {"SHARD_GRAD_OP", STRATEGY_SHARD_GRAD_OP, "stage2|zero2|2"},
    {"FULL_SHARD", STRATEGY_FULL_SHARD, "fsdp|stage3|zero3|3"},
    {"HYBRID_SHARD", STRATEGY_HYBRID_SHARD, "hsdp|mics"},
    {"HYBRID_SHARD_ZERO2", STRATEGY_HYBRID_SHARD_ZERO2},
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
    {"block", WRAP_BLOCK, "TRANSFORMER_BASED_WRAP"},
    {"size", WRAP_SIZE, "SIZE_BASED_WRAP"},
    {"layers", WRAP_LAYERS},
    {"none", WRAP_NONE, "NO_WRAP"},
    {0},
};

static const struct key_choice pipeline_schedules[] = {
    {"naive"},
    {"gpipe"},
    {"1f1b"},
    {"interleaved_1f1b", .aliases = "interleaved|Interleaved1F1B"},
    {"zb_h1", .aliases = "zbh1"},
    {"zb_v", .aliases = "zbv|ZBVZeroBubble"},
    {0},
};

static const struct key_choice prefetches[] = {
    {"none", PREFETCH_NONE, "NO_PREFETCH"},
    {"BACKWARD_PRE", PREFETCH_BACKWARD_PRE},
    {"BACKWARD_POST", PREFETCH_BACKWARD_POST},
    {0},
};

static const struct key_choice reduces[] = {
    {"fp32", DTYPE_F32, "float32"},
    {"bf16", DTYPE_BF16, "bfloat16"},
    {"fp16", DTYPE_F16, "float16"},
    {0},
};

static const struct key_choice inter_nodes[] = {
    {"nccl", CONFIG_INTER_NODE_NCCL},
    {"mpi", CONFIG_INTER_NODE_MPI},
    {0},
};

static const struct key_choice frozens[] = {
    {"auto", FROZEN_AUTO},
    {"reference", FROZEN_REFERENCE},
    {"full", FROZEN_FULL},
    {0},
};

static const struct key_choice accumulates[] = {
    {"shard", ACCUMULATE_SHARD},
    {"local", ACCUMULATE_LOCAL, "no_sync"},
    {0},
};

#endif
