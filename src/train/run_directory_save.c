/* run_directory_save.c - checkpoints of a run, written at once or in the background; see
 * run_directory.h.
 *
 * In the background (checkpoint.async) a checkpoint is begun after one step and ended after a later
 * one, when the threads of all ranks have written their files:
 *
 *     step 100 | copy | step 101 | step 102 | step 103 | commit | step 104
 *                       threads write .........^
 *
 * Until it is ended the checkpoint before it is the newest: a start after a kill resumes that one.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/array.h"
#include "base/clock.h"
#include "train/run_directory_private.h"

/* Has somebody moved or deleted the directory since rank 0 locked it?  What has its name now is not
 * this run's, and no lock protects it. */
static int is_lost(const struct run_directory *d)
{
    char *path = array_format("%s/lock", d->path);
    errno = 0;
    int lost = !run_directory_is_there(d->lock, path) &&
               (!errno || errno == ENOENT || errno == ENOTDIR || errno == ESTALE);
    free(path);
    return lost;
}

void run_directory_report_moved(struct run_directory *d)
{
    int lost = d->lock >= 0 && is_lost(d);
    if (lost && !d->warned_lost)
        log_warn(d->s->log,
                 "run.dir %s is no longer the folder that this run began in: it, or its file lock, "
                 "was moved or deleted; put it back before a checkpoint is due, nothing can be "
                 "saved until then",
                 d->path);
    else if (d->warned_lost && !lost)
        log_info(d->s->log, "run.dir %s is back", d->path);
    d->warned_lost = lost;
}

/* Has another start written the record since this one began?  Where locks do not reach other nodes
 * (Lustre with localflock), both train; the one that began first finds out here.  *by: who it is. A
 * record that cannot be read says nothing. */
static int is_taken(const struct run_directory *d, char by[RUN_WRITER])
{
    struct run_record now;
    if (run_record_read(&now, d->path, RUN_RECORD, NULL))
        return 0;
    memcpy(by, now.writer, RUN_WRITER);
    return now.writer[0] && strcmp(now.writer, d->record.writer) != 0;
}

/* Refuse to save in a directory that another start writes to. */
static int check_writer(struct run_directory *d, struct error *err)
{
    char by[RUN_WRITER] = "";
    if (!world_rank(d->s->world))
        d->lost = is_taken(d, by);
    world_broadcast(d->s->world, &d->lost, sizeof d->lost, 0);
    if (!d->lost)
        return 0;
    error_set(err,
              "run.dir %s is written by another start too (%s), and no lock of the file system "
              "prevented that: this start ends, and its steps since its last checkpoint are not "
              "saved; end one of the two, and mount the file system with locks for all nodes",
              d->path, by);
    if (err)
        err->code = EXIT_NODE;
    return -1;
}

/* Refuse to save in a directory that is lost, or another start's. */
static int check_place(struct run_directory *d, struct error *err)
{
    if (!world_rank(d->s->world) && d->lock >= 0)
        d->lost = is_lost(d);
    world_broadcast(d->s->world, &d->lost, sizeof d->lost, 0);
    if (!d->lost)
        return check_writer(d, err);
    error_set(
        err,
        "run.dir %s is no longer the folder that this run began in: it, or its file lock, was "
        "moved or deleted, and nothing can be saved there; put it back, and the same command %s",
        d->path,
        d->saved_step >= 0 ? "goes on from its newest checkpoint"
                           : "starts from step 1: there is no checkpoint yet");
    if (err)
        err->code = EXIT_NODE;
    return -1;
}

/* Note that the checkpoint of a position is committed. */
static void note_saved(struct run_directory *d, const struct run_position *position)
{
    d->saved_step = position->step;
    d->saved_due = position->evaluation_due;
    d->prune_due = 1;
    run_directory_update_record(d, position->step, d->record.exported);
    if (position->best.step == position->step)
        run_directory_keep_best(d, &position->best);
}

static double seconds_since(int64_t begin_ns)
{
    return (double)(clock_ns() - begin_ns) / 1e9;
}

int run_directory_save(struct run_directory *d, struct run_position position, struct error *err)
{
    struct run_origin origin = {d->record.run, d->record.branch, d->data};
    int64_t begin_ns = clock_ns();
    if (d->saved_step == position.step && d->saved_due == position.evaluation_due)
        return 0;
    if (check_place(d, err))
        return -1;
    int rc = run_checkpoint_write(d->s, d->checkpoints, position, &origin, err);
    if (check_place(d, err) || rc) /* it may have been moved meanwhile */
        return -1;
    note_saved(d, &position);
    log_info(d->s->log, "saved %s/step-%08lld in %.2f s", d->checkpoints, (long long)position.step,
             seconds_since(begin_ns));
    return 0;
}

/* ---- in the background ---- */

int run_directory_saving_open(struct run_directory *d, struct error *err)
{
    struct run_saving *saving = &d->saving;
    saving->copy_bytes = d->s->need.copy_bytes;
    if (d->s->layout.copy == COPY_NONE)
        return 0;
    saving->copy = mem_alloc(d->s->mem, POOL_HOST, saving->copy_bytes, err);
    if (!saving->copy)
        error_set(err,
                  "out of memory: %zu bytes for the copy of its state that a rank writes "
                  "checkpoints from; checkpoint.async=false needs none",
                  saving->copy_bytes);
    if (world_agree(d->s->world, saving->copy ? 0 : -1, err))
        return -1;
    saving->touch = touch_begin(saving->copy, saving->copy_bytes);
    return 0;
}

void run_directory_saving_close(struct run_directory *d)
{
    struct run_saving *saving = &d->saving;
    struct error why = {0};
    if (!d->s)
        return;
    if (run_directory_save_end(d, SAVE_WAIT, &why) && !world_rank(d->s->world))
        log_warn(d->s->log, "checkpoint of step %lld failed: %s", (long long)saving->position.step,
                 why.text);
    touch_end(saving->touch);
    mem_free(d->s->mem, POOL_HOST, saving->copy_bytes, saving->copy);
    saving->copy = NULL;
}

int run_directory_save_begin(struct run_directory *d, struct run_position position,
                             struct error *err)
{
    struct run_saving *saving = &d->saving;
    struct run_origin origin = {d->record.run, d->record.branch, d->data};
    if (d->s->layout.copy == COPY_NONE)
        return run_directory_save(d, position, err);
    if (d->saved_step == position.step && d->saved_due == position.evaluation_due)
        return 0;
    if (check_place(d, err))
        return -1;
    saving->position = position;
    saving->loss = NAN;
    saving->begin_ns = clock_ns();
    touch_end(saving->touch);
    saving->touch = NULL;
    if (run_checkpoint_begin(&saving->writing, d->s, d->checkpoints, position, &origin,
                             saving->copy, err))
        return -1;
    saving->waited_s = seconds_since(saving->begin_ns);
    if (saving->writing)
        return 0;
    note_saved(d, &position);
    log_info(d->s->log,
             "saved %s/step-%08lld in %.2f s, with the frozen tensors, so not in the "
             "background",
             d->checkpoints, (long long)position.step, saving->waited_s);
    return 0;
}

int run_directory_save_end(struct run_directory *d, enum run_save_wait wait, struct error *err)
{
    struct run_saving *saving = &d->saving;
    int64_t begin_ns = clock_ns();
    if (!saving->writing || (wait == SAVE_NO_WAIT && !checkpoint_is_written(saving->writing)))
        return 0;
    int rc = checkpoint_end(saving->writing, err);
    saving->writing = NULL;
    if (check_place(d, err) || rc)
        return -1;
    note_saved(d, &saving->position);
    run_directory_note_loss(d, d->saved_step + 1, saving->loss);
    saving->waited_s += seconds_since(begin_ns);
    log_info(d->s->log, "saved %s/step-%08lld in %.2f s, of which steps waited %.2f s",
             d->checkpoints, (long long)d->saved_step, seconds_since(saving->begin_ns),
             saving->waited_s);
    return 0;
}

/* ---- the checkpoint that is spared ---- */

/* Note the training loss of the checkpoint of a step, which is newer than those noted before.  A
 * loss within a tenth of the lowest counts as the lowest, as losses differ by so much from batch to
 * batch; the lowest itself stays what it was, or a loss that rises slowly would raise it. */
static void note_checkpoint(struct run_directory *d, int64_t step, double loss)
{
    int is_first = d->best_step < 0;
    if (isnan(loss) || (!is_first && !(loss < 1.1 * d->best_loss)))
        return;
    d->best_step = step;
    d->best_loss = is_first ? loss : fmin(loss, d->best_loss);
}

void run_directory_note_loss(struct run_directory *d, int64_t step, double loss)
{
    struct run_saving *saving = &d->saving;
    if (saving->writing && step == saving->position.step + 1)
        saving->loss = loss;
    if (d->saved_step >= 0 && step == d->saved_step + 1)
        note_checkpoint(d, d->saved_step, loss);
}

void run_directory_recall_losses(struct run_directory *d, const struct run_list *list, int64_t last)
{
    for (int i = list->count - 1; i >= 0; i--) {
        const struct checkpoint_entry *entry = &list->entry[i];
        struct js *meta = entry->step <= last ? checkpoint_read_meta(entry->path, NULL) : NULL;
        note_checkpoint(d, entry->step, js_get_real(meta, "loss", NAN));
        js_free(meta);
    }
}
