/* run_directory_private.h - what the files of run_directory*.c share; all of it is rank 0's. */
#ifndef TRIREME_TRAIN_RUN_DIRECTORY_PRIVATE_H
#define TRIREME_TRAIN_RUN_DIRECTORY_PRIVATE_H

#include "train/run_directory.h"

/* Some checkpoints of a directory. */
struct run_list {
    struct checkpoint_entry *entry; /* newest first */
    int count, capacity;
};

/* The checkpoints in a directory, sorted by the run and branch that saved them. */
struct run_survey {
    struct run_list own;    /* committed, of the branch, or of another up to the record's base */
    struct run_list other;  /* committed, of another branch of this run, after the record's base */
    struct run_list torn;   /* step folders without COMMIT */
    char foreign[RUN_PATH]; /* path of a checkpoint of another run; "": none */
    /* Without a record, and without a checkpoint: the last step in metrics.jsonl, if a start that
     * came to it must have saved one; else 0. */
    int64_t lost_step;
};

/* Sort the checkpoints; without a record all are the run's own.  Returns 0 and a survey for
 * run_survey_free(), or -1 with err set. */
int run_survey_make(struct run_survey *survey, const struct run_directory *dir, struct error *err);
void run_survey_free(struct run_survey *survey);

/* Where a start goes on from. */
enum run_from {
    FROM_NOTHING,
    FROM_OWN,   /* the newest of the run's checkpoints */
    FROM_START, /* what the branch began from, which has no checkpoint yet */
    FROM_ASKED  /* the checkpoint that was asked for; whose it is has to be found out */
};

/* What a start has decided to do (run_start.c). */
struct run_start {
    enum run_from from;
    char path[2 * RUN_PATH]; /* of the checkpoint, with FROM_START and FROM_ASKED */
    int aside;               /* 1: the whole directory is moved aside first */
    int branch;              /* 1: a new branch begins */
    int begins;              /* 1: a new run begins */
};

/* Set *step to the last one in metrics.jsonl; 0: none.  Returns 0, or -1 with err set. */
int run_directory_last_step(const struct run_directory *dir, int64_t *step, struct error *err);

/* Set aside what is in the way of what was decided, and write the record.  checkpoint: the one that
 * the start resumes, or NULL.  Returns 0, or -1 with err set. */
int run_start_commit(struct run_directory *dir, const struct run_start *start,
                     const struct checkpoint *checkpoint, struct error *err);

/* Note the losses that the meta.json of these checkpoints have, up to step `last`, as
 * run_directory_note_loss() did when they were saved: a start knows again which one is spared. */
void run_directory_recall_losses(struct run_directory *dir, const struct run_list *list,
                                 int64_t last);

/* Does the file that is open as fd still have the name path? */
int run_directory_is_there(int fd, const char *path);

/* Write which step was saved and which exported into the record, on rank 0; on others do nothing.
 */
void run_directory_update_record(struct run_directory *dir, int64_t saved, int64_t exported);

/* Lock the directory and open its log.  Returns 0, or -1 with err set. */
int run_directory_lock(struct run_directory *dir, struct error *err);

/* Set the whole directory aside, under the first name of DIR.1, DIR.2 ... that is free, and make
 * an empty one, locked too.  One rename: it happens or does not.  Returns 0, or -1 with err set. */
int run_aside_all(struct run_directory *dir, struct error *err);

/* Rename metrics.jsonl, which came to that step, to the first of metrics.jsonl.1, .2 ... that is
 * free, and samples.jsonl, if it is there, likewise; warn of it.  Returns 0, or -1 with err set. */
int run_aside_metrics(const struct run_directory *dir, int64_t step, struct error *err);

/* Move the checkpoints of this run that are not of the record's line, and with TORN_MOVES damaged
 * ones of later steps (without COMMIT, or without a meta.json that can be read), to the folder of
 * the branch before.  After a start that was killed half way, another call moves the rest.  Returns
 * 0, or -1 with err set. */
enum run_torn { TORN_STAYS, TORN_MOVES };
int run_aside_branch(const struct run_directory *dir, enum run_torn torn, struct error *err);

/* Finish beginning the record's branch: move the checkpoints, cut metrics.jsonl and
 * samples.jsonl to the branch's line, and write the record without `moving`. After a start that was
 * killed half way, another call comes to the same end.  Returns 0, or -1 with err set. */
int run_aside_finish(struct run_directory *dir, struct error *err);

/* Copy metrics.jsonl and samples.jsonl, and the record as branch.json, to the folder of the
 * record's branch, which is about to be left.  Returns 0, or -1 with err set: also where
 * checkpoints could not be moved there. */
int run_aside_copies(const struct run_directory *dir, struct error *err);

/* Can checkpoints be moved to branches/?  0 where checkpoints/ is a link to, or a mount of, another
 * file system. */
int run_aside_may_move(const struct run_directory *dir);

/* The highest number in branches/; -1: none. */
int64_t run_aside_last(const struct run_directory *dir);

#endif
