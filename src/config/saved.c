/* saved.c - see saved.h.  A run keeps its configuration as config.yaml, a checkpoint the same text
 * in meta.json. */
#include "config/saved.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"
#include "base/json.h"
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

/* Keys that say where a model comes from, and how it begins. */
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

static int apply_text(struct config *config, const char *name, const char *text, size_t bytes,
                      struct error *err)
{
    struct config_file file = {0};
    int rc = config_text_read(&file, name, text, bytes, err);
    for (int i = 0; !rc && i < file.count; i++) {
        const struct config_entry *e = &file.entries[i];
        if (!e->value || strncmp(e->key, "model.", 6) != 0 || is_origin(e->key))
            continue;
        const struct key *key = key_find(e->key);
        if (key ? key_set(config, key, e->value, err) : key_unknown(e->key, err))
            rc = error_prefix(err, "%s:%d", name, e->line);
    }
    config_file_free(&file);
    return rc;
}

static int read_checkpoint(struct config *config, const char *path, struct error *err)
{
    struct js *meta = js_read(path, err);
    const char *text = js_get_string(meta, "config", NULL);
    int rc = meta && !text ? error_set(err, "%s holds no config", path) : 0;
    if (meta && text)
        rc = apply_text(config, path, text, strlen(text), err);
    js_free(meta);
    return meta ? rc : -1;
}

static int read_run(struct config *config, const char *path, struct error *err)
{
    char *text = NULL;
    size_t bytes = 0;
    int rc = config_file_text(path, &text, &bytes, err);
    if (!rc)
        rc = apply_text(config, path, text, bytes, err);
    free(text);
    return rc;
}

int saved_read_config(struct config *config, const char *folder, struct error *err)
{
    int checkpoint = is_checkpoint(folder);
    char *path = array_format("%s/%s", folder, checkpoint ? "meta.json" : "config.yaml");
    int rc = checkpoint ? read_checkpoint(config, path, err) : read_run(config, path, err);
    free(path);
    return rc;
}
