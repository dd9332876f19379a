/* run_checkpoint.h - a session's state as a checkpoint, and back. */
#ifndef TRIREME_TRAIN_RUN_CHECKPOINT_H
#define TRIREME_TRAIN_RUN_CHECKPOINT_H

#include "io/checkpoint.h"
#include "train/run_changes.h"
#include "train/scaler.h"
#include "train/session.h"

/* The best of the evaluations so far. */
struct run_best {
    int64_t step;    /* step with the lowest loss; 0: no evaluation had a finite loss */
    double loss;     /* the loss there */
    int64_t without; /* evaluations since then, or in all where step is 0: none was better */
};

/* How far training has come in a state. */
struct run_position {
    int64_t step;           /* finished steps */
    int64_t samples;        /* sequences read */
    int64_t warmup_samples; /* of these, the ones read by steps of the warm-up */
    double tokens;          /* targets trained on: whole, and exact up to 2^53 */
    struct scaler scaler;
    double loss; /* of the last step; 0: not known */
    struct run_best best;
    int evaluation_due; /* 1: the evaluation of this step was interrupted by a stop */
};

/* The run that a checkpoint is saved by; rank 0's counts. */
struct run_origin {
    const char *run; /* NULL: it is of no run */
    int64_t branch;
    struct run_data data;
};

/* Save the session's state under dir.  Collective.  Returns 0, or -1 on all ranks with err set;
 * training may go on. */
int run_checkpoint_write(struct session *session, const char *dir, struct run_position position,
                         const struct run_origin *origin, struct error *err);

/* Begin to save it in the background, from copy, of session->need.copy_bytes (checkpoint_begin()).
 * *writing becomes NULL where it is saved at once: a model with adapters whose frozen tensors have
 * to be saved after all, which the copy is too small for (weights_choose_saved()).  Collective.
 * Returns 0, or -1 on all ranks with err set; training may go on. */
int run_checkpoint_begin(struct checkpoint_writing **writing, struct session *session,
                         const char *dir, struct run_position position,
                         const struct run_origin *origin, void *copy, struct error *err);

/* Open a checkpoint and verify its checksums, each rank a part.  path: of a checkpoint; of a run,
 * or of its folder checkpoints: then the newest good one.  Rank 0's path counts, and rank 0 decides
 * which of the three it is.  Collective over world.  Returns 0 and a checkpoint for
 * checkpoint_close(), or -1 on all ranks with err set. */
int run_checkpoint_open(struct checkpoint **checkpoint, struct world *world, const char *path,
                        struct log *log, struct error *err);

/* Say that a path names no checkpoint, what it is if that is known (a folder of a model or of an
 * adapter, a run that has saved nothing) and how that is used.  Returns -1. */
int run_checkpoint_refuse(const char *path, struct error *err);

/* Load a verified checkpoint into the session.  *position becomes the checkpoint's; before, its
 * scaler is that of the session's configuration.  A checkpoint of another model, or in training of
 * another optimizer, is refused.  Collective.  Returns 0, or -1 on all ranks with err set. */
int run_checkpoint_load(struct session *session, struct checkpoint *checkpoint,
                        struct run_position *position, struct error *err);

/* Set config to the configuration that a checkpoint was saved with, and then to the count overrides
 * "key=value".  Returns 0, or -1 with err set. */
int run_checkpoint_config(const struct checkpoint *checkpoint, struct config *config,
                          const char *const *overrides, int count, struct error *err);

#endif
