/* checkpoint_find.c - the checkpoints in a folder: list them, find the newest good one. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "io/checkpoint_private.h"
#include "io/disk.h"

/* Listing */

int checkpoint_parse_name(const char *name, const char *suffix, int64_t *step)
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
        if (checkpoint_parse_name(item->d_name, "", &step) ||
            checkpoint_parse_name(item->d_name, ".old", &step))
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

char *checkpoint_share_path(struct world *world, const char *path, struct error *err)
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

int checkpoint_open_verified(struct checkpoint **checkpoint, struct world *world, const char *path,
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

/* Leave out those that are not committed.  Returns how many are left. */
static int drop_uncommitted(struct checkpoint_entry *entries, int count)
{
    int kept = 0;
    for (int i = 0; i < count; i++) {
        if (entries[i].committed)
            entries[kept++] = entries[i];
        else
            free(entries[i].path);
    }
    return kept;
}

int checkpoint_find_among(struct checkpoint **checkpoint, struct world *world,
                          const struct checkpoint_entry *entries, int count,
                          struct checkpoint_checked *checked, struct log *log, struct error *err)
{
    struct error why = {0};
    int rank = checkpoint_rank(world), rc = 0;
    *checkpoint = NULL;
    checkpoint_broadcast(world, &count, sizeof count);
    for (int i = 0; i < count && !*checkpoint && !rc; i++) {
        char *path = checkpoint_share_path(world, rank ? NULL : entries[i].path, err);
        rc = path ? 0 : -1;
        int failed = rc || checkpoint_open_verified(checkpoint, world, path, &why);
        if (!rc && !rank && failed)
            log_warn(log, "%s cannot be used: %s%s", path, why.text,
                     i + 1 < count ? "; trying the one before" : "");
        if (!rc && checked)
            checkpoint_checked_set(checked, path, failed ? CHECKPOINT_DAMAGED : CHECKPOINT_WHOLE);
        free(path);
    }
    if (!rc && count && !*checkpoint)
        rc = error_set(err, "none of %d checkpoint%s can be used; the oldest: %s", count,
                       count > 1 ? "s" : "", why.text);
    return rc;
}

int checkpoint_find(struct checkpoint **checkpoint, struct world *world, const char *dir,
                    struct log *log, struct error *err)
{
    struct checkpoint_entry *entries = NULL;
    int count = checkpoint_rank(world) ? 0 : checkpoint_list(&entries, dir, err);
    *checkpoint = NULL;
    if (checkpoint_agree(world, count < 0 ? -1 : 0, err))
        return -1;
    count = drop_uncommitted(entries, count);
    int rc = checkpoint_find_among(checkpoint, world, entries, count, NULL, log, err);
    checkpoint_list_free(entries, count);
    return rc ? error_prefix(err, "%s", dir) : 0;
}
