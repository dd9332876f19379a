/* run_record.h - run.json: which run a directory is, and where its branch began; branch.json in the
 * folder of a branch that was left: the same of that branch. */
#ifndef TRIREME_TRAIN_RUN_RECORD_H
#define TRIREME_TRAIN_RUN_RECORD_H

#include "base/json.h"
#include "config/config.h"

enum { RUN_ID = 33, RUN_PATH = CONFIG_TEXT + 128 };

/* A checkpoint, whatever path it lies under. */
struct run_point {
    char run[RUN_ID]; /* "": the checkpoint names no run, as the first version wrote it */
    int64_t branch, step;
};

struct run_record {
    char run[RUN_ID];       /* 128 random bits in hexadecimal; "": the directory has no record */
    int64_t branch;         /* how often the run was resumed from an earlier step than its last */
    int has_start;          /* 1: the branch began from a checkpoint */
    struct run_point start; /* namely this one, */
    char start_path[RUN_PATH]; /* which lay here then (relative to the directory if inside), */
    char asked[CONFIG_TEXT];   /* and was asked for by this checkpoint.resume */
    int64_t base;              /* checkpoints up to this step are of branches before; -1: none */
    int64_t saved;             /* step of the newest checkpoint of the branch; -1: none yet */
    int64_t exported;          /* whose model hf/ has (checkpoint.export_hf); -1: none yet */
    int moving;   /* the branch has begun, and later checkpoints are not all moved yet */
    int empty;    /* read from an empty file: the machine failed before anything was saved */
    char job[64]; /* of Slurm, that began the branch; "": none */
};

#define RUN_RECORD    "run.json"
#define BRANCH_RECORD "branch.json"

/* Read dir's record of that name; without one, or where it is empty, record->run is "".  Returns 0,
 * or -1 with err set. */
int run_record_read(struct run_record *record, const char *dir, const char *name,
                    struct error *err);

/* Replace the record.  With WHOLE_FILE_DURABLE, if the machine fails meanwhile the file holds the
 * old record or the new one, never a part of it, and afterwards the new one: file and dir are
 * fsynced.  With WHOLE_FILE_REPORT, for a run that has saved nothing yet, it may be empty or
 * missing then.  Returns 0, or -1 with err set and the old one in place, or, where only dir cannot
 * be fsynced, the new one. */
int run_record_write(const struct run_record *record, const char *dir, const char *name,
                     enum whole_file_care care, struct error *err);

/* A new run that has no checkpoint yet, begun by this job.  Returns 0, or -1 with err set. */
int run_record_new(struct run_record *record, struct error *err);

/* Put this process's Slurm job into the record. */
void run_record_set_job(struct run_record *record);

/* Slurm has requeued the job that began the record's branch, and this is that job again. */
int run_record_requeued(const struct run_record *record);

/* The run and branch named in a checkpoint's meta.json; step is the caller's. */
struct run_point run_point_of(const struct js *meta, int64_t step);

/* Is the checkpoint in the line of the record's branch (run_record.c)? */
int run_record_owns(const struct run_record *record, const struct run_point *point);

#endif
