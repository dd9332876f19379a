/* run_checkpoint.h - a run's checkpoints: save the session, find what to resume from. */
#ifndef TRIREME_TRAIN_RUN_CHECKPOINT_H
#define TRIREME_TRAIN_RUN_CHECKPOINT_H

#include "io/checkpoint.h"
#include "train/scaler.h"
#include "train/session.h"

/* Where in training a state stands. */
struct position {
    int64_t step;    /* finished steps */
    int64_t samples; /* sequences read */
    double tokens;   /* targets trained on: whole, and exact up to 2^53 */
    struct scaler scaler;
};

/* Save the session's state under dir.  Collective.  Returns 0, or -1 on all ranks with err set;
 * training may go on. */
int run_checkpoint_write(struct session *session, const char *dir, struct position position,
                         struct error *err);

/* Delete all but the newest checkpoint.keep whole checkpoints under dir, after that of step
 * `written` was saved; see checkpoint_prune().  Old ones that cannot go take disk space, no more:
 * the new one is there, so failure is a warning.  Collective. */
void run_checkpoint_prune(struct session *session, const char *dir, int64_t written,
                          struct checkpoint_checked *checked);

/* Load what checkpoint.resume asks for: "none" nothing, "auto" the newest that verifies under
 * dir (nothing if there is none), else the path of a checkpoint, a run, or its checkpoints.
 * *found tells whether a state was loaded, *position where it stands.  Collective. */
int run_checkpoint_resume(struct session *session, const char *dir, int *found,
                          struct position *position, struct error *err);

/* The configuration a checkpoint was saved with.  Returns 0, or -1 with err set. */
int run_checkpoint_config(const struct checkpoint *checkpoint, struct config *config,
                          struct error *err);

/* Open a checkpoint by the path of a checkpoint, of a run, or of its checkpoints (the
 * newest good one), and verify its checksums, each rank a part.  Collective over world. */
int run_checkpoint_open(struct checkpoint **checkpoint, struct world *world, const char *path,
                        struct log *log, struct error *err);

#endif
