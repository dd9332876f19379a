/* adapter.c - adapter_config.json, in which peft keeps what an adapter is.
 *
 * Format: peft 0.21, LoraConfig.  Its members are of four kinds:
 *     read        r, lora_alpha, target_modules, ...: each sets a key lora.*
 *     refused     rank_pattern, ...: trireme does not compute what they ask for, so that they must
 *                 be absent, null, false, 0 or empty; and bias and init_lora_weights of some values
 *     fixed       peft_type has to be LORA
 *     ignored     all others, such as those that say how the adapter's file is kept
 */
#include "config/adapter.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/array.h"
#include "base/json.h"
#include "base/text.h"
#include "config/schema.h"

/* Members by which an adapter computes something that trireme does not have. */
static const char *const refused[] = {
    "use_qalora",
    "use_bdlora",
    "lora_bias",
    "layers_to_transform",
    "layers_pattern",
    "layer_replication",
    "rank_pattern",
    "alpha_pattern",
    "exclude_modules",
    "target_parameters",
    "trainable_token_indices",
    "alora_invocation_tokens",
    "arrow_config",
    "kasa_config",
    "velora_config",
    "monteclora_config",
};

/* What is read here, and what does not change the numbers of a file. */
static const char *const known[] = {
    "peft_type",
    "task_type",
    "auto_mapping",
    "peft_version",
    "base_model_name_or_path",
    "revision",
    "inference_mode",
    "r",
    "lora_alpha",
    "lora_dropout",
    "use_rslora",
    "use_dora",
    "target_modules",
    "modules_to_save",
    "bias",
    "fan_in_fan_out",
    "init_lora_weights",
    "loftq_config",
    "eva_config",
    "corda_config",
    "lora_ga_config",
    "qalora_group_size",
    "runtime_config",
    "ensure_weight_tying",
    "megatron_config",
    "megatron_core",
};

static int set(struct config *config, const char *key, const char *value, struct error *err)
{
    return key_set(config, key_find(key), value, err);
}

/* Does a member ask for something: is it there and not null, false, 0, "" or empty? */
static int asks(const struct js *json, const char *name)
{
    const struct js *inside = js_get(json, name);
    if (!js_has(json, name))
        return 0;
    return js_length(inside) > 0 || js_next_key(inside, NULL) || js_get_bool(json, name, 0) ||
           js_get_real(json, name, 0) != 0 || js_get_string(json, name, "")[0];
}

/* Members that no table has. */
static void note_others(struct config *config, const struct js *json)
{
    char list[CONFIG_TEXT / 2] = "", *note = config->adapter_note;
    note[0] = 0;
    for (const char *name = js_next_key(json, NULL); name; name = js_next_key(json, name)) {
        int is_known = 0;
        for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
            is_known |= !strcmp(known[i], name);
        for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++)
            is_known |= !strcmp(refused[i], name);
        if (!is_known && asks(json, name))
            text_join(list, sizeof list, ", ", "%.60s", name);
    }
    if (list[0])
        snprintf(note, CONFIG_TEXT, "trireme does not know %s and computes without", list);
}

/* Ways to begin an adapter by which peft changes the model's own weights, too. */
static int check_begin(const struct js *json, struct error *err)
{
    static const char *const changing[] = {"pissa", "corda", "olora", "lora_ga", "loftq"};
    const char *begin = js_get_string(json, "init_lora_weights", "");
    for (size_t i = 0; i < sizeof changing / sizeof changing[0]; i++)
        if (!strncasecmp(begin, changing[i], strlen(changing[i])))
            return error_set(
                err,
                "init_lora_weights is \"%.40s\", by which peft changes the model's own "
                "weights; save the adapter as one of the unchanged model: in peft, "
                "save_pretrained() with path_initial_model_for_weight_conversion, or "
                "merge it into the model there",
                begin);
    return 0;
}

static int check_kinds(const struct js *json, struct error *err)
{
    static const struct {
        const char *name;
        enum js_want want;
    } members[] = {
        {.name = "peft_type", .want = JS_TEXT},
        {.name = "bias", .want = JS_TEXT},
        {.name = "r", .want = JS_WHOLE},
        {.name = "lora_alpha", .want = JS_NUMBER},
        {.name = "lora_dropout", .want = JS_NUMBER},
        {.name = "use_rslora", .want = JS_TRUTH},
        {.name = "use_dora", .want = JS_TRUTH},
        {.name = "target_modules", .want = JS_NAMES},
        {.name = "modules_to_save", .want = JS_NAMES},
    };
    for (size_t i = 0; i < sizeof members / sizeof members[0]; i++)
        if (js_check(json, members[i].name, members[i].want, err))
            return -1;
    return 0;
}

static int check(const struct js *json, struct error *err)
{
    if (check_kinds(json, err))
        return -1;
    const char *type = js_get_string(json, "peft_type", "");
    const char *bias = js_get_string(json, "bias", "none");
    if (strcmp(type, "LORA") != 0)
        return error_set(err, "peft_type is \"%.40s\"; trireme has LORA", type);
    if (strcmp(bias, "none") != 0)
        return error_set(err, "bias is \"%.40s\"; trireme trains no biases beside adapters: none",
                         bias);
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++)
        if (asks(json, refused[i]))
            return error_set(err, "%s is set, which trireme does not have", refused[i]);
    if (!strcmp(js_kind(js_get(json, "layers_to_transform")), "a number")) /* 0 is a layer, too */
        return error_set(err, "layers_to_transform is set, which trireme does not have");
    return check_begin(json, err);
}

/* Set a key to the names of a member, which is a list of names or one name, each with `front`
 * before it.  Patterns are refused, which peft allows where the member is one text. */
static int set_names(struct config *config, const char *key, const struct js *json,
                     const char *name, const char *front, struct error *err)
{
    char names[CONFIG_TEXT] = "";
    const struct js *list = js_get(json, name);
    const char *one = js_get_string(json, name, "");
    for (int i = 0; i < js_length(list); i++) {
        const char *text = js_at_string(list, i, "");
        if (!text[0] || strpbrk(text, ", *\\^$|()[]"))
            return error_set(err, "%s has \"%.60s\", which is no module's name", name, text);
        if (strlen(names) + strlen(front) + strlen(text) + 2 >= sizeof names)
            return error_set(err, "%s is longer than %d characters", name, CONFIG_TEXT);
        text_join(names, sizeof names, ",", "%s%s", front, text);
    }
    if (one[0] && strpbrk(one, ", *\\^$|()[]"))
        return error_set(err, "%s is the pattern \"%.60s\"; trireme takes a list of names", name,
                         one);
    if (one[0] && strlen(front) + strlen(one) >= sizeof names)
        return error_set(err, "%s is longer than %d characters", name, CONFIG_TEXT);
    if (one[0])
        text_join(names, sizeof names, ",", "%s%s", front, one);
    return set(config, key, names, err);
}

static int set_all(struct config *config, const struct js *json, struct error *err)
{
    char text[64];
    if (check(json, err))
        return -1;
    note_others(config, json);
    snprintf(text, sizeof text, "%lld", (long long)js_get_int(json, "r", 8));
    if (set(config, "lora.r", text, err))
        return -1;
    if (!config->lora.r)
        return error_set(err, "r is 0");
    snprintf(text, sizeof text, "%.17g", js_get_real(json, "lora_alpha", 8));
    if (set(config, "lora.alpha", text, err))
        return -1;
    snprintf(text, sizeof text, "%.17g", js_get_real(json, "lora_dropout", 0));
    if (set(config, "lora.dropout", text, err))
        return error_prefix(err, "lora_dropout");
    int is_rslora = js_get_bool(json, "use_rslora", 0), is_dora = js_get_bool(json, "use_dora", 0);
    return set(config, "lora.use_rslora", is_rslora ? "true" : "false", err) ||
                   set(config, "lora.use_dora", is_dora ? "true" : "false", err) ||
                   set_names(config, "lora.target_modules", json, "target_modules", "", err) ||
                   set_names(config, "lora.modules_to_save", json, "modules_to_save", "*", err)
               ? -1
               : 0;
}

int adapter_has_config(const char *folder)
{
    char *path = array_format("%s/adapter_config.json", folder);
    int found = !access(path, R_OK);
    free(path);
    return found;
}

int adapter_read_config(struct config *config, const char *folder, struct error *err)
{
    char *path = array_format("%s/adapter_config.json", folder);
    struct js *json = js_read(path, err);
    int rc = json ? set_all(config, json, err) : -1;
    if (json && rc)
        error_prefix(err, "%s", path);
    js_free(json);
    free(path);
    return rc;
}

/* ---- writing ---- */

/* Add the names of "q_proj, *v_proj" as a list, without a "*" before them; add nothing where there
 * is no name. */
static void add_names(struct js *json, const char *key, const char *names)
{
    struct js *list = js_array();
    const char *at = names + strspn(names, ", ");
    while (*at) {
        size_t length = strcspn(at, ", ");
        char *name = array_format("%.*s", (int)length, at);
        int star = name[0] == '*';
        js_add_string(list, NULL, name + star);
        free(name);
        at += length + strspn(at + length, ", ");
    }
    if (js_length(list))
        js_add(json, key, list);
    else
        js_free(list);
}

/* Name the adapter's model: a folder, or, where that is in the cache of Hugging Face's hub
 * (hub.c), the name and commit by which other machines find it. */
static void add_base(struct js *json, const char *path)
{
    static const char front[] = "/models--", middle[] = "/snapshots/";
    const char *name = strstr(path, front), *commit = name ? strstr(name, middle) : NULL;
    if (!commit) {
        js_add_string(json, "base_model_name_or_path", path);
        return;
    }
    name += strlen(front);
    char *text = array_format("%.*s", (int)(commit - name), name), *dashes = strstr(text, "--");
    if (dashes) {
        *dashes = '/';
        memmove(dashes + 1, dashes + 2, strlen(dashes + 2) + 1);
    }
    commit += strlen(middle);
    char *revision = array_format("%.*s", (int)strcspn(commit, "/"), commit);
    js_add_string(json, "base_model_name_or_path", text);
    js_add_string(json, "revision", revision);
    free(revision);
    free(text);
}

int adapter_write_config(const struct config *config, const char *targets, const char *saved,
                         const char *folder, struct error *err)
{
    const struct config_lora *lora = &config->lora;
    struct js *json = js_object();
    js_add_string(json, "peft_type", "LORA");
    js_add_string(json, "task_type", "CAUSAL_LM");
    if (config->model_path[0])
        add_base(json, config->model_path);
    js_add_bool(json, "inference_mode", 1);
    js_add_int(json, "r", lora->r);
    js_add_real(json, "lora_alpha", lora->alpha);
    js_add_bool(json, "use_rslora", lora->use_rslora);
    js_add_bool(json, "use_dora", lora->use_dora);
    js_add_real(json, "lora_dropout", lora->dropout);
    js_add_string(json, "bias", "none");
    js_add_bool(json, "fan_in_fan_out", !strcmp(config->model.family, "gpt2"));
    if (!strcmp(targets, "all-linear"))
        js_add_string(json, "target_modules", targets);
    else
        add_names(json, "target_modules", targets);
    add_names(json, "modules_to_save", saved);
    char *path = array_format("%s/adapter_config.json", folder);
    int rc = js_write(json, JS_EXACT, WHOLE_FILE_DURABLE, path, err);
    js_free(json);
    free(path);
    return rc;
}
