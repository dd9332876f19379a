/* schema_train.c - keys of training: length, batch, learning rate, optimizer, loss, evaluations. */
#include "config/schema_rows.h"

static const struct key_choice schedules[] = {
    {.name = "constant", .value = SCHEDULE_CONSTANT, .aliases = "WarmupLR|constant_with_warmup"},
    {.name = "linear", .value = SCHEDULE_LINEAR, .aliases = "WarmupDecayLR"},
    {.name = "cosine", .value = SCHEDULE_COSINE, .aliases = "WarmupCosineLR|cosine_with_min_lr"},
    {.name = "wsd", .value = SCHEDULE_WSD, .aliases = "wsd_linear"},
    {.name = "wsd_cosine", .value = SCHEDULE_WSD_COSINE, .aliases = "warmup_stable_decay"},
    {.name = "wsd_sqrt", .value = SCHEDULE_WSD_SQRT, .aliases = "wsd_minus_sqrt|wsd_1-sqrt"},
    {0},
};

static const struct key_choice warmups[] = {
    {.name = "linear", .value = WARMUP_LINEAR}, {.name = "log", .value = WARMUP_LOG}, {0}};

static const struct key_choice optimizers[] = {
    {.name = "adamw", .value = OPTIMIZER_ADAMW, .aliases = "adamw_torch|adamw_torch_fused"},
    {.name = "sgd", .value = OPTIMIZER_SGD},
    {.name = "muon", .value = OPTIMIZER_MUON},
    {.name = "adam", .value = CHOICE_LATER},
    {.name = "adamw8bit", .value = OPTIMIZER_ADAMW8BIT, .aliases = "adamw_8bit|adamw_bnb_8bit"},
    {.name = "adam8bit", .value = CHOICE_LATER},
    {.name = "paged_adamw_8bit",
     .value = CHOICE_LATER,
     .aliases = "paged_adamw8bit",
     .instead = "adamw8bit, and offload.optimizer=host for its state"},
    {.name = "paged_adamw_32bit",
     .value = CHOICE_LATER,
     .aliases = "paged_adamw",
     .instead = "adamw, and offload.optimizer=host for its state"},
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

static const struct key_choice decays[] = {
    {.name = "matrices", .value = DECAY_MATRICES},
    {.name = "all", .value = DECAY_ALL},
    {0},
};

static const struct key rows[] = {
    {KEY(INT, train.steps, "100"), .min = 0, .max = INT64_C(1000000000000),
     .help = "optimizer steps from the start of training, those before a resume included; 0 saves "
             "the initial weights"},
    {KEY(REAL, train.epochs, "0"), .least = 0, .most = 1e9,
     .help = "in place of train.steps: passes over data.train; the last step may take the first "
             "sequences of the next pass. With weights a pass is as many samples as all files have "
             "sequences. Sequences are counted from the start of training: a resume with another "
             "global batch, or other data, ends after as many, and the learning rate decays to "
             "that end; 0: not given"},
    {KEY(INT, train.global_batch, "0"), .min = 0, .max = 1 << 24,
     .help = "sequences per optimizer step, over all ranks and micro-batches: 16 on 8 ranks are 2 "
             "for each, and the learning rate moves on once for all of them; 0: 8, or what "
             "global_batch_tokens comes to"},
    {KEY(INT, train.global_batch_tokens, "0"), .min = 0, .max = INT64_C(1) << 40,
     .help = "tokens per optimizer step, in place of global_batch: a multiple of data.seq_len; "
             "0: not given"},
    {KEY(BOOL, train.split_batches, "true"),
     .help = "false: global_batch is the sequences of each rank, so that twice the ranks take "
             "twice as many a step, in as many steps"},
    {KEY(INT, train.micro_batch, "0"), .min = 0, .max = 1 << 20,
     .help =
         "sequences a rank computes at once; more are done by accumulating gradients, and "
         "what is missing to a whole micro-batch is masked; a step has 65536 of them on a rank at "
         "most; 0: a rank's whole share of global_batch"},
    {KEY(REAL, train.lr, "0.0003"), .least = 0, .most = 100, .help = "highest learning rate"},
    {KEY(REAL, train.min_lr, "0"), .least = 0, .most = 100,
     .help = "learning rate at the last step, with every schedule but constant"},
    {KEY(CHOICE, train.schedule, "cosine"), .choices = schedules,
     .help =
         "learning rate after warm-up, step by step of the optimizer: constant; linear or "
         "cosine to min_lr at the last step; or wsd (warm-up, stable, decay), at lr up to the "
         "last decay_steps steps, which come down to min_lr: linearly with wsd, as half a "
         "cosine with wsd_cosine, as 1 less the square root of the part that is done with "
         "wsd_sqrt; with checkpoint.every one is saved where the decay begins, and stays. From a "
         "checkpoint before the decay (checkpoint.resume, which then stays, too) a run goes on "
         "with other steps or decay_steps as if it had begun with them. WarmupLR and WarmupDecayLR "
         "are constant and linear, warmup_stable_decay is wsd_cosine"},
    {KEY(INT, train.warmup_steps, "0"), .min = 0, .max = INT64_C(1000000000000),
     .help = "steps in which the learning rate rises linearly to lr; may be more than steps"},
    {KEY(INT, train.decay_steps, "0"), .min = 0, .max = INT64_C(1000000000000),
     .help = "how many of the last steps decay, with schedules wsd, wsd_cosine and wsd_sqrt; at "
             "most as many as come after warm-up; 0: a tenth of steps, rounded up"},
    {KEY(REAL, train.warmup_min_lr, "0"), .least = 0, .most = 100,
     .help = "learning rate from which warm-up rises, as of a step 0"},
    {KEY(CHOICE, train.warmup_type, "linear"), .choices = warmups,
     .help = "how the learning rate rises: linear, or log, with the logarithm of the step, which "
             "is what DeepSpeed's schedules do unless told otherwise"},
    {KEY(CHOICE, train.optimizer, "adamw"), .choices = optimizers,
     .help = "rule of the update: adamw keeps two moments per parameter; sgd is plain descent "
             "with momentum, and keeps one; muon orthogonalizes the momentum of each matrix of "
             "the blocks (query, key and value apart) and keeps one, and adamw updates the rest; "
             "muon takes no parallel.tensor, model.experts, precision=bf16_pure, "
             "train.grad_dtype=bf16, train.overlap_update, comm.inter_node=mpi or "
             "comm.copy_engines, and sgd no precision=bf16_pure; adamw8bit is adamw whose moments "
             "have 8 bits: a code for each and the largest magnitude of every 256 in fp32, 2.03 "
             "bytes a parameter where adamw has 8; embeddings, and tensors of fewer than 4096 "
             "elements or not of whole blocks of 256, keep adamw's, as do queries, keys and "
             "values where one of them does"},
    {KEY(CHOICE, train.optimizer_dtype, "fp32"), .choices = state_dtypes,
     .help =
         "number format in which adamw keeps its moments, and adamw8bit those that it leaves to "
         "adamw; bf16 takes half the memory, and is rounded stochastically, the same on any "
         "number of ranks"},
    {KEY(CHOICE, train.grad_dtype, "fp32"), .choices = state_dtypes,
     .help =
         "number format of the gradients of linear layers' weights; bf16 takes half their memory "
         "and fewer bytes in sums over ranks and the update, and is of steps of one micro-batch on "
         "each rank; sums over ranks are taken in fp32. Gradients to which something is added "
         "(embeddings, the head, norms, tied matrices), and those of a mixture's experts, stay in "
         "fp32"},
    {KEY(REAL, train.weight_decay, "0.1"), .least = 0, .most = 100,
     .help = "weight decay: of adamw decoupled from the gradient; of sgd, times the parameter, "
             "added to the clipped gradient"},
    {KEY(CHOICE, train.decay, "matrices"), .choices = decays,
     .help = "parameters that decay: matrices leaves norms and biases alone"},
    {KEY(REAL, train.beta1, "0.9"), .least = 0, .most = 0.999999,
     .help = "decay rate of AdamW's mean of gradients"},
    {KEY(REAL, train.beta2, "0.95"), .least = 0, .most = 0.999999,
     .help = "decay rate of AdamW's mean of squared gradients"},
    {KEY(REAL, train.eps, "1e-08"), .least = 1e-30, .most = 1,
     .help = "added to the root in AdamW's denominator"},
    {KEY(REAL, train.momentum, "0.9"), .least = 0, .most = 0.999999,
     .help = "share of the step before in a step of sgd"},
    {NAMED_KEY("train.muon_momentum", REAL, train.muon.momentum, "0.95"), .least = 0,
     .most = 0.999999, .help = "decay rate of muon's mean of gradients"},
    {NAMED_KEY("train.muon_nesterov", BOOL, train.muon.nesterov, "true"),
     .help = "muon looks ahead: its mean is weighed with the gradient of the step once more"},
    {NAMED_KEY("train.muon_ns_steps", INT, train.muon.ns_steps, "5"), .min = 1, .max = 99,
     .help = "Newton-Schulz steps in which muon orthogonalizes a matrix"},
    {NAMED_KEY("train.muon_dtype", CHOICE, train.muon.dtype, "fp32"), .choices = state_dtypes,
     .help = "number format of the matrices that muon multiplies to orthogonalize; bf16 is faster "
             "on GPUs by their data sheets (not measured), and a step is off by about a hundredth "
             "of its length; norms and sums are fp32 in any case"},
    {NAMED_KEY("train.muon_adjust_lr", CHOICE, train.muon.adjust_lr, "original"),
     .choices = adjust_lrs,
     .help = "what muon multiplies train.lr by, for a matrix of n rows and m columns: original the "
             "square root of max(1, n/m), match_rms_adamw 0.2 times that of max(n, m), which makes "
             "steps as long as AdamW's, so that one learning rate serves both"},
    {NAMED_KEY("train.loss_scale", REAL, train.loss_scale.fixed, "0"), .least = 0, .most = 1e18,
     .help = "with precision fp16, what the loss is multiplied by so that its gradients fit fp16; "
             "0: dynamic, it is halved when they overflow, a step that updates nothing, and "
             "doubled when they have not for a while"},
    {NAMED_KEY("train.initial_scale_power", INT, train.loss_scale.dynamic.initial_power, "16"),
     .min = 0, .max = 60, .help = "power of two at which the dynamic loss scale begins"},
    {NAMED_KEY("train.loss_scale_window", INT, train.loss_scale.dynamic.window, "1000"), .min = 1,
     .max = INT64_C(1000000000000),
     .help = "steps without overflow after which the dynamic loss scale doubles"},
    {NAMED_KEY("train.hysteresis", INT, train.loss_scale.dynamic.hysteresis, "2"), .min = 1,
     .max = 1000,
     .help =
         "overflows after which the dynamic loss scale is halved, counted anew when it doubles"},
    {NAMED_KEY("train.min_loss_scale", REAL, train.loss_scale.dynamic.least, "1"), .least = 1e-9,
     .most = 1e18,
     .help = "least dynamic loss scale; overflow there ends the run after a few steps"},
    {KEY(REAL, train.clip, "1"), .least = 0, .most = 1e30,
     .help = "largest norm of the whole gradient, above which it is scaled down; 0: no limit"},
    {KEY(BOOL, train.overlap_update, "false"),
     .help = "true: each layer's weights are updated at the start of the next step, before their "
             "first use and beside the forward pass of the layers before it, with the same bits: "
             "reads and writes of offloaded state take place beside computing, and on GPUs the "
             "update runs on a stream of its own (no faster on one H100; comm.spare_sms leaves it "
             "multiprocessors). Before a checkpoint or an evaluation the update is made at once; "
             "gradients outlive the step, and take memory beside activations (without it those of "
             "one micro-batch take their place)"},
    {KEY(BOOL, train.reproducible, "true"),
     .help =
         "true: a run repeated on the same layout gives the same bits, and so does a resumed one; "
         "false: on GPUs attention's backward adds up in the order in which blocks end, which "
         "takes no memory that grows with the square of the sequence, and is faster where that is "
         "short (train.attention_bytes); on CPUs nothing changes"},
    {KEY(INT, train.attention_bytes, "0"), .min = 0, .max = INT64_C(1) << 40,
     .help =
         "bytes of scratch for attention's backward on GPUs, as many heads at a time as they hold, "
         "at least one head of keys and values; where it is reproducible it keeps the gradients of "
         "all scores, 2 bytes each, and with more memory it is faster, up to 4 GiB of them, in the "
         "same bits; 0: what is left of the GPU but for a sixteenth, at least 1200 MiB"},
    {KEY(CHOICE, train.logits_dtype, "fp32"), .choices = state_dtypes,
     .help =
         "number format of the logits that the loss is computed from; bf16, for precision bf16, "
         "bf16_pure and fp8, rounds each once, as PyTorch's autocast does, and takes half the "
         "memory and traffic; sums are fp32 in any case"},
    {KEY(INT, train.logits_chunk, "0"), .min = 0, .max = 1 << 30,
     .help = "rows of a micro-batch whose logits are in memory at once; 0: on GPUs as many "
             "as fill 1 GiB; on CPUs 1024 or the hidden size, whichever is larger, as far as 256 "
             "MiB hold them, and more where the caches do. With all rows at once the gradient of "
             "the head's matrix is written once; with several chunks each of them reads and writes "
             "it again; trireme plan says what memory that takes"},
    {KEY(BOOL, train.tune_products, "false"),
     .help =
         "true: before the first step each matrix product of the run is timed on its GPU by up to "
         "8 algorithms of cuBLASLt that give the same bits in every run, and done by the fastest; "
         "run.dir/products.json keeps the choice, so that a resumed run has the same bits; false: "
         "by the first that the library suggests, which was as fast on an H100; on CPUs nothing "
         "changes"},
    {KEY(TEXT, train.freeze, ""), .list = 1,
     .help =
         "tensors that are not trained: a list of names, in which * stands for any text, such "
         "as \"embed,layers.0.*\"; they have no gradient, no optimizer state and no fp32 "
         "masters, so that with precision=bf16 checkpoints hold them in bf16; trireme "
         "checkpoint show lists the names, and so does the message about another; query, key and "
         "value of a layer are one matrix, and so are gate and up, of which all or none are "
         "named. A run that goes on may train them again"},
    {KEY(INT, train.eval_every, "0"), .min = 0, .max = INT64_C(1000000000000),
     .help = "steps between evaluations on data.valid; 0: only after the last step"},
    {KEY(INT, train.eval_batches, "0"), .min = 0, .max = INT64_C(1000000000000),
     .help = "global batches of data.valid per evaluation; 0: all of it"},
    {KEY(INT, train.eval_micro_batch, "0"), .min = 0, .max = 1 << 20,
     .help = "sequences a rank evaluates at once; 0: as many as train.micro_batch"},
    {KEY(INT, train.early_stop, "0"), .min = 0, .max = INT32_MAX,
     .help = "end training after so many evaluations in a row whose loss was not below the lowest "
             "before them; evaluations on other data than data.valid is now do not count, nor for "
             "checkpoint.keep_best; 0: never"},
    {KEY(REAL, train.early_stop_delta, "0"), .least = 0, .most = 1e6,
     .help =
         "by how much a loss must be below that of the last better evaluation to count as better "
         "itself, for train.early_stop and for checkpoint.keep_best, whose checkpoint then need "
         "not have the lowest loss"},
};

const struct key_table schema_train = {.keys = rows, .count = sizeof rows / sizeof rows[0]};
