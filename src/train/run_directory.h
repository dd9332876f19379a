/* run_directory.h - a run directory is one run: locked by one start at a time, with a record of
 * which run it is (run.json), its checkpoints, and what was set aside.
 *
 *     run.dir/run.json                the run's name, its branch, where that began
 *     run.dir/checkpoints/step-N/     of the branch, and of those before up to where it began
 *     run.dir/branches/B/             checkpoints/ and metrics.jsonl of branch B from there on
 *     run.dir.1/                      what run.fresh=true set aside, whole
 *
 * Rank 0 reads, decides and renames; what it decides is broadcast, what fails is agreed on.
 */
#ifndef TRIREME_TRAIN_RUN_DIRECTORY_H
#define TRIREME_TRAIN_RUN_DIRECTORY_H

#include "train/run_checkpoint.h"
#include "train/run_record.h"

struct run_directory {
    struct session *s;
    char checkpoints[CONFIG_TEXT + 16];
    int lock;                          /* on rank 0; -1: none */
    struct run_record record;          /* rank 0's */
    struct run_data data;              /* what is trained on */
    struct checkpoint_checked checked; /* rank 0's counts */
    int64_t saved_step;                /* of the newest checkpoint of this branch; -1: none */
    int64_t best_step;                 /* the newest whose loss is near the lowest; -1: none */
    double best_loss;
    int prune_due;
};

/* Make and lock the run directory, open its log and read its record; data becomes what
 * checkpoints tell of the token files.  Collective; run_directory_close() in any case.  Returns 0,
 * or -1 on all ranks with err set. */
int run_directory_open(struct run_directory *dir, struct session *session, struct run_data data,
                       struct error *err);
void run_directory_close(struct run_directory *dir);

/* Do what checkpoint.resume and run.fresh ask for, or refuse it: load a state, or nothing for a run
 * that begins; then, when all of that has succeeded, set aside what has to be, and write the
 * record.  *found tells whether a state was loaded, *position where it stands; one line says which
 * directory and checkpoint, another which settings changed.  The session's config no longer asks
 * to start over afterwards.  Collective.  Returns 0, or -1 on all ranks with err set and the
 * directory as it was. */
int run_directory_begin(struct run_directory *dir, int *found, struct position *position,
                        struct error *err);

/* Save the state as a checkpoint of the run.  Collective.  Returns 0, or -1 on all ranks. */
int run_directory_save(struct run_directory *dir, struct position position, struct error *err);

/* The loss that a step computed with the state of the newest checkpoint: how good that is. */
void run_directory_judge(struct run_directory *dir, double loss);

/* Delete what the newest checkpoint replaces, if there is something; failing is a warning.  One
 * that was judged much better stays beside the newest ones: it is what a run that diverges goes
 * back to.  Collective. */
void run_directory_prune(struct run_directory *dir);

#endif
