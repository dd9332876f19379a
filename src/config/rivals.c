/* rivals.c - pairs of keys that say the same thing in two ways.
 *
 * A job's file has model.preset and train.steps; its user gives the arguments model.path and
 * train.epochs.  The arguments are meant, so that the file's entries of the other keys are removed.
 * Both keys of a pair in one file, or both as arguments, are a mistake, which config.c and
 * check_train.c refuse. */
#include <string.h>

#include "config/schema.h"

static const char *const rivals[][2] = {
    {"model.preset", "model.path"},
    {"train.steps", "train.epochs"},
    {"train.global_batch", "train.global_batch_tokens"},
};

/* Does an argument set the key to something, other than "" and "0", which mean "not given"? */
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

/* Remove the file's entries of a key.  Returns how many there were. */
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
