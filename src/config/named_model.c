/* named_model.c - see named_model.h.
 *
 * A file that trireme wrote has every key of its model, also keys that follow from model.preset:
 *
 *     best.yaml:  model.preset: llama3-8b         trireme train best.yaml model.path=Llama-3.1-8B
 *                 model.rope_scaling: none
 *
 * Here "none" follows from llama3-8b, nobody asked for it, and the folder of the argument says
 * llama3.  So, where an argument names a model, the file's entries model.* are of these kinds:
 *
 *     equal to what the argument's model has       stay, and change nothing
 *     equal to what the file's own model has       are removed
 *     dropout and init_std, which are a run's      stay
 *     all others                                   are refused: they may be meant for either model
 *
 * A file without model.preset and model.path describes no model of its own: its entries change the
 * model that the argument names.  Keys that an argument sets itself are not compared.  The same
 * holds of entries lora.* where an argument names an adapter by lora.path. */
#include "config/named_model.h"

#include <stdlib.h>
#include <string.h>

#include "config/adapter.h"
#include "config/hf.h"
#include "config/hub.h"
#include "config/saved.h"

/* Find the last entry of a key among the arguments or, with in_arguments 0, in the file; NULL:
 * there is none with a value. */
static const struct config_entry *find_entry(const struct config_file *file, const char *key,
                                             int in_arguments)
{
    for (int i = file->count - 1; i >= 0; i--) {
        const struct config_entry *e = &file->entries[i];
        if (e->value && (e->kind == ENTRY_ARGUMENT) == in_arguments && !strcmp(e->key, key))
            return e;
    }
    return NULL;
}

static const struct config_entry *find_named(const struct config_file *file, const char *key,
                                             int in_arguments)
{
    const struct config_entry *e = find_entry(file, key, in_arguments);
    return e && e->value[0] ? e : NULL;
}

void named_model_read(struct named_model *own, const struct config_file *file,
                      const struct config *config)
{
    const struct config_entry *path = find_named(file, "model.path", 0);
    const struct config_entry *preset = find_named(file, "model.preset", 0);
    const struct config_entry *adapter = find_named(file, "lora.path", 0);
    char folder[CONFIG_TEXT];
    own->config = *config;
    own->is_named = find_entry(file, "model.path", 0) || find_entry(file, "model.preset", 0);
    if (path) {
        hub_find(path->value, folder);
        if (hf_has_config(folder))
            hf_read_config(&own->config, folder, NULL);
        else if (saved_has_config(folder))
            saved_read_config(&own->config, folder, NULL);
    } else if (preset) {
        key_set(&own->config, key_find(preset->key), preset->value, NULL);
    }
    if (adapter && adapter_has_config(adapter->value))
        adapter_read_config(&own->config, adapter->value, NULL);
}

/* Does the key describe a model (where names_model), or an adapter (where names_adapter), rather
 * than say where it comes from or how its weights are kept? */
static int describes(const char *key, int names_model, int names_adapter)
{
    static const char *const others[] = {"model.path",        "model.preset",
                                         "model.init",        "model.loading",
                                         "lora.path",         "model.sync_module_states",
                                         "lora.quantize_base"};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (!strcmp(key, others[i]))
            return 0;
    return (names_model && !strncmp(key, "model.", 6)) ||
           (names_adapter && !strncmp(key, "lora.", 5));
}

/* May a run have another value than its model, or its adapter, was made with?  Lists of modules may
 * say the same in several ways. */
static int is_of_run(const char *key)
{
    return strstr(key, "dropout") || strstr(key, "modules") || !strcmp(key, "model.init_std");
}

/* Has config this value of the key, as it is or after keys were set that follow from others (a
 * head_dim of 0)? */
static int agrees(const struct config *config, const struct key *key, const char *value)
{
    char text[CONFIG_TEXT];
    struct config found = *config;
    if (!strcmp(key_text(config, key, text), value))
        return 1;
    config_check_model(&found, NULL);
    return !strcmp(key_text(&found, key, text), value);
}

/* Compare an entry of the file with both models.  Returns 1: it is to be removed; 0: it stays; or
 * -1 with err set: it contradicts the argument's model, and is not of the file's own either. */
static int judge(const struct config_entry *e, const struct config_file *file,
                 const struct named_model *own, const struct config *named, struct error *err)
{
    const struct key *key = key_find(e->key);
    struct config scratch = *named;
    char buffer[CONFIG_TEXT], theirs[CONFIG_TEXT];
    if (!key || find_entry(file, e->key, 1) || key_set(&scratch, key, e->value, NULL))
        return 0;
    const char *value = key_text(&scratch, key, buffer);
    if (agrees(named, key, value))
        return 0;
    if (agrees(&own->config, key, value))
        return 1;
    if (is_of_run(e->key))
        return 0;
    const char *by = !strncmp(e->key, "lora.", 5)        ? "lora.path"
                     : find_named(file, "model.path", 1) ? "model.path"
                                                         : "model.preset";
    return error_set(err,
                     "%s is %.100s here, and %.100s in what the argument %s=%.200s names; leave "
                     "the line out, or say it as an argument too: %s=%.100s",
                     e->key, value, key_text(named, key, theirs), by,
                     find_named(file, by, 1)->value, e->key, value);
}

int named_model_yield(struct config_file *file, const struct named_model *own,
                      const struct config *named, const char *path, struct error *err)
{
    int names_model = own->is_named && named->model.layers && /* 0: it could not be read */
                      (find_named(file, "model.path", 1) || find_named(file, "model.preset", 1));
    int names_adapter = named->lora.r && find_named(file, "lora.path", 1);
    int dropped = 0;
    for (int i = 0; i < file->count && (names_model || names_adapter); i++) {
        const struct config_entry *e = &file->entries[i];
        if (e->kind == ENTRY_ARGUMENT || !e->value ||
            !describes(e->key, names_model, names_adapter))
            continue;
        int yields = judge(e, file, own, named, err);
        if (yields < 0)
            return error_prefix(err, "%s:%d", path, e->line);
        if (yields) {
            config_file_remove(file, i--);
            dropped++;
        }
    }
    return dropped;
}
