/* schema_parallel.c - keys of how ranks share the work: layout, offloading, communication. */
#include "config/schema_rows.h"

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

static const struct key_choice layouts[] = {{.name = "given", .value = PARALLEL_LAYOUT_GIVEN},
                                            {.name = "auto", .value = PARALLEL_LAYOUT_AUTO},
                                            {0}};

static const struct key_choice strategies[] = {
    {.name = "NO_SHARD", .value = STRATEGY_NO_SHARD, .aliases = "ddp|stage0|zero0|0"},
    {.name = "SHARD_OPTIM", .value = STRATEGY_SHARD_OPTIM, .aliases = "stage1|zero1|1"},
    {.name = "SHARD_GRAD_OP", .value = STRATEGY_SHARD_GRAD_OP, .aliases = "stage2|zero2|2"},
    {.name = "FULL_SHARD", .value = STRATEGY_FULL_SHARD, .aliases = "fsdp|fsdp2|stage3|zero3|3"},
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

static const struct key_choice accumulates[] = {
    {.name = "shard", .value = ACCUMULATE_SHARD},
    {.name = "local", .value = ACCUMULATE_LOCAL, .aliases = "no_sync"},
    {0},
};

static const struct key rows[] = {
    {KEY(CHOICE, parallel.layout, "given"), .choices = layouts,
     .help = "given: as the other keys say; auto: training finds the fastest layout that fits when "
             "it starts, for the ranks that it has, by the forecasts of trireme plan --search for "
             "the machine of run.machine: pipeline, tensor, context, strategy, schedule, virtual "
             "stages, micro-batch and recompute take the place of what is given; the global batch "
             "stays, and so do the numbers.  trireme plan searches, too, for its --machine; "
             "evaluation and generation take what the other keys say"},
    {KEY(CHOICE, parallel.strategy, "FULL_SHARD"), .choices = strategies,
     .help = "what a rank keeps 1/shard of: NO_SHARD nothing, SHARD_OPTIM the optimizer's state, "
             "SHARD_GRAD_OP gradients too, FULL_SHARD parameters too; HYBRID_SHARD and "
             "HYBRID_SHARD_ZERO2 are FULL_SHARD and SHARD_GRAD_OP within a node, copied across "
             "nodes"},
    {KEY(INT, parallel.shard, "0"), .min = 0, .max = 1 << 20,
     .help = "ranks that share one copy of the model; 0: all that are left (1 with NO_SHARD, those "
             "of a node with HYBRID_SHARD)"},
    {KEY(INT, parallel.replicate, "0"), .min = 0, .max = 1 << 20,
     .help = "copies of the model; 0: all ranks that are left (1 where all share one copy)"},
    {KEY(CHOICE, parallel.wrap, "block"), .choices = wraps,
     .help =
         "what is gathered, reduced and recomputed as one unit: block each transformer block; "
         "layers as many neighbouring blocks as layers_per_unit says; size as many as have "
         "min_num_params parameters; none all blocks; embedding and head are units of their own"},
    {KEY(INT, parallel.layers_per_unit, "0"), .min = 0, .max = 10000,
     .help = "transformer blocks in a unit, with wrap layers; the last unit takes what is left"},
    {KEY(INT, parallel.min_num_params, "0"), .min = 0, .max = INT64_C(1) << 50,
     .help = "parameters that a unit of blocks has at least, the last one apart, with wrap size"},
    {KEY(INT, parallel.persist_below, "0"), .min = 0, .max = INT64_C(1) << 50,
     .help = "units with fewer parameters than this, such as a tied head's norm, are not sharded: "
             "every rank has them whole, and their gradients are summed over all ranks"},
    {KEY(INT, parallel.context, "1"), .min = 1, .max = 1024,
     .help =
         "ranks that divide each sequence among them, of whose keys and values they see all: "
         "for sequences whose activations one GPU does not hold; data.seq_len must be a "
         "multiple of twice as many. On GPUs trireme's own kernels, not cuDNN, then do attention"},
    {KEY(INT, parallel.tensor, "1"), .min = 1, .max = 1024,
     .help = "ranks that divide each layer: heads, the width of the feed-forward part, vocabulary"},
    {KEY(CHOICE, parallel.tensor_overlap, "auto"), .choices = overlaps,
     .help =
         "chunks in which tensor ranks exchange the rows of an activation, so that the products "
         "that read or make them go on meanwhile; off: one exchange, for which products wait; "
         "auto: by the number of rows, trireme plan shows which; as many ranks times chunks must "
         "divide the rows of a micro-batch, else it is off, and said at the start"},
    {NAMED_KEY("parallel.tensor_reduce_dtype", CHOICE, parallel.tensor_fp32, "auto"),
     .choices = sum_formats,
     .help = "number format in which the terms of a sum over tensor ranks are exchanged, of linear "
             "layers and of their gradients: auto that of activations; fp32 doubles the bytes of "
             "16-bit ones, and rounds each sum once"},
    {KEY(INT, parallel.pipeline, "1"), .min = 1, .max = 1024,
     .help = "stages that the layers are divided into, each on ranks of its own"},
    {KEY(TEXT, parallel.schedule, "1f1b"), .choices = pipeline_schedules, .or_file = ".csv",
     .help =
         "in which order micro-batches are computed: naive each forward and backward, one after "
         "the other; gpipe all forward, then all backward, which keeps the activations of all; "
         "1f1b forward and backward alternately as soon as each can be, which with one stage is "
         "naive; interleaved_1f1b with several stages on each rank, so that ranks wait less and "
         "send more; zb_h1 as 1f1b with backward in two parts, of which the one for the weights "
         "can wait: with one stage it only takes more memory; zb_v with both, the first and the "
         "last stage on one rank; FILE.csv what a file says, a line for each rank: \"0F0,0F1,0B0\" "
         "(stage, forward F, backward B or its parts I and W, micro-batch); the numbers are the "
         "same"},
    {KEY(INT, parallel.virtual_stages, "0"), .min = 0, .max = 1024,
     .help = "stages of each rank, with schedule interleaved_1f1b; 0: two, or one where "
             "parallel.pipeline is 1"},
    {KEY(TEXT, parallel.stages, ""), .list = 1,
     .help = "how many units (embedding, each block or what wrap makes, head) each stage has, in "
             "the order of the stages: 3,2,2,1; empty: chosen so that the most "
             "expensive stage costs as little as possible"},
    {KEY(BOOL, parallel.pipeline_reshard, "false"),
     .help = "with strategy FULL_SHARD or HYBRID_SHARD and several pipeline stages: true gathers "
             "parameters for each use, as with one stage, which sends them again for each "
             "micro-batch; false gathers them once a step and keeps them, as SHARD_GRAD_OP does "
             "(but with offload.params they are gathered for each use); trireme plan shows what "
             "either takes"},
    {KEY(CHOICE, parallel.backward_prefetch, "BACKWARD_PRE"), .choices = prefetches,
     .help = "when backward gathers the next unit's parameters: BACKWARD_PRE before the "
             "current unit's gradients are reduced, BACKWARD_POST after, none when they are "
             "needed"},
    {KEY(BOOL, parallel.forward_prefetch, "true"),
     .help = "gather the next unit's parameters while the current one is computed in forward"},
    {KEY(INT, parallel.prefetch_units, "1"), .min = 1, .max = 1024,
     .help = "units whose parameters are gathered ahead of need, at most (limit_all_gathers)"},
    {KEY(CHOICE, parallel.accumulate, "shard"), .choices = accumulates,
     .help = "gradients of several micro-batches: shard reduces each to the ranks' shards, local "
             "keeps them whole and reduces once, which takes more memory and less communication"},
    {KEY(INT, parallel.reduce_bucket_bytes, "4194304"), .min = 0, .max = INT64_C(1) << 40,
     .help = "bytes of gradients that copies of a whole model (NO_SHARD, or a hybrid with "
             "parallel.shard=1) sum in one transfer, at least; 0: each unit by itself, as it is "
             "with shards and with offload.gradients in any case"},

    {KEY(CHOICE, offload.optimizer, "none"), .choices = offloads,
     .help =
         "where the optimizer's state and the fp32 masters of other parameters live: none "
         "where they are updated; host in the memory of the CPUs, which update them; disk in a "
         "file, from which they pass through a few buffers in memory; the numbers are the same"},
    {KEY(CHOICE, offload.params, "none"), .choices = offloads,
     .help = "where a rank's shard of the parameters lives, with FULL_SHARD or HYBRID_SHARD, which "
             "gather parameters for each use: none where it is used, host, or disk, from which it "
             "is read ahead of use"},
    {KEY(CHOICE, offload.gradients, "none"), .choices = offloads,
     .help = "where a rank's shard of the gradients lives from backward to update, with strategies "
             "that shard gradients: none where they are summed; host, or disk, to which each "
             "unit's goes as soon as it is reduced and from which it comes back to be added to by "
             "the next micro-batch, to the same bits. It saves less where a step has one "
             "micro-batch, whose gradients share the memory of activations if this is none. "
             "DeepSpeed's offload_optimizer (stages 2 and 3) and FSDP's CPUOffload move gradients "
             "too: here set offload.gradients=host beside offload.optimizer=host; CPUOffload and "
             "offload_param are offload.params=host"},
    {KEY(TEXT, offload.path, ""), .by_rank = 1,
     .help =
         "folder of the ranks' files, best on a disk of each node; empty: offload/ in run.dir, "
         "of trireme generate the working directory. Files have no name and go with the run: what "
         "lasts is in checkpoints. A folder that cannot be written, or is too small, is refused "
         "before anything is allocated; a disk that is slower than the steps is warned of"},

    {KEY(CHOICE, comm.reduce_dtype, "fp32"), .choices = reduces,
     .help = "number format in which gradients travel to the ranks that keep their shards; bf16 "
             "halves what is sent, and is summed in fp32 all the same; fp16 does so with "
             "precision=fp16"},
    {KEY(CHOICE, comm.inter_node, "nccl"), .choices = inter_nodes,
     .help = "what carries the sums over copies of the model (parallel.replicate) between GPUs: "
             "nccl, or mpi through host memory, for networks that only MPI drives well; on the "
             "cpu everything is MPI"},
    {KEY(BOOL, comm.share_gpu, "false"),
     .help = "let several ranks of a node use one GPU, one after the other, to try layouts on few "
             "GPUs; otherwise fewer GPUs than ranks are an error"},
    {KEY(BOOL, comm.shared_memory, "true"),
     .help = "on CPUs: true: ranks of a node read one another's parameters and gradients where "
             "these lie, if Linux (6.1 or newer) has shared memory in huge pages and no limit is "
             "set on the address space; otherwise, and with false, all goes by messages of MPI. "
             "The numbers are the same. What a rank reads of others counts as resident memory of "
             "its process for ps and, by some of its settings, for Slurm"},
    {NAMED_KEY("comm.min_ctas", INT, comm.gpu.min_ctas, "0"), .min = 0, .max = 64,
     .help = "thread blocks (CTAs, NCCL's channels), and so multiprocessors, that a transfer "
             "between GPUs takes at least, but 4 between stages; 0: as NCCL chooses"},
    {NAMED_KEY("comm.max_ctas", INT, comm.gpu.max_ctas, "0"), .min = 0, .max = 64,
     .help = "thread blocks that a transfer between GPUs takes at most: fewer leave more of the "
             "GPU to what is computed meanwhile, take less of its memory for connections, and "
             "transfers may take longer; 0: as NCCL chooses, but 16 where ranks exchange 16-bit "
             "terms of sums. Between stages never more than 4, as several of these wait for "
             "peers at a time. What suits was not measured yet"},
    {NAMED_KEY("comm.spare_sms", INT, comm.gpu.spare_sms, "0"), .min = 0, .max = 1024,
     .help = "multiprocessors of a GPU that matrix products leave to transfers between ranks, as "
             "many as transfers at a time have thread blocks, and to updates beside forward "
             "(train.overlap_update): cuBLASLt chooses and cuts products "
             "for the others, all products of the run, so that losses differ in their last bits "
             "from those with another number; 0: none. On one H100, beside "
             "train.overlap_update, 8 made steps 3 % longer"},
    {NAMED_KEY("comm.copy_engines", BOOL, comm.gpu.copy_engines, "false"),
     .help = "true: parameters are gathered by the copy engines of GPUs, which takes no "
             "multiprocessors: NCCL 2.28 or newer, and the GPUs that share one copy of the model "
             "are in one node and reach each other's memory; the numbers are the same. Not "
             "measured yet"},
    {NAMED_KEY("comm.nvls", BOOL, comm.gpu.nvls, "false"),
     .help = "true: NCCL may have NVLink's switches add up and copy (NVLS, on nodes that have "
             "them), in an order that differs from run to run, so only with "
             "train.reproducible=false; it takes more GPU memory, which trireme plan counts. Not "
             "measured yet"},
};

const struct key_table schema_parallel = {.keys = rows, .count = sizeof rows / sizeof rows[0]};
