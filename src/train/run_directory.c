/* run_directory.c - the directory of a run: its lock and log, its checkpoints, its record.  See
 * run_directory.h; run_start.c decides which checkpoint a start resumes, run_aside.c moves files
 * that would be in its way. */
#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/special_file.h"
#include "base/text.h"
#include "io/disk.h"
#include "train/lr_schedule.h"
#include "train/metrics_resume.h"
#include "train/run_directory_private.h"
#include "train/shared_settings.h"

/* ---- lock and log ---- */

/* Another start may have moved the directory aside. */
int run_directory_is_there(int fd, const char *path)
{
    struct stat one, other;
    return !fstat(fd, &one) && !stat(path, &other) && one.st_ino == other.st_ino &&
           one.st_dev == other.st_dev;
}

/* Say why the lock at path could not be opened: of somebody else's run, whose that is, and how
 * one's own begins from it.  Returns -1. */
static int refuse_lock(const struct run_directory *d, const char *path, struct error *err)
{
    struct checkpoint_entry *entries;
    struct stat about;
    int is_denied = errno == EACCES, i = 0;
    error_errno(err, "cannot create %s", path);
    if (!is_denied || stat(path, &about) || about.st_uid == geteuid())
        return -1;
    const struct passwd *user = getpwuid(about.st_uid);
    char number[32];
    snprintf(number, sizeof number, "user %lld", (long long)about.st_uid);
    error_set(err, "run.dir %s is a run of %s, and you may not write there", d->path,
              user ? user->pw_name : number);
    int count = checkpoint_list(&entries, d->checkpoints, NULL);
    while (i < count && !entries[i].committed)
        i++;
    if (i < count)
        text_append(err->text, sizeof err->text,
                    "; a run of your own from its newest checkpoint: checkpoint.resume=%s "
                    "run.dir=NEW",
                    entries[i].path);
    else
        text_append(err->text, sizeof err->text, "; name another run.dir");
    checkpoint_list_free(entries, count > 0 ? count : 0);
    return -1;
}

/* Two starts in one run directory would overwrite each other's files.  The kernel releases the lock
 * when the process ends.  On a file system without locks there is none. */
int run_directory_lock(struct run_directory *d, struct error *err)
{
    char *path = array_format("%s/lock", d->path), *log = array_format("%s/log.txt", d->path);
    int rc = disk_make_folders(d->checkpoints, err);
    int fd = rc ? -1 : open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (!rc && fd < 0)
        rc = refuse_lock(d, path, err);
    if (!rc && ((flock(fd, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK) ||
                !run_directory_is_there(fd, path)))
        rc = error_set(err,
                       "run.dir %s is in use by another start of trireme; end that one, or "
                       "name another directory",
                       d->path);
    if (!rc)
        rc = log_file(d->s->log, log, err);
    if (rc && fd >= 0)
        close(fd);
    else if (fd >= 0)
        d->lock = fd;
    free(log);
    free(path);
    return rc;
}

/* Refuse a named pipe or a device that has the name of a file of the run: opening it may wait for
 * ever. */
static int check_kinds(const struct run_directory *d, struct error *err)
{
    static const char *const names[] = {
        "lock",      "log.txt",   "config.yaml",   RUN_RECORD,   "plan.json",
        RUN_METRICS, RUN_SAMPLES, "forecast.json", "trace.json", "products.json",
    };
    int rc = 0;
    for (size_t i = 0; !rc && i < sizeof names / sizeof names[0]; i++) {
        char *path = array_format("%s/%s", d->path, names[i]);
        const char *kind = special_file_kind(path);
        if (kind)
            rc = error_set(err,
                           "%s is %s, and a run keeps a file of this name; remove it, or name "
                           "another run.dir",
                           path, kind);
        free(path);
    }
    return rc;
}

/* Does a file begin with a line of metrics, or is it empty, or not there? */
static int has_metrics(const char *path)
{
    char begin[8] = "";
    FILE *file = fopen(path, "r");
    size_t bytes = file ? fread(begin, 1, sizeof begin - 1, file) : 0;
    if (file)
        fclose(file);
    return !bytes || !strcmp(begin, "{\"step\"");
}

/* In a directory that is no run yet, find a file that has a name of a run's files and that no run
 * has written.  Returns the name; NULL: there is none. */
static const char *find_foreign(const struct run_directory *d)
{
    char *config = array_format("%s/config.yaml", d->path);
    char *samples = array_format("%s/" RUN_SAMPLES, d->path);
    const char *foreign = NULL;
    if (disk_has(d->path, "config.yaml") && !config_is_written(config))
        foreign = "config.yaml";
    else if (!has_metrics(d->metrics))
        foreign = RUN_METRICS;
    else if (d->s->config.generate.samples && !has_metrics(samples))
        foreign = RUN_SAMPLES;
    free(samples);
    free(config);
    return foreign;
}

/* Refuse a directory in which the run would replace what is not its own: files that have names of a
 * run's files, or hf/, if this run's weights come from there. */
static int check_names(const struct run_directory *d, struct error *err)
{
    const struct config *c = &d->s->config;
    const char *foreign = disk_has(d->path, RUN_RECORD) ? NULL : find_foreign(d);
    if (foreign)
        return error_set(err,
                         "run.dir is %s, where a run keeps a file %s of its own, and that there is "
                         "not a run's; name another run.dir, such as run.dir=runs/first, or give "
                         "that file another name",
                         d->path, foreign);
    char *export = array_format("%s/hf", d->path);
    int rc = 0;
    if (c->checkpoint.export_hf && c->model_path[0] && disk_is_inside(c->model_path, export))
        rc = error_set(err,
                       "checkpoint.export_hf writes to %s, from which this run's weights come "
                       "(model.path); move that model elsewhere, or name another run.dir",
                       export);
    free(export);
    return rc;
}

/* Return, for free(), the real path of the checkpoint that the directory at path is or lies in, by
 * whatever links; NULL: there is none.  Of a directory that is to be made yet, the folders above it
 * count that are there. */
static char *find_checkpoint_above(const char *path)
{
    char *name = array_text(path), *real = realpath(name, NULL), *slash;
    while (!real && (slash = strrchr(name, '/'))) {
        *slash = 0;
        real = realpath(name, NULL);
    }
    free(name);
    if (!real && path[0] != '/')
        real = realpath(".", NULL);
    while (real && !(disk_has(real, "COMMIT") && disk_has(real, "meta.json"))) {
        slash = strrchr(real, '/');
        if (slash == real) {
            free(real);
            real = NULL;
        } else
            *slash = 0;
    }
    return real;
}

/* Does a folder hold committed checkpoints? */
static int has_checkpoints(const char *path)
{
    struct checkpoint_entry *entries;
    int count = checkpoint_list(&entries, path, NULL), found = 0;
    for (int i = 0; i < count; i++)
        found |= entries[i].committed;
    checkpoint_list_free(entries, count > 0 ? count : 0);
    return found;
}

/* Refuse a directory in a checkpoint, with which the run would be deleted, and a folder of
 * checkpoints that is no run. */
static int check_place(const struct run_directory *d, struct error *err)
{
    char *checkpoint = find_checkpoint_above(d->path);
    int rc = 0;
    if (checkpoint && disk_has(d->path, RUN_RECORD))
        rc = error_set(err,
                       "run.dir is %s, and %s is a checkpoint, which is deleted, with all that is "
                       "in it, once its run has saved newer ones; move the run out of there",
                       d->path, checkpoint);
    else if (checkpoint)
        rc = error_set(err,
                       "run.dir is %s, and %s is a checkpoint, which is deleted, with all that is "
                       "in it, once its run has saved newer ones; that run goes on by its own "
                       "run.dir, and a new run from the checkpoint begins by checkpoint.resume=%s "
                       "run.dir=NEW",
                       d->path, checkpoint, checkpoint);
    else if (!disk_has(d->path, RUN_RECORD) && has_checkpoints(d->path))
        rc = error_set(err,
                       "run.dir is %s, which holds checkpoints and is no run; their run goes on by "
                       "the folder above, run.dir=%s/.., and a new run needs a folder of its own",
                       d->path, d->path);
    free(checkpoint);
    return rc;
}

/* Read the record of the run. */
static int read_record(struct run_directory *d, struct error *err)
{
    int tries = 0, rc;
    do {
        rc = run_record_read(&d->record, d->path, RUN_RECORD, err);
    } while (rc && disk_try_again(&tries, d->s->log, err));
    return rc;
}

int run_directory_open(struct run_directory *d, struct session *s, struct run_data data,
                       struct error *err)
{
    *d =
        (struct run_directory){.s = s, .lock = -1, .data = data, .saved_step = -1, .best_step = -1};
    d->path = s->config.run.dir;
    snprintf(d->checkpoints, sizeof d->checkpoints, "%s/checkpoints", d->path);
    snprintf(d->metrics, sizeof d->metrics, "%s/" RUN_METRICS, d->path);
    int rc = 0;
    if (!world_rank(s->world))
        rc = check_place(d, err) || check_kinds(d, err) || check_names(d, err) ||
             run_directory_lock(d, err) || run_record_writer(d->writer, err) || read_record(d, err);
    return world_agree(s->world, rc ? -1 : 0, err) ||
                   shared_settings_check_folder(s->world, d->checkpoints, err)
               ? -1
               : 0;
}

void run_directory_close(struct run_directory *d)
{
    checkpoint_checked_free(&d->checked);
    if (d->s && d->lock >= 0)
        close(d->lock);
    *d = (struct run_directory){.lock = -1};
}

int run_directory_last_step(const struct run_directory *d, int64_t *step, struct error *err)
{
    return metrics_last_step(d->metrics, step, err);
}

/* ---- the run and branch of each checkpoint ---- */

static void add(struct run_list *list, struct checkpoint_entry *entry)
{
    list->entry = array_grow(list->entry, list->count, &list->capacity, sizeof *list->entry);
    list->entry[list->count++] = *entry;
    *entry = (struct checkpoint_entry){0};
}

/* Add a checkpoint to the survey's list that it belongs to.  One whose meta.json cannot be read
 * counts as the run's own; verifying it will refuse it.  Returns 0; or -1 with err set where the
 * system could not read that of the newest, from which the run would go on. */
static int classify(struct run_survey *survey, const struct run_record *record,
                    struct checkpoint_entry *entry, struct error *err)
{
    struct error why = {0};
    struct js *meta = entry->committed ? checkpoint_read_meta(entry->path, &why) : NULL;
    if (why.by_system && !survey->own.count) {
        *err = why;
        return -1;
    }
    struct run_point point = run_point_of(meta, entry->step);
    int known = meta && record->run[0];
    entry->stays = js_get_bool(meta, "stable_end", 0);
    js_free(meta);
    if (!entry->committed)
        add(&survey->torn, entry);
    else if (known && point.run[0] && strcmp(point.run, record->run))
        snprintf(survey->foreign, sizeof survey->foreign, "%s", entry->path);
    else if (known && !run_record_owns(record, &point))
        add(&survey->other, entry);
    else
        add(&survey->own, entry);
    return 0;
}

int run_survey_make(struct run_survey *survey, const struct run_directory *d, struct error *err)
{
    struct checkpoint_entry *entries;
    *survey = (struct run_survey){0};
    int count = checkpoint_list(&entries, d->checkpoints, err), rc = count < 0 ? -1 : 0;
    for (int i = 0; i < count && !rc; i++)
        rc = classify(survey, &d->record, &entries[i], err);
    checkpoint_list_free(entries, count);
    if (rc)
        run_survey_free(survey);
    return rc;
}

void run_survey_free(struct run_survey *survey)
{
    checkpoint_list_free(survey->own.entry, survey->own.count);
    checkpoint_list_free(survey->other.entry, survey->other.count);
    checkpoint_list_free(survey->torn.entry, survey->torn.count);
    *survey = (struct run_survey){0};
}

int run_directory_claim(struct run_directory *d, struct error *err)
{
    if (world_rank(d->s->world))
        return 0;
    memcpy(d->record.writer, d->writer, sizeof d->writer);
    return run_record_write(&d->record, d->path, RUN_RECORD, WHOLE_FILE_REPORT, err);
}

/* ---- exports, links, pruning ---- */

/* A failure is a warning: the next start then only knows less of what is there. */
void run_directory_update_record(struct run_directory *d, int64_t saved, int64_t exported)
{
    struct error why = {0};
    if (world_rank(d->s->world))
        return;
    d->record.saved = saved;
    d->record.exported = exported;
    if (run_record_write(&d->record, d->path, RUN_RECORD, WHOLE_FILE_DURABLE, &why))
        log_warn(d->s->log, "%s", why.text);
}

int run_directory_owns_export(const struct run_directory *d)
{
    return d->record.exported >= 0;
}

int run_directory_has_export(const struct run_directory *d, int64_t step)
{
    int has = d->record.exported == step && disk_has(d->path, "hf");
    world_broadcast(d->s->world, &has, sizeof has, 0);
    return has;
}

void run_directory_exported(struct run_directory *d, int64_t step)
{
    run_directory_update_record(d, d->record.saved, step);
}

/* Make the link at path lead to `to`, in one rename; NULL: remove it. */
static int replace_link(const char *path, const char *to)
{
    char *beside = array_format("%s.partial", path);
    unlink(beside);
    int rc = to ? symlink(to, beside) || rename(beside, path) : unlink(path) && errno != ENOENT;
    int why = errno;
    if (rc)
        unlink(beside);
    free(beside);
    errno = why;
    return rc ? -1 : 0;
}

/* The step of the committed checkpoint that a link leads to; 0: it leads to none. */
static int64_t linked_step(const char *checkpoints, const char *link)
{
    char name[64] = "";
    long long step = 0;
    ssize_t bytes = readlink(link, name, sizeof name - 1);
    if (bytes <= 0 || sscanf(name, "step-%lld", &step) != 1)
        return 0;
    char *folder = array_format("%s/step-%08lld", checkpoints, step);
    int is_absent = !disk_look(folder, "COMMIT", NULL); /* one that cannot be looked at stays */
    free(folder);
    return is_absent ? 0 : step;
}

/* A file or folder named "best" that is no link is somebody's own, and stays.  The link stays as it
 * is while the best evaluation has no checkpoint: its save failed, or no evaluation has had a loss.
 */
void run_directory_keep_best(struct run_directory *d, const struct run_best *best)
{
    char name[32];
    struct stat about;
    if (!d->s->config.checkpoint.keep_best || world_rank(d->s->world))
        return;
    snprintf(name, sizeof name, "step-%08lld", (long long)best->step);
    char *link = array_format("%s/best", d->checkpoints);
    char *folder = array_format("%s/%s", d->checkpoints, name);
    int64_t step = best->step && disk_has(folder, "COMMIT") ? best->step : 0;
    d->kept_step = step ? step : linked_step(d->checkpoints, link);
    if (!lstat(link, &about) && !S_ISLNK(about.st_mode)) {
        if (step)
            log_warn(d->s->log, "%s is no link, and does not lead to the best checkpoint, %s", link,
                     name);
    } else if ((step || !d->kept_step) && replace_link(link, step ? name : NULL))
        log_warn(d->s->log, "%s cannot be made a link to %s: %s", link, name, strerror(errno));
    free(folder);
    free(link);
}

/* Old checkpoints that cannot be deleted only take disk space: the new one is committed. */
void run_directory_prune(struct run_directory *d)
{
    struct error why = {0};
    struct run_survey survey = {0};
    struct world *world = d->s->world;
    int rank = world_rank(world), rc;
    if (!d->prune_due || d->saving.writing)
        return;
    d->prune_due = 0;
    char *written = array_format("%s/step-%08lld", d->checkpoints, (long long)d->saved_step);
    char *best = array_format("%s/step-%08lld", d->checkpoints, (long long)d->best_step);
    char *kept = array_format("%s/step-%08lld", d->checkpoints, (long long)d->kept_step);
    /* With wsd, what the branch began from: other branches may begin there too. */
    int is_wsd = lr_schedule_stable_end(&d->s->config.train) >= 0;
    char *base =
        array_format("%s/step-%08lld", d->checkpoints, is_wsd ? (long long)d->record.base : -1);
    const char *spared[] = {written, best, kept, base, NULL};
    rc = world_agree(world, rank ? 0 : run_survey_make(&survey, d, &why), &why);
    if (!rc) {
        checkpoint_checked_set(&d->checked, written, CHECKPOINT_WHOLE);
        rc = checkpoint_prune(world, survey.own.entry, survey.own.count,
                              (int)d->s->config.checkpoint.keep, spared, &d->checked, d->s->log,
                              &why);
    }
    if (!rank && !rc)
        rc = checkpoint_clean(d->checkpoints, &why);
    if (!rank && rc)
        log_warn(d->s->log, "old checkpoints could not be deleted: %s", why.text);
    run_survey_free(&survey);
    free(base);
    free(kept);
    free(best);
    free(written);
}
