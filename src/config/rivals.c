/* rivals.c - keys that say the same in two ways, one of which an argument may take the place of.
 *
 * A job's file names a preset and a number of steps; its user gives a folder and epochs.  In one
 * file, or both as arguments, two of them are a mistake, which check.c and config.c refuse. */
#include <string.h>

#include "config/schema.h"

static const char *const rivals[][2] = {
    {"model.preset", "model.path"},
    {"train.steps", "train.epochs"},
    {"train.global_batch", "train.global_batch_tokens"},
};

static int is_argument(const struct config_file *file, const char *key)
{
    for (int i = 0; i < file->count; i++) {
        const struct config_entry *e = &file->entries[i];
        if (e->kind == ENTRY_ARGUMENT && !strcmp(e->key, key) && e->value[0] &&
            strcmp(e->value, "0") != 0)
            return 1;
    }
    return 0;
}

/* Take a key out of the file's own entries; returns how many were. */
static int drop(struct config_file *file, const char *key)
{
    int count = file->count;
    for (int i = count - 1; i >= 0; i--)
        if (file->entries[i].kind != ENTRY_ARGUMENT && !strcmp(file->entries[i].key, key))
            config_file_remove(file, i);
    return count - file->count;
}

int config_file_drop_rivals(struct config_file *file)
{
    int dropped = 0;
    for (size_t i = 0; i < sizeof rivals / sizeof rivals[0]; i++)
        for (int k = 0; k < 2; k++)
            if (is_argument(file, rivals[i][k]) && !is_argument(file, rivals[i][!k]))
                dropped += drop(file, rivals[i][!k]);
    return dropped;
}
