/* hf.c - config.json, in which Hugging Face's programs keep what a model is.
 *
 * A row of a table for each member that has a key here; a row for each that must have one value,
 * because nothing else is computed here.  Members that say nothing about the numbers (versions,
 * token numbers) are passed over.
 */
#include "config/hf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"
#include "base/json.h"
#include "config/schema.h"

enum family { LLAMA = 1, GPT2 = 2, ANY = LLAMA | GPT2 };

/* A member of config.json, and the key that it sets. */
static const struct member {
    enum family of;
    const char *name, *key;
    enum { NUMBER, REAL, TRUTH } type;
    const char *otherwise; /* what its absence means; NULL: it must be there */
} members[] = {
    {LLAMA, "num_hidden_layers", "model.layers", NUMBER},
    {LLAMA, "hidden_size", "model.hidden", NUMBER},
    {LLAMA, "num_attention_heads", "model.heads", NUMBER},
    {LLAMA, "num_key_value_heads", "model.kv_heads", NUMBER, "0"},
    {LLAMA, "head_dim", "model.head_dim", NUMBER, "0"},
    {LLAMA, "intermediate_size", "model.ffn", NUMBER},
    {LLAMA, "max_position_embeddings", "model.max_seq_len", NUMBER, "2048"},
    {LLAMA, "rms_norm_eps", "model.norm_eps", REAL, "1e-06"},
    {LLAMA, "tie_word_embeddings", "model.tie_embeddings", TRUTH, "false"},
    {GPT2, "n_layer", "model.layers", NUMBER},
    {GPT2, "n_embd", "model.hidden", NUMBER},
    {GPT2, "n_head", "model.heads", NUMBER},
    {GPT2, "n_positions", "model.max_seq_len", NUMBER, "1024"},
    {GPT2, "layer_norm_epsilon", "model.norm_eps", REAL, "1e-05"},
    {GPT2, "tie_word_embeddings", "model.tie_embeddings", TRUTH, "true"},
    {ANY, "vocab_size", "model.vocab", NUMBER},
    {ANY, "initializer_range", "model.init_std", REAL, "0.02"},
};

/* Of rotary positions: where they are described, "rope_scaling" or "rope_parameters". */
static const struct member rope_members[] = {
    {LLAMA, "factor", "model.rope_factor", REAL},
    {LLAMA, "low_freq_factor", "model.rope_low_freq_factor", REAL},
    {LLAMA, "high_freq_factor", "model.rope_high_freq_factor", REAL},
    {LLAMA, "original_max_position_embeddings", "model.rope_original_len", NUMBER},
};

/* A member that may only have these values, or be absent, or null. */
static const struct fixed {
    enum family of;
    const char *name;
    const char *texts[3]; /* texts that mean the same here; none: it is a truth value, */
    int truth;            /* this one */
} fixed[] = {
    {LLAMA, "hidden_act", {"silu", "swish"}},
    {LLAMA, "attention_bias", {NULL}, 0},
    {LLAMA, "mlp_bias", {NULL}, 0},
    {GPT2, "activation_function", {"gelu_new", "gelu_pytorch_tanh"}},
    {GPT2, "scale_attn_weights", {NULL}, 1},
    {GPT2, "scale_attn_by_inverse_layer_idx", {NULL}, 0},
    {GPT2, "add_cross_attention", {NULL}, 0},
};

static const struct {
    const char *name;
    enum family family;
} model_types[] = {{"llama", LLAMA}, {"mistral", LLAMA}, {"gpt2", GPT2}};

static int set(struct config *config, const char *key, const char *value, struct error *err)
{
    return key_set(config, key_find(key), value, err);
}

static int set_member(struct config *config, const struct member *m, const struct js *json,
                      struct error *err)
{
    char text[64];
    if (!js_has(json, m->name)) {
        if (!m->otherwise)
            return error_set(err, "%s is missing", m->name);
        snprintf(text, sizeof text, "%s", m->otherwise);
    } else if (m->type == NUMBER) {
        snprintf(text, sizeof text, "%lld", (long long)js_get_int(json, m->name, -1));
    } else if (m->type == REAL) {
        snprintf(text, sizeof text, "%.17g", js_get_real(json, m->name, -1));
    } else {
        snprintf(text, sizeof text, "%s", js_get_bool(json, m->name, 0) ? "true" : "false");
    }
    return set(config, m->key, text, err) ? error_prefix(err, "%s", m->name) : 0;
}

static int check_fixed(const struct fixed *f, const struct js *json, struct error *err)
{
    const char *text = js_get_string(json, f->name, "");
    int known = 0;
    if (!js_has(json, f->name))
        return 0;
    if (!f->texts[0]) {
        int truth = js_get_bool(json, f->name, !f->truth);
        return truth == f->truth ? 0
                                 : error_set(err, "%s is %s, which trireme does not have", f->name,
                                             truth ? "true" : "false");
    }
    for (int i = 0; i < 3 && f->texts[i]; i++)
        known |= !strcmp(text, f->texts[i]);
    return known ? 0
                 : error_set(err, "%s is \"%.40s\"; trireme has %s", f->name, text, f->texts[0]);
}

/* theta, and how frequencies are stretched. */
static int set_rope(struct config *config, const struct js *json, struct error *err)
{
    const struct js *rope =
        js_get(json, js_has(json, "rope_parameters") ? "rope_parameters" : "rope_scaling");
    char text[64];
    double theta = js_get_real(rope, "rope_theta", js_get_real(json, "rope_theta", 10000));
    const char *type = js_get_string(rope, "rope_type", js_get_string(rope, "type", "default"));
    snprintf(text, sizeof text, "%.17g", theta);
    if (set(config, "model.rope_theta", text, err))
        return error_prefix(err, "rope_theta");
    if (!strcmp(type, "default"))
        return set(config, "model.rope_scaling", "none", err);
    if (strcmp(type, "llama3"))
        return error_set(err, "rope type \"%.40s\" is not one that trireme has: default, llama3",
                         type);
    for (size_t i = 0; i < sizeof rope_members / sizeof rope_members[0]; i++)
        if (set_member(config, &rope_members[i], rope, err))
            return -1;
    return set(config, "model.rope_scaling", "llama3", err);
}

/* What needs more than one member. */
static int set_others(struct config *config, enum family family, const struct js *json,
                      struct error *err)
{
    char text[32];
    if (family == LLAMA && js_has(json, "sliding_window"))
        return error_set(err, "sliding_window is set, and trireme attends to all tokens before");
    if (family == LLAMA)
        return set(config, "model.family", "llama", err) || set_rope(config, json, err) ? -1 : 0;
    int64_t width = js_get_int(json, "n_inner", 4 * js_get_int(json, "n_embd", 0));
    snprintf(text, sizeof text, "%lld", (long long)width);
    return set(config, "model.family", "gpt2", err) || set(config, "model.ffn", text, err) ||
                   set(config, "model.kv_heads", "0", err) ||
                   set(config, "model.head_dim", "0", err)
               ? -1
               : 0;
}

static int find_family(const struct js *json, enum family *family, struct error *err)
{
    const char *type = js_get_string(json, "model_type", "");
    for (size_t i = 0; i < sizeof model_types / sizeof model_types[0]; i++)
        if (!strcmp(type, model_types[i].name)) {
            *family = model_types[i].family;
            return 0;
        }
    return error_set(err,
                     "model_type \"%.60s\" is not one that trireme has: llama, mistral "
                     "without a sliding window, gpt2",
                     type);
}

static int set_all(struct config *config, const struct js *json, struct error *err)
{
    enum family family = ANY;
    if (find_family(json, &family, err))
        return -1;
    for (size_t i = 0; i < sizeof fixed / sizeof fixed[0]; i++)
        if (fixed[i].of & family && check_fixed(&fixed[i], json, err))
            return -1;
    for (size_t i = 0; i < sizeof members / sizeof members[0]; i++)
        if (members[i].of & family && set_member(config, &members[i], json, err))
            return -1;
    return set_others(config, family, json, err);
}

int hf_has_config(const char *folder)
{
    char *path = array_format("%s/config.json", folder);
    int found = !access(path, R_OK);
    free(path);
    return found;
}

int hf_read_config(struct config *config, const char *folder, struct error *err)
{
    char *path = array_format("%s/config.json", folder);
    struct js *json = js_read(path, err);
    int rc = json ? set_all(config, json, err) : -1;
    if (json && rc)
        error_prefix(err, "%s", path);
    js_free(json);
    free(path);
    return rc;
}

/* ---- writing ---- */

static void add_rope(const struct config_rope *rope, struct js *json)
{
    js_add_real(json, "rope_theta", rope->theta);
    if (rope->scaling == ROPE_SCALING_NONE)
        return;
    struct js *scaling = js_object();
    js_add_string(scaling, "rope_type", "llama3");
    js_add_real(scaling, "factor", rope->factor);
    js_add_real(scaling, "low_freq_factor", rope->low_freq_factor);
    js_add_real(scaling, "high_freq_factor", rope->high_freq_factor);
    js_add_int(scaling, "original_max_position_embeddings", rope->original_len);
    js_add(json, "rope_scaling", scaling);
}

static void add_members(const struct config *config, enum family family, struct js *json)
{
    char text[CONFIG_TEXT];
    for (size_t i = 0; i < sizeof members / sizeof members[0]; i++) {
        const struct member *m = &members[i];
        if (!(m->of & family))
            continue;
        const char *value = config_value(config, m->key, text);
        if (m->type == NUMBER)
            js_add_int(json, m->name, strtoll(value, NULL, 10));
        else if (m->type == REAL)
            js_add_real(json, m->name, strtod(value, NULL));
        else
            js_add_bool(json, m->name, !strcmp(value, "true"));
    }
}

int hf_write_config(const struct config *config, enum dtype dtype, const char *folder,
                    struct error *err)
{
    static const char *const dtypes[DTYPE_COUNT] = {
        [DTYPE_F32] = "float32", [DTYPE_BF16] = "bfloat16", [DTYPE_F16] = "float16"};
    int is_gpt2 = !strcmp(config->model.family, "gpt2");
    struct js *json = js_object(), *architectures = js_array();
    js_add_string(architectures, NULL, is_gpt2 ? "GPT2LMHeadModel" : "LlamaForCausalLM");
    js_add(json, "architectures", architectures);
    js_add_string(json, "model_type", is_gpt2 ? "gpt2" : "llama");
    add_members(config, is_gpt2 ? GPT2 : LLAMA, json);
    if (is_gpt2) {
        js_add_int(json, "n_inner", config->model.ffn);
        js_add_string(json, "activation_function", "gelu_new");
        js_add_real(json, "resid_pdrop", 0);
        js_add_real(json, "embd_pdrop", 0);
        js_add_real(json, "attn_pdrop", 0);
    } else {
        js_add_string(json, "hidden_act", "silu");
        add_rope(&config->model.rope, json);
    }
    js_add_string(json, "torch_dtype", dtypes[dtype]);
    char *path = array_format("%s/config.json", folder);
    int rc = js_write(json, JS_INDENTED, JS_DURABLE, path, err);
    js_free(json);
    free(path);
    return rc;
}
