/* hf_experts.c - mixtures of experts in config.json.
 *
 * Mixtral's member for how many there are is num_local_experts, Qwen3-MoE's was num_experts;
 * transformers since version 5 takes either name in both, and writes num_local_experts. */
#include "config/hf_members.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Types with experts, or other parts, of which trireme lacks something. */
static const struct {
    const char *name, *lacks;
} others[] = {
    {.name = "qwen2_moe", .lacks = "a shared expert beside those that a router chooses"},
    {.name = "qwen3_next", .lacks = "linear attention, and a shared expert"},
    {.name = "olmoe", .lacks = "norms over whole queries and keys, not over their heads"},
    {.name = "deepseek_v2", .lacks = "latent attention, and shared experts"},
    {.name = "deepseek_v3", .lacks = "latent attention, and shared experts"},
    {.name = "deepseek_v32", .lacks = "latent attention, and shared experts"},
    {.name = "glm4_moe", .lacks = "shared experts, and blocks without experts before those with"},
    {.name = "gpt_oss", .lacks = "biases of experts, attention sinks, and a clamped activation"},
    {.name = "phimoe", .lacks = "norms with biases, and a router that masks logits"},
    {.name = "dbrx", .lacks = "norms that subtract the mean, and queries, keys and values clipped"},
    {.name = "jamba", .lacks = "Mamba layers, and blocks without experts between those with"},
    {.name = "granitemoe", .lacks = "multipliers of embeddings, residuals and logits"},
    {.name = "granitemoeshared",
     .lacks = "multipliers of embeddings and logits, and shared experts"},
    {.name = "llama4", .lacks = "a shared expert, and layers without rotary positions"},
    {.name = "llama4_text", .lacks = "a shared expert, and layers without rotary positions"},
    {.name = "ernie4_5_moe",
     .lacks = "shared experts, and blocks without experts before those with"},
};

const char *hf_type_lacks(const char *name)
{
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (!strcmp(others[i].name, name))
            return others[i].lacks;
    return NULL;
}

static int set_count(struct config *config, enum hf_kinds kind, const struct js *json,
                     struct error *err)
{
    static const char *const names[] = {"num_local_experts", "num_experts"};
    int64_t count[2], found = kind == HF_MIXTRAL ? 8 : 128;
    const char *by = names[0];
    char text[32];
    for (int i = 0; i < 2; i++) {
        if (js_check(json, names[i], JS_WHOLE, err))
            return -1;
        count[i] = js_get_int(json, names[i], -1);
        if (js_has(json, names[i])) {
            found = count[i];
            by = names[i];
        }
    }
    if (js_has(json, names[0]) && js_has(json, names[1]) && count[0] != count[1])
        return error_set(err, "num_local_experts is %lld and num_experts %lld; remove one of them",
                         (long long)count[0], (long long)count[1]);
    if (found < 1)
        return error_set(err, "%s is %lld, and a model of model_type %s has at least one expert",
                         by, (long long)found, js_get_string(json, "model_type", ""));
    snprintf(text, sizeof text, "%lld", (long long)found);
    return hf_set(config, "model.experts", text, err);
}

/* Refuse other names of what was read, where they say something else. */
static int check_aliases(const struct config *config, enum hf_kinds kind, const struct js *json,
                         struct error *err)
{
    for (const struct hf_alias *a = hf_aliases; a->name; a++) {
        char text[CONFIG_TEXT];
        if (!(a->of & kind) || !js_has(json, a->name))
            continue;
        if (js_check(json, a->name, JS_WHOLE, err))
            return -1;
        int64_t value = js_get_int(json, a->name, 0);
        const char *read = config_value(config, a->key, text);
        if (value != strtoll(read, NULL, 10))
            return error_set(err, "%s is %lld, and %s, by the members that trireme reads, %s",
                             a->name, (long long)value, a->key, read);
    }
    return 0;
}

static int set_experts(struct config *config, enum hf_kinds kind, const struct js *json,
                       struct error *err)
{
    if (!(kind & HF_MOE))
        return hf_set(config, "model.experts", "0", err);
    if (set_count(config, kind, json, err) ||
        js_check(json, "output_router_logits", JS_TRUTH, err) ||
        js_check(json, "router_aux_loss_coef", JS_NUMBER, err) ||
        (kind == HF_MIXTRAL && hf_set(config, "model.norm_topk_prob", "true", err)))
        return -1;
    int adds = js_get_bool(json, "output_router_logits", 0) == 1;
    return hf_set_real(config, "model.router_aux_loss_coef",
                       adds ? js_get_real(json, "router_aux_loss_coef", 0.001) : 0, err);
}

int hf_read_experts(struct config *config, enum hf_kinds kind, const struct js *json,
                    struct error *err)
{
    return set_experts(config, kind, json, err) ? -1 : check_aliases(config, kind, json, err);
}

void hf_add_experts(const struct config_model *model, enum hf_kinds kind, struct js *json)
{
    const struct config_experts *experts = &model->experts;
    if (!(kind & HF_MOE))
        return;
    js_add_int(json, kind == HF_MIXTRAL ? "num_local_experts" : "num_experts", experts->count);
    js_add_bool(json, "output_router_logits", experts->aux_loss > 0);
    if (experts->aux_loss > 0)
        js_add_real(json, "router_aux_loss_coef", experts->aux_loss);
    if (kind == HF_MIXTRAL)
        return;
    js_add_int(json, "decoder_sparse_step", 1);
    js_add(json, "mlp_only_layers", js_array());
}
