/* checkpoint_prune.c - deleting old checkpoints, and what an interrupted save left behind.
 *
 * The newest `keep` checkpoints are kept, and committed ones older than these are deleted; one that
 * is known to be damaged is neither counted nor deleted.  Before anything is deleted, the newest
 * two that count are known to be whole, as this process has written or verified them.  With a
 * larger checkpoint.keep the others that are kept are not read, as reading hundreds of them would
 * take hours.  Where nothing is to be deleted, nothing is read.
 *
 *     keep 2:   30 written   20 verified   10           10 is deleted without being read
 *               30 written   20 unknown    10           20 is verified; if it is damaged, 10 stays
 *     keep 3:   30 written   20 verified   10 unknown   5: deleted; neither 10 nor 5 is read
 *               30 written   20 unknown    10 unknown   nothing is older: nothing is read
 */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/clock.h"
#include "io/checkpoint_private.h"
#include "io/disk.h"

/* REPORT_S: verifying that takes this many seconds is a line in the log. */
enum { KEEP_LEAST = 2, REPORT_S = 10 };

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

/* Returns 1 if a checkpoint is never to be deleted. */
static int is_spared(const struct pruning *p, const struct checkpoint_entry *entry)
{
    for (int i = 0; p->spared && p->spared[i]; i++)
        if (!strcmp(p->spared[i], entry->path))
            return 1;
    return entry->stays;
}

/* Returns 1 if the i-th checkpoint counts: it is committed, and not known to be damaged. */
static int counts(const struct pruning *p, int i)
{
    return p->entries[i].committed &&
           checkpoint_checked_get(p->checked, p->entries[i].path) != CHECKPOINT_DAMAGED;
}

/* Returns the index of the first checkpoint from the i-th on that is to be deleted, or p->count;
 * *kept: how many before that one are kept, 0 for i = 0. */
static int next_to_delete(const struct pruning *p, int i, int *kept)
{
    for (; i < p->count; i++) {
        if (!counts(p, i))
            continue;
        if (*kept >= p->keep && !is_spared(p, &p->entries[i]))
            return i;
        ++*kept;
    }
    return p->count;
}

/* Returns the path of the newest checkpoint that has to be verified before any is deleted; NULL:
 * there is none. */
static const char *next_to_verify(const struct pruning *p)
{
    int whole = 0, kept = 0;
    if (next_to_delete(p, 0, &kept) == p->count)
        return NULL;
    for (int i = 0; i < p->count && whole < KEEP_LEAST; i++) {
        if (!counts(p, i))
            continue;
        if (checkpoint_checked_get(p->checked, p->entries[i].path) == CHECKPOINT_UNKNOWN)
            return p->entries[i].path;
        whole++;
    }
    return NULL;
}

/* Delete the checkpoints older than those that are kept; on rank 0.  Goes on after a failure.
 * Returns 0, or -1 with the first failure in err. */
static int delete_older(const struct pruning *p, struct error *err)
{
    int kept = 0, rc = 0;
    for (int i = next_to_delete(p, 0, &kept); i < p->count; i = next_to_delete(p, i + 1, &kept))
        rc |= delete_one(p->entries[i].path, rc ? NULL : err);
    return rc ? -1 : 0;
}

/* Verify a checkpoint, and note the outcome in checked.  path: on rank 0.  Collective.  Returns 0,
 * or -1 with err set where it could not be read. */
static int verify_one(struct world *world, const char *path, struct checkpoint_checked *checked,
                      struct log *log, struct error *err)
{
    struct checkpoint *checkpoint;
    struct error why = {0};
    int rc = checkpoint_open_verified(&checkpoint, world, path, checked, log, &why);
    checkpoint_close(checkpoint);
    if (!rc)
        return 0;
    if (why.by_system) {
        if (err)
            *err = why;
        return -1;
    }
    if (!world_rank(world))
        log_warn(log, "%s is damaged and does not count: %s", path, why.text);
    return 0;
}

/* Log that steps have waited long for reading; on rank 0. */
static void report_reading(struct log *log, int verified, int64_t began_ns)
{
    double s = (double)(clock_ns() - began_ns) / 1e9;
    if (s >= REPORT_S)
        log_info(log, "verified %d checkpoint%s in %.0f s before older ones are deleted", verified,
                 verified > 1 ? "s" : "", s);
}

int checkpoint_prune(struct world *world, const struct checkpoint_entry *entries, int count,
                     int keep, const char *const *spared, struct checkpoint_checked *checked,
                     struct log *log, struct error *err)
{
    struct pruning p = {entries, count, keep < KEEP_LEAST ? KEEP_LEAST : keep, spared, checked};
    int rank = world_rank(world), more = 1, verified = 0;
    int64_t began_ns = clock_ns();
    while (more) {
        const char *path = rank ? NULL : next_to_verify(&p);
        more = path != NULL;
        world_broadcast(world, &more, sizeof more, 0);
        if (more && verify_one(world, path, checked, log, err))
            return -1;
        verified += more;
    }
    if (verified && !rank)
        report_reading(log, verified, began_ns);
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
