/* run_record.h - run.json: which run a directory is, and where its branch began; branch.json in the
 * folder of a branch that was left: the same of that branch. */
#ifndef TRIREME_TRAIN_RUN_RECORD_H
#define TRIREME_TRAIN_RUN_RECORD_H

#include "base/json.h"
#include "config/config.h"

enum { RUN_ID = 33, RUN_PATH = CONFIG_TEXT + 128, RUN_WRITER = 192 };

/* A checkpoint, whatever path it lies under. */
struct run_point {
    char run[RUN_ID]; /* "": the checkpoint names no run, as the first version wrote it */
    int64_t branch, step;
};

struct run_record {
    char run[RUN_ID];       /* 128 random bits in hexadecimal; "": the directory has no record */
    int64_t branch;         /* how often the run was resumed from an earlier step than its last */
    int has_start;          /* 1: the branch began from a checkpoint, that of the next three */
    struct run_point start; /* which checkpoint it began from */
    char start_path[RUN_PATH]; /* where that lay then, relative to the directory if inside */
    char asked[CONFIG_TEXT];   /* the checkpoint.resume that asked for it */
    int64_t base;     /* step up to which the directory's checkpoints are of branches before; -1:
                         none is */
    int64_t saved;    /* step of the newest checkpoint of the branch; -1: none yet */
    int64_t exported; /* step whose model hf/ has (checkpoint.export_hf); -1: none yet */
    int moving;       /* 1: the branch has begun, and later checkpoints are not all moved yet */
    int empty;        /* 1: read from an empty file: the machine failed before anything was saved */
    char job[64];     /* the Slurm job that began the branch; "": none */
    char writer[RUN_WRITER]; /* the start that wrote the file, as it names itself; "": not known */
};

#define RUN_METRICS   "metrics.jsonl"
#define RUN_SAMPLES   "samples.jsonl"
#define RUN_RECORD    "run.json"
#define BRANCH_RECORD "branch.json"

/* Read the record dir/name; without one, or where it is empty, record->run becomes "".  Returns 0,
 * or -1 with err set. */
int run_record_read(struct run_record *record, const char *dir, const char *name,
                    struct error *err);

/* Replace the record dir/name.  With WHOLE_FILE_DURABLE file and dir are fsynced: if the machine
 * fails in this call, the file holds the old record or the new one, never a part of one; if it
 * fails later, the new one.  With WHOLE_FILE_REPORT, for a run that has saved nothing yet, the file
 * may then be empty or missing.  Returns 0, or -1 with err set and the old record in place, or the
 * new one where only dir cannot be fsynced. */
int run_record_write(const struct run_record *record, const char *dir, const char *name,
                     enum whole_file_care care, struct error *err);

/* Name this start: "node7, process 4711, start 64-RANDOM-BITS".  Returns 0, or -1 with err set. */
int run_record_writer(char text[RUN_WRITER], struct error *err);

/* Make the record of a new run that has no checkpoint yet, begun by this process's Slurm job, with
 * this writer.  Returns 0, or -1 with err set. */
int run_record_new(struct run_record *record, const char *writer, struct error *err);

/* Put this process's Slurm job into the record. */
void run_record_set_job(struct run_record *record);

/* Is this process of the Slurm job that began the record's branch, and was it requeued since? */
int run_record_requeued(const struct run_record *record);

/* Return the run and branch named in a checkpoint's meta.json, with this step. */
struct run_point run_point_of(const struct js *meta, int64_t step);

/* Is the checkpoint in the line of the record's branch (run_record.c)? */
int run_record_owns(const struct run_record *record, const struct run_point *point);

#endif
