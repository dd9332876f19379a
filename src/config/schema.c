/* schema.c - every key of the configuration, one row each.  Parsing, checking, config --show,
 * the man page and the effective config.yaml are all made from these rows. */
#include "config/schema.h"
#include "config/schema_choices.h"

/* The first members of a row: KEY names the key after its field, NAMED_KEY otherwise. */
#define KEY(type, field, text) NAMED_KEY(#field, type, field, text)
#define NAMED_KEY(text, kind, field, value)                                     \
    .name = text, .type = KEY_##kind, .offset = offsetof(struct config, field), \
    .bytes = sizeof(((struct config *)0)->field), .initial = value

const struct key config_keys[] = {
    {KEY(CHOICE, device, "auto"), .choices = devices,
     .help = "where the model is computed: cpu, or cuda, one NVIDIA GPU per rank; auto takes "
             "cuda where every rank has a GPU and this trireme was built with CUDA, else cpu"},
    {KEY(CHOICE, precision, "fp32"), .choices = precisions,
     .help = "number format of parameters and activations in forward and backward; bf16 updates "
             "fp32 master weights, bf16_pure the bf16 parameters themselves, stochastically "
             "rounded, which takes 4 bytes a parameter less; fp8 is bf16, and the matrices of the "
             "blocks are multiplied in fp8 (E4M3, scales of blocks of 128 numbers), on H100 and "
             "H200, or on CPUs, where it is slower than bf16; gradients are fp32 in any case"},
    {KEY(CHOICE, recompute, "none"), .choices = recomputes,
     .help = "activations that backward makes again rather than keeps, to the same bits: none; "
             "gathered: rows that tensor and context ranks gathered are gathered again, so that "
             "a rank keeps its part of every activation; selective keeps of these the results "
             "of matrix products and computes the rest again, which takes little time; full "
             "keeps nothing but what is handed from layer to layer and computes each layer once "
             "more, a quarter more work"},
    {KEY(INT, recompute_every, "1"), .min = 1, .max = 10000,
     .help = "of the model's units, blocks of layers as parallel.wrap makes them, one in so many "
             "recomputes and the others keep all: 1 is each, 2 every second one"},
    {KEY(INT, seed, "0"), .min = 0, .max = INT64_MAX,
     .help = "initial weights, the order of the data and what dropout drops follow from it, on "
             "any number of ranks"},

    {NAMED_KEY("model.path", TEXT, model_path, ""),
     .help =
         "folder of a model as Hugging Face's programs keep it: config.json sets the other keys "
         "of model, and training begins with the weights in model.safetensors, or in those files "
         "that model.safetensors.index.json names, which have to be there unless model.init is "
         "scratch; Llama, Mistral, Qwen2, Qwen3 and GPT-2. A name of Hugging Face's hub, ORG/NAME "
         "or ORG/NAME@REVISION, is the folder of "
         "that model in their cache on this machine. A run's directory, or a checkpoint, sets "
         "these keys too and gives its weights, and nothing else of that run. Weights are read "
         "when a run begins: one that goes on has those of its checkpoint, whatever is named"},
    {NAMED_KEY("model.init", CHOICE, model_init, "pretrained"), .choices = inits,
     .help = "weights of a model of model.path: those that are there, or scratch, new ones from "
             "the seed"},
    {NAMED_KEY("model.loading", CHOICE, model_loading, "each"), .choices = loadings,
     .help = "how ranks get the weights of model.path and lora.path: each reads its own parts of "
             "the files, or the first rank of each node reads what its ranks need, every byte "
             "once, and sends it to them, to the same bits. node helps where ranks of a node need "
             "the same numbers (NO_SHARD, replicas) from a file system of the network, or that "
             "does not bear all ranks opening the files at once; else each is faster"},
    {NAMED_KEY("model.sync_module_states", BOOL, sync_module_states, "false"),
     .help = "before the first step, ranks that hold the same part of a tensor compare hashes of "
             "it; a difference ends the run, naming tensor and ranks"},
    {KEY(TEXT, model.preset, ""),
     .help = "a named model; the other model keys, when given, replace its values"},
    {KEY(TEXT, model.family, "llama"), .choices = families,
     .help = "architecture: llama is RMSNorm, rotary positions, grouped-query attention and "
             "SwiGLU; gpt2 is LayerNorm, max_seq_len learned positions, GELU, and biases"},
    {KEY(INT, model.layers, "0"), .min = 0, .max = 10000, .help = "transformer blocks"},
    {KEY(INT, model.hidden, "0"), .min = 0, .max = 1 << 20, .help = "width of the residual stream"},
    {KEY(INT, model.heads, "0"), .min = 0, .max = 8192, .help = "query heads"},
    {KEY(INT, model.kv_heads, "0"), .min = 0, .max = 8192,
     .help =
         "key and value heads, a divisor of heads; 0: as many as heads, which is also what a new "
         "model.heads gives a preset that has as many"},
    {KEY(INT, model.head_dim, "0"), .min = 0, .max = 4096,
     .help = "width of one head, even; GPUs take 256 at most; 0: hidden / heads"},
    {KEY(INT, model.ffn, "0"), .min = 0, .max = 1 << 24,
     .help = "width inside the feed-forward layer"},
    {KEY(INT, model.vocab, "0"), .min = 0, .max = INT32_MAX,
     .help = "token numbers the model knows; at least as many as the tokenizer has"},
    {KEY(INT, model.max_seq_len, "2048"), .min = 1, .max = 1 << 24,
     .help = "longest sequence, in tokens, the model is meant for"},
    {KEY(REAL, model.norm_eps, "1e-05"), .least = 0, .most = 1,
     .help = "added to the mean square or the variance under the root of a norm"},
    {NAMED_KEY("model.rope_theta", REAL, model.rope.theta, "10000"), .least = 1, .most = 1e12,
     .help = "base of the rotary position frequencies"},
    {NAMED_KEY("model.rope_scaling", CHOICE, model.rope.scaling, "none"), .choices = rope_scalings,
     .help = "how rotary frequencies are stretched for long sequences: linear, all alike; llama3 "
             "and yarn (Peng et al. 2023), the low ones"},
    {NAMED_KEY("model.rope_factor", REAL, model.rope.factor, "8"), .least = 1, .most = 1e6,
     .help = "stretch of the frequencies, or of the low ones, with a rope_scaling"},
    {NAMED_KEY("model.rope_low_freq_factor", REAL, model.rope.low_freq_factor, "1"), .least = 1e-6,
     .most = 1e6,
     .help = "wavelengths above rope_original_len over this are stretched whole, with "
             "rope_scaling llama3"},
    {NAMED_KEY("model.rope_high_freq_factor", REAL, model.rope.high_freq_factor, "4"),
     .least = 1e-6, .most = 1e6,
     .help = "wavelengths below rope_original_len over this are left alone, with rope_scaling "
             "llama3"},
    {NAMED_KEY("model.rope_original_len", INT, model.rope.original_len, "8192"), .min = 1,
     .max = 1 << 24,
     .help = "sequence length before stretching, with rope_scaling llama3 and yarn"},
    {NAMED_KEY("model.rope_beta_fast", REAL, model.rope.yarn.beta_fast, "32"), .least = 1e-6,
     .most = 1e6,
     .help = "with rope_scaling yarn, frequencies that rotate more often within rope_original_len "
             "are left alone"},
    {NAMED_KEY("model.rope_beta_slow", REAL, model.rope.yarn.beta_slow, "1"), .least = 1e-6,
     .most = 1e6,
     .help = "with rope_scaling yarn, frequencies that rotate less often are stretched whole"},
    {NAMED_KEY("model.rope_attention_factor", REAL, model.rope.yarn.attention_factor, "0"),
     .least = 0, .most = 1e6,
     .help = "with rope_scaling yarn, what cosines and sines are multiplied by; 0: 0.1 log(factor) "
             "+ 1, or what rope_mscale says"},
    {NAMED_KEY("model.rope_mscale", REAL, model.rope.yarn.mscale, "0"), .least = 0, .most = 1e6,
     .help =
         "with rope_scaling yarn, and with rope_mscale_all_dim, that factor is the ratio of 0.1 "
         "m log(factor) + 1 for m of the one and of the other; 0: not given"},
    {NAMED_KEY("model.rope_mscale_all_dim", REAL, model.rope.yarn.mscale_all_dim, "0"), .least = 0,
     .most = 1e6, .help = "see rope_mscale"},
    {NAMED_KEY("model.rope_truncate", BOOL, model.rope.yarn.truncate, "true"),
     .help = "with rope_scaling yarn, the range between rope_beta_fast and rope_beta_slow is "
             "widened to whole frequencies"},
    {KEY(REAL, model.init_std, "0.02"), .least = 0, .most = 10,
     .help = "standard deviation of the initial weights"},
    {KEY(BOOL, model.tie_embeddings, "false"),
     .help = "use the token embedding as output head too"},
    {KEY(BOOL, model.qkv_bias, "false"),
     .help = "llama with biases of queries, keys and values, as Qwen2 has them; gpt2 always has"},
    {KEY(BOOL, model.qk_norm, "false"),
     .help =
         "llama with an RMSNorm over each head of queries and of keys, before they are rotated, "
         "as Qwen3 has it"},
    {KEY(INT, model.sliding_window, "0"), .min = 0, .max = 1 << 24,
     .help = "llama in whose attention a token sees so many tokens at most, itself among them, as "
             "Mistral has it, on GPUs by trireme's own kernels, not by cuDNN; 0: all before it"},
    {NAMED_KEY("model.embed_dropout", REAL, model.dropout.embed, "0"), .most = 0.99,
     .help = "gpt2: share of the embedding's output that training sets to zero (embd_pdrop)"},
    {NAMED_KEY("model.residual_dropout", REAL, model.dropout.residual, "0"), .most = 0.99,
     .help = "gpt2: the same of what attention and feed-forward layers put out (resid_pdrop)"},
    {NAMED_KEY("model.attention_dropout", REAL, model.dropout.attention, "0"), .most = 0.99,
     .help = "the same of the weights of attention, which cuDNN then does not compute, but "
             "trireme's own kernels (attn_pdrop). What is dropped follows from seed, sample, "
             "position, layer and feature, on any number of ranks"},

    {KEY(INT, lora.r, "0"), .min = 0, .max = 65536,
     .help =
         "rank of the matrices that are trained beside frozen linear layers (LoRA); all else is "
         "frozen but what lora.modules_to_save names; 0: there are none, and the model itself "
         "is trained"},
    {KEY(REAL, lora.alpha, "8"), .least = 1e-30, .most = 1e30,
     .help = "what they add is multiplied by alpha / r"},
    {KEY(BOOL, lora.use_rslora, "false"),
     .help = "true: multiplied by alpha / sqrt(r) instead, which suits large ranks"},
    {KEY(BOOL, lora.use_dora, "false"),
     .help =
         "true: DoRA, which also trains the length of each row of the adapted matrices "
         "(lora_magnitude_vector), and scales the row with its adapter to that; norms of rows are "
         "constants to backward, as in peft"},
    {KEY(REAL, lora.dropout, "0"), .most = 0.99,
     .help = "share of what they read that training sets to zero (peft's lora_dropout)"},
    {KEY(TEXT, lora.target_modules, ""), .list = 1,
     .help = "linear layers that get them, by their names in Hugging Face's files or the ends of "
             "these: \"q_proj,v_proj\", which llama has by itself, \"c_attn\", as gpt2 has; or "
             "all-linear, every one of the blocks; all blocks have the same, so that a name with "
             "a block's number is refused unless those of the others are there, too"},
    {KEY(TEXT, lora.modules_to_save, ""), .list = 1,
     .help = "modules that are trained whole beside them, such as \"embed_tokens,lm_head\" or "
             "\"layers.1.input_layernorm\", or \"*norm\", every one whose name ends in these "
             "letters, as "
             "peft takes \"norm\"; q_proj, k_proj and v_proj are one matrix, and so are "
             "gate_proj and up_proj, of which all or none are named"},
    {KEY(TEXT, lora.path, ""),
     .help = "folder of an adapter as peft keeps it, adapter_config.json and "
             "adapter_model.safetensors: the first sets the other keys of lora, and training "
             "begins with the second's numbers. What trireme does not have (layers_to_transform, "
             "rank_pattern and the like), and ways to begin that change the model's own weights "
             "(PiSSA, OLoRA, CorDA, LoRA-GA, LoftQ), are refused"},

    {KEY(TEXT, data.train, ""), .list = 1, .options = "weight|samples", .by_rank = 1,
     .help = "token files to train on, as trireme tokenize makes them or doc/token-files.md "
             "describes: FILE.h5, or several, a.h5,b.h5, whose sequences one epoch visits once. "
             "With weights, a.h5:0.7,b.h5:0.3, they are mixed in these shares, and each has epochs "
             "of its own. a.h5:samples=1000 uses its first 1000 sequences (documents, where "
             "data.packing is not stream). In a YAML file also a list of paths, or of maps: "
             "[{path: a.h5, weight: 0.7, samples: 1000}, ...]"},
    {KEY(TEXT, data.valid, ""), .list = 1, .options = "samples", .by_rank = 1,
     .help = "token files to evaluate on, together, written as in data.train, without weights"},
    {KEY(CHOICE, data.packing, "stream"), .choices = packings,
     .help = "how documents become sequences: stream one behind the other, cut every seq_len "
             "tokens, so that attention and loss run across their ends; documents whole ones, as "
             "many as fit, which do not see each other, with positions that begin anew (longer "
             "ones are cut into pieces of seq_len); padded one each, of which what is behind "
             "seq_len is left away; what is left of a sequence is masked"},
    {KEY(INT, data.seq_len, "0"), .min = 0, .max = 1 << 24,
     .help = "tokens in a sequence, up to model.max_seq_len; 0: the smaller of "
             "model.max_seq_len and 512"},

    {KEY(INT, train.steps, "100"), .min = 0, .max = INT64_C(1000000000000),
     .help = "optimizer steps from the start of training, those before a resume included; 0 saves "
             "the initial weights"},
    {KEY(REAL, train.epochs, "0"), .least = 0, .most = 1e9,
     .help = "in place of train.steps: passes over data.train, whose last step may take the first "
             "sequences of the next; of files with weights as many samples as all have sequences; "
             "sequences are counted, of whatever data they were, so that a resume with another "
             "global batch ends there, too, and the decay of the learning rate goes on with them; "
             "0: not given"},
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
     .help = "learning rate at the last step of schedules linear and cosine"},
    {KEY(CHOICE, train.schedule, "cosine"), .choices = schedules,
     .help = "learning rate after warm-up, step by step of the optimizer: constant, or linear or "
             "cosine to min_lr at the last step; WarmupLR and WarmupDecayLR are constant and "
             "linear"},
    {KEY(INT, train.warmup_steps, "0"), .min = 0, .max = INT64_C(1000000000000),
     .help = "steps in which the learning rate rises linearly to lr; may be more than steps"},
    {KEY(REAL, train.warmup_min_lr, "0"), .least = 0, .most = 100,
     .help = "learning rate from which warm-up rises, as of a step 0"},
    {KEY(CHOICE, train.warmup_type, "linear"), .choices = warmups,
     .help = "how the learning rate rises: linear, or log, with the logarithm of the step, which "
             "is what DeepSpeed's schedules do unless told otherwise"},
    {KEY(CHOICE, train.optimizer, "adamw"), .choices = optimizers,
     .help = "rule of the update: adamw keeps two moments per parameter; sgd is plain descent "
             "with momentum, and keeps one; muon orthogonalizes the momentum of each matrix of the "
             "blocks (query, key and value apart) and keeps one, and adamw updates the rest; muon "
             "takes no parallel.tensor, train.grad_dtype=bf16 or train.overlap_update"},
    {KEY(CHOICE, train.optimizer_dtype, "fp32"), .choices = state_dtypes,
     .help = "number format in which adamw keeps its moments; bf16 takes half the memory, and is "
             "rounded stochastically, the same on any number of ranks"},
    {KEY(CHOICE, train.grad_dtype, "fp32"), .choices = state_dtypes,
     .help =
         "number format of the gradients of linear layers' weights; bf16 takes half their memory "
         "and fewer bytes in sums over ranks and the update, and is of steps of one micro-batch on "
         "each rank; sums over ranks are taken in fp32. Gradients to which something is added "
         "(embeddings, the head, norms, tied matrices) stay in fp32"},
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
     .help = "number format of the matrices that muon multiplies to orthogonalize; bf16 is several "
             "times faster on GPUs, and a step is off by about a hundredth of its length; norms "
             "and sums are fp32 in any case"},
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
             "multiprocessors). Before a checkpoint or an evaluation the update is made at once"},
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
     .help = "rows of a micro-batch whose logits are in memory at once; 0: as many as fill 1 GiB "
             "on GPUs; on CPUs 1024, as many as stay in the caches, or as the hidden size, "
             "whichever are most, up to 256 MiB; with all of them the gradient of the head's "
             "matrix is written once, not read and written again for each chunk; trireme plan "
             "says what memory that takes"},
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
         "parts in which tensor ranks exchange the rows of an activation, so that the products "
         "that read or make them go on meanwhile; off: one exchange, for which products wait; "
         "auto: by the number of rows, trireme plan shows which; as many ranks times parts must "
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
         "1f1b forward and backward in turns as soon as each can be, which with one stage is "
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
             "the order of the stages: 3,2,2,1; empty: so that the dearest costs least"},
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
             "the next micro-batch, to the same bits. DeepSpeed's offload_optimizer of stages 2 "
             "and 3 and FSDP's CPUOffload, which have no key of their own for it, are this key at "
             "host beside offload.optimizer, and offload.params for the latter and offload_param"},
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
     .help = "let several ranks of a node use one GPU, turn by turn, to try layouts on few GPUs; "
             "otherwise fewer GPUs than ranks are an error"},
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

    {KEY(INT, checkpoint.every, "0"), .min = 0, .max = INT64_C(1000000000000),
     .help = "steps between checkpoints; 0: only at the end and on a signal"},
    {KEY(INT, checkpoint.keep, "2"), .min = 2, .max = INT32_MAX,
     .help = "newest checkpoints that are not deleted; the newest after which the training loss "
             "was about the lowest is spared beside them, so that a run that diverges keeps a good "
             "one"},
    {KEY(BOOL, checkpoint.async, "false"),
     .help = "true: checkpoints are written in the background: steps wait only until the state is "
             "copied to the host's memory, which takes as much of it as the rank's part of a "
             "checkpoint has (host, in trireme plan), and a thread of each rank writes the copy "
             "beside them; a checkpoint that is due before the last one is written waits for it.  "
             "The one at the end, or on a signal, is written at once"},
    {KEY(BOOL, checkpoint.keep_best, "false"),
     .help = "true: an evaluation with the lowest loss so far saves a checkpoint, which is kept "
             "until there is a better one; checkpoints/best leads to it, for evaluate, generate "
             "and convert"},
    {KEY(TEXT, checkpoint.resume, "auto"),
     .help = "where the run starts.  auto: from the newest good checkpoint of run.dir, if it holds "
             "a run, else from nothing.  A path, of a checkpoint or of a run: from there, and once "
             "run.dir has later checkpoints of its own, from the newest of them, so that the same "
             "command started again goes on.  A number: back to that step of run.dir; later "
             "checkpoints are moved to branches/.  none: from nothing, refused where run.dir holds "
             "a run (run.fresh)"},

    {KEY(BOOL, checkpoint.export_hf, "false"),
     .help = "true: when training ends, the model, or adapter, is written to hf/ in run.dir as "
             "trireme convert writes it; with checkpoint.keep_best that of the best evaluation. "
             "What is in hf/ and not of this run becomes hf.1; a missing export is made by the "
             "next start"},
    {KEY(CHOICE, checkpoint.frozen, "auto"), .choices = frozens,
     .help =
         "what checkpoints of a run with adapters (lora.r) hold of the frozen tensors: full all "
         "of them, reference only where they are, model.path, and a hash of their names, shapes "
         "and a sample of their numbers (three times 512 bytes of each); auto is reference "
         "where model.path is a folder with safetensors, else full, so also where it is a run; "
         "full, too, once the files of that folder are no longer those that the run began with, "
         "and in a run that goes on from a checkpoint that is. Adapters, and modules of "
         "lora.modules_to_save, are in every checkpoint, also where train.freeze freezes them"},

    {KEY(INT, generate.samples, "0"), .min = 0, .max = 10000,
     .help = "while training, at each evaluation: how many texts of data.valid the model is given "
             "the beginning of and continues; they go to samples.jsonl in run.dir, each beside how "
             "it went on, and the first to the log; 0: none"},
    {KEY(INT, generate.batch, "8"), .min = 1, .max = 4096,
     .help = "texts that are continued at a time"},
    {KEY(INT, generate.tokens, "128"), .min = 1, .max = 1000000000,
     .help = "most new tokens of a text"},
    {KEY(INT, generate.min_tokens, "0"), .min = 0, .max = 1000000000,
     .help = "fewest new tokens of a text: until then no token that would end it is taken"},
    {KEY(REAL, generate.temperature, "0.8"), .least = 0, .most = 100,
     .help = "what logits are divided by before a token is drawn; 0: the likeliest token, always"},
    {KEY(INT, generate.top_k, "0"), .min = 0, .max = 1000000000,
     .help = "draw among so many likeliest tokens; 0: all"},
    {KEY(REAL, generate.top_p, "1"), .least = 0, .most = 1,
     .help = "draw among the fewest likeliest tokens whose probabilities come to this"},
    {KEY(REAL, generate.repetition_penalty, "1"), .least = 0.01, .most = 100,
     .help =
         "what positive logits of tokens that the text already has are divided by, and negative "
         "ones multiplied; 1: nothing"},

    {KEY(TEXT, run.dir, "runs/default"), .by_rank = 1,
     .help = "directory of metrics, log, effective config and checkpoints"},
    {KEY(BOOL, run.fresh, "false"),
     .help = "true: start over. What run.dir holds is moved aside, to run.dir with .1, .2 ... "
             "behind its name, and nothing is deleted; with a checkpoint.resume of this run, a new "
             "branch from there. A job that Slurm requeues goes on with what it began. For the "
             "command line: each start anew moves what is there aside"},
    {KEY(INT, run.trace, "0"), .min = 0, .max = INT32_MAX,
     .help = "step whose instructions are traced to trace.json; 0: none"},
    {KEY(INT, run.log_every, "10"), .min = 1, .max = INT64_C(1000000000000),
     .help = "steps between progress lines"},
    {KEY(INT, run.hang_seconds, "600"), .min = 0, .max = 1 << 20,
     .help = "end the job, naming rank, node and operation, when a transfer has not advanced for "
             "this long and the ranks that it waits for show no sign of life (exit code 94); time "
             "in which the job was suspended does not count; 0: wait for ever"},
    {KEY(INT, run.threads, "0"), .min = 0, .max = 4096, .by_rank = 1,
     .help = "compute threads of a rank; 0: cores of the node / ranks on it"},
    {KEY(TEXT, run.machine, "auto"),
     .help =
         "the machine that steps are forecast for at the start (forecast.json).  After ten "
         "steps, and when their time changes, the run is compared with that, and its ranks with "
         "one another, and a line says what is off and the likely cause.  A name that trireme "
         "plan --machine knows, FILE or FILE:NAME (trireme doctor --measure FILE writes one), "
         "and behind @ another network of its nodes: h100@8x400Gb.  auto: by the name of the "
         "GPU; none, as auto on processors: no forecast; off: nothing is compared, either"},
    {KEY(CHOICE, run.self_check, "auto"), .choices = self_checks,
     .help =
         "compare what GPUs compute with the CPU before the first step, on small inputs.  auto: "
         "once for a kind of GPU, its driver, libraries and this build, what was found being "
         "kept in ~/.cache/trireme; always: at each start; off: never.  Where cuBLASLt or cuDNN "
         "is wrong, trireme's own kernels compute in its place; where an own kernel is wrong, "
         "the run is refused"},
};

const int config_key_count = sizeof config_keys / sizeof config_keys[0];
