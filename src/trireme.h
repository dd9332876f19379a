/* trireme.h - train with trireme from a C or C++ program: its one public header.
 *
 *     const char *settings[] = {"model.preset=llama-tiny", "data.train=text.h5", "run.dir=run"};
 *     struct trireme_progress progress;
 *     struct trireme_error error;
 *     struct trireme *run;
 *     if (trireme_open(&run, NULL, settings, 3, &error))
 *         return fprintf(stderr, "%s\n", error.text), error.code;
 *     int failed = trireme_train(run, 10, &progress, &error) || trireme_save(run, &error);
 *     trireme_close(run);
 *
 * Compile and link with `pkg-config --cflags --libs trireme`.  All functions are collective: every
 * rank of the job calls them, in the same order.  They belong to the thread that opened the run; a
 * process opens one run, once, even if trireme_open() has failed, and leaves starting and ending
 * MPI to trireme.
 *
 * Return value: 0, or -1 on all ranks with *error set.  What goes wrong on one rank in the middle
 * of a step (memory that is out) cannot be returned to ranks that wait for it: that rank prints one
 * line and ends the job.
 *
 * Signals, the environment and HDF5's settings stay the program's.  Where a file system has no
 * locks, set HDF5_USE_FILE_LOCKING=FALSE.
 */
#ifndef TRIREME_H
#define TRIREME_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* "0.1.0" */
const char *trireme_version(void);

struct trireme_error {
    int code;        /* the exit code of `trireme train` for this failure, see trireme(1) */
    char text[2028]; /* one line, for rank 0 to print; "" on all others */
};

/* A rank's part of a run. */
struct trireme;

/* Open the run that `trireme train FILE SETTING...` would train, up to its first step: MPI, data,
 * memory, the run directory, and the checkpoint that it goes on from.  file is a configuration in
 * YAML (NULL: none); settings are count texts "key=value" of trireme-config(5).  Log lines go to
 * stderr and the run's log.txt.  Returns 0 and a run for trireme_close(). */
int trireme_open(struct trireme **run, const char *file, const char *const *settings, int count,
                 struct trireme_error *error);

/* This process's number in the job, from 0 on. */
int trireme_rank(const struct trireme *run);

/* Where the run is. */
struct trireme_progress {
    int64_t step;  /* steps finished since the run began */
    double tokens; /* targets trained on */
    double loss;   /* mean over the targets of the last step; 0 before the first */
};

/* Train `steps` more steps, but not beyond train.steps, with evaluation, metrics and checkpoints as
 * the settings ask.  With checkpoint.async the last checkpoint may not be written yet at the
 * return; a later trireme_train(), trireme_save() or trireme_close() commits it, and it is lost
 * where the program ends without one.  progress (NULL: not wanted) is set on success, to the same
 * on all ranks.
 * Where a token file cannot be read any more, the state is saved and -1 is returned, by later calls
 * too: once the file is mended, close the run, end the program, and start it again. */
int trireme_train(struct trireme *run, int64_t steps, struct trireme_progress *progress,
                  struct trireme_error *error);

/* Write a checkpoint of the last step, unless there is one; with checkpoint.export_hf also the
 * model to hf/ in run.dir, once training has ended: with train.steps, or by train.early_stop. */
int trireme_save(struct trireme *run, struct trireme_error *error);

/* Free the run (NULL allowed) and end MPI.  Begins no checkpoint, and finishes one that is still
 * being written (checkpoint.async). */
void trireme_close(struct trireme *run);

#ifdef __cplusplus
}
#endif

#endif
