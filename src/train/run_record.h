/* run_record.h - run.json: which run a directory is, and where its branch began. */
#ifndef TRIREME_TRAIN_RUN_RECORD_H
#define TRIREME_TRAIN_RUN_RECORD_H

#include "base/json.h"
#include "config/config.h"

enum { RUN_ID = 33, RUN_PATH = CONFIG_TEXT + 128 };

/* A checkpoint, whatever path it lies under. */
struct run_point {
    char run[RUN_ID]; /* "": of a checkpoint that says none, as the first version wrote it */
    int64_t branch, step;
};

struct run_record {
    char run[RUN_ID];          /* 128 random bits in hexadecimal; "": the directory has no record */
    int64_t branch;            /* counts how often the run was taken back to an earlier step */
    int has_start;             /* the branch began from a checkpoint: */
    struct run_point start;    /* this one, */
    char start_path[RUN_PATH]; /* found here then, relative to the directory when inside, */
    char asked[CONFIG_TEXT];   /* asked for so: checkpoint.resume */
    int64_t base;              /* checkpoints up to this step are of branches before; -1: none */
    int64_t saved;             /* step of the newest checkpoint of the branch; -1: none yet */
    char job[64];              /* of Slurm, that began the branch; "": none */
};

/* Read dir's run.json; without one record->run is "".  Returns 0, or -1 with err set. */
int run_record_read(struct run_record *record, const char *dir, struct error *err);

/* Replace it, so that it lasts.  Returns 0, or -1 with err set and the old one there. */
int run_record_write(const struct run_record *record, const char *dir, struct error *err);

/* A new run that has no checkpoint yet, begun by this job.  Returns 0, or -1 with err set. */
int run_record_new(struct run_record *record, struct error *err);

/* Put this process's Slurm job into the record. */
void run_record_set_job(struct run_record *record);

/* Slurm has requeued the job that began the record's branch, and this is that job again. */
int run_record_requeued(const struct run_record *record);

/* The run and branch a checkpoint's meta.json tells; step is the caller's. */
struct run_point run_point_of(const struct js *meta, int64_t step);

/* Whether a checkpoint is of the line that led to the record's branch. */
int run_record_owns(const struct run_record *record, const struct run_point *point);

#endif
