/* hf_members.c - tables of the members of config.json; see hf_members.h.
 *
 * A file may leave out members that have the default of their class in Hugging Face's transformers:
 * `otherwise` is this default, and differs from class to class. */
#include "config/hf_members.h"

#include <stdio.h>
#include <string.h>

const struct hf_type hf_types[] = {
    {.kind = HF_LLAMA, .name = "llama", .architecture = "LlamaForCausalLM"},
    {.kind = HF_MISTRAL, .name = "mistral", .architecture = "MistralForCausalLM"},
    {.kind = HF_QWEN2, .name = "qwen2", .architecture = "Qwen2ForCausalLM", .qkv_bias = 1},
    {.kind = HF_QWEN3, .name = "qwen3", .architecture = "Qwen3ForCausalLM", .qk_norm = 1},
    {.kind = HF_PHI3, .name = "phi3", .architecture = "Phi3ForCausalLM"},
    {.kind = HF_MIXTRAL,
     .name = "mixtral",
     .architecture = "MixtralForCausalLM",
     .rope_theta = 1e6},
    {.kind = HF_QWEN3_MOE,
     .name = "qwen3_moe",
     .architecture = "Qwen3MoeForCausalLM",
     .qk_norm = 1},
    {.kind = HF_GPT2, .name = "gpt2", .architecture = "GPT2LMHeadModel"},
    {0},
};

#define MEMBER(kinds, text, config_key, kind) \
    .of = kinds, .name = text, .key = config_key, .type = kind

const struct hf_member hf_members[] = {
    {MEMBER(HF_DECODERS, "num_hidden_layers", "model.layers", HF_NUMBER)},
    {MEMBER(HF_DECODERS, "hidden_size", "model.hidden", HF_NUMBER)},
    {MEMBER(HF_DECODERS, "num_attention_heads", "model.heads", HF_NUMBER)},
    {MEMBER(HF_LLAMA | HF_PHI3, "num_key_value_heads", "model.kv_heads", HF_NUMBER),
     .otherwise = "0"},
    {MEMBER(HF_MISTRAL | HF_MIXTRAL, "num_key_value_heads", "model.kv_heads", HF_NUMBER),
     .otherwise = "8", .null = "0"},
    {MEMBER(HF_QWEN, "num_key_value_heads", "model.kv_heads", HF_NUMBER), .otherwise = "32",
     .null = "0"},
    {MEMBER(HF_QWEN3_MOE, "num_key_value_heads", "model.kv_heads", HF_NUMBER), .otherwise = "4",
     .null = "0"},
    {MEMBER(HF_DECODERS & ~HF_QWEN3, "head_dim", "model.head_dim", HF_NUMBER), .otherwise = "0"},
    {MEMBER(HF_QWEN3, "head_dim", "model.head_dim", HF_NUMBER), .otherwise = "128", .null = "0"},
    {MEMBER(HF_DECODERS & ~HF_QWEN3_MOE, "intermediate_size", "model.ffn", HF_NUMBER)},
    {MEMBER(HF_QWEN3_MOE, "moe_intermediate_size", "model.ffn", HF_NUMBER), .otherwise = "768"},
    {MEMBER(HF_MIXTRAL, "num_experts_per_tok", "model.experts_per_token", HF_NUMBER),
     .otherwise = "2"},
    {MEMBER(HF_QWEN3_MOE, "num_experts_per_tok", "model.experts_per_token", HF_NUMBER),
     .otherwise = "8"},
    {MEMBER(HF_QWEN3_MOE, "norm_topk_prob", "model.norm_topk_prob", HF_TRUTH),
     .otherwise = "false"},
    {MEMBER(HF_LLAMA, "max_position_embeddings", "model.max_seq_len", HF_NUMBER),
     .otherwise = "2048"},
    {MEMBER(HF_PHI3, "max_position_embeddings", "model.max_seq_len", HF_NUMBER),
     .otherwise = "4096"},
    {MEMBER(HF_MISTRAL | HF_MIXTRAL, "max_position_embeddings", "model.max_seq_len", HF_NUMBER),
     .otherwise = "131072"},
    {MEMBER(HF_QWEN | HF_QWEN3_MOE, "max_position_embeddings", "model.max_seq_len", HF_NUMBER),
     .otherwise = "32768"},
    {MEMBER(HF_DECODERS & ~(HF_MIXTRAL | HF_PHI3), "rms_norm_eps", "model.norm_eps", HF_REAL),
     .otherwise = "1e-06"},
    {MEMBER(HF_MIXTRAL | HF_PHI3, "rms_norm_eps", "model.norm_eps", HF_REAL), .otherwise = "1e-05"},
    {MEMBER(HF_DECODERS, "tie_word_embeddings", "model.tie_embeddings", HF_TRUTH),
     .otherwise = "false"},
    {MEMBER(HF_GPT2, "n_layer", "model.layers", HF_NUMBER)},
    {MEMBER(HF_GPT2, "n_embd", "model.hidden", HF_NUMBER)},
    {MEMBER(HF_GPT2, "n_head", "model.heads", HF_NUMBER)},
    {MEMBER(HF_GPT2, "n_positions", "model.max_seq_len", HF_NUMBER), .otherwise = "1024"},
    {MEMBER(HF_GPT2, "layer_norm_epsilon", "model.norm_eps", HF_REAL), .otherwise = "1e-05"},
    {MEMBER(HF_GPT2, "tie_word_embeddings", "model.tie_embeddings", HF_TRUTH), .otherwise = "true"},
    {MEMBER(HF_DECODERS, "attention_dropout", "model.attention_dropout", HF_REAL), .otherwise = "0",
     .null = "0"},
    {MEMBER(HF_GPT2, "embd_pdrop", "model.embed_dropout", HF_REAL), .otherwise = "0.1",
     .null = "0"},
    {MEMBER(HF_GPT2, "resid_pdrop", "model.residual_dropout", HF_REAL), .otherwise = "0.1",
     .null = "0"},
    {MEMBER(HF_GPT2, "attn_pdrop", "model.attention_dropout", HF_REAL), .otherwise = "0.1",
     .null = "0"},
    {MEMBER(HF_ANY, "vocab_size", "model.vocab", HF_NUMBER)},
    {MEMBER(HF_ANY, "initializer_range", "model.init_std", HF_REAL), .otherwise = "0.02"},
    {0},
};

#define FIXED(kinds, text) .of = kinds, .name = text
#define NO_EXPERTS         "a model of this model_type has no experts"
#define NO_SHARED          "trireme has no expert that all tokens go through"
#define ALL_BLOCKS         "in trireme all blocks have experts, or none"
#define ONE_GROUP          "a router of trireme's chooses the most probable of all experts"
#define SOFTMAX            "a router of trireme's takes the softmax of its logits, and nothing else"
#define SUM_OF_ONE         "a mixtral divides the weights of a token's experts by their sum"
#define NO_NOISE           "trireme adds no noise to what a router reads"
#define NO_TOKEN_DROPPED   "in trireme an expert takes all tokens that chose it"
#define OTHER_BALANCE \
    "the loss that trireme adds is router_aux_loss_coef, with output_router_logits"
#define NO_LIMIT  "trireme does not limit what an expert multiplies"
#define NO_LATENT "trireme has no latent attention"

const struct hf_fixed hf_fixed[] = {
    {FIXED(HF_DECODERS, "hidden_act"), .texts = {"silu", "swish"}},
    {FIXED(HF_DECODERS, "attention_bias")},
    {FIXED(HF_DECODERS, "mlp_bias")},
    {FIXED(HF_DECODERS, "use_mrope")},
    {FIXED(HF_DECODERS, "rope_interleaved")},
    {FIXED(HF_DECODERS, "partial_rotary_factor"), .number = 1},
    {FIXED(HF_PHI3, "resid_pdrop")},
    {FIXED(HF_PHI3, "embd_pdrop")},
    {FIXED(HF_GPT2, "activation_function"), .texts = {"gelu_new", "gelu_pytorch_tanh"}},
    {FIXED(HF_GPT2, "scale_attn_weights"), .number = 1},
    {FIXED(HF_GPT2, "scale_attn_by_inverse_layer_idx")},
    {FIXED(HF_ANY, "add_cross_attention")},
    {FIXED(HF_ANY, "is_encoder_decoder")},
    {FIXED(HF_ANY, "attn_logit_softcapping")},
    {FIXED(HF_ANY, "final_logit_softcapping")},
    {FIXED(HF_ANY, "query_pre_attn_scalar")},
    {FIXED(HF_ANY, "attention_multiplier")},
    {FIXED(HF_ANY, "embedding_multiplier"), .number = 1},
    {FIXED(HF_ANY, "residual_multiplier"), .number = 1},
    {FIXED(HF_ANY, "logits_scaling"), .number = 1},
    {FIXED(HF_ANY, "logit_scale"), .number = 1},
    {FIXED(HF_ANY, "clip_qkv")},
    {FIXED(HF_QWEN3_MOE, "qkv_bias")},
    {FIXED(HF_QWEN3_MOE, "use_qk_norm"), .number = 1},
    {FIXED(HF_ANY, "no_rope_layers")},
    {FIXED(HF_ANY, "attention_sink_size")},

    /* Of mixtures of other types: Qwen2-MoE, DeepSeek-V2 and -V3, GPT-OSS, Phi-MoE, DBRX, Jamba,
     * Granite-MoE, Llama 4, ERNIE 4.5 and those that follow them. */
    {FIXED(HF_ANY & ~HF_MOE, "num_local_experts"), .why = NO_EXPERTS},
    {FIXED(HF_ANY & ~HF_MOE, "num_experts"), .why = NO_EXPERTS},
    {FIXED(HF_ANY, "shared_expert_intermediate_size"), .why = NO_SHARED},
    {FIXED(HF_ANY, "shared_intermediate_size"), .why = NO_SHARED},
    {FIXED(HF_ANY, "n_shared_experts"), .why = NO_SHARED},
    {FIXED(HF_ANY, "num_shared_experts"), .why = NO_SHARED},
    {FIXED(HF_ANY, "moe_num_shared_experts"), .why = NO_SHARED},
    {FIXED(HF_MOE, "first_k_dense_replace"), .why = ALL_BLOCKS},
    {FIXED(HF_MOE, "num_dense_layers"), .why = ALL_BLOCKS},
    {FIXED(HF_MOE, "moe_layer_freq"), .why = ALL_BLOCKS, .number = 1},
    {FIXED(HF_MOE, "decoder_sparse_step"), .why = ALL_BLOCKS, .number = 1},
    {FIXED(HF_MOE, "mlp_only_layers"), .why = ALL_BLOCKS},
    {FIXED(HF_MOE, "interleave_moe_layer_step"), .why = ALL_BLOCKS, .number = 1},
    {FIXED(HF_MOE, "moe_layers"), .why = ALL_BLOCKS},
    {FIXED(HF_MOE, "moe_layer_start_index"), .why = ALL_BLOCKS},
    {FIXED(HF_MOE, "moe_layer_end_index"), .why = ALL_BLOCKS, .number = -1},
    {FIXED(HF_MOE, "moe_layer_interval"), .why = ALL_BLOCKS, .number = 1},
    {FIXED(HF_MOE, "expert_layer_period"), .why = ALL_BLOCKS, .number = 1},
    {FIXED(HF_MOE, "expert_layer_offset"), .why = ALL_BLOCKS},
    {FIXED(HF_MOE, "n_group"), .why = ONE_GROUP, .number = 1},
    {FIXED(HF_MOE, "topk_group"), .why = ONE_GROUP, .number = 1},
    {FIXED(HF_MOE, "topk_method"), .why = ONE_GROUP, .texts = {"greedy"}},
    {FIXED(HF_MOE, "scoring_func"), .why = SOFTMAX, .texts = {"softmax"}},
    {FIXED(HF_MOE, "score_function"), .why = SOFTMAX, .texts = {"softmax"}},
    {FIXED(HF_MOE, "routed_scaling_factor"), .why = SOFTMAX, .number = 1},
    {FIXED(HF_MOE, "use_routing_bias"), .why = SOFTMAX},
    {FIXED(HF_MOE, "use_expert_bias"), .why = SOFTMAX},
    {FIXED(HF_MOE, "moe_router_enable_expert_bias"), .why = SOFTMAX},
    {FIXED(HF_MIXTRAL, "norm_topk_prob"), .why = SUM_OF_ONE, .number = 1},
    {FIXED(HF_MOE, "router_jitter_noise"), .why = NO_NOISE},
    {FIXED(HF_MOE, "input_jitter_noise"), .why = NO_NOISE},
    {FIXED(HF_MOE, "moe_jitter_eps"), .why = NO_NOISE},
    {FIXED(HF_MOE, "expert_capacity"), .why = NO_TOKEN_DROPPED},
    {FIXED(HF_MOE, "moe_capacity"), .why = NO_TOKEN_DROPPED},
    {FIXED(HF_MOE, "aux_loss_alpha"), .why = OTHER_BALANCE},
    {FIXED(HF_MOE, "router_z_loss_coef"), .why = OTHER_BALANCE},
    {FIXED(HF_MOE, "swiglu_limit"), .why = NO_LIMIT},
    {FIXED(HF_DECODERS, "q_lora_rank"), .why = NO_LATENT},
    {FIXED(HF_DECODERS, "kv_lora_rank"), .why = NO_LATENT},
    {FIXED(HF_DECODERS, "qk_rope_head_dim"), .why = NO_LATENT},
    {FIXED(HF_DECODERS, "num_nextn_predict_layers")},
    {FIXED(HF_DECODERS, "attn_layer_period"), .number = 1},
    {FIXED(HF_DECODERS, "mamba_d_state")},
    {FIXED(HF_DECODERS, "attention_chunk_size")},
    {FIXED(HF_DECODERS, "attn_temperature_tuning")},
    {FIXED(HF_DECODERS, "intermediate_size_mlp")},
    {FIXED(HF_DECODERS, "use_bias")},
    {FIXED(HF_DECODERS, "lm_head_bias")},
    {FIXED(HF_DECODERS, "attn_config")},
    {FIXED(HF_DECODERS, "ffn_config")},
    {0},
};

const struct hf_alias hf_aliases[] = {
    {.of = HF_ANY, .name = "n_routed_experts", .key = "model.experts"},
    {.of = HF_ANY, .name = "moe_num_experts", .key = "model.experts"},
    {.of = HF_ANY, .name = "num_moe_experts", .key = "model.experts"},
    {.of = HF_MOE, .name = "experts_per_token", .key = "model.experts_per_token"},
    {.of = HF_MOE, .name = "num_experts_per_token", .key = "model.experts_per_token"},
    {.of = HF_MOE, .name = "num_selected_experts", .key = "model.experts_per_token"},
    {.of = HF_MOE, .name = "moe_topk", .key = "model.experts_per_token"},
    {.of = HF_MOE, .name = "moe_k", .key = "model.experts_per_token"},
    {.of = HF_MIXTRAL, .name = "moe_intermediate_size", .key = "model.ffn"},
    {0},
};

/* Members that do not change what is computed in training: they say what the file is of, how to
 * generate, classify and load.  The last ones do, and are read outside the tables. */
static const char *const harmless[] = {
    "model_type",
    "architectures",
    "transformers_version",
    "_name_or_path",
    "torch_dtype",
    "dtype",
    "auto_map",
    "tokenizer_class",
    "finetuning_task",
    "task_specific_params",
    "problem_type",
    "id2label",
    "label2id",
    "num_labels",
    "bos_token_id",
    "eos_token_id",
    "pad_token_id",
    "sep_token_id",
    "cls_token_id",
    "unk_token_id",
    "decoder_start_token_id",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "begin_suppress_tokens",
    "suppress_tokens",
    "bad_words_ids",
    "prefix",
    "use_cache",
    "max_length",
    "min_length",
    "max_new_tokens",
    "do_sample",
    "early_stopping",
    "num_beams",
    "num_beam_groups",
    "diversity_penalty",
    "temperature",
    "top_k",
    "top_p",
    "typical_p",
    "repetition_penalty",
    "length_penalty",
    "no_repeat_ngram_size",
    "encoder_no_repeat_ngram_size",
    "num_return_sequences",
    "exponential_decay_length_penalty",
    "remove_invalid_values",
    "output_scores",
    "output_attentions",
    "output_hidden_states",
    "return_dict",
    "return_dict_in_generate",
    "chunk_size_feed_forward",
    "torchscript",
    "use_bfloat16",
    "tie_encoder_decoder",
    "is_decoder",
    "cross_attention_hidden_size",
    "gradient_checkpointing",
    "_attn_implementation_autoset",
    "_attn_implementation",
    "attn_implementation",
    "pretraining_tp",
    "ep_size",
    "seq_aux",
    "initial_context_length",
    "reorder_and_upcast_attn",
    "summary_type",
    "summary_use_proj",
    "summary_activation",
    "summary_proj_to_labels",
    "summary_first_dropout",
    "n_ctx",
    "n_special",
    "predict_special_tokens",
    "unsloth_fixed",
    "unsloth_version",
    /* the width of blocks without experts, which a qwen3_moe could have */
    "intermediate_size",
    /* read in hf.c, hf_experts.c and hf_rope.c; what the balance loss is multiplied by has a
     * meaning with output_router_logits alone */
    "output_router_logits",
    "router_aux_loss_coef",
    "num_local_experts",
    "num_experts",
    "n_inner",
    "quantization_config",
    "sliding_window",
    "use_sliding_window",
    "max_window_layers",
    "layer_types",
    "rope_theta",
    "rope_scaling",
    "rope_parameters",
    "original_max_position_embeddings",
};

int hf_is_harmless(enum hf_kinds kind, const char *name)
{
    for (size_t i = 0; i < sizeof harmless / sizeof harmless[0]; i++)
        if (!strcmp(harmless[i], name))
            return 1;
    for (const struct hf_member *m = hf_members; m->name; m++)
        if (m->of & kind && !strcmp(m->name, name))
            return 1;
    for (const struct hf_fixed *f = hf_fixed; f->name; f++)
        if (f->of & kind && !strcmp(f->name, name))
            return 1;
    for (const struct hf_alias *a = hf_aliases; a->name; a++)
        if (a->of & kind && !strcmp(a->name, name))
            return 1;
    return 0;
}

/* ---- setting keys ---- */

int hf_set(struct config *config, const char *key, const char *value, struct error *err)
{
    return key_set(config, key_find(key), value, err);
}

int hf_set_real(struct config *config, const char *key, double value, struct error *err)
{
    char text[64];
    snprintf(text, sizeof text, "%.17g", value);
    return hf_set(config, key, text, err);
}

int hf_is_named(const struct js *json, const char *name)
{
    const char *key = js_next_key(json, NULL);
    while (key && strcmp(key, name) != 0)
        key = js_next_key(json, key);
    return key != NULL;
}

int hf_set_member(struct config *config, const struct hf_member *m, const struct js *json,
                  struct error *err)
{
    static const enum js_want wants[] = {
        [HF_NUMBER] = JS_WHOLE, [HF_REAL] = JS_NUMBER, [HF_TRUTH] = JS_TRUTH};
    char text[64];
    if (js_check(json, m->name, wants[m->type], err))
        return -1;
    if (!js_has(json, m->name)) {
        const char *otherwise = m->null && hf_is_named(json, m->name) ? m->null : m->otherwise;
        if (!otherwise)
            return error_set(err, "%s is missing", m->name);
        snprintf(text, sizeof text, "%s", otherwise);
    } else if (m->type == HF_NUMBER) {
        snprintf(text, sizeof text, "%lld", (long long)js_get_int(json, m->name, -1));
    } else if (m->type == HF_REAL) {
        snprintf(text, sizeof text, "%.17g", js_get_real(json, m->name, -1));
    } else {
        snprintf(text, sizeof text, "%s", js_get_bool(json, m->name, 0) ? "true" : "false");
    }
    return hf_set(config, m->key, text, err) ? error_prefix(err, "%s", m->name) : 0;
}

int hf_is_full(const struct js *json, const char *name)
{
    const struct js *child = js_get(json, name);
    return child && (js_length(child) || js_next_key(child, NULL));
}

int hf_has_meaning(const struct js *json, const char *name)
{
    return js_get_bool(json, name, 0) || js_get_real(json, name, 0) != 0 || hf_is_full(json, name);
}
