/* checkpoint_prune.c - deleting old checkpoints, and what an interrupted save left behind.
 *
 * The newest `keep` whole checkpoints are kept, and committed ones older than these are deleted; a
 * damaged one is neither counted nor deleted.  A checkpoint is whole if this process has written or
 * verified it.  A checkpoint of which it knows nothing is verified before it is counted, unless
 * there is no older one to delete.  With keep 2, checkpoints of steps 30, 20 and 10:
 *
 *     30 written   20 verified   10           10 is deleted without being read
 *     30 written   20 damaged    10 unknown   10 is verified only if there is an older one
 */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "io/checkpoint_private.h"
#include "io/disk.h"

enum { KEEP_LEAST = 2 };

/* Pruning */

struct pruning {
    const struct checkpoint_entry *entries; /* [count] newest first; on rank 0 */
    int count, keep;                        /* keep: whole ones to keep */
    const char *const *spared;          /* paths never to delete, NULL after the last; or NULL */
    struct checkpoint_checked *checked; /* what is known of each */
};

/* Delete the checkpoint at path.  Its folder is renamed first: if the process is killed half way,
 * no damaged checkpoint remains under the name of a good one.  Returns 0, or -1 with err set. */
static int delete_one(const char *path, struct error *err)
{
    char *doomed = array_format("%s.partial", path);
    int rc = disk_remove(doomed, err);
    if (!rc && rename(path, doomed))
        rc = error_errno(err, "cannot rename %s", path);
    rc = rc || disk_remove(doomed, err);
    free(doomed);
    return rc;
}

/* Returns 1 if there is a committed checkpoint older than the i-th. */
static int has_older(const struct pruning *p, int i)
{
    for (int j = i + 1; j < p->count; j++)
        if (p->entries[j].committed)
            return 1;
    return 0;
}

/* Returns the path of the newest checkpoint that has to be verified before it is known which ones
 * can be deleted; NULL: there is none. */
static const char *next_to_verify(const struct pruning *p)
{
    int whole = 0;
    for (int i = 0; i < p->count && whole < p->keep; i++) {
        if (!p->entries[i].committed)
            continue;
        enum checkpoint_state state = checkpoint_checked_get(p->checked, p->entries[i].path);
        if (state == CHECKPOINT_UNKNOWN)
            return has_older(p, i) ? p->entries[i].path : NULL;
        whole += state == CHECKPOINT_WHOLE;
    }
    return NULL;
}

/* Returns 1 if the checkpoint at path is never to be deleted. */
static int is_spared(const struct pruning *p, const char *path)
{
    for (int i = 0; p->spared && p->spared[i]; i++)
        if (!strcmp(p->spared[i], path))
            return 1;
    return 0;
}

/* Delete the checkpoints older than those that are kept; on rank 0.  Goes on after a failure.
 * Returns 0, or -1 with the first failure in err. */
static int delete_older(const struct pruning *p, struct error *err)
{
    int whole = 0, rc = 0;
    for (int i = 0; i < p->count; i++) {
        const char *path = p->entries[i].path;
        enum checkpoint_state state = checkpoint_checked_get(p->checked, path);
        if (!p->entries[i].committed || state == CHECKPOINT_DAMAGED)
            continue;
        if (whole < p->keep || is_spared(p, path))
            whole += state == CHECKPOINT_WHOLE;
        else
            rc |= delete_one(path, rc ? NULL : err);
    }
    return rc ? -1 : 0;
}

/* Verify a checkpoint, and note the outcome in checked.  path: on rank 0.  Collective. */
static void verify_one(struct world *world, const char *path, struct checkpoint_checked *checked,
                       struct log *log)
{
    struct checkpoint *checkpoint;
    struct error why = {0};
    if (checkpoint_open_verified(&checkpoint, world, path, checked, log, &why) &&
        !world_rank(world))
        log_warn(log, "%s is damaged and does not count: %s", path, why.text);
    checkpoint_close(checkpoint);
}

int checkpoint_prune(struct world *world, const struct checkpoint_entry *entries, int count,
                     int keep, const char *const *spared, struct checkpoint_checked *checked,
                     struct log *log, struct error *err)
{
    struct pruning p = {entries, count, keep < KEEP_LEAST ? KEEP_LEAST : keep, spared, checked};
    int rank = world_rank(world), more = 1;
    while (more) {
        const char *path = rank ? NULL : next_to_verify(&p);
        more = path != NULL;
        world_broadcast(world, &more, sizeof more, 0);
        if (more)
            verify_one(world, path, checked, log);
    }
    return world_agree(world, rank ? 0 : delete_older(&p, err), err);
}

/* Leftovers */

/* Returns 1 for a folder that is half written or half deleted, or was replaced by one that is
 * committed. */
static int is_stale(const char *dir, const char *name)
{
    int64_t step;
    if (checkpoint_parse_name(name, ".partial", &step) ||
        checkpoint_parse_name(name, ".old.partial", &step))
        return 1;
    if (!checkpoint_parse_name(name, ".old", &step))
        return 0;
    char *replacement = array_format("%s/%.*s", dir, (int)(strlen(name) - 4), name);
    int stale = disk_has(replacement, "COMMIT");
    free(replacement);
    return stale;
}

int checkpoint_clean(const char *dir, struct error *err)
{
    int rc = 0;
    struct dirent *item;
    DIR *folder = opendir(dir);
    if (!folder)
        return errno == ENOENT ? 0 : error_errno(err, "cannot read folder %s", dir);
    while (!rc && (item = readdir(folder))) {
        if (!is_stale(dir, item->d_name))
            continue;
        char *path = array_format("%s/%s", dir, item->d_name);
        rc = disk_remove(path, err);
        free(path);
    }
    closedir(folder);
    return rc;
}
