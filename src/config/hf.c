/* hf.c - reading config.json, in which Hugging Face's programs keep what a model is.
 *
 *   1. model_type selects a row of hf_types
 *   2. members of which trireme computes one value alone are checked (hf_fixed)
 *   3. members that are a key of trireme's set it (hf_members)
 *   4. names of members in no table go to config->model_note, for a warning, unless they have no
 *      value that could change what is computed
 *   5. weights of 4 bits, sliding windows (below), experts (hf_experts.c) and rotary positions
 *      (hf_rope.c), which several members describe
 *
 * The tables are in hf_members.c.
 */
#include "config/hf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"
#include "base/round.h"
#include "base/text.h"
#include "config/hf_members.h"

/* The value of a member as the file has it, or the beginning of a long one. */
static const char *value_text(const struct js *json, const char *name, char text[48])
{
    const char *string = js_get_string(json, name, NULL);
    char *list = hf_is_full(json, name) ? js_text(js_get(json, name), JS_ONE_LINE, NULL) : NULL;
    if (string)
        snprintf(text, 48, "\"%.40s\"", string);
    else if (list)
        snprintf(text, 48, "%.*s", (int)min_i64((int64_t)strcspn(list, "\n"), 40), list);
    else if (js_get_bool(json, name, -1) >= 0)
        snprintf(text, 48, "%s", js_get_bool(json, name, 0) ? "true" : "false");
    else
        snprintf(text, 48, "%.15g", js_get_real(json, name, 0));
    free(list);
    return text;
}

/* Is a member that is there the value that trireme computes? */
static int is_fixed(const struct hf_fixed *f, const struct js *json)
{
    const char *text = js_get_string(json, f->name, NULL);
    int truth = js_get_bool(json, f->name, -1), known = 0;
    for (int i = 0; i < 3 && f->texts[i]; i++)
        known |= text && !strcmp(text, f->texts[i]);
    if (f->texts[0] || text || hf_is_full(json, f->name))
        return known;
    return (truth >= 0 ? truth : js_get_real(json, f->name, 0)) == f->number;
}

static int check_fixed(const struct hf_fixed *f, const struct js *json, struct error *err)
{
    char text[48];
    if (!js_has(json, f->name) || is_fixed(f, json))
        return 0;
    value_text(json, f->name, text);
    if (f->why)
        return error_set(err, "%s is %s, and %s", f->name, text, f->why);
    if (f->texts[0])
        return error_set(err, "%s is %s; trireme has %s", f->name, text, f->texts[0]);
    return error_set(err, "%s is %s, which trireme does not have", f->name, text);
}

/* Refuse weights that are kept in another way than bitsandbytes' nf4, which the reader of the files
 * knows (io/safetensors_nf4.h). */
static int check_quantization(const struct js *json, struct error *err)
{
    const struct js *how = js_get(json, "quantization_config");
    const char *method = js_get_string(how, "quant_method", "bitsandbytes");
    int is_4_bits = js_get_bool(how, "load_in_4bit", js_get_bool(how, "_load_in_4bit", 0)) == 1;
    if (!js_has(json, "quantization_config") || !hf_is_full(json, "quantization_config"))
        return 0;
    if (is_4_bits && !strcmp(method, "bitsandbytes") &&
        !strcmp(js_get_string(how, "bnb_4bit_quant_type", "fp4"), "nf4"))
        return 0;
    return error_set(
        err,
        "quantization_config is of weights (%.40s) that are not read here, as those of "
        "bitsandbytes' nf4 are; name a folder with the weights as they were before: "
        "lora.quantize_base=nf4 keeps them in 4 bits beside adapters",
        method);
}

/* ---- sliding windows ---- */

/* Does each layer of a list, "layer_types", have a sliding window?  Returns 1: all do; 0: none
 * does; or -1 with err set: some do, an unknown kind of layer, or a list that is not of `layers`.
 */
static int all_slide(const struct js *kinds, int64_t layers, struct error *err)
{
    int count = js_length(kinds), slide = 0;
    for (int i = 0; i < count; i++) {
        const char *kind = js_at_string(kinds, i, "?");
        if (strcmp(kind, "full_attention") != 0 && strcmp(kind, "sliding_attention") != 0)
            return error_set(err, "layer_types has \"%.40s\", which trireme does not have", kind);
        slide += !strcmp(kind, "sliding_attention");
    }
    if (count != layers)
        return error_set(err, "layer_types has %d entries, and num_hidden_layers is %lld", count,
                         (long long)layers);
    return slide == 0 || slide == count
               ? slide > 0
               : error_set(err,
                           "of %d layers %d have a sliding window; in trireme all have it or none",
                           count, slide);
}

/* Answer the same where there is no list, as transformers does for Qwen: layers from
 * max_window_layers on have a sliding window. */
static int all_slide_after(const struct config *config, const struct js *json, struct error *err)
{
    int64_t layers = config->model.layers, first = js_get_int(json, "max_window_layers", 28);
    if (first <= 0 || first >= layers)
        return first <= 0;
    return error_set(
        err,
        "max_window_layers is %lld of %lld layers: the ones after these have a sliding "
        "window; in trireme all have it or none",
        (long long)first, (long long)layers);
}

/* Return the sliding window, in keys, that the file states for its model; 0: none.  Which layers
 * have it is another question. */
static int64_t stated_window(enum hf_kinds kind, const struct js *json)
{
    int is_off_if_absent = hf_is_named(json, "sliding_window") || kind & (HF_MIXTRAL | HF_PHI3);
    int64_t otherwise = is_off_if_absent ? 0 : 4096;
    if (kind == HF_LLAMA)
        return 0;
    if (kind & (HF_QWEN | HF_QWEN3_MOE) && !js_get_bool(json, "use_sliding_window", 0))
        return 0;
    return js_get_int(json, "sliding_window", otherwise);
}

static int set_window(struct config *config, enum hf_kinds kind, const struct js *json,
                      struct error *err)
{
    const struct js *kinds = js_has(json, "layer_types") ? js_get(json, "layer_types") : NULL;
    int64_t window = stated_window(kind, json);
    char text[32];
    if (js_check(json, "layer_types", JS_LIST, err) ||
        js_check(json, "sliding_window", JS_WHOLE, err) ||
        js_check(json, "use_sliding_window", JS_TRUTH, err) ||
        js_check(json, "max_window_layers", JS_WHOLE, err))
        return -1;
    if (kind == HF_LLAMA && hf_has_meaning(json, "sliding_window"))
        return error_set(err, "sliding_window is set, and model_type llama has none; where it is "
                              "meant, model_type is mistral");
    int slide = window > 0;
    if (kinds)
        slide = all_slide(kinds, config->model.layers, err);
    else if (window > 0 && kind & HF_QWEN)
        slide = all_slide_after(config, json, err);
    if (slide < 0)
        return -1;
    if (slide && window <= 0)
        return error_set(err, "layer_types says sliding_attention, and no sliding_window is set");
    if (!slide && window > 0 && kind & (HF_MISTRAL | HF_PHI3 | HF_MOE))
        return error_set(err, "layer_types says full_attention, and sliding_window is set");
    snprintf(text, sizeof text, "%lld", (long long)(slide ? window : 0));
    return hf_set(config, "model.sliding_window", text, err);
}

/* ---- what is passed over ---- */

/* Name the members that no table has in config->model_note. */
static void note_others(struct config *config, enum hf_kinds kind, const struct js *json)
{
    char list[CONFIG_TEXT / 2] = "", *note = config->model_note;
    note[0] = 0;
    for (const char *name = js_next_key(json, NULL); name; name = js_next_key(json, name))
        if (!hf_is_harmless(kind, name) && hf_has_meaning(json, name))
            text_join(list, sizeof list, ", ", "%.60s", name);
    if (list[0])
        snprintf(note, CONFIG_TEXT, "trireme does not know %s and computes without", list);
}

/* ---- all of it ---- */

static int find_type(const struct js *json, const struct hf_type **type, struct error *err)
{
    const char *name = js_get_string(json, "model_type", "");
    if (js_check(json, "model_type", JS_TEXT, err))
        return -1;
    for (*type = hf_types; (*type)->name; ++*type)
        if (!strcmp(name, (*type)->name))
            return 0;
    const char *lacks = hf_type_lacks(name);
    char names[256] = "";
    for (const struct hf_type *known = hf_types; known->name; known++)
        text_join(names, sizeof names, ", ", "%s", known->name);
    return error_set(err, "model_type \"%.60s\" is not one that trireme has: %s%s%s", name, names,
                     lacks ? "; it has " : "", lacks ? lacks : "");
}

static int set_gpt2(struct config *config, const struct js *json, struct error *err)
{
    char text[32];
    if (js_check(json, "n_inner", JS_WHOLE, err))
        return -1;
    int64_t width = js_get_int(json, "n_inner", 4 * js_get_int(json, "n_embd", 0));
    snprintf(text, sizeof text, "%lld", (long long)width);
    return hf_set(config, "model.family", "gpt2", err) || hf_set(config, "model.ffn", text, err) ||
                   hf_set(config, "model.kv_heads", "0", err) ||
                   hf_set(config, "model.head_dim", "0", err) ||
                   hf_read_experts(config, HF_GPT2, json, err)
               ? -1
               : 0;
}

static int set_decoder(struct config *config, const struct hf_type *type, const struct js *json,
                       struct error *err)
{
    return hf_set(config, "model.family", "llama", err) ||
                   hf_set(config, "model.qkv_bias", type->qkv_bias ? "true" : "false", err) ||
                   hf_set(config, "model.qk_norm", type->qk_norm ? "true" : "false", err) ||
                   hf_read_experts(config, type->kind, json, err) ||
                   set_window(config, type->kind, json, err) ||
                   hf_read_rope(config, json, type->rope_theta ? type->rope_theta : 10000, err)
               ? -1
               : 0;
}

static int set_all(struct config *config, const struct js *json, struct error *err)
{
    const struct hf_type *type;
    if (find_type(json, &type, err))
        return -1;
    for (const struct hf_fixed *f = hf_fixed; f->name; f++)
        if (f->of & type->kind && check_fixed(f, json, err))
            return -1;
    if (check_quantization(json, err))
        return -1;
    for (const struct hf_member *m = hf_members; m->name; m++)
        if (m->of & type->kind && hf_set_member(config, m, json, err))
            return -1;
    note_others(config, type->kind, json);
    return type->kind == HF_GPT2 ? set_gpt2(config, json, err)
                                 : set_decoder(config, type, json, err);
}

int hf_has_config(const char *folder)
{
    char *path = array_format("%s/config.json", folder);
    int found = !access(path, R_OK);
    free(path);
    return found;
}

int hf_is_stacked(const char *folder)
{
    char *path = array_format("%s/config.json", folder);
    const struct hf_type *type;
    struct js *json = access(path, R_OK) ? NULL : js_read(path, NULL);
    int is_stacked = json && !find_type(json, &type, NULL) && type->kind == HF_PHI3;
    js_free(json);
    free(path);
    return is_stacked;
}

int64_t hf_vocab(const char *folder)
{
    char *path = array_format("%s/config.json", folder);
    struct js *json = js_read(path, NULL);
    int64_t vocab = js_get_int(json, "vocab_size", 0);
    js_free(json);
    free(path);
    return vocab;
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
