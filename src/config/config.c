/* config.c - defaults, then the preset, then the file, then the overrides, then the checks. */
#include "config/config.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "config/foreign.h"
#include "config/schema.h"

/* "key=value", with the key cut out into name.  Returns the value, or NULL with err set. */
static const char *split(const char *argument, char *name, size_t bytes, struct error *err)
{
    const char *equals = strchr(argument, '=');
    if (!equals || equals == argument) {
        error_set(err, "argument \"%.100s\": expected key=value", argument);
        return NULL;
    }
    snprintf(name, bytes, "%.*s", (int)(equals - argument), argument);
    return equals + 1;
}

/* Name the argument, unless err names its key already. */
static int prefix_argument(struct error *err, const char *argument, const char *key)
{
    return strstr(err->text, key) ? -1 : error_prefix(err, "argument %.100s", argument);
}

int config_set(struct config *config, const char *name, const char *value, struct error *err)
{
    const struct key *key = key_find(name);
    return key ? key_set(config, key, value, err) : key_unknown(name, err);
}

static int set_defaults(struct config *config, struct error *err)
{
    memset(config, 0, sizeof *config);
    for (int i = 0; i < config_key_count; i++)
        if (key_set(config, &config_keys[i], config_keys[i].initial, err))
            return error_prefix(err, "default");
    return 0;
}

static int is_preset(const char *name)
{
    return !strcmp(name, "model.preset");
}

/* The last preset named by an override, else the file's, before every other key. */
static int apply_preset(struct config *config, const char *path, const struct config_file *file,
                        const char *const *overrides, int count, struct error *err)
{
    char name[CONFIG_TEXT];
    for (int i = count - 1; i >= 0; i--) {
        const char *value = split(overrides[i], name, sizeof name, err);
        if (!value)
            return -1;
        if (is_preset(name) && config_set(config, name, value, err))
            return prefix_argument(err, overrides[i], name);
        if (is_preset(name))
            return 0;
    }
    for (int i = 0; i < file->count; i++) {
        const struct config_entry *e = &file->entries[i];
        if (e->kind == ENTRY_VALUE && is_preset(e->key) &&
            config_set(config, e->key, e->value, err))
            return error_prefix(err, "%s:%d", path, e->line);
    }
    return 0;
}

/* Line of the same group among the entries before the i-th, or 0. */
static int seen_group(const struct config_file *file, int i)
{
    for (int j = 0; j < i; j++)
        if (file->entries[j].kind != ENTRY_VALUE &&
            !strcmp(file->entries[j].key, file->entries[i].key))
            return file->entries[j].line;
    return 0;
}

/* A group, or a key without a value, sets nothing, but its name must be valid. */
static int apply_bare(struct config *config, const struct config_file *file, int i,
                      struct error *err)
{
    const struct config_entry *e = &file->entries[i];
    const struct key *key = key_find(e->key);
    if (!key && !key_is_group(e->key))
        return key_unknown(e->key, err);
    if (!key && seen_group(file, i))
        return error_set(err, "%s was already begun in line %d", e->key, seen_group(file, i));
    if (!key)
        return 0;
    if (e->kind == ENTRY_GROUP)
        return error_set(err, "%s takes a value, not a group of keys", e->key);
    if (key->type == KEY_TEXT)
        return key_set(config, key, "", err);
    return error_set(err, "%s has no value", e->key);
}

/* lines: where each key of the table was set, 0 while it was not. */
static int apply_entry(struct config *config, const struct config_file *file, int i, int *lines,
                       struct error *err)
{
    const struct config_entry *e = &file->entries[i];
    const struct key *key = key_find(e->key);
    if (key && lines[key - config_keys])
        return error_set(err, "%s was already set in line %d", e->key, lines[key - config_keys]);
    if (key)
        lines[key - config_keys] = e->line;
    if (e->kind != ENTRY_VALUE)
        return apply_bare(config, file, i, err);
    if (is_preset(e->key)) { /* applied, or replaced by an override's: only check it */
        struct config unused = {0};
        return config_set(&unused, e->key, e->value, err);
    }
    return config_set(config, e->key, e->value, err);
}

static int apply_file(struct config *config, const char *path, const struct config_file *file,
                      struct error *err)
{
    int rc = 0, *lines = array_make((size_t)config_key_count, sizeof *lines);
    for (int i = 0; i < file->count && !rc; i++)
        if ((rc = apply_entry(config, file, i, lines, err)))
            error_prefix(err, "%s:%d", path, file->entries[i].line);
    free(lines);
    return rc;
}

static int apply_overrides(struct config *config, const char *const *overrides, int count,
                           struct error *err)
{
    char name[CONFIG_TEXT];
    for (int i = 0; i < count; i++) {
        const char *value = split(overrides[i], name, sizeof name, err);
        if (!value)
            return -1;
        if (!is_preset(name) && config_set(config, name, value, err))
            return prefix_argument(err, overrides[i], name);
    }
    return 0;
}

/* Apply the preset, whether file or override names it, and then the keys of the file. */
static int apply_all(struct config *config, const char *path, const struct config_file *file,
                     const char *const *overrides, int count, struct error *err)
{
    return apply_preset(config, path, file, overrides, count, err) ||
           apply_file(config, path, file, err);
}

int config_load(struct config *config, const char *path, const char *const *overrides, int count,
                struct error *err)
{
    struct config_file file = {0};
    int rc = set_defaults(config, err) || (path && config_file_read(&file, path, err)) ||
             apply_all(config, path, &file, overrides, count, err);
    if (rc && path)
        foreign_file(path, err);
    rc = rc || apply_overrides(config, overrides, count, err) || config_finish(config, err);
    config_file_free(&file);
    return -rc;
}

int config_load_text(struct config *config, const char *name, const char *text,
                     const char *const *overrides, int count, struct error *err)
{
    struct config_file file = {0};
    int rc = set_defaults(config, err) || config_text_read(&file, name, text, strlen(text), err) ||
             apply_all(config, name, &file, overrides, count, err) ||
             apply_overrides(config, overrides, count, err) || config_finish(config, err);
    config_file_free(&file);
    return -rc;
}
