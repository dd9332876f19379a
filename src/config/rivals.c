/* rivals.c - keys that say the same in two ways, one of which an argument may take the place of.
 *
 * A job's file names a preset and a number of steps; its user gives a folder and epochs.  In one
 * file, or both as arguments, two of them are a mistake, which check.c and config.c refuse. */
#include <stdlib.h>
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
    int kept = 0, count = file->count;
    for (int i = 0; i < file->count; i++) {
        struct config_entry e = file->entries[i];
        if (e.kind == ENTRY_ARGUMENT || strcmp(e.key, key) != 0) {
            file->entries[kept++] = e;
            continue;
        }
        free(e.key);
        free(e.value);
    }
    file->count = kept;
    return count - kept;
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
