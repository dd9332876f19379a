/* run_aside.c - moving things out of the way of a run, so that nothing is deleted.
 *
 * Every order of writes here is such that a death between any two leaves a directory that the next
 * start can use, with every checkpoint in it or beside it:
 *
 * All of it: one rename of the directory.  Without it the next start finds no run.
 *
 * A branch B+1 that begins at step S:
 *
 *   1. metrics.jsonl, samples.jsonl and run.json (as branch.json) are copied to branches/B
 *   2. run.json says that branch B+1 began at step S and is "moving"
 *   3. the checkpoints after S are moved to branches/B, one by one
 *   4. metrics.jsonl and samples.jsonl become those of the branch that B+1 began from, cut after S
 *   5. run.json says that all is done
 *
 * A start that is killed before 2 leaves the run as it was.  After 2, the next start first does
 * what is left of 3 to 5, and only then looks at what it was asked for.
 */
#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/array.h"
#include "io/disk.h"
#include "train/metrics_resume.h"
#include "train/run_directory_private.h"

/* ---- metrics and samples of no checkpoint ---- */

/* Rename a file, if it is there, to a free name: *aside, for free(), NULL where it is not. */
static int move_file(const char *path, char **aside, struct error *err)
{
    *aside = access(path, F_OK) ? NULL : disk_free_name(path);
    if (*aside && rename(path, *aside))
        return error_errno(err, "cannot move %s to %s", path, *aside);
    return 0;
}

/* Metrics are moved last: without them the next start would not look for samples. */
int run_aside_metrics(const struct run_directory *d, int64_t step, struct error *err)
{
    char *path = array_format("%s/" RUN_SAMPLES, d->path), *samples, *metrics = NULL;
    int rc = move_file(path, &samples, err) || move_file(d->metrics, &metrics, err) ||
             disk_sync_parent(path, err);
    if (!rc)
        log_warn(d->s->log,
                 "%s: an earlier start came to step %lld and left no checkpoint; its metrics are "
                 "in %s now%s%s",
                 d->path, (long long)step, metrics, samples ? ", its samples in " : "",
                 samples ? samples : "");
    free(metrics);
    free(samples);
    free(path);
    return rc ? -1 : 0;
}

/* ---- all of it ---- */

static int move_all(const char *real, const char *dir, struct log *log, struct error *err)
{
    if (disk_is_inside(".", real)) /* this process would move with it */
        return error_set(err,
                         "run.fresh cannot move %s aside from within it; start from elsewhere, or "
                         "name another run.dir",
                         dir);
    char *aside = disk_free_name(real);
    int rc = 0;
    if (rename(real, aside))
        rc = error_errno(err, "cannot move %s to %s; name another run.dir", real, aside);
    rc = rc || disk_sync_parent(aside, err);
    if (!rc)
        log_info(log, "run.fresh: what was in %s is in %s now", dir, aside);
    free(aside);
    return rc ? -1 : 0;
}

int run_aside_all(struct run_directory *d, struct error *err)
{
    int before = d->lock;
    char *real = realpath(d->path, NULL);
    if (!real)
        return error_errno(err, "cannot look at %s", d->path);
    int rc = move_all(real, d->path, d->s->log, err);
    if (!rc && !(rc = disk_make_folders(real, err)) && !(rc = run_directory_lock(d, err)))
        close(before);
    free(real);
    return rc;
}

/* ---- a branch ---- */

static char *folder_of(const struct run_directory *d, int64_t branch, const char *name)
{
    return array_format("%s/branches/%lld/%s", d->path, (long long)branch, name);
}

int64_t run_aside_last(const struct run_directory *d)
{
    int64_t last = -1;
    char *path = array_format("%s/branches", d->path);
    DIR *folder = opendir(path);
    struct dirent *item;
    while (folder && (item = readdir(folder)))
        if (isdigit((unsigned char)item->d_name[0]) && atoll(item->d_name) > last)
            last = atoll(item->d_name);
    if (folder)
        closedir(folder);
    free(path);
    return last;
}

static int move_one(const char *path, const char *to, struct error *err)
{
    const char *name = strrchr(path, '/') + 1;
    char *target = array_format("%s/%s", to, name);
    int rc = rename(path, target) ? error_errno(err, "cannot move %s to %s", path, target) : 0;
    free(target);
    return rc;
}

/* Move the checkpoints of steps after `base` into the folder to. */
static int move_later(const struct run_list *list, int64_t base, const char *to, struct error *err)
{
    int rc = 0;
    for (int i = 0; i < list->count && !rc; i++)
        if (list->entry[i].step > base)
            rc = move_one(list->entry[i].path, to, err);
    return rc;
}

/* Move the own checkpoints of steps after `base` whose meta.json cannot be read, which may be of
 * any branch.  *count: how many. */
static int move_unread(const struct run_list *own, int64_t base, const char *to, int *count,
                       struct error *err)
{
    int rc = 0;
    *count = 0;
    for (int i = 0; i < own->count && !rc; i++) {
        struct error why = {0};
        struct js *meta = checkpoint_read_meta(own->entry[i].path, &why);
        int moves = own->entry[i].step > base && !meta;
        js_free(meta);
        if (moves && why.by_system) {
            *err = why;
            return -1;
        }
        rc = moves ? disk_make_folders(to, err) || move_one(own->entry[i].path, to, err) : 0;
        *count += moves;
    }
    return rc ? -1 : 0;
}

int run_aside_branch(const struct run_directory *d, enum run_torn torn, struct error *err)
{
    struct run_survey survey;
    if (!d->record.branch)
        return 0;
    if (run_survey_make(&survey, d, err))
        return -1;
    int64_t left = d->record.branch - 1, base = d->record.base;
    char *to = folder_of(d, left, "checkpoints");
    int rc = 0, unread = 0, moves = survey.other.count || (torn == TORN_MOVES && survey.torn.count);
    if (moves)
        rc = disk_make_folders(to, err);
    if (!rc)
        rc = move_later(&survey.other, -1, to, err);
    if (!rc && torn == TORN_MOVES)
        rc = move_later(&survey.torn, base, to, err) ||
             move_unread(&survey.own, base, to, &unread, err);
    int later = survey.other.count + unread;
    if (!rc && (moves || unread))
        rc = disk_sync(to, err) || disk_sync(d->checkpoints, err) ? -1 : 0;
    if (!rc && later)
        log_info(d->s->log, "%d later checkpoint%s of branch %lld: now in %s", later,
                 later > 1 ? "s" : "", (long long)left, to);
    free(to);
    run_survey_free(&survey);
    return rc;
}

/* Make a file of the run, metrics.jsonl or samples.jsonl, what it was where this branch began: the
 * copy kept in the folder of the branch that it began from, if there is one, else the file as it
 * is, cut after the step at which it began. */
static int take_lines(const struct run_directory *d, const char *name, struct error *err)
{
    char *from = folder_of(d, d->record.start.branch, name);
    char *to = array_format("%s/%s", d->path, name);
    int rc = access(from, F_OK) ? 0 : disk_copy(from, to, err);
    rc = rc || metrics_resume(to, d->record.start.step, d->s->log, err);
    free(to);
    free(from);
    return rc ? -1 : 0;
}

int run_aside_finish(struct run_directory *d, struct error *err)
{
    if (run_aside_branch(d, TORN_MOVES, err) || take_lines(d, RUN_METRICS, err) ||
        take_lines(d, RUN_SAMPLES, err))
        return -1;
    d->record.moving = 0;
    return run_record_write(&d->record, d->path, RUN_RECORD, WHOLE_FILE_DURABLE, err);
}

/* Copy a file of the run, which the next branch will cut, into the folder of the branch that is
 * left. */
static int keep_lines(const struct run_directory *d, const char *name, struct error *err)
{
    char *from = array_format("%s/%s", d->path, name);
    char *to = folder_of(d, d->record.branch, name);
    int rc = access(from, F_OK) ? 0 : disk_copy(from, to, err);
    free(from);
    free(to);
    return rc;
}

/* Are two folders on one file system, as far as is known? */
static int is_one_disk(const char *a, const char *b)
{
    struct stat first, second;
    return stat(a, &first) || stat(b, &second) || first.st_dev == second.st_dev;
}

int run_aside_may_move(const struct run_directory *d)
{
    return is_one_disk(d->checkpoints, d->path);
}

/* Refuse a branch into whose folder checkpoints cannot be renamed, before anything is written, as
 * nothing could be finished afterwards. */
static int check_movable(const struct run_directory *d, const char *folder, struct error *err)
{
    if (is_one_disk(d->checkpoints, folder))
        return 0;
    return error_set(err,
                     "later checkpoints of %s cannot be moved to branches/: %s is on another file "
                     "system; begin a run from that checkpoint in place of going back: "
                     "checkpoint.resume=PATH run.dir=OTHER",
                     d->path, d->checkpoints);
}

int run_aside_copies(const struct run_directory *d, struct error *err)
{
    char *folder = folder_of(d, d->record.branch, "");
    int rc = disk_make_folders(folder, err) || check_movable(d, folder, err) ||
             keep_lines(d, RUN_METRICS, err) || keep_lines(d, RUN_SAMPLES, err);
    /* The last of them: it syncs the folder. */
    rc = rc || run_record_write(&d->record, folder, BRANCH_RECORD, WHOLE_FILE_DURABLE, err);
    free(folder);
    return rc ? -1 : 0;
}
