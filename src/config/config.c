/* config.c - loading a configuration: defaults, the named model, the file, the arguments, checks.
 *
 * load() does this, and every step fails with a place, "file:line" or the argument:
 *   1. defaults of all keys
 *   2. the file's entries and, after them, the arguments become one list (struct config_file)
 *   3. entries of the file that an argument replaces by another key leave the list (rivals.c)
 *   4. the model of model.preset or model.path, and the adapters of lora.path, of the whole list
 *   5. where an argument named these, the file's entries that describe the file's own model leave
 *      the list (named_model.c)
 *   6. the file's entries, then the arguments, one by one
 *   7. config_finish(): what follows from other keys, and the checks of combinations
 */
#include "config/config.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"
#include "base/text.h"
#include "config/adapter.h"
#include "config/foreign.h"
#include "config/foreign_model.h"
#include "config/hf.h"
#include "config/hub.h"
#include "config/named_model.h"
#include "config/saved.h"
#include "config/schema.h"

int config_set(struct config *config, const char *name, const char *value, struct error *err)
{
    const struct key *key = key_find(name);
    return key ? key_set(config, key, value, err) : key_unknown(name, err);
}

static int set_defaults(struct config *config, struct error *err)
{
    const struct key *key;
    memset(config, 0, sizeof *config);
    for (int i = 0; (key = key_at(i)); i++)
        if (key_set(config, key, key->initial, err))
            return error_prefix(err, "default");
    return 0;
}

static int names_preset(const struct config_entry *e)
{
    return e->value && !strcmp(e->key, "model.preset");
}

/* Append the arguments, each "key=value", to the entries of the file. */
static int add_arguments(struct config_file *file, const char *const *arguments, int count,
                         struct error *err)
{
    for (int i = 0; i < count; i++) {
        const char *equals = strchr(arguments[i], '=');
        if (!equals || equals == arguments[i])
            return error_set(err, "argument \"%.100s\": expected key=value", arguments[i]);
        char *key = array_format("%.*s", (int)(equals - arguments[i]), arguments[i]);
        config_file_add(file, key, equals + 1, 0, ENTRY_ARGUMENT);
        free(key);
    }
    return 0;
}

/* Put the place of entry e before err: file and line, or the argument unless err names its key. */
static int prefix_place(struct error *err, const char *path, const struct config_entry *e)
{
    if (e->kind != ENTRY_ARGUMENT)
        return error_prefix(err, "%s:%d", path, e->line);
    if (strstr(err->text, e->key))
        return -1;
    char *argument = array_format("%s=%s", e->key, e->value);
    error_prefix(err, "argument %.100s", argument);
    free(argument);
    return -1;
}

/* Apply the last model.preset in the list: an argument's, else the file's. */
static int apply_preset(struct config *config, const char *path, const struct config_file *file,
                        struct error *err)
{
    for (int i = file->count - 1; i >= 0; i--) {
        const struct config_entry *e = &file->entries[i];
        if (names_preset(e))
            return config_set(config, e->key, e->value, err) ? prefix_place(err, path, e) : 0;
    }
    return 0;
}

static const struct config_entry *last_entry(const struct config_file *file, const char *name)
{
    for (int i = file->count - 1; i >= 0; i--)
        if (file->entries[i].value && !strcmp(file->entries[i].key, name))
            return &file->entries[i];
    return NULL;
}

/* Set err to say why `name`, a value of model.path that stands for `folder`, is no model: it is an
 * adapter's folder, a name of the hub that is not in the cache, or another folder.  Returns -1. */
static int error_no_model(const char *name, const char *folder, struct error *err)
{
    if (adapter_has_config(folder))
        return error_set(err,
                         "%.200s is an adapter's folder, not a model's: name its model, and the "
                         "adapter beside it, model.path=MODEL lora.path=%.200s",
                         name, name);
    if (foreign_model_refuse(folder, err))
        return -1;
    if (access(folder, F_OK) && hub_is_name(name)) {
        hub_error_missing(name, "no folder with a config.json", err);
        if (err)
            text_append(err->text, sizeof err->text,
                        "; before it is there, plans are made with model.preset=NAME");
        return -1;
    }
    return error_set(err, "%.200s has no config.json, and is no run or checkpoint either", name);
}

/* Set the keys model.* from the folder that the last model.path in the list names.  A folder that
 * is gone is no error where the list has model.layers: the config.yaml of a run has every key of
 * its model, so that the run can go on from its checkpoint. */
static int apply_folder(struct config *config, const char *path, const struct config_file *file,
                        struct error *err)
{
    const struct config_entry *e = last_entry(file, "model.path");
    const struct config_entry *preset = last_entry(file, "model.preset");
    if (!e || !e->value[0])
        return 0;
    if (preset && preset->value[0])
        return error_set(err, "model.preset and model.path name two models; give one of them");
    char folder[CONFIG_TEXT];
    hub_find(e->value, folder);
    if (hf_has_config(folder))
        return hf_read_config(config, folder, err);
    if (saved_has_config(folder))
        return saved_read_config(config, folder, err);
    if (last_entry(file, "model.layers"))
        return 0;
    error_no_model(e->value, folder, err);
    return prefix_place(err, path, e);
}

/* Replace a name of the hub in model_path by the folder in the cache, so that the run's config.yaml
 * says which snapshot of the model it was. */
static void resolve_folder(struct config *config)
{
    char folder[CONFIG_TEXT];
    if (hub_find(config->model_path, folder))
        memcpy(config->model_path, folder, sizeof folder);
}

/* Set the keys lora.* from the folder of the last lora.path in the list.  A folder that is gone is
 * no error where the list has lora.r, as in a run's config.yaml. */
static int apply_adapter(struct config *config, const char *path, const struct config_file *file,
                         struct error *err)
{
    const struct config_entry *e = last_entry(file, "lora.path");
    if (!e || !e->value[0])
        return 0;
    if (adapter_has_config(e->value))
        return adapter_read_config(config, e->value, err);
    if (last_entry(file, "lora.r"))
        return 0;
    if (saved_has_config(e->value))
        error_set(err,
                  "%.200s is a run or a checkpoint: trireme convert %.200s ADAPTER writes its "
                  "adapter, with which lora.path=ADAPTER begins",
                  e->value, e->value);
    else
        error_set(err, "%.200s has no adapter_config.json", e->value);
    return prefix_place(err, path, e);
}

/* Return the line of an entry before the i-th with the same key or group; 0: there is none. */
static int line_before(const struct config_file *file, int i)
{
    for (int j = 0; j < i; j++)
        if (!strcmp(file->entries[j].key, file->entries[i].key))
            return file->entries[j].line;
    return 0;
}

static int is_unknown(const struct config_entry *e)
{
    return !key_find(e->key) && (e->value || !key_is_group(e->key));
}

/* Apply an entry of the file:
 *     "lr: 1"       sets its key, refused where a line before it does
 *     "train:"      a group sets nothing, but its name must be valid and new
 *     "data.train:" without a value sets a text to ""; keys of other types refuse it
 *     "model.preset: name" is only checked: apply_preset() was first, and may have taken the
 *                   preset of an argument */
static int apply_entry(struct config *config, const struct config_file *file, int i,
                       struct error *err)
{
    struct config unused = {0};
    const struct config_entry *e = &file->entries[i];
    const struct key *key = key_find(e->key);
    int before = line_before(file, i);
    if (is_unknown(e))
        return e->kind == ENTRY_GROUP ? key_group_unknown(e->key, err) : key_unknown(e->key, err);
    if (before)
        return error_set(err, "%s was already %s in line %d", e->key, key ? "set" : "begun",
                         before);
    if (!key)
        return 0;
    if (e->kind == ENTRY_GROUP)
        return error_set(err, "%s takes a value, not a group of keys", e->key);
    if (!e->value && key->type != KEY_TEXT)
        return error_set(err, "%s has no value", e->key);
    return key_set(names_preset(e) ? &unused : config, key, e->value ? e->value : "", err);
}

/* Append to err, which answers an unknown key, the answers to further unknown keys among entries
 * [from, to), so that keys brought from another program are answered together. */
static void answer_others(const char *path, const struct config_file *file, int from, int to,
                          struct error *err)
{
    enum { ANSWERED = 8 };
    int others = 0;
    for (int i = from; i < to; i++) {
        const struct config_entry *e = &file->entries[i];
        struct error other = {0};
        if (!is_unknown(e) || ++others > ANSWERED)
            continue;
        if (e->kind == ENTRY_GROUP)
            key_group_unknown(e->key, &other);
        else
            key_unknown(e->key, &other);
        prefix_place(&other, path, e);
        char *advice = strstr(other.text, "; trireme config"); /* err has it already */
        if (advice)
            *advice = 0;
        text_append(err->text, sizeof err->text, "; %s", other.text);
    }
    if (others > ANSWERED)
        text_append(err->text, sizeof err->text, "; and %d more unknown keys", others - ANSWERED);
}

/* Apply entries [from, to), of the file or of the arguments.  Of several arguments of one key the
 * last counts. */
static int apply_entries(struct config *config, const char *path, const struct config_file *file,
                         int from, int to, struct error *err)
{
    for (int i = from; i < to; i++) {
        const struct config_entry *e = &file->entries[i];
        int rc = 0;
        if (e->kind != ENTRY_ARGUMENT)
            rc = apply_entry(config, file, i, err);
        else if (!names_preset(e))
            rc = config_set(config, e->key, e->value, err);
        if (!rc)
            continue;
        return prefix_place(err, path, e);
    }
    return 0;
}

/* Refuse names that are no keys, and keys with keys below them, of the file and of the arguments,
 * before a folder that another entry names is looked for. */
static int check_names(struct config *config, const char *path, const struct config_file *file,
                       struct error *err)
{
    for (int i = 0; i < file->count; i++) {
        const struct config_entry *e = &file->entries[i];
        int is_key_with_keys = e->kind == ENTRY_GROUP && key_find(e->key);
        if (!is_unknown(e) && !is_key_with_keys)
            continue;
        apply_entries(config, path, file, i, i + 1, err);
        if (!is_key_with_keys)
            answer_others(path, file, i + 1, file->count, err);
        return -1;
    }
    return 0;
}

/* Refuse "~" and variables of a shell in the entries from `from` on, which a user wrote. */
static int refuse_shell(const char *path, const struct config_file *file, int from,
                        struct error *err)
{
    for (int i = from; i < file->count; i++) {
        const struct config_entry *e = &file->entries[i];
        const struct key *key = e->value ? key_find(e->key) : NULL;
        if (key && key_refuse_shell(key, e->value, err))
            return prefix_place(err, path, e);
    }
    return 0;
}

/* Who wrote the text: a user; or trireme, as the configuration of a run or a checkpoint. */
enum writer { BY_USER, BY_TRIREME };

static int finish(struct config *config, struct error *err)
{
    resolve_folder(config);
    return config_finish(config, err);
}

static int load(struct config *config, const char *name, const char *text, size_t bytes,
                enum writer writer, const char *const *overrides, int count, struct error *err)
{
    struct config_file file = {0};
    struct named_model own;
    int rc = set_defaults(config, err) || config_text_read(&file, name, text, bytes, err);
    int in_file = file.count, yielded;
    rc = rc || add_arguments(&file, overrides, count, err) ||
         refuse_shell(name, &file, writer == BY_USER ? 0 : in_file, err) ||
         check_names(config, name, &file, err);
    if (!rc) {
        named_model_read(&own, &file, config);
        in_file -= config_file_drop_rivals(&file);
    }
    rc = rc || apply_preset(config, name, &file, err) || apply_folder(config, name, &file, err) ||
         apply_adapter(config, name, &file, err) ||
         (yielded = named_model_yield(&file, &own, config, name, err)) < 0 ||
         apply_entries(config, name, &file, 0, in_file -= yielded, err);
    if (rc)
        foreign_refuse(name, text, err);
    rc = rc || apply_entries(config, name, &file, in_file, file.count, err) || finish(config, err);
    config_file_free(&file);
    return -rc;
}

int config_load(struct config *config, const char *path, const char *const *overrides, int count,
                struct error *err)
{
    char *text = NULL;
    size_t bytes = 0;
    int rc = path ? config_file_text(path, &text, &bytes, err) : 0;
    if (!rc)
        rc = load(config, path, text ? text : "", bytes,
                  path && config_is_written(path) ? BY_TRIREME : BY_USER, overrides, count, err);
    free(text);
    return rc;
}

int config_load_text(struct config *config, const char *name, const char *text,
                     const char *const *overrides, int count, struct error *err)
{
    return load(config, name, text, strlen(text), BY_TRIREME, overrides, count, err);
}

int config_translate(FILE *out, const char *path, struct error *err)
{
    char *text = NULL;
    size_t bytes = 0;
    struct foreign_source source = {0};
    int rc = config_file_text(path, &text, &bytes, err);
    if (!rc)
        foreign_recognise(&source, path, text);
    if (source.program)
        foreign_write(out, &source);
    else if (!rc)
        rc = error_set(err,
                       "%s is not recognised as a configuration of another trainer; trireme "
                       "config --show lists the keys",
                       path);
    foreign_free(&source);
    free(text);
    return rc;
}
