/* run_directory.h - a run directory is one run: locked by one start at a time, with a record of
 * which run it is (run.json), its checkpoints, and what was set aside.
 *
 *     run.dir/run.json                the run's name, its branch, where that began
 *     run.dir/checkpoints/step-N/     of the branch, and of those before up to where it began
 *     run.dir/checkpoints/best        a link to that of the best evaluation (checkpoint.keep_best)
 *     run.dir/branches/B/             checkpoints/ of branch B from where it was left, its
 *                                     metrics.jsonl, and where it began (branch.json)
 *     run.dir/hf/                     the model for Hugging Face's programs (checkpoint.export_hf)
 *     run.dir/hf.1/                   what had that name before and is not the run's
 *     run.dir/metrics.jsonl.1         of a start that left no checkpoint; samples.jsonl.1 likewise
 *     run.dir.1/                      what run.fresh=true set aside, whole
 *
 * Rank 0 reads, decides and renames; what it decides is broadcast, what fails is agreed on.
 */
#ifndef TRIREME_TRAIN_RUN_DIRECTORY_H
#define TRIREME_TRAIN_RUN_DIRECTORY_H

#include "base/touch.h"
#include "train/run_checkpoint.h"
#include "train/run_record.h"

/* A checkpoint in the background. */
struct run_saving {
    struct checkpoint_writing *writing; /* NULL: none is being written */
    struct run_position position;       /* its, or that of the last one */
    double loss;      /* that the step after it has computed; NAN: it has none, or has not ended */
    int64_t begin_ns; /* when it was begun */
    double waited_s;  /* seconds that no step could be made for it */
    void *copy;       /* what it is written from; NULL without checkpoint.async */
    size_t copy_bytes;
    struct touch *touch; /* of the copy, until it is first used; NULL: none */
};

struct run_directory {
    struct session *s;
    const char *path;                   /* run.dir of the session's config */
    char checkpoints[CONFIG_TEXT + 16]; /* path/checkpoints */
    char metrics[CONFIG_TEXT + 16];     /* path/metrics.jsonl */
    int lock;                           /* on rank 0: descriptor of the locked file; -1: none */
    int lost;                          /* 1: the folder is not there any more, or another start's */
    int warned_lost;                   /* rank 0's, of run_directory_report_moved() */
    struct run_record record;          /* rank 0's; empty on others */
    char writer[RUN_WRITER];           /* rank 0's: names this start in the record */
    struct run_data data;              /* the data it trains on */
    struct checkpoint_checked checked; /* rank 0's: checkpoints verified by this start */
    char again[96];                    /* how the command must change to go on; "": not at all */
    int64_t saved_step;                /* step of the newest checkpoint of this branch; -1: none */
    int saved_due;                     /* evaluation_due of that checkpoint's position */
    int64_t best_step; /* step of the newest checkpoint whose loss is about the lowest; -1: none */
    double best_loss;  /* the training loss there */
    int64_t
        kept_step; /* rank 0's: step of the checkpoint that checkpoints/best leads to; 0: none */
    int prune_due; /* 1: a checkpoint was saved since run_directory_prune() */
    struct run_saving saving;
};

/* Make and lock the run directory, open its log and read its record; data describes the token files
 * and is written into checkpoints.  A directory that is no run and has files of somebody else's
 * under the names of a run's is refused, and so is one in a checkpoint, or a folder of checkpoints.
 * Collective; run_directory_close() in any case.  Returns 0, or -1 on all ranks with err set. */
int run_directory_open(struct run_directory *dir, struct session *session, struct run_data data,
                       struct error *err);
void run_directory_close(struct run_directory *dir);

/* Finish moving aside what an earlier start began to move and was killed; then do what
 * checkpoint.resume and run.fresh ask for, or refuse it: load a state, or none for a new run.  When
 * all of that has succeeded, move aside what has to be, and write the record.  *found becomes 1 if
 * a state was loaded, *position its position; one line in the log names directory and checkpoint,
 * another the settings that changed.  The session's config no longer asks for a fresh start
 * afterwards.  Collective.  Returns 0, or -1 on all ranks with err set and the directory unchanged,
 * apart from what an earlier start had begun. */
int run_directory_begin(struct run_directory *dir, int *found, struct run_position *position,
                        struct error *err);

/* Name this start in the record as the one that writes to the directory: any other that still does
 * ends at its next save.  Done by rank 0.  Returns 0, or -1 with err set. */
int run_directory_claim(struct run_directory *dir, struct error *err);

/* Warn, once, where the directory was moved or deleted, and say when it is back.  On rank 0. */
void run_directory_report_moved(struct run_directory *dir);

/* Save the state as a checkpoint of the run, unless there is one of that step already, with the
 * same evaluations.  Collective.  Returns 0, or -1 on all ranks with err
 * set; with dir->lost nothing can be saved any more. */
int run_directory_save(struct run_directory *dir, struct run_position position, struct error *err);

/* Allocate what checkpoints in the background are written from, where checkpoint.async asks for it.
 * Collective.  Returns 0, or -1 on all ranks with err set. */
int run_directory_saving_open(struct run_directory *dir, struct error *err);

/* Finish the checkpoint that is being written, where there is one, with a warning where that fails,
 * and free what it was written from.  To be called before run_directory_close(), in any case.
 * Collective where one is being written. */
void run_directory_saving_close(struct run_directory *dir);

/* With checkpoint.async, begin to save the state in the background, unless there is a checkpoint of
 * that step; the state may change after the return.  No other may be being written.  Without it, do
 * run_directory_save().  Collective.  Returns 0, or -1 on all ranks with err set, as
 * run_directory_save() does. */
int run_directory_save_begin(struct run_directory *dir, struct run_position position,
                             struct error *err);

/* Commit the checkpoint that is being written, if all ranks have written it or are to wait for
 * that; else, and where there is none, do nothing.  To be called after every step.  Collective.
 * Returns 0, or -1 on all ranks with err set, as run_directory_save() does. */
enum run_save_wait { SAVE_NO_WAIT, SAVE_WAIT };
int run_directory_save_end(struct run_directory *dir, enum run_save_wait wait, struct error *err);

/* Where checkpoint.keep_best asks for it, let checkpoints/best lead to the checkpoint of the best
 * evaluation, and keep that checkpoint from now on; until there is one, keep the one that the link
 * leads to.  Done by rank 0; a failure is a warning. */
void run_directory_keep_best(struct run_directory *dir, const struct run_best *best);

/* Did this run write run.dir/hf?  The answer counts on rank 0. */
int run_directory_owns_export(const struct run_directory *dir);

/* Does run.dir/hf hold the model of that step (checkpoint.export_hf)?  Collective. */
int run_directory_has_export(const struct run_directory *dir, int64_t step);

/* Note that run.dir/hf holds the model of that step.  Rank 0 keeps it in the record. */
void run_directory_exported(struct run_directory *dir, int64_t step);

/* Note the loss of a step (NAN: none), which counts where the step before it has the newest
 * checkpoint, or the one that is being written: it was computed with that state. */
void run_directory_note_loss(struct run_directory *dir, int64_t step, double loss);

/* Delete the checkpoints that the newest one replaces, if there are any; a failure is a warning.
 * An older checkpoint with a much lower loss is kept beside the newest ones, for a run that
 * diverges.  While a checkpoint is being written nothing is deleted.  Collective. */
void run_directory_prune(struct run_directory *dir);

#endif
