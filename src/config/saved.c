/* saved.c - the configuration that is kept in a run, as config.yaml, and in a checkpoint, as the
 * text "config" in meta.json; both are YAML of config_print(). */
#include "config/saved.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"
#include "base/json.h"
#include "config/hf.h"
#include "config/hub.h"
#include "config/schema.h"

static int has(const char *folder, const char *name)
{
    char *path = array_format("%s/%s", folder, name);
    int found = !access(path, R_OK);
    free(path);
    return found;
}

static int is_checkpoint(const char *folder)
{
    return has(folder, "meta.json") && has(folder, "COMMIT");
}

int saved_has_config(const char *folder)
{
    return is_checkpoint(folder) || (has(folder, "config.yaml") && has(folder, "checkpoints"));
}

/* Does the key say where a model comes from, or how it begins? */
static int is_origin(const char *key)
{
    static const char *const origins[] = {"model.path",    "model.preset",
                                          "model.init",    "model.init_std",
                                          "model.loading", "model.sync_module_states"};
    for (size_t i = 0; i < sizeof origins / sizeof origins[0]; i++)
        if (!strcmp(key, origins[i]))
            return 1;
    return 0;
}

/* The configuration of a run or a checkpoint; for free_text(). */
struct saved_text {
    char *name;   /* path of the file that has it, for messages */
    char *text;   /* YAML */
    size_t bytes; /* of text */
};

static int read_text(struct saved_text *saved, const char *folder, struct error *err)
{
    *saved = (struct saved_text){0};
    if (!is_checkpoint(folder)) {
        saved->name = array_format("%s/config.yaml", folder);
        return config_file_text(saved->name, &saved->text, &saved->bytes, err);
    }
    saved->name = array_format("%s/meta.json", folder);
    struct js *meta = js_read(saved->name, err);
    const char *text = js_get_string(meta, "config", NULL);
    int rc = meta ? 0 : -1;
    if (meta && !text)
        rc = error_set(err, "%s holds no config", saved->name);
    if (text) {
        saved->text = array_text(text);
        saved->bytes = strlen(text);
    }
    js_free(meta);
    return rc;
}

static void free_text(struct saved_text *saved)
{
    free(saved->name);
    free(saved->text);
}

static int apply_text(struct config *config, const struct saved_text *saved, struct error *err)
{
    struct config_file file = {0};
    int rc = config_text_read(&file, saved->name, saved->text, saved->bytes, err);
    for (int i = 0; !rc && i < file.count; i++) {
        const struct config_entry *e = &file.entries[i];
        if (!e->value || strncmp(e->key, "model.", 6) != 0 || is_origin(e->key))
            continue;
        const struct key *key = key_find(e->key);
        if (key ? key_set(config, key, e->value, err) : key_unknown(e->key, err))
            rc = error_prefix(err, "%s:%d", saved->name, e->line);
    }
    config_file_free(&file);
    return rc;
}

int saved_read_config(struct config *config, const char *folder, struct error *err)
{
    struct saved_text saved;
    int rc = read_text(&saved, folder, err) || apply_text(config, &saved, err) ? -1 : 0;
    free_text(&saved);
    return rc;
}

/* Read the model.path of a run or a checkpoint; "": it has none. */
static void read_origin(const char *folder, char origin[CONFIG_TEXT])
{
    struct saved_text saved;
    struct config_file file = {0};
    int rc = read_text(&saved, folder, NULL) ||
             config_text_read(&file, saved.name, saved.text, saved.bytes, NULL);
    origin[0] = 0;
    for (int i = 0; !rc && i < file.count; i++)
        if (file.entries[i].value && !strcmp(file.entries[i].key, "model.path"))
            snprintf(origin, CONFIG_TEXT, "%s", file.entries[i].value);
    config_file_free(&file);
    free_text(&saved);
}

int saved_source(const char *path, char folder[CONFIG_TEXT])
{
    enum { LINKS = 100 }; /* most folders that are followed: a chain may lead back to itself */
    char next[CONFIG_TEXT];
    snprintf(next, sizeof next, "%s", path);
    for (int i = 0; i < LINKS && next[0]; i++) {
        hub_find(next, folder);
        if (hf_has_config(folder))
            return 1;
        next[0] = 0;
        if (saved_has_config(folder))
            read_origin(folder, next);
    }
    folder[0] = 0;
    return 0;
}
