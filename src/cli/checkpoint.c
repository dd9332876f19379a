/* checkpoint.c - trireme checkpoint ls|verify|show: look at what runs have saved. */
#include "cli/checkpoint_list.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"
#include "base/text.h"
#include "cli/command.h"
#include "io/disk.h"

static void select_one(struct checkpoint_selection *selection, const char *path)
{
    selection->entries = array_make(1, sizeof *selection->entries);
    selection->entries[0] = (struct checkpoint_entry){
        .path = array_text(path), .step = -1, .committed = disk_has(path, "COMMIT")};
    selection->count = 1;
}

static int select_checkpoints(struct checkpoint_selection *selection, const char *path,
                              struct error *err)
{
    if (access(path, R_OK))
        return error_file(err, "cannot read", path);
    if (disk_has(path, "COMMIT") || disk_has(path, "index.h5")) {
        select_one(selection, path);
        return 0;
    }
    selection->run = disk_has(path, "checkpoints") ? path : NULL;
    char *folder = array_format(selection->run ? "%s/checkpoints" : "%s", path);
    int count = checkpoint_list(&selection->entries, folder, err);
    free(folder);
    if (count < 0)
        return -1;
    selection->count = count;
    return count || (selection->run && disk_has(path, "branches"))
               ? 0
               : error_set(err, "%s holds no committed checkpoint", path);
}

static int list(struct app *app, const struct checkpoint_selection *selection, struct error *err)
{
    return checkpoint_list_print(selection, err);
}

static int verify_one(const char *path, struct error *err)
{
    struct checkpoint *checkpoint;
    char size[DISK_SIZE];
    if (checkpoint_open(&checkpoint, path, err))
        return -1;
    int rc = checkpoint_verify(checkpoint, 0, 1, err);
    if (!rc) {
        disk_size((double)checkpoint->bytes, size);
        printf("%s: whole (%s, shard files: %d)\n", path, size, checkpoint->ranks);
    }
    checkpoint_close(checkpoint);
    return rc;
}

/* Is an entry of a folder gone, as pruning of a run that goes on takes it away? */
static int was_deleted(const struct checkpoint_entry *entry)
{
    return entry->step >= 0 && access(entry->path, F_OK) != 0;
}

/* Verify all; the first failure becomes the command's error, the others are printed. */
static int verify(struct app *app, const struct checkpoint_selection *selection, struct error *err)
{
    int bad = 0, good = 0;
    for (int i = 0; i < selection->count; i++) {
        struct error why = {0};
        const struct checkpoint_entry *entry = &selection->entries[i];
        if (!entry->committed && selection->count > 1) {
            log_warn(&app->log, "%s is not committed", entry->path);
        } else if (!verify_one(entry->path, &why)) {
            good++;
        } else if (was_deleted(entry)) {
            log_warn(&app->log, "%s was deleted before it was verified", entry->path);
        } else {
            if (bad++)
                log_error(&app->log, "%s", why.text);
            else
                *err = why;
        }
    }
    if (!bad && !good)
        return error_set(err, "no checkpoint is committed");
    return bad ? -1 : 0;
}

/* Print meta.json, with the configuration in it as lines of YAML. */
static int print_meta(const struct checkpoint *checkpoint, struct error *err)
{
    const struct js *meta = checkpoint->meta;
    const char *config = js_get_string(meta, "config", NULL);
    char *text = js_text(meta, JS_INDENTED, err);
    if (!text)
        return -1;
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
        if (strncmp(line, "  \"config\":", 11) != 0)
            puts(line);
    if (config)
        printf("configuration:\n%s", config);
    free(text);
    return 0;
}

static int show(struct app *app, const struct checkpoint_selection *selection, struct error *err)
{
    struct checkpoint *checkpoint;
    int i = 0; /* the newest committed one; one named alone is opened in any case */
    if (!selection->count)
        return error_set(err, "%s holds no committed checkpoint", selection->run);
    while (i < selection->count - 1 && !selection->entries[i].committed)
        i++;
    if (checkpoint_open(&checkpoint, selection->entries[i].path, err))
        return -1;
    printf("%s: step %lld, ranks %d\n", checkpoint->path, (long long)checkpoint->step,
           checkpoint->ranks);
    printf("%-6s %8s  %-24s %s\n", "dtype", "pieces", "dimensions", "tensor");
    for (int t = 0; t < checkpoint->tensors; t++) {
        struct checkpoint_piece tensor = checkpoint_tensor(checkpoint, t);
        char dims[128] = "";
        for (int d = 0; d < tensor.rank; d++)
            text_join(dims, sizeof dims, " x ", "%lld", (long long)tensor.dims[d]);
        printf("%-6s %8lld  %-24s %s\n", dtype_name(tensor.dtype),
               (long long)checkpoint_pieces(checkpoint, t), dims, tensor.name);
    }
    int rc = print_meta(checkpoint, err);
    checkpoint_close(checkpoint);
    return rc;
}

static const struct {
    const char *name;
    int (*run)(struct app *app, const struct checkpoint_selection *selection, struct error *err);
} actions[] = {
    {.name = "ls", .run = list},
    {.name = "verify", .run = verify},
    {.name = "show", .run = show},
};

int command_checkpoint(struct app *app, int argc, char **argv, struct error *err)
{
    enum { ACTIONS = sizeof actions / sizeof actions[0] };
    struct checkpoint_selection selection = {0};
    int i = 0;
    while (i < ACTIONS && (argc < 2 || strcmp(actions[i].name, argv[1])))
        i++;
    if (i == ACTIONS || argc != 3)
        return error_set(err, "usage: trireme checkpoint ls|verify|show DIR");
    int rc = select_checkpoints(&selection, argv[2], err);
    if (!rc)
        rc = actions[i].run(app, &selection, err);
    checkpoint_list_free(selection.entries, selection.count);
    return rc;
}
