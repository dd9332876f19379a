/* checkpoint_find.c - listing the checkpoints in a folder, and finding the newest one that is
 * whole.
 */
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/text.h"
#include "io/disk.h"
#include "io/checkpoint_private.h"

/* Listing */

/* Compare entries for qsort(): the newest first; of two folders of the same step "step-N" comes
 * before "step-N.old". */
static int newest_first(const void *a, const void *b)
{
    const struct checkpoint_entry *x = a, *y = b;
    if (x->step != y->step)
        return x->step < y->step ? 1 : -1;
    return strcmp(x->path, y->path);
}

/* Of two entries of the same step, leave out the second if the first is committed.  Returns how
 * many are left. */
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
    int count = 0, capacity = 0, rc = 0;
    struct dirent *item;
    DIR *folder = opendir(dir);
    *entries = NULL;
    if (!folder)
        return errno == ENOENT ? 0 : error_errno(err, "cannot read folder %s", dir);
    while (!rc && (errno = 0, item = readdir(folder))) {
        int64_t step;
        if (!checkpoint_parse_name(item->d_name, "", &step) &&
            !checkpoint_parse_name(item->d_name, ".old", &step))
            continue;
        char *path = array_format("%s/%s", dir, item->d_name);
        int committed = disk_look(path, "COMMIT", err);
        *entries = array_grow(*entries, count, &capacity, sizeof **entries);
        (*entries)[count++] =
            (struct checkpoint_entry){.path = path, .step = step, .committed = committed > 0};
        rc = committed < 0 ? -1 : 0;
    }
    if (!rc && errno)
        rc = error_errno(err, "cannot read folder %s", dir);
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

/* Checkpoints that were verified before */

/* Returns what is known of the checkpoint at path, or NULL. */
static struct checkpoint_check *find_check(const struct checkpoint_checked *checked,
                                           const char *path)
{
    for (int i = 0; i < checked->count; i++)
        if (!strcmp(checked->list[i].path, path))
            return &checked->list[i];
    return NULL;
}

enum checkpoint_state checkpoint_checked_get(const struct checkpoint_checked *checked,
                                             const char *path)
{
    const struct checkpoint_check *known = find_check(checked, path);
    return known ? known->state : CHECKPOINT_UNKNOWN;
}

void checkpoint_checked_set(struct checkpoint_checked *checked, const char *path,
                            enum checkpoint_state state)
{
    struct checkpoint_check *known = find_check(checked, path);
    if (!known) {
        checked->list =
            array_grow(checked->list, checked->count, &checked->capacity, sizeof *checked->list);
        known = &checked->list[checked->count++];
        known->path = array_text(path);
    }
    known->state = state;
}

void checkpoint_checked_free(struct checkpoint_checked *checked)
{
    for (int i = 0; i < checked->count; i++)
        free(checked->list[i].path);
    free(checked->list);
    *checked = (struct checkpoint_checked){0};
}

/* Finding */

/* Open the checkpoint at path, the same on all ranks, and verify it; once. */
static int open_and_verify(struct checkpoint **checkpoint, struct world *world, const char *path,
                           struct error *err)
{
    int rc = checkpoint_open_shared(checkpoint, world, path, err);
    if (!rc)
        rc = world_agree(
            world, checkpoint_verify(*checkpoint, world_rank(world), world_size(world), err), err);
    if (rc) {
        checkpoint_close(*checkpoint);
        *checkpoint = NULL;
    }
    return rc;
}

int checkpoint_open_verified(struct checkpoint **checkpoint, struct world *world, const char *path,
                             struct checkpoint_checked *checked, struct log *log, struct error *err)
{
    struct error why = {0};
    char *shared = checkpoint_share_text(world, path);
    int tries = 0, rc;
    do {
        rc = open_and_verify(checkpoint, world, shared, &why);
    } while (rc && disk_try_again(&tries, world_rank(world) ? NULL : log, &why));
    if (rc && err)
        *err = why;
    if (checked && !why.by_system)
        checkpoint_checked_set(checked, shared, rc ? CHECKPOINT_DAMAGED : CHECKPOINT_WHOLE);
    free(shared);
    return rc;
}

/* Leave out the entries that are not committed.  Returns how many are left. */
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

/* Set err: whether the checkpoint at path (NULL on ranks above 0) is whole could not be found out.
 * Returns -1. */
static int fail_unread(const char *path, const struct error *why, struct error *err)
{
    if (!err)
        return -1;
    *err = *why;
    if (path)
        error_prefix(err, "%s could not be read, and may be whole", path);
    text_append(
        err->text, sizeof err->text,
        "; nothing was moved, and no older one is taken: run the same command again, or move "
        "that folder away");
    return -1;
}

int checkpoint_find_among(struct checkpoint **checkpoint, struct world *world,
                          const struct checkpoint_entry *entries, int count,
                          struct checkpoint_checked *checked, struct log *log, struct error *err)
{
    struct error why = {0};
    int rank = world_rank(world);
    *checkpoint = NULL;
    world_broadcast(world, &count, sizeof count, 0);
    for (int i = 0; i < count && !*checkpoint; i++) {
        const char *path = rank ? NULL : entries[i].path;
        int rc = checkpoint_open_verified(checkpoint, world, path, checked, log, &why);
        if (rc && why.by_system)
            return fail_unread(path, &why, err);
        if (rc && !rank)
            log_warn(log, "%s cannot be used: %s%s", path, why.text,
                     i + 1 < count ? "; trying the one before" : "");
    }
    if (!count || *checkpoint)
        return 0;
    return error_set(err, "none of %d checkpoint%s can be used; the oldest: %s", count,
                     count > 1 ? "s" : "", why.text);
}

int checkpoint_find(struct checkpoint **checkpoint, struct world *world, const char *dir,
                    struct log *log, struct error *err)
{
    struct checkpoint_entry *entries = NULL;
    struct error why = {0};
    int count = 0, tries = 0;
    *checkpoint = NULL;
    if (!world_rank(world))
        do {
            count = checkpoint_list(&entries, dir, &why);
        } while (count < 0 && disk_try_again(&tries, log, &why));
    if (world_agree(world, count < 0 ? -1 : 0, &why)) {
        if (err)
            *err = why;
        return -1;
    }
    count = drop_uncommitted(entries, count);
    int rc = checkpoint_find_among(checkpoint, world, entries, count, NULL, log, err);
    checkpoint_list_free(entries, count);
    return rc ? error_prefix(err, "%s", dir) : 0;
}
