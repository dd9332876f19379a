/* schema.c - every key of the configuration, one row each.  Parsing, checking, config --show,
 * the man page and the effective config.yaml are all made from these rows. */
#include "config/schema.h"

#define FIELD(f) .offset = offsetof(struct config, f), .bytes = sizeof(((struct config *)0)->f)
#define INT      .type = KEY_INT
#define REAL     .type = KEY_REAL
#define BOOL     .type = KEY_BOOL
#define TEXT     .type = KEY_TEXT
#define CHOICE   .type = KEY_CHOICE

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
    {"fp8", CHOICE_LATER},
    {0},
};

static const struct key_choice recomputes[] = {
    {"none", RECOMPUTE_NONE},
    {"selective", RECOMPUTE_SELECTIVE},
    {"full", RECOMPUTE_FULL},
    {0},
};

static const struct key_choice families[] = {{"llama"}, {"gpt2"}, {0}};

static const struct key_choice rope_scalings[] = {
    {"none", ROPE_SCALING_NONE}, {"llama3", ROPE_SCALING_LLAMA3}, {"linear", CHOICE_LATER},
    {"dynamic", CHOICE_LATER},   {"yarn", CHOICE_LATER},          {0},
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
    {"naive", PIPELINE_NAIVE},
    {"gpipe", PIPELINE_GPIPE},
    {"1f1b", PIPELINE_1F1B},
    {"zb_h1", PIPELINE_ZB_H1},
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

static const struct key_choice accumulates[] = {
    {"shard", ACCUMULATE_SHARD},
    {"local", ACCUMULATE_LOCAL, "no_sync"},
    {0},
};

const struct key config_keys[] = {
    {"device", CHOICE, FIELD(device), "auto", .choices = devices,
     .help = "where the model is computed: cpu, or cuda, one NVIDIA GPU per rank; auto takes "
             "cuda where every rank has a GPU and this trireme was built with CUDA, else cpu"},
    {"precision", CHOICE, FIELD(precision), "fp32", .choices = precisions,
     .help = "number format of parameters and activations in forward and backward; bf16 updates "
             "fp32 master weights, bf16_pure the bf16 parameters themselves, stochastically "
             "rounded, which takes 4 bytes a parameter less; gradients are fp32 in any case"},
    {"recompute", CHOICE, FIELD(recompute), "none", .choices = recomputes,
     .help = "activations that backward computes again rather than keeps, to the same bits: none; "
             "selective keeps the results of matrix products and computes the rest again, which "
             "takes little time; full keeps nothing but what is handed from layer to layer and "
             "computes each layer once more, a third more work"},
    {"recompute_every", INT, FIELD(recompute_every), "1", 1, 10000,
     .help = "of the model's units, blocks of layers as parallel.wrap makes them, one in so many "
             "recomputes and the others keep all: 1 is each, 2 every second one"},
    {"seed", INT, FIELD(seed), "0", 0, INT64_MAX,
     .help = "initial weights and the order of the data follow from it, on any number of "
             "ranks"},

    {"model.preset", TEXT, FIELD(model.preset), "",
     .help = "a named model; the other model keys, when given, replace its values"},
    {"model.family", TEXT, FIELD(model.family), "llama", .choices = families,
     .help = "architecture: llama is RMSNorm, rotary positions, grouped-query attention and "
             "SwiGLU; gpt2 is LayerNorm, max_seq_len learned positions, GELU, and biases"},
    {"model.layers", INT, FIELD(model.layers), "0", 0, 10000, .help = "transformer blocks"},
    {"model.hidden", INT, FIELD(model.hidden), "0", 0, 1 << 20,
     .help = "width of the residual stream"},
    {"model.heads", INT, FIELD(model.heads), "0", 0, 8192, .help = "query heads"},
    {"model.kv_heads", INT, FIELD(model.kv_heads), "0", 0, 8192,
     .help = "key and value heads, a divisor of heads; 0: as many as heads"},
    {"model.head_dim", INT, FIELD(model.head_dim), "0", 0, 4096,
     .help = "width of one head, even; 0: hidden / heads"},
    {"model.ffn", INT, FIELD(model.ffn), "0", 0, 1 << 24,
     .help = "width inside the feed-forward layer"},
    {"model.vocab", INT, FIELD(model.vocab), "0", 0, INT32_MAX,
     .help = "token numbers the model knows; at least as many as the tokenizer has"},
    {"model.max_seq_len", INT, FIELD(model.max_seq_len), "2048", 1, 1 << 24,
     .help = "longest sequence, in tokens, the model is meant for"},
    {"model.norm_eps", REAL, FIELD(model.norm_eps), "1e-05", .least = 0, .most = 1,
     .help = "added to the mean square or the variance under the root of a norm"},
    {"model.rope_theta", REAL, FIELD(model.rope.theta), "10000", .least = 1, .most = 1e12,
     .help = "base of the rotary position frequencies"},
    {"model.rope_scaling", CHOICE, FIELD(model.rope.scaling), "none", .choices = rope_scalings,
     .help = "how rotary frequencies are stretched for long sequences"},
    {"model.rope_factor", REAL, FIELD(model.rope.factor), "8", .least = 1, .most = 1e6,
     .help = "stretch of the low frequencies, with rope_scaling llama3"},
    {"model.rope_low_freq_factor", REAL, FIELD(model.rope.low_freq_factor), "1", .least = 1e-6,
     .most = 1e6,
     .help = "wavelengths above rope_original_len over this are stretched whole, with "
             "rope_scaling llama3"},
    {"model.rope_high_freq_factor", REAL, FIELD(model.rope.high_freq_factor), "4", .least = 1e-6,
     .most = 1e6,
     .help = "wavelengths below rope_original_len over this are left alone, with rope_scaling "
             "llama3"},
    {"model.rope_original_len", INT, FIELD(model.rope.original_len), "8192", 1, 1 << 24,
     .help = "sequence length before stretching, with rope_scaling llama3"},
    {"model.init_std", REAL, FIELD(model.init_std), "0.02", .least = 0, .most = 10,
     .help = "standard deviation of the initial weights"},
    {"model.tie_embeddings", BOOL, FIELD(model.tie_embeddings), "false",
     .help = "use the token embedding as output head too"},

    {"data.train", TEXT, FIELD(data.train), "",
     .help = "token file to train on, one, as trireme tokenize makes it or doc/token-files.md "
             "describes; attention and loss run across the ends of documents"},
    {"data.valid", TEXT, FIELD(data.valid), "", .help = "token file to evaluate on"},
    {"data.seq_len", INT, FIELD(data.seq_len), "0", 0, 1 << 24,
     .help = "tokens in a sequence, up to model.max_seq_len; 0: the smaller of "
             "model.max_seq_len and 512"},

    {"train.steps", INT, FIELD(train.steps), "100", 0, INT64_C(1000000000000),
     .help = "optimizer steps from the start of training, those before a resume included"},
    {"train.global_batch", INT, FIELD(train.global_batch), "0", 0, 1 << 24,
     .help = "sequences per optimizer step, over all ranks and micro-batches: 16 on 8 ranks are 2 "
             "for each, and the learning rate moves on once for all of them; 0: 8, or what "
             "global_batch_tokens comes to"},
    {"train.global_batch_tokens", INT, FIELD(train.global_batch_tokens), "0", 0, INT64_C(1) << 40,
     .help = "tokens per optimizer step, in place of global_batch: a multiple of data.seq_len; "
             "0: not given"},
    {"train.split_batches", BOOL, FIELD(train.split_batches), "true",
     .help = "false: global_batch is the sequences of each rank, so that twice the ranks take "
             "twice as many a step, in as many steps"},
    {"train.micro_batch", INT, FIELD(train.micro_batch), "0", 0, 1 << 20,
     .help = "sequences a rank computes at once; more are done by accumulating gradients, and "
             "what is missing to a whole micro-batch is masked; 0: a rank's whole share of "
             "global_batch"},
    {"train.lr", REAL, FIELD(train.lr), "0.0003", .least = 0, .most = 100,
     .help = "highest learning rate"},
    {"train.min_lr", REAL, FIELD(train.min_lr), "0", .least = 0, .most = 100,
     .help = "learning rate at the last step of schedules linear and cosine"},
    {"train.schedule", CHOICE, FIELD(train.schedule), "cosine", .choices = schedules,
     .help = "learning rate after warm-up, step by step of the optimizer: constant, or linear or "
             "cosine to min_lr at the last step; WarmupLR and WarmupDecayLR are constant and "
             "linear"},
    {"train.warmup_steps", INT, FIELD(train.warmup_steps), "0", 0, INT64_C(1000000000000),
     .help = "steps in which the learning rate rises linearly to lr; may be more than steps"},
    {"train.warmup_min_lr", REAL, FIELD(train.warmup_min_lr), "0", .least = 0, .most = 100,
     .help = "learning rate from which warm-up rises, as of a step 0"},
    {"train.warmup_type", CHOICE, FIELD(train.warmup_type), "linear", .choices = warmups,
     .help =
         "how the learning rate rises: linear, or log, with the logarithm of the step, which is "
         "what DeepSpeed's schedules do unless told otherwise"},
    {"train.optimizer", CHOICE, FIELD(train.optimizer), "adamw", .choices = optimizers,
     .help = "rule of the update: adamw keeps two moments per parameter; sgd is plain descent "
             "with momentum, and keeps one; muon orthogonalizes the momentum of each matrix of the "
             "blocks (query, key and value apart) and keeps one, and adamw updates the rest"},
    {"train.optimizer_dtype", CHOICE, FIELD(train.optimizer_dtype), "fp32", .choices = state_dtypes,
     .help = "number format in which adamw keeps its moments; bf16 takes half the memory, and is "
             "rounded stochastically, the same on any number of ranks"},
    {"train.weight_decay", REAL, FIELD(train.weight_decay), "0.1", .least = 0, .most = 100,
     .help = "weight decay: of adamw decoupled from the gradient; of sgd, times the parameter, "
             "added to the clipped gradient"},
    {"train.decay", CHOICE, FIELD(train.decay), "matrices", .choices = decays,
     .help = "parameters that decay: matrices leaves norms and biases alone"},
    {"train.beta1", REAL, FIELD(train.beta1), "0.9", .least = 0, .most = 0.999999,
     .help = "decay rate of AdamW's mean of gradients"},
    {"train.beta2", REAL, FIELD(train.beta2), "0.95", .least = 0, .most = 0.999999,
     .help = "decay rate of AdamW's mean of squared gradients"},
    {"train.eps", REAL, FIELD(train.eps), "1e-08", .least = 1e-30, .most = 1,
     .help = "added to the root in AdamW's denominator"},
    {"train.momentum", REAL, FIELD(train.momentum), "0.9", .least = 0, .most = 0.999999,
     .help = "share of the step before in a step of sgd"},
    {"train.muon_momentum", REAL, FIELD(train.muon.momentum), "0.95", .least = 0, .most = 0.999999,
     .help = "decay rate of muon's mean of gradients"},
    {"train.muon_nesterov", BOOL, FIELD(train.muon.nesterov), "true",
     .help = "muon looks ahead: its mean is weighed with the gradient of the step once more"},
    {"train.muon_ns_steps", INT, FIELD(train.muon.ns_steps), "5", 1, 99,
     .help = "Newton-Schulz steps in which muon orthogonalizes a matrix"},
    {"train.muon_dtype", CHOICE, FIELD(train.muon.dtype), "fp32", .choices = state_dtypes,
     .help =
         "number format of the matrices that muon multiplies to orthogonalize; bf16 is several "
         "times faster on GPUs, and a step is off by about a hundredth of its length; norms and "
         "sums are fp32 in any case"},
    {"train.muon_adjust_lr", CHOICE, FIELD(train.muon.adjust_lr), "original", .choices = adjust_lrs,
     .help = "what muon multiplies train.lr by, for a matrix of n rows and m columns: original the "
             "square root of max(1, n/m), match_rms_adamw 0.2 times that of max(n, m), which makes "
             "steps as long as AdamW's, so that one learning rate serves both"},
    {"train.loss_scale", REAL, FIELD(train.loss_scale.fixed), "0", .least = 0, .most = 1e18,
     .help =
         "with precision fp16, what the loss is multiplied by so that its gradients fit fp16; "
         "0: dynamic, it is halved when they overflow, a step that updates nothing, and doubled "
         "when they have not for a while"},
    {"train.initial_scale_power", INT, FIELD(train.loss_scale.initial_power), "16", 0, 60,
     .help = "power of two at which the dynamic loss scale begins"},
    {"train.loss_scale_window", INT, FIELD(train.loss_scale.window), "1000", 1,
     INT64_C(1000000000000),
     .help = "steps without overflow after which the dynamic loss scale doubles"},
    {"train.hysteresis", INT, FIELD(train.loss_scale.hysteresis), "2", 1, 1000,
     .help =
         "overflows after which the dynamic loss scale is halved, counted anew when it doubles"},
    {"train.min_loss_scale", REAL, FIELD(train.loss_scale.least), "1", .least = 1e-9, .most = 1e18,
     .help = "least dynamic loss scale; overflow there ends the run after a few steps"},
    {"train.clip", REAL, FIELD(train.clip), "1", .least = 0, .most = 1e30,
     .help = "largest norm of the whole gradient, above which it is scaled down; 0: no limit"},
    {"train.freeze", TEXT, FIELD(train.freeze), "", .list = 1,
     .help =
         "tensors that are not trained: a list of names, in which * stands for any text, such "
         "as \"embed,layers.0.*\"; they have no gradient, no optimizer state and no fp32 masters, "
         "so that with precision=bf16 checkpoints hold them in bf16; trireme checkpoint show "
         "lists the names"},
    {"train.eval_every", INT, FIELD(train.eval_every), "0", 0, INT64_C(1000000000000),
     .help = "steps between evaluations on data.valid; 0: only after the last step"},
    {"train.eval_batches", INT, FIELD(train.eval_batches), "0", 0, INT64_C(1000000000000),
     .help = "global batches of data.valid per evaluation; 0: all of it"},

    {"parallel.strategy", CHOICE, FIELD(parallel.strategy), "FULL_SHARD", .choices = strategies,
     .help = "what a rank keeps 1/shard of: NO_SHARD nothing, SHARD_OPTIM the optimizer's state, "
             "SHARD_GRAD_OP gradients too, FULL_SHARD parameters too; HYBRID_SHARD and "
             "HYBRID_SHARD_ZERO2 are FULL_SHARD and SHARD_GRAD_OP within a node, copied across "
             "nodes"},
    {"parallel.shard", INT, FIELD(parallel.shard), "0", 0, 1 << 20,
     .help = "ranks that share one copy of the model; 0: all that are left (1 with NO_SHARD, those "
             "of a node with HYBRID_SHARD)"},
    {"parallel.replicate", INT, FIELD(parallel.replicate), "0", 0, 1 << 20,
     .help = "copies of the model; 0: all ranks that are left (1 where all share one copy)"},
    {"parallel.wrap", CHOICE, FIELD(parallel.wrap), "block", .choices = wraps,
     .help =
         "what is gathered, reduced and recomputed as one unit: block each transformer block; "
         "layers as many neighbouring blocks as layers_per_unit says; size as many as have "
         "min_num_params parameters; none all blocks; embedding and head are units of their own"},
    {"parallel.layers_per_unit", INT, FIELD(parallel.layers_per_unit), "0", 0, 10000,
     .help = "transformer blocks in a unit, with wrap layers; the last unit takes what is left"},
    {"parallel.min_num_params", INT, FIELD(parallel.min_num_params), "0", 0, INT64_C(1) << 50,
     .help = "parameters that a unit of blocks has at least, the last one apart, with wrap size"},
    {"parallel.persist_below", INT, FIELD(parallel.persist_below), "0", 0, INT64_C(1) << 50,
     .help = "units with fewer parameters than this, such as a tied head's norm, are not sharded: "
             "every rank has them whole, and their gradients are summed over all ranks"},
    {"parallel.tensor", INT, FIELD(parallel.tensor), "1", 1, 1, .later = "tensor parallelism",
     .help = "ranks that split each matrix"},
    {"parallel.pipeline", INT, FIELD(parallel.pipeline), "1", 1, 1, .later = "pipeline parallelism",
     .help = "stages the layers are split into"},
    {"parallel.schedule", CHOICE, FIELD(parallel.schedule), "1f1b", .choices = pipeline_schedules,
     .help =
         "in which order micro-batches are computed: naive each forward and backward, one after "
         "the other; gpipe all forward, then all backward, which keeps the activations of all; "
         "1f1b forward and backward in turns as soon as each can be, which with one stage is "
         "naive; zb_h1 as 1f1b with backward in two parts, of which the one for the weights can "
         "wait: with one stage it only takes more memory; the numbers are the same"},
    {"parallel.backward_prefetch", CHOICE, FIELD(parallel.backward_prefetch), "BACKWARD_PRE",
     .choices = prefetches,
     .help = "when backward gathers the next unit's parameters: BACKWARD_PRE before the "
             "current unit's gradients are reduced, BACKWARD_POST after, none when they are "
             "needed"},
    {"parallel.forward_prefetch", BOOL, FIELD(parallel.forward_prefetch), "true",
     .help = "gather the next unit's parameters while the current one is computed in forward"},
    {"parallel.prefetch_units", INT, FIELD(parallel.prefetch_units), "1", 1, 1024,
     .help = "units whose parameters are gathered ahead of need, at most (limit_all_gathers)"},
    {"parallel.accumulate", CHOICE, FIELD(parallel.accumulate), "shard", .choices = accumulates,
     .help = "gradients of several micro-batches: shard reduces each to the ranks' shards, local "
             "keeps them whole and reduces once, which takes more memory and less communication"},
    {"parallel.reduce_bucket_bytes", INT, FIELD(parallel.reduce_bucket_bytes), "4194304", 0,
     INT64_C(1) << 40,
     .help = "bytes of gradients that copies of a whole model (NO_SHARD, or a hybrid with "
             "parallel.shard=1) sum in one transfer, at least; 0: each unit by itself, as it is "
             "with shards and with offload.gradients in any case"},

    {"offload.optimizer", CHOICE, FIELD(offload.optimizer), "none", .choices = offloads,
     .help =
         "where the optimizer's state and the fp32 masters of other parameters live: none "
         "where they are updated; host in the memory of the CPUs, which update them; disk in a "
         "file, from which they pass through a few buffers in memory; the numbers are the same"},
    {"offload.params", CHOICE, FIELD(offload.params), "none", .choices = offloads,
     .help = "where a rank's shard of the parameters lives, with FULL_SHARD or HYBRID_SHARD, which "
             "gather parameters for each use: none where it is used, host, or disk, from which it "
             "is read ahead of use"},
    {"offload.gradients", CHOICE, FIELD(offload.gradients), "none", .choices = offloads,
     .help =
         "where a rank's shard of the gradients lives from backward to update, with strategies "
         "that shard gradients: none where they are summed; host, or disk, to which each unit's "
         "goes as soon as it is reduced and from which it comes back to be added to by the next "
         "micro-batch, to the same bits. DeepSpeed's offload_optimizer of stages 2 and 3 and "
         "FSDP's CPUOffload, which have no key of their own for it, are this key at host beside "
         "offload.optimizer, and offload.params for the latter and offload_param"},
    {"offload.path", TEXT, FIELD(offload.path), "",
     .help = "folder of the ranks' files, best on a disk of each node; empty: offload/ in run.dir. "
             "Files have no name and go with the run: what lasts is in checkpoints"},

    {"comm.reduce_dtype", CHOICE, FIELD(comm.reduce_dtype), "fp32", .choices = reduces,
     .help = "number format in which gradients travel to the ranks that keep their shards; bf16 "
             "halves what is sent, and is summed in fp32 all the same; fp16 does so with "
             "precision=fp16"},
    {"comm.inter_node", CHOICE, FIELD(comm.inter_node), "nccl", .choices = inter_nodes,
     .help = "what carries the sums over copies of the model (parallel.replicate) between GPUs: "
             "nccl, or mpi through host memory, for networks that only MPI drives well; on the "
             "cpu everything is MPI"},
    {"comm.share_gpu", BOOL, FIELD(comm.share_gpu), "false",
     .help = "let several ranks of a node use one GPU, turn by turn, to try layouts on few GPUs; "
             "otherwise fewer GPUs than ranks are an error"},

    {"checkpoint.every", INT, FIELD(checkpoint.every), "0", 0, INT64_C(1000000000000),
     .help = "steps between checkpoints; 0: only at the end and on a signal"},
    {"checkpoint.keep", INT, FIELD(checkpoint.keep), "2", 2, INT32_MAX,
     .help = "newest checkpoints that are not deleted"},
    {"checkpoint.resume", TEXT, FIELD(checkpoint.resume), "auto",
     .help =
         "where the run starts.  auto: from the newest good checkpoint of run.dir, if it holds a "
         "run, else from nothing.  A path, of a checkpoint or of a run: from there, and once "
         "run.dir has later checkpoints of its own, from the newest of them, so that the same "
         "command started again goes on.  A number: back to that step of run.dir; later "
         "checkpoints are moved to branches/.  none: from nothing, refused where run.dir holds "
         "a run (run.fresh)"},

    {"run.dir", TEXT, FIELD(run.dir), "runs/default",
     .help = "directory of metrics, log, effective config and checkpoints"},
    {"run.fresh", BOOL, FIELD(run.fresh), "false",
     .help =
         "true: start over. What run.dir holds is moved aside, to run.dir with .1, .2 ... behind "
         "its name, and nothing is deleted; with a checkpoint.resume of this run, a new branch "
         "from there. A job that Slurm requeues goes on with what it began. For the command "
         "line: each start anew moves what is there aside"},
    {"run.trace", INT, FIELD(run.trace), "0", 0, INT32_MAX,
     .help = "step whose instructions are traced to trace.json; 0: none"},
    {"run.log_every", INT, FIELD(run.log_every), "10", 1, INT64_C(1000000000000),
     .help = "steps between progress lines"},
    {"run.hang_seconds", INT, FIELD(run.hang_seconds), "600", 0, 1 << 20,
     .help =
         "end the job, naming rank, node and operation, when a transfer has not advanced "
         "for this long and the ranks that it waits for show no sign of life (exit code 94); time "
         "in which the job was suspended does not count; 0: wait for ever"},
    {"run.threads", INT, FIELD(run.threads), "0", 0, 4096,
     .help = "compute threads of a rank; 0: cores of the node / ranks on it"},
};

const int config_key_count = sizeof config_keys / sizeof config_keys[0];

const struct key_absent config_absent_keys[] = {
    {"model.path", "loading pretrained weights"},
    {"checkpoint.async", "saving in the background"},
};

const int config_absent_count = sizeof config_absent_keys / sizeof config_absent_keys[0];
