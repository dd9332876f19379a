/* checkpoint_find.c - the checkpoints of a run: list, find the newest good one, prune. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "io/checkpoint_private.h"
#include "io/disk.h"

enum { KEEP_LEAST = 2 };

/* Listing */

/* "step-00001000", or with suffix: what was renamed while being replaced or written. */
static int parse(const char *name, const char *suffix, int64_t *step)
{
    long long number;
    int used = 0;
    if (sscanf(name, "step-%lld%n", &number, &used) != 1 || number < 0 ||
        strcmp(name + used, suffix))
        return 0;
    *step = number;
    return 1;
}

/* Newest first; of one step, the plain name before the longer .old. */
static int newest_first(const void *a, const void *b)
{
    const struct checkpoint_entry *x = a, *y = b;
    if (x->step != y->step)
        return x->step < y->step ? 1 : -1;
    return strcmp(x->path, y->path);
}

static int add(struct checkpoint_entry **entries, int *count, const char *dir, const char *name,
               int64_t step, struct error *err)
{
    struct checkpoint_entry *more = realloc(*entries, ((size_t)*count + 1) * sizeof *more);
    char *path = disk_path(err, "%s/%s", dir, name);
    char *mark = disk_path(err, "%s/%s/COMMIT", dir, name);
    *entries = more ? more : *entries;
    if (!more || !path || !mark) {
        free(mark);
        free(path);
        return error_set(err, "out of memory listing %s", dir);
    }
    more[(*count)++] = (struct checkpoint_entry){path, step, !access(mark, F_OK)};
    free(mark);
    return 0;
}

/* A step's second entry is of use only if the first is not committed. */
static int drop_replaced(struct checkpoint_entry *entries, int count)
{
    int kept = 0;
    for (int i = 0; i < count; i++) {
        if (kept && entries[kept - 1].step == entries[i].step && entries[kept - 1].committed)
            free(entries[i].path);
        else
            entries[kept++] = entries[i];
    }
    return kept;
}

int checkpoint_list(struct checkpoint_entry **entries, const char *dir, struct error *err)
{
    int count = 0, rc = 0;
    struct dirent *item;
    DIR *folder = opendir(dir);
    *entries = NULL;
    if (!folder)
        return errno == ENOENT ? 0 : error_errno(err, "cannot read folder %s", dir);
    while (!rc && (item = readdir(folder))) {
        int64_t step;
        if (parse(item->d_name, "", &step) || parse(item->d_name, ".old", &step))
            rc = add(entries, &count, dir, item->d_name, step, err);
    }
    closedir(folder);
    if (rc) {
        checkpoint_list_free(*entries, count);
        *entries = NULL;
        return -1;
    }
    if (count)
        qsort(*entries, (size_t)count, sizeof **entries, newest_first);
    return drop_replaced(*entries, count);
}

void checkpoint_list_free(struct checkpoint_entry *entries, int count)
{
    for (int i = 0; i < count; i++)
        free(entries[i].path);
    free(entries);
}

/* Finding */

/* The path of rank 0's text on every rank; free() it. */
static char *share_path(struct world *world, const char *path, struct error *err)
{
    size_t bytes = path ? strlen(path) + 1 : 0;
    checkpoint_broadcast(world, &bytes, sizeof bytes);
    char *shared = calloc(1, bytes);
    int rc = shared ? 0 : error_set(err, "out of memory for a path");
    if (checkpoint_agree(world, rc, err)) {
        free(shared);
        return NULL;
    }
    if (path)
        memcpy(shared, path, bytes);
    checkpoint_broadcast(world, shared, bytes);
    return shared;
}

/* Open and verify on all ranks, or -1 on all. */
static int try_one(struct checkpoint **checkpoint, struct world *world, const char *path,
                   struct error *err)
{
    int rc = checkpoint_agree(world, checkpoint_open(checkpoint, path, err), err);
    if (!rc)
        rc = checkpoint_agree(
            world,
            checkpoint_verify(*checkpoint, checkpoint_rank(world), checkpoint_size(world), err),
            err);
    if (rc) {
        checkpoint_close(*checkpoint);
        *checkpoint = NULL;
    }
    return rc;
}

/* Rank 0's list of committed checkpoints, the same number on every rank; -1 on all. */
static int list_committed(struct checkpoint_entry **entries, struct world *world, const char *dir,
                          struct error *err)
{
    int64_t kept = 0;
    int count = checkpoint_rank(world) ? 0 : checkpoint_list(entries, dir, err);
    if (checkpoint_agree(world, count < 0 ? -1 : 0, err))
        return -1;
    for (int i = 0; i < count; i++) {
        if ((*entries)[i].committed)
            (*entries)[kept++] = (*entries)[i];
        else
            free((*entries)[i].path);
    }
    checkpoint_broadcast(world, &kept, sizeof kept);
    return (int)kept;
}

int checkpoint_find(struct checkpoint **checkpoint, struct world *world, const char *dir,
                    struct log *log, struct error *err)
{
    struct checkpoint_entry *entries = NULL;
    struct error why = {0};
    int rank = checkpoint_rank(world), rc = 0;
    *checkpoint = NULL;
    int count = list_committed(&entries, world, dir, err);
    if (count < 0)
        return -1;
    for (int i = 0; i < count && !*checkpoint && !rc; i++) {
        char *path = share_path(world, entries ? entries[i].path : NULL, err);
        rc = path ? 0 : -1;
        if (!rc && try_one(checkpoint, world, path, &why) && !rank)
            log_warn(log, "%s cannot be used: %s%s", path, why.text,
                     i + 1 < count ? "; trying the one before" : "");
        free(path);
    }
    if (!rc && count && !*checkpoint)
        rc = error_set(err, "none of the %d checkpoints in %s can be used; the oldest: %s", count,
                       dir, why.text);
    checkpoint_list_free(entries, rank ? 0 : count);
    return rc;
}

/* Pruning */

/* Renamed first, so that a death half way leaves no damaged checkpoint behind. */
static int delete_one(const char *path, struct error *err)
{
    char *doomed = disk_path(err, "%s.partial", path);
    int rc = doomed ? disk_remove(doomed, err) : -1;
    if (!rc && rename(path, doomed))
        rc = error_errno(err, "cannot rename %s", path);
    rc = rc || disk_remove(doomed, err);
    free(doomed);
    return rc;
}

static int is_sound(const char *path)
{
    struct checkpoint *checkpoint;
    if (checkpoint_open(&checkpoint, path, NULL))
        return 0;
    int rc = checkpoint_sizes(checkpoint, NULL);
    checkpoint_close(checkpoint);
    return !rc;
}

static int delete_older(const char *dir, int keep, struct error *err)
{
    struct checkpoint_entry *entries;
    int sound = 0, rc = 0;
    int count = checkpoint_list(&entries, dir, err);
    for (int i = 0; i < count && !rc; i++) {
        if (!entries[i].committed)
            continue;
        if (sound < keep)
            sound += is_sound(entries[i].path);
        else
            rc = delete_one(entries[i].path, err);
    }
    checkpoint_list_free(entries, count);
    return count < 0 ? -1 : rc;
}

/* What a save that died left behind: something half written, or half deleted, or an old one
 * whose successor is committed. */
static int is_stale(const char *dir, const char *name)
{
    int64_t step;
    if (parse(name, ".partial", &step) || parse(name, ".old.partial", &step))
        return 1;
    if (!parse(name, ".old", &step))
        return 0;
    char *mark = disk_path(NULL, "%s/%.*s/COMMIT", dir, (int)(strlen(name) - 4), name);
    int stale = mark && !access(mark, F_OK);
    free(mark);
    return stale;
}

static int delete_stale(const char *dir, struct error *err)
{
    int rc = 0;
    struct dirent *item;
    DIR *folder = opendir(dir);
    if (!folder)
        return errno == ENOENT ? 0 : error_errno(err, "cannot read folder %s", dir);
    while (!rc && (item = readdir(folder))) {
        if (!is_stale(dir, item->d_name))
            continue;
        char *path = disk_path(err, "%s/%s", dir, item->d_name);
        rc = path ? disk_remove(path, err) : -1;
        free(path);
    }
    closedir(folder);
    return rc;
}

int checkpoint_prune(struct world *world, const char *dir, int keep, struct error *err)
{
    int rc = 0;
    if (!checkpoint_rank(world))
        rc = delete_stale(dir, err) || delete_older(dir, keep < KEEP_LEAST ? KEEP_LEAST : keep, err)
                 ? -1
                 : 0;
    return checkpoint_agree(world, rc, err);
}
