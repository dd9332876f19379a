/* run_checkpoint_open.c - which checkpoint a path names. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "config/adapter.h"
#include "config/hf.h"
#include "io/disk.h"
#include "train/run_checkpoint.h"
#include "train/run_record.h"

/* Words for the newest checkpoint that other programs have. */
static int means_newest(const char *path)
{
    static const char *const words[] = {"latest", "last", "newest", "true", "True", "yes"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (!strcmp(path, words[i]))
            return 1;
    return 0;
}

int run_checkpoint_refuse(const char *path, struct error *err)
{
    struct run_record record;
    struct error why;
    if (adapter_has_config(path))
        return error_set(err,
                         "%s: no checkpoint there; it is an adapter's folder, which generate, "
                         "evaluate and train take beside its model: lora.path=%s",
                         path, path);
    if (hf_has_config(path))
        return error_set(err,
                         "%s: no checkpoint there; it is a model's folder, which generate takes as "
                         "it is, and train and evaluate by model.path=%s",
                         path, path);
    if (disk_has(path, RUN_RECORD) && !run_record_read(&record, path, RUN_RECORD, &why) &&
        record.saved < 0)
        return error_set(
            err,
            "%s: this run has saved no checkpoint yet; it does so every "
            "checkpoint.every steps (0, the default: never), on SIGUSR1 and at its end",
            path);
    return error_set(err,
                     "%s: no checkpoint there; name a run, its folder checkpoints, or a folder "
                     "step-NNNNNNNN that has a file COMMIT%s",
                     path,
                     means_newest(path) ? "; checkpoint.resume=auto is the newest of run.dir" : "");
}

int run_checkpoint_open(struct checkpoint **checkpoint, struct world *world, const char *path,
                        struct log *log, struct error *err)
{
    char inside[CONFIG_TEXT + 64];
    int committed = 0, tries = 0;
    *checkpoint = NULL;
    if (!world_rank(world))
        do {
            committed = disk_look(path, "COMMIT", err);
        } while (committed < 0 && disk_try_again(&tries, log, err));
    if (world_agree(world, committed < 0 ? -1 : 0, err))
        return -1;
    world_broadcast(world, &committed, sizeof committed, 0); /* others may not see the folder */
    if (committed)
        return checkpoint_open_verified(checkpoint, world, path, NULL, log, err);
    /* rank 0's is the one that is listed */
    snprintf(inside, sizeof inside, "%s%s", path,
             disk_has(path, "checkpoints") ? "/checkpoints" : "");
    int is_gone =
        !world_rank(world) && !means_newest(path) && access(path, F_OK) && errno == ENOENT;
    if (world_agree(world, is_gone ? error_file(err, "cannot open", path) : 0, err) ||
        checkpoint_find(checkpoint, world, inside, log, err))
        return -1;
    return *checkpoint ? 0 : run_checkpoint_refuse(path, err);
}
