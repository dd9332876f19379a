/* run_start.c - where a start goes on from, and what it may not touch.
 *
 *  0. rank 0 finishes the beginning of a branch in which an earlier start ended, and deletes what a
 *     save that was killed has left
 *  1. rank 0 decides by what the directory holds (survey), its record, and checkpoint.resume
 *  2. where that is a checkpoint not known yet, all open it, and rank 0 judges whose it is
 *  3. all load, and count the steps of train.epochs; where the newest checkpoints are damaged, a
 * new branch begins at the one before
 *  4. the disk has to hold a checkpoint
 *  5. rank 0 commits (run_start_commit.c): sets aside what has to be, and writes the record
 *
 * What may be refused is refused before 5, where the directory is as it was after 0.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/text.h"
#include "io/disk.h"
#include "train/checkpoint_space.h"
#include "train/run_directory_private.h"
#include "train/run_length.h"
#include "train/tokenizer_check.h"

/* ---- 1: decide by what the directory says ---- */

/* An older version left no record of what it saved: the step that metrics.jsonl comes to, if that
 * is not before the first checkpoint of the settings in config.yaml, else 0.  Epochs are taken for
 * those of today's data. */
static int find_step_beyond_saves(const struct run_directory *d, int64_t *lost, struct error *err)
{
    struct config was;
    int64_t step;
    if (run_directory_last_step(d, &step, err))
        return -1;
    char *path = array_format("%s/config.yaml", d->path);
    if (config_load(&was, path, NULL, 0, NULL))
        was = d->s->config;
    free(path);
    int64_t batch = was.train.split_batches ? was.train.global_batch : d->s->layout.global_batch;
    struct run_position start = {0};
    if (run_length_set(&was.train, &start, d->data.sequences, batch, err))
        return -1;
    int64_t every = was.checkpoint.every;
    *lost = step >= was.train.steps || (every && step >= every) ? step : 0;
    return 0;
}

/* Find out what the directory holds; once. */
static int look_once(const struct run_directory *d, struct run_survey *survey, struct error *err)
{
    if (run_survey_make(survey, d, err))
        return -1;
    if (!d->record.run[0] && !survey->own.count && !survey->torn.count)
        return find_step_beyond_saves(d, &survey->lost_step, err);
    return 0;
}

static int look(const struct run_directory *d, struct run_survey *survey, struct error *err)
{
    int tries = 0, rc;
    do {
        run_survey_free(survey);
        rc = look_once(d, survey, err);
    } while (rc && disk_try_again(&tries, d->s->log, err));
    return rc;
}

/* Has a run of this directory saved something? */
static int is_used(const struct run_directory *d, const struct run_survey *survey)
{
    return survey->own.count || survey->torn.count || d->record.saved >= 0 || survey->lost_step;
}

/* Set *left to whether run.fresh has something to move aside. */
static int find_left(const struct run_directory *d, const struct run_survey *survey, int *left,
                     struct error *err)
{
    int64_t step;
    if (run_directory_last_step(d, &step, err))
        return -1;
    *left = is_used(d, survey) || survey->foreign[0] || step;
    return 0;
}

static int refuse_used(const struct run_directory *d, const struct run_survey *survey,
                       const char *what, struct error *err)
{
    int64_t step = survey->own.count   ? survey->own.entry[0].step
                   : survey->lost_step ? survey->lost_step
                                       : d->record.saved;
    return error_set(err,
                     "run.dir %s holds a run, at step %lld, and %s; to go on with that run leave "
                     "checkpoint.resume out, to start another name another run.dir, or set that "
                     "one aside with run.fresh=true",
                     d->path, (long long)(step < 0 ? survey->torn.entry[0].step : step), what);
}

static int refuse_gone(const struct run_directory *d, const struct run_survey *survey,
                       struct error *err)
{
    if (survey->torn.count)
        return error_set(err,
                         "%s is not committed, and %s holds no checkpoint that is; put one back, "
                         "or start over with run.fresh=true, which moves what is there aside",
                         survey->torn.entry[0].path, d->path);
    if (survey->lost_step)
        return error_set(err,
                         "%s/metrics.jsonl says that step %lld was reached, but no checkpoint is "
                         "there; put %s back, or start over with run.fresh=true, which moves what "
                         "is there aside",
                         d->path, (long long)survey->lost_step, d->checkpoints);
    return error_set(err,
                     "%s/run.json says that step %lld was saved, but %s has no checkpoint of the "
                     "run's branch %lld; put it back, or start over with run.fresh=true, which "
                     "moves what is there aside",
                     d->path, (long long)d->record.saved, d->checkpoints,
                     (long long)d->record.branch);
}

/* Resume from the branch's newest checkpoint or, where it has none yet, from the one it began with.
 */
static int go_on(const struct run_directory *d, const struct run_survey *survey,
                 struct run_start *start, struct error *err)
{
    const struct run_record *record = &d->record;
    start->from = FROM_OWN;
    if (survey->own.count)
        return 0;
    if (is_used(d, survey))
        return refuse_gone(d, survey, err);
    start->from = record->has_start ? FROM_START : FROM_NOTHING;
    snprintf(start->path, sizeof start->path, "%s%s%s", record->start_path[0] == '/' ? "" : d->path,
             record->start_path[0] == '/' ? "" : "/", record->start_path);
    start->begins = !record->has_start;
    return 0;
}

/* Find the checkpoint of the step that checkpoint.resume names. */
static int find_step(const struct run_directory *d, const struct run_survey *survey,
                     struct run_start *start, struct error *err)
{
    int64_t step = atoll(d->s->config.checkpoint.resume);
    char steps[256] = "";
    for (int i = survey->own.count - 1; i >= 0; i--) {
        if (survey->own.entry[i].step == step) {
            snprintf(start->path, sizeof start->path, "%s", survey->own.entry[i].path);
            return 0;
        }
        text_join(steps, sizeof steps, ", ", "%lld", (long long)survey->own.entry[i].step);
    }
    return error_set(err,
                     "%s has no checkpoint of step %lld; there %s%s (older branches are in "
                     "branches/, and taken by their path)",
                     d->checkpoints, (long long)step, steps[0] ? "are " : "is none", steps);
}

/* Does run.fresh begin a new run?  In a requeued job it does not: that goes on with the run that it
 * began. */
static int begins_fresh(const struct run_directory *d)
{
    return d->s->config.run.fresh && !run_record_requeued(&d->record);
}

/* Decide where checkpoint.resume is a path or a step. */
static int decide_asked(const struct run_directory *d, const struct run_survey *survey,
                        struct run_start *start, struct error *err)
{
    const char *resume = d->s->config.checkpoint.resume;
    int fresh = begins_fresh(d);
    if (!fresh && d->record.has_start && !strcmp(d->record.asked, resume))
        return go_on(d, survey, start, err);
    start->from = FROM_ASKED;
    if (text_is_digits(resume))
        return find_step(d, survey, start, err);
    if (strlen(resume) >= sizeof start->path)
        return error_set(err, "checkpoint.resume: the path is too long");
    snprintf(start->path, sizeof start->path, "%s", resume);
    start->aside = fresh && !disk_is_inside(resume, d->path);
    return 0;
}

/* Decide to begin a new run, in an unused directory or by run.fresh; refuse a used one. */
static int begin_new(const struct run_directory *d, const struct run_survey *survey,
                     struct run_start *start, struct error *err)
{
    int fresh = begins_fresh(d);
    if (!fresh && is_used(d, survey))
        return refuse_used(d, survey, "checkpoint.resume=none asks for a new one", err);
    start->begins = 1;
    return fresh ? find_left(d, survey, &start->aside, err) : 0;
}

/* Decide what the start does.  Of a checkpoint that checkpoint.resume names, judge() decides the
 * rest. */
static int decide(const struct run_directory *d, const struct run_survey *survey,
                  struct run_start *start, struct error *err)
{
    const struct config *c = &d->s->config;
    const char *resume = c->checkpoint.resume;
    int none = !strcmp(resume, "none"), is_auto = !strcmp(resume, "auto"), fresh = begins_fresh(d);
    int again = run_record_requeued(&d->record) && (c->run.fresh || none);
    if (survey->foreign[0] && !fresh)
        return error_set(err,
                         "%s is of another run than %s; move it out of there, or begin a run from "
                         "it: checkpoint.resume=PATH run.dir=OTHER",
                         survey->foreign, d->path);
    if (again)
        log_info(d->s->log, "job %s was requeued: the run it began in %s goes on", d->record.job,
                 d->path);
    else if (none || (fresh && is_auto))
        return begin_new(d, survey, start, err);
    /* none: only a requeued job comes here */
    return none || is_auto ? go_on(d, survey, start, err) : decide_asked(d, survey, start, err);
}

/* ---- 2: judge whose checkpoint was asked for ---- */

static int same_point(const struct run_point *a, const struct run_point *b)
{
    return a->run[0] && !strcmp(a->run, b->run) && a->branch == b->branch && a->step == b->step;
}

/* Is the checkpoint of the directory's run?  One that names no run is, where it lies there.  The
 * answer counts on rank 0. */
static int is_of_run(const struct run_directory *d, const struct checkpoint *checkpoint)
{
    struct run_point point = run_point_of(checkpoint->meta, checkpoint->step);
    return point.run[0] ? !strcmp(point.run, d->record.run)
                        : disk_is_inside(checkpoint->path, d->path);
}

/* Decide what the start does with the opened checkpoint that was asked for: with another run's it
 * begins a run; with one of this run it goes on with the branch that began from it, or begins a new
 * branch. */
static int judge(const struct run_directory *d, const struct run_survey *survey,
                 struct run_start *start, const struct checkpoint *checkpoint, struct error *err)
{
    const char *path = checkpoint->path;
    struct run_point point = run_point_of(checkpoint->meta, checkpoint->step);
    int same = is_of_run(d, checkpoint);
    int fresh = begins_fresh(d);
    if (start->aside) {
        start->begins = 1;
        return find_left(d, survey, &start->aside, err);
    } else if (!fresh && d->record.has_start && same_point(&d->record.start, &point)) {
        return go_on(d, survey, start, err);
    } else if (!is_used(d, survey)) {
        start->begins = 1;
    } else if (same || (!d->record.run[0] && disk_is_inside(path, d->path))) {
        start->branch = 1;
    } else {
        char what[RUN_PATH + 80];
        snprintf(what, sizeof what, "checkpoint.resume=%.500s is of another",
                 d->s->config.checkpoint.resume);
        return refuse_used(d, survey, what, err);
    }
    return 0;
}

/* ---- 4: what the disk has to hold ---- */

/* How many checkpoints stay in the run's folder after step 5: a new run keeps none, and a new
 * branch none of later steps. */
static int64_t count_staying(const struct run_directory *d, const struct run_survey *survey,
                             const struct run_start *start, const struct checkpoint *checkpoint)
{
    int64_t count = 0, last = INT64_MAX;
    if (start->begins)
        return 0;
    if (start->branch)
        last = disk_is_inside(checkpoint->path, d->checkpoints) ? checkpoint->step : -1;
    for (int i = 0; i < survey->own.count; i++)
        count += survey->own.entry[i].step <= last;
    return count;
}

/* ---- the steps in their order, on all ranks ---- */

/* Warn where reading of other data begins.  A sample's number is its place in the order of the
 * data, and all samples count, whatever data they were of; so other data are read from the middle
 * of their order on. */
static void report_place(const struct run_directory *d, int64_t samples)
{
    double epochs = d->s->config.train.epochs;
    char length[64] = "";
    if (!samples)
        return;
    if (epochs > 0)
        snprintf(length, sizeof length, "train.epochs is %g, in which ", epochs);
    log_warn(d->s->log,
             "%sthe %lld sequences that were read count as %.3g epochs of what data.train is now, "
             "%lld sequences: reading goes on from that place in their order, and what is before "
             "it is not read in this epoch",
             length, (long long)samples, (double)samples / (double)d->data.sequences,
             (long long)d->data.sequences);
}

/* Log the settings that changed since the checkpoint was saved, on rank 0. */
static void report_changes(const struct run_directory *d, const struct checkpoint *checkpoint,
                           const struct run_position *position)
{
    struct config saved;
    struct error why = {0};
    char text[900];
    if (run_checkpoint_config(checkpoint, &saved, NULL, 0, &why)) {
        log_warn(d->s->log, "settings are not compared with those of the checkpoint: %s", why.text);
        return;
    }
    int changes = run_changes_text(&saved, &d->s->config, d->s->layout.global_batch,
                                   checkpoint->meta, &d->data, text, sizeof text);
    if (text[0])
        log_print(d->s->log, changes ? LOG_WARN : LOG_INFO, "settings changed since step %lld: %s",
                  (long long)checkpoint->step, text);
    if (run_changes_sequences(&saved, &d->s->config, checkpoint->meta, &d->data))
        report_place(d, position->samples);
    if (run_changes_decay(&saved, &d->s->config, checkpoint->meta, &d->data, position, text,
                          sizeof text))
        log_warn(d->s->log, "%s", text);
    if (run_changes_source(&saved, &d->s->config, text, sizeof text))
        log_warn(d->s->log,
                 "%s: not read, as the run goes on with the weights of its checkpoint; another "
                 "run.dir begins from there",
                 text);
}

/* Warn where metrics.jsonl ends before the checkpoint's step: a run writes a line for every step
 * before it saves.  A file that cannot be read is refused later, when it is opened to be continued.
 */
static void report_missing(const struct run_directory *d, int64_t step)
{
    int64_t last;
    if (!run_directory_last_step(d, &last, NULL) && last < step)
        log_warn(
            d->s->log,
            "%s comes to step %lld, and the checkpoint is of step %lld: the lines of the steps "
            "between are missing",
            d->metrics, (long long)last, (long long)step);
}

/* Does a new branch begin, as newer checkpoints than the one of this step cannot be used?  If they
 * stayed beside those to come, a later start that can read one would go on from it, and what is
 * trained from here would be lost.  (Rank 0 alone has the survey.) */
static int leaves_newer(const struct run_directory *d, const struct run_survey *survey,
                        int64_t step)
{
    if (!survey->own.count || step >= survey->own.entry[0].step)
        return 0;
    if (run_aside_may_move(d))
        return 1;
    log_warn(d->s->log,
             "%s stays, as %s is on another file system than the run; move it away: a later start "
             "that can read it would go on from it, without what is trained from here",
             survey->own.entry[0].path, d->checkpoints);
    return 0;
}

/* Open the checkpoint that was decided on; *checkpoint is NULL where there is none. */
static int open_start(struct run_directory *d, const struct run_survey *survey,
                      struct run_start *start, struct checkpoint **checkpoint, struct error *err)
{
    struct world *world = d->s->world;
    if (start->from == FROM_START || start->from == FROM_ASKED) {
        if (run_checkpoint_open(checkpoint, world, start->path, d->s->log, err))
            return start->from == FROM_ASKED || err->by_system
                       ? -1
                       : error_prefix(err,
                                      "%s began from a checkpoint that cannot be used; put it "
                                      "back, or start over with run.fresh=true",
                                      d->path);
        if (start->from == FROM_START)
            return 0;
        int rc = world_rank(world) ? 0 : judge(d, survey, start, *checkpoint, err);
        if (world_agree(world, rc, err))
            return -1;
        world_broadcast(world, start, sizeof *start, 0);
        if (start->from == FROM_ASKED)
            return 0;
        checkpoint_close(*checkpoint);
        *checkpoint = NULL;
        return open_start(d, survey, start, checkpoint, err);
    }
    if (start->from == FROM_NOTHING)
        return 0;
    if (checkpoint_find_among(checkpoint, world, survey->own.entry, survey->own.count, &d->checked,
                              d->s->log, err))
        return error_prefix(err, "%s", d->checkpoints);
    start->branch = leaves_newer(d, survey, (*checkpoint)->step);
    return 0;
}

/* Refuse to go on with the run on tokens of another tokenizer.  A run that begins from a checkpoint
 * may: report_resumed() warns. */
static int check_tokenizer(const struct run_directory *d, const struct run_start *start,
                           const struct checkpoint *checkpoint, struct error *err)
{
    struct world *world = d->s->world;
    int is_checked = !world_rank(world) && checkpoint && !start->begins && is_of_run(d, checkpoint);
    return world_agree(
        world, is_checked ? tokenizer_check_run(d->data.tokenizer, checkpoint, err) : 0, err);
}

/* Can the loss of the best evaluation be compared with those from now on? */
enum comparable { COMPARABLE, OF_OTHER_RUN, OF_OTHER_DATA };

static enum comparable compare_evaluations(const struct run_directory *d,
                                           const struct run_start *start,
                                           const struct checkpoint *checkpoint)
{
    struct config saved;
    struct run_point point = run_point_of(checkpoint->meta, checkpoint->step);
    if (start->begins || (point.run[0] && d->record.run[0] && strcmp(point.run, d->record.run)))
        return OF_OTHER_RUN;
    if (!run_checkpoint_config(checkpoint, &saved, NULL, 0, NULL) &&
        run_changes_evaluation(&saved, &d->s->config, d->s->layout.global_batch, checkpoint->meta,
                               &d->data))
        return OF_OTHER_DATA;
    return COMPARABLE;
}

/* Forget the evaluations of a checkpoint that cannot be compared with those to come, so that
 * neither early_stop nor keep_best goes by them.  Collective. */
static void forget_evaluations(const struct run_directory *d, const struct run_start *start,
                               const struct checkpoint *checkpoint, struct run_position *position)
{
    static const char *const why[] = {[OF_OTHER_RUN] = "they are of another run",
                                      [OF_OTHER_DATA] =
                                          "they were of other data, or of more or less of it"};
    struct world *world = d->s->world;
    const struct config *c = &d->s->config;
    int found = world_rank(world) ? COMPARABLE : compare_evaluations(d, start, checkpoint);
    world_broadcast(world, &found, sizeof found, 0);
    if (found == COMPARABLE)
        return;
    if (position->best.step && (c->train.early_stop || c->checkpoint.keep_best))
        log_info(d->s->log,
                 "evaluations up to step %lld do not count for train.early_stop and "
                 "checkpoint.keep_best: %s",
                 (long long)checkpoint->step, why[found]);
    position->best = (struct run_best){0};
    if (found == OF_OTHER_RUN)
        position->evaluation_due = 0;
}

/* Say on rank 0 from what a run resumed; here: from a checkpoint in its own directory. */
static void report_resumed(const struct run_directory *d, const struct run_survey *survey,
                           const struct run_start *start, const struct checkpoint *checkpoint,
                           const struct run_position *position, int here)
{
    int64_t step = checkpoint->step;
    if (start->from == FROM_OWN && survey->torn.count && survey->torn.entry[0].step > step)
        log_warn(d->s->log, "%s is not committed and was passed over", survey->torn.entry[0].path);
    log_info(d->s->log, "resumed at step %lld from %s", (long long)step, checkpoint->path);
    report_changes(d, checkpoint, position);
    tokenizer_check_model(d->s->log, "data.train", d->data.tokenizer, checkpoint->path);
    if (here)
        report_missing(d, step);
}

/* Load the state of the verified checkpoint, if there is one.  A file that cannot be read now is
 * the node's fault. */
static int load(struct run_directory *d, struct checkpoint *checkpoint,
                struct run_position *position, struct error *err)
{
    int rc = checkpoint ? run_checkpoint_load(d->s, checkpoint, position, err) : 0;
    if (rc && err->by_system)
        err->code = EXIT_NODE;
    return rc;
}

/* Load the state that was decided on, check that a checkpoint of it has space, write the run's
 * record, and report; *checkpoint is NULL where there is none. */
static int start_at(struct run_directory *d, const struct run_survey *survey,
                    struct run_start *start, struct checkpoint **checkpoint,
                    struct run_position *position, struct error *err)
{
    struct world *world = d->s->world;
    int rank = world_rank(world);
    if (open_start(d, survey, start, checkpoint, err) ||
        check_tokenizer(d, start, *checkpoint, err) || load(d, *checkpoint, position, err) ||
        run_length_set(&d->s->config.train, position, d->data.sequences, d->s->layout.global_batch,
                       err))
        return -1;
    if (*checkpoint)
        forget_evaluations(d, start, *checkpoint, position);
    int64_t staying = rank ? 0 : count_staying(d, survey, start, *checkpoint);
    if (checkpoint_space_check(d->s, d->checkpoints, position->step, staying, err) ||
        world_agree(world, rank ? 0 : run_start_commit(d, start, *checkpoint, err), err))
        return -1;
    if (!*checkpoint)
        return 0;
    int here = rank ? 0 : disk_is_inside((*checkpoint)->path, d->checkpoints);
    world_broadcast(world, &here, sizeof here, 0);
    if (here) {
        d->saved_step = position->step;
        d->saved_due = position->evaluation_due;
    }
    if (!rank && here)
        run_directory_recall_losses(d, &survey->own, position->step);
    if (!rank)
        report_resumed(d, survey, start, *checkpoint, position, here);
    return 0;
}

/* Finish what an earlier start had begun when it was killed: the save, of which nothing is used and
 * whose bytes a checkpoint may need, and what it had begun to set aside, by the record. */
static int finish_earlier(struct run_directory *d, struct error *err)
{
    struct error why = {0};
    if (checkpoint_clean(d->checkpoints, &why))
        log_warn(d->s->log, "what a save left could not be deleted: %s", why.text);
    if (!d->record.moving)
        return 0;
    if (run_aside_finish(d, err))
        return -1;
    log_info(d->s->log,
             "branch %lld had begun when an earlier start ended; what it sets aside in %s/branches "
             "is finished now",
             (long long)d->record.branch, d->path);
    return 0;
}

/* Set how the command must change to go on with this run: run.fresh=true would set it aside,
 * checkpoint.resume=none would be refused. */
static void set_again(struct run_directory *d)
{
    int fresh = d->s->config.run.fresh, none = !strcmp(d->s->config.checkpoint.resume, "none");
    snprintf(d->again, sizeof d->again, "%s%s%s", fresh ? " without run.fresh=true" : "",
             fresh && none ? " and" : "", none ? " with checkpoint.resume=auto" : "");
}

/* Let the ranks above 0 append their lines of log_urgent() to log.txt, which rank 0 has made.  Not
 * before, as a start may move the directory. */
static void join_log(const struct run_directory *d)
{
    char *path = array_format("%s/log.txt", d->path);
    if (world_rank(d->s->world))
        log_urgent_file(path);
    free(path);
}

int run_directory_begin(struct run_directory *d, int *found, struct run_position *position,
                        struct error *err)
{
    struct run_survey survey = {0};
    struct run_start start = {FROM_NOTHING};
    struct checkpoint *checkpoint = NULL;
    struct config *c = &d->s->config;
    int rc = 0;
    if (!world_rank(d->s->world))
        rc = finish_earlier(d, err) || look(d, &survey, err) || decide(d, &survey, &start, err) ? -1
                                                                                                : 0;
    rc = world_agree(d->s->world, rc, err);
    if (!rc) {
        world_broadcast(d->s->world, &start, sizeof start, 0);
        rc = start_at(d, &survey, &start, &checkpoint, position, err);
    }
    *found = checkpoint != NULL;
    set_again(d);
    join_log(d);
    c->run.fresh = 0;
    if (!strcmp(c->checkpoint.resume, "none"))
        snprintf(c->checkpoint.resume, sizeof c->checkpoint.resume, "auto");
    checkpoint_close(checkpoint);
    run_survey_free(&survey);
    return rc;
}
