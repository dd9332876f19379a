/* schema_model.c - keys of what is computed: device, formats, seed, model, adapters, data. */
#include "config/schema_rows.h"

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

static const struct key_choice loadings[] = {
    {.name = "each", .value = LOADING_EACH}, {.name = "node", .value = LOADING_NODE}, {0}};

static const struct key_choice quantizations[] = {
    {.name = "none", .value = QUANTIZE_NONE},
    {.name = "nf4", .value = QUANTIZE_NF4, .aliases = "4bit"},
    {.name = "fp4", .value = CHOICE_LATER},
    {.name = "int8", .value = CHOICE_LATER},
    {0},
};

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

static const struct key rows[] = {
    {KEY(CHOICE, device, "auto"), .choices = devices,
     .help = "where the model is computed: cpu, or cuda, one NVIDIA GPU per rank; auto takes "
             "cuda where every rank has a GPU and this trireme was built with CUDA, else cpu"},
    {KEY(CHOICE, precision, "fp32"), .choices = precisions,
     .help = "number format of parameters and activations in forward and backward; bf16 updates "
             "fp32 master weights, bf16_pure the bf16 parameters themselves, stochastically "
             "rounded, which takes 4 bytes a parameter less; fp8 is bf16, and the matrices of the "
             "blocks are multiplied in fp8 (E4M3, scales of blocks of 128 numbers), on H100 and "
             "H200, or on CPUs, where it is slower than bf16; it needs data.seq_len a multiple of "
             "128 (of 256 times parallel.context where that is above 1), and on GPUs cuBLASLt "
             "12.9. Gradients are fp32 unless train.grad_dtype is bf16"},
    {KEY(CHOICE, recompute, "none"), .choices = recomputes,
     .help = "activations that backward makes again rather than keeps, to the same bits: none; "
             "gathered: rows that tensor and context ranks gathered are gathered again, so that "
             "a rank keeps its part of every activation; selective keeps of these the results "
             "of matrix products and of attention and computes the rest again (norms, rotary "
             "positions, activation functions), which takes little time; full keeps nothing but "
             "what is handed from layer to layer and computes each layer once more, a quarter "
             "more work"},
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
         "scratch; Llama, Mistral, Mixtral, Qwen2, Qwen3, Qwen3-MoE, Phi-3 of 4096 tokens, "
         "Phi-4 and GPT-2. A "
         "name of Hugging Face's hub, ORG/NAME or ORG/NAME@REVISION, is the folder of that model "
         "in their cache on this machine. A run's directory, or a checkpoint, sets these keys too "
         "and gives its weights, and nothing else of that run. Weights are read "
         "when a run begins: one that goes on has those of its checkpoint, whatever is named"},
    {NAMED_KEY("model.init", CHOICE, model_init, "pretrained"), .choices = inits,
     .help = "weights of a model of model.path: those that are there, or scratch, new ones from "
             "the seed"},
    {NAMED_KEY("model.loading", CHOICE, model_loading, "each"), .choices = loadings,
     .help = "how ranks get the weights of model.path and lora.path: each reads its own parts of "
             "the files, or the first rank of each node reads what its ranks need, every byte "
             "once, and sends it to them, to the same bits. node is for ranks of a node that need "
             "the same numbers (NO_SHARD, replicas) from a file system that serves many readers "
             "badly (not measured); with files in the page cache it took 3 to 4.5 times as long "
             "as each"},
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
     .help =
         "token numbers the model knows; at least as many as the tokenizer has; with model.path "
         "it may be larger than there, for tokens that the tokenizer was given since: their "
         "rows of the embedding and the head begin as the mean of the others"},
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
         "with rope_scaling yarn, if rope_mscale_all_dim is set too: cosines and sines are "
         "multiplied by f(rope_mscale) / f(rope_mscale_all_dim), f(m) = 0.1 m log(rope_factor) + "
         "1; 0: not given"},
    {NAMED_KEY("model.rope_mscale_all_dim", REAL, model.rope.yarn.mscale_all_dim, "0"), .least = 0,
     .most = 1e6, .help = "the second number of the ratio of rope_mscale; 0: not given"},
    {NAMED_KEY("model.rope_truncate", BOOL, model.rope.yarn.truncate, "true"),
     .help = "with rope_scaling yarn, the range between rope_beta_fast and rope_beta_slow is "
             "widened to whole frequencies"},
    {KEY(REAL, model.init_std, "0.02"), .least = 0, .most = 10,
     .help = "standard deviation of the initial weights; of matrices that add to the residual "
             "stream (o_proj, down_proj, also those of experts; of gpt2 both c_proj) it is divided "
             "by the square root of 2 x model.layers, as in GPT-2"},
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
    {NAMED_KEY("model.experts", INT, model.experts.count, "0"), .max = 1024,
     .help = "llama with a mixture of experts, as Mixtral and Qwen3-MoE: in each block so many "
             "feed-forward layers of width ffn, of which a router chooses some for each token; no "
             "token is dropped; 0: one layer for all tokens"},
    {NAMED_KEY("model.experts_per_token", INT, model.experts.per_token, "2"), .min = 1, .max = 64,
     .help = "experts that the router chooses for each token"},
    {NAMED_KEY("model.norm_topk_prob", BOOL, model.experts.norm_topk_prob, "true"),
     .help = "true: the router's probabilities of the experts that a token goes to are divided by "
             "their sum. With one expert a token the weight is then always 1, and the router gets "
             "no gradient from it"},
    {NAMED_KEY("model.router_aux_loss_coef", REAL, model.experts.aux_loss, "0"), .most = 1e6,
     .help = "training evens out how many tokens each expert gets: coefficient of the load "
             "balancing loss (Fedus et al. 2021), which is taken over each sequence, so that it "
             "does not depend on the layout, and averaged over sequences and layers, as in "
             "transformers; Megatron-LM adds layers up: its coefficient times the layers is this "
             "one. It has a gradient, and the losses that are reported are without it; not with "
             "parallel.context; 0: none"},
    {NAMED_KEY("model.embed_dropout", REAL, model.dropout.embed, "0"), .most = 0.99,
     .help = "gpt2: share of the embedding's output that training sets to zero (embd_pdrop)"},
    {NAMED_KEY("model.residual_dropout", REAL, model.dropout.residual, "0"), .most = 0.99,
     .help = "gpt2: share of the outputs of attention and feed-forward layers that training sets "
             "to zero (resid_pdrop)"},
    {NAMED_KEY("model.attention_dropout", REAL, model.dropout.attention, "0"), .most = 0.99,
     .help =
         "share of the attention weights that training sets to zero (attn_pdrop); trireme's own "
         "kernels then compute attention, not cuDNN. What is dropped follows from seed, sample, "
         "position, layer and feature, on any number of ranks"},

    {KEY(INT, lora.r, "0"), .min = 0, .max = 65536,
     .help =
         "rank of the matrices that are trained beside frozen linear layers (LoRA); all else is "
         "frozen but what lora.modules_to_save names; 0: there are none, and the model itself "
         "is trained"},
    {KEY(REAL, lora.alpha, "8"), .least = 1e-30, .most = 1e30,
     .help = "what the adapters add is multiplied by lora.alpha / lora.r"},
    {KEY(BOOL, lora.use_rslora, "false"),
     .help = "true: what the adapters add is multiplied by lora.alpha / sqrt(lora.r) instead, "
             "which suits large ranks"},
    {KEY(BOOL, lora.use_dora, "false"),
     .help =
         "true: DoRA, which also trains the length of each row of the adapted matrices "
         "(lora_magnitude_vector), and scales the row with its adapter to that; norms of rows are "
         "constants to backward, as in peft; trained without lora.dropout"},
    {KEY(REAL, lora.dropout, "0"), .most = 0.99,
     .help = "share of the adapters' inputs that training sets to zero (peft's lora_dropout)"},
    {KEY(CHOICE, lora.quantize_base, "none"), .choices = quantizations,
     .help =
         "how the frozen matrices of the blocks are kept beside adapters: nf4 is QLoRA, 4.5 "
         "bits a weight, as bitsandbytes has it (NF4, blocks of 64, scales in fp32). Before a "
         "layer computes, its weights become numbers in the format of precision; embeddings, "
         "head, norms and biases are kept in that format. The 4 bits are made of the weights of "
         "model.path as they are read, on any layout; trireme convert --merge adds adapters to "
         "the weights of model.path"},
    {KEY(TEXT, lora.target_modules, ""), .list = 1,
     .help =
         "linear layers that get adapters, by their names in Hugging Face's files or the ends of "
         "these: \"q_proj,v_proj\", which llama has by itself, \"c_attn\", as gpt2 has; or "
         "all-linear, every one of the blocks; all blocks have the same, so that a name with "
         "a block's number is refused unless those of the others are there, too"},
    {KEY(TEXT, lora.modules_to_save, ""), .list = 1,
     .help =
         "modules that are trained whole beside the adapters, such as \"embed_tokens,lm_head\" or "
         "\"layers.1.input_layernorm\", or \"*norm\", every one whose name ends in these "
         "letters, as peft takes \"norm\"; q_proj, k_proj and v_proj are one matrix, and so are "
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
     .help = "how documents become sequences: stream one after the other, cut every seq_len "
             "tokens, so that attention and loss run across their ends; documents whole ones, as "
             "many as fit, which do not see each other, with positions that begin anew (longer "
             "ones are cut into pieces of seq_len); padded one each, of which what comes after "
             "seq_len is left away; what is left of a sequence is masked. With documents GPUs "
             "compute attention by trireme's own kernels, which are slower than cuDNN's"},
    {KEY(INT, data.seq_len, "0"), .min = 0, .max = 1 << 24,
     .help = "tokens in a sequence, up to model.max_seq_len; 0: the smaller of "
             "model.max_seq_len and 512"},
};

const struct key_table schema_model = {.keys = rows, .count = sizeof rows / sizeof rows[0]};
