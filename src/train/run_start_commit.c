/* run_start_commit.c - step 5 of run_start.c: a start sets aside what has to be, and writes the
 * record. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/disk.h"
#include "train/run_directory_private.h"

/* Make a run of a directory that has no record: of an older version, or one that checkpoints were
 * copied into.  Its first branch is the checkpoint's, or a later one than those in branches/. */
static int adopt(struct run_directory *d, const struct checkpoint *checkpoint, struct error *err)
{
    struct run_point point = run_point_of(checkpoint->meta, checkpoint->step);
    if (d->record.run[0])
        return 0;
    if (d->record.empty)
        return error_set(err,
                         "%s/run.json is empty, although checkpoints are there; put it back, or "
                         "remove it: the newest checkpoint is taken for the run's then",
                         d->path);
    if (run_record_new(&d->record, d->writer, err))
        return -1;
    if (point.run[0])
        memcpy(d->record.run, point.run, sizeof point.run);
    d->record.branch = point.branch;
    if (run_aside_last(d) >= point.branch)
        d->record.branch = run_aside_last(d) + 1;
    d->record.base = point.step;
    log_info(d->s->log, "%s has no run.json: its checkpoints are taken for a run of its own",
             d->path);
    return 0;
}

/* Keep the path of a checkpoint in the record: relative where it is inside the directory, so that
 * it stays valid when the directory is moved or copied. */
static void keep_path(struct run_record *record, const char *path, const char *dir)
{
    char *real = realpath(path, NULL), *base = realpath(dir, NULL);
    const char *from = real ? real : path;
    if (real && base && disk_is_inside(path, dir) && strlen(real) > strlen(base))
        from = real + strlen(base) + 1;
    snprintf(record->start_path, sizeof record->start_path, "%s", from);
    free(base);
    free(real);
}

/* Note in the record that the branch begins from this checkpoint. */
static void set_start(struct run_directory *d, const struct checkpoint *checkpoint)
{
    struct run_record *record = &d->record;
    const char *path = checkpoint->path;
    int here = disk_is_inside(path, d->checkpoints);
    record->has_start = 1;
    record->start = run_point_of(checkpoint->meta, checkpoint->step);
    if (!record->start.run[0] && disk_is_inside(path, d->path))
        memcpy(record->start.run, record->run, sizeof record->run);
    record->base = here ? record->start.step : -1;
    snprintf(record->asked, sizeof record->asked, "%s", d->s->config.checkpoint.resume);
    keep_path(record, path, d->path);
}

static int begin_branch(struct run_directory *d, const struct checkpoint *checkpoint,
                        struct error *err)
{
    if (adopt(d, checkpoint, err) || run_aside_copies(d, err))
        return -1;
    int64_t last = run_aside_last(d);
    d->record.branch = (last > d->record.branch ? last : d->record.branch) + 1;
    d->record.saved = d->record.exported = -1;
    d->record.moving = 1;
    run_record_set_job(&d->record);
    set_start(d, checkpoint);
    if (run_record_write(&d->record, d->path, RUN_RECORD, WHOLE_FILE_DURABLE, err))
        return -1;
    log_info(d->s->log, "branch %lld of the run in %s begins at step %lld",
             (long long)d->record.branch, d->path, (long long)d->record.start.step);
    return run_aside_finish(d, err);
}

static int begin_run(struct run_directory *d, const struct run_start *start,
                     const struct checkpoint *checkpoint, struct error *err)
{
    if (start->aside && run_aside_all(d, err))
        return -1;
    int64_t step;
    if (run_directory_last_step(d, &step, err) || (step && run_aside_metrics(d, step, err)) ||
        run_record_new(&d->record, d->writer, err))
        return -1;
    if (checkpoint)
        set_start(d, checkpoint);
    log_info(d->s->log, "a new run begins in %s", d->path);
    /* Not synced here: before the first checkpoint a lost run.json costs nothing, and
     * the first save syncs it. */
    return run_record_write(&d->record, d->path, RUN_RECORD, WHOLE_FILE_REPORT, err);
}

int run_start_commit(struct run_directory *d, const struct run_start *start,
                     const struct checkpoint *checkpoint, struct error *err)
{
    if (start->begins)
        return begin_run(d, start, checkpoint, err);
    if (start->branch)
        return begin_branch(d, checkpoint, err);
    if (start->from == FROM_OWN && strcmp(d->s->config.checkpoint.resume, "auto") &&
        d->record.has_start)
        log_info(
            d->s->log,
            "checkpoint.resume=%s is where branch %lld in %s began; it goes on (to begin there "
            "once more: the path of that checkpoint, and run.dir=OTHER)",
            d->s->config.checkpoint.resume, (long long)d->record.branch, d->path);
    if (adopt(d, checkpoint, err))
        return -1;
    if (d->record.saved < 0 && start->from == FROM_OWN && checkpoint->step > d->record.base)
        d->record.saved = checkpoint->step;
    return run_record_write(&d->record, d->path, RUN_RECORD, WHOLE_FILE_DURABLE, err) ||
                   run_aside_branch(d, TORN_STAYS, err)
               ? -1
               : 0;
}
