/* hf_write.c - writing config.json of a model, for Hugging Face's programs. */
#include "config/hf.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "config/hf_members.h"

/* Find the model_type whose class computes what the configuration says; NULL with err set: none
 * does.  A llama with a sliding window is a mistral. */
static const struct hf_type *type_of(const struct config_model *model, struct error *err)
{
    enum hf_kinds kind = !strcmp(model->family, "gpt2")                          ? HF_GPT2
                         : model->experts.count && model->qk_norm                ? HF_QWEN3_MOE
                         : model->experts.count                                  ? HF_MIXTRAL
                         : model->qk_norm                                        ? HF_QWEN3
                         : model->qkv_bias                                       ? HF_QWEN2
                         : model->sliding_window || model->hidden % model->heads ? HF_MISTRAL
                                                                                 : HF_LLAMA;
    if (model->qk_norm && model->qkv_bias) {
        error_set(err, "model.qkv_bias and model.qk_norm are both set: none of Hugging Face's "
                       "models that trireme knows has both");
        return NULL;
    }
    if (kind & HF_MOE && model->qkv_bias) {
        error_set(err,
                  "model.qkv_bias is true, and model.experts %lld: none of Hugging Face's models "
                  "that trireme knows has both",
                  (long long)model->experts.count);
        return NULL;
    }
    if (kind == HF_MIXTRAL && !model->experts.norm_topk_prob) {
        error_set(err, "model.norm_topk_prob is false, and model.qk_norm false: no model of "
                       "Hugging Face's that trireme knows has experts so");
        return NULL;
    }
    if (kind == HF_GPT2 && model->heads * model->head_dim != model->hidden) {
        error_set(
            err,
            "a GPT-2 of Hugging Face's has heads as wide as model.hidden / model.heads, which "
            "is not %lld, this model's model.head_dim",
            (long long)model->head_dim);
        return NULL;
    }
    const struct hf_type *type = hf_types;
    while (type->kind != kind)
        type++;
    return type;
}

static void add_members(const struct config *config, enum hf_kinds kind, struct js *json)
{
    char text[CONFIG_TEXT];
    for (const struct hf_member *m = hf_members; m->name; m++) {
        if (!(m->of & kind))
            continue;
        const char *value = config_value(config, m->key, text);
        if (m->type == HF_NUMBER)
            js_add_int(json, m->name, strtoll(value, NULL, 10));
        else if (m->type == HF_REAL)
            js_add_real(json, m->name, strtod(value, NULL));
        else
            js_add_bool(json, m->name, !strcmp(value, "true"));
    }
}

static void add_window(const struct config_model *model, enum hf_kinds kind, struct js *json)
{
    int64_t window = model->sliding_window;
    if (kind & (HF_QWEN | HF_QWEN3_MOE))
        js_add_bool(json, "use_sliding_window", window > 0);
    if (kind & HF_QWEN)
        js_add_int(json, "max_window_layers", window > 0 ? 0 : model->layers);
    if (window > 0)
        js_add_int(json, "sliding_window", window);
    else if (kind == HF_MISTRAL)
        js_add_null(json, "sliding_window"); /* without it the window would be 4096 */
}

/* Copy the ids of the tokens that begin, end and pad texts.  Without them transformers takes the
 * defaults of the class, which are ids of another tokenizer. */
static void add_ids(const struct js *ids, struct js *json)
{
    static const char *const names[] = {"bos_token_id", "eos_token_id", "pad_token_id"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const struct js *value = js_get(ids, names[i]);
        if (js_int(value, -1) >= 0) {
            js_add_int(json, names[i], js_int(value, -1));
        } else if (js_length(value)) {
            struct js *list = js_array();
            for (int k = 0; k < js_length(value); k++)
                js_add_int(list, NULL, js_at_int(value, k, -1));
            js_add(json, names[i], list);
        } else if (value) {
            js_add_null(json, names[i]);
        }
    }
}

int hf_write_config(const struct config *config, enum dtype dtype, const struct js *ids,
                    const char *folder, struct error *err)
{
    static const char *const dtypes[DTYPE_COUNT] = {
        [DTYPE_F32] = "float32", [DTYPE_BF16] = "bfloat16", [DTYPE_F16] = "float16"};
    const struct hf_type *type = type_of(&config->model, err);
    if (!type)
        return -1;
    struct js *json = js_object(), *architectures = js_array();
    js_add_string(architectures, NULL, type->architecture);
    js_add(json, "architectures", architectures);
    js_add_string(json, "model_type", type->name);
    add_members(config, type->kind, json);
    if (type->kind == HF_GPT2) {
        js_add_int(json, "n_inner", config->model.ffn);
        js_add_string(json, "activation_function", "gelu_new");
    } else {
        js_add_string(json, "hidden_act", "silu");
        hf_add_experts(&config->model, type->kind, json);
        add_window(&config->model, type->kind, json);
        hf_add_rope(&config->model.rope, json);
    }
    add_ids(ids, json);
    js_add_string(json, "torch_dtype", dtypes[dtype]);
    char *path = array_format("%s/config.json", folder);
    int rc = js_write(json, JS_EXACT, WHOLE_FILE_DURABLE, path, err);
    js_free(json);
    free(path);
    return rc;
}
