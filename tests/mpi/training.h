/* training.h - training a few steps on several ranks: from a token file that rank 0 makes, through
 * a session, to losses and a hash of the state at the end. */
#ifndef TRIREME_TESTS_MPI_TRAINING_H
#define TRIREME_TESTS_MPI_TRAINING_H

#include "base/log.h"
#include "plan/report.h"
#include "tests/mpi/check.h"
#include "tests/unit/rig.h"
#include "train/batches.h"
#include "train/run_checkpoint.h"
#include "train/scaler.h"

enum { TRAINING_STEPS = 50 };

/* What to train. */
struct training {
    const char *tokens;      /* path of the token file */
    const char *checkpoints; /* folder in which the state is saved at the end; NULL: it is not */
    int from, to;            /* finished steps before and after; from above 0: resume there */
    int masked;              /* 1: mask targets, many in some samples and none in others */
};

/* The results of training. */
struct trained {
    double loss[TRAINING_STEPS], norm[TRAINING_STEPS]; /* of the steps done here */
    double targets;                                    /* of the last step */
    double scale[TRAINING_STEPS];                      /* loss scale of each step */
    int64_t skipped;                                   /* steps of the run without an update */
    double valid_loss, valid_targets;                  /* at the end, where data.valid is set */
    uint64_t hash;                                     /* of this rank's state at the end */
};

/* Make a temporary directory with tokens.h5 in it on rank 0, and give all ranks its path; dir: 64
 * bytes. Collective. */
void training_data(struct checks *c, char *dir, int64_t vocab);

/* Load the newest good checkpoint at path into a session.  Collective.  Returns 0, or -1 with err
 * set. */
int training_load(struct session *session, const char *path, struct run_position *position,
                  struct error *err);

/* Train a session of the world.  Collective. */
void training_run(struct checks *c, const struct config *config, const struct training *how,
                  struct trained *trained);

/* Train the same on one rank alone: rank 0 computes, and all ranks get the results but for the
 * hash. Collective. */
void training_reference(struct checks *c, const struct config *config, const struct training *how,
                        struct trained *trained);

/* Check that the last step sent as many bytes to other ranks, and moved as many bytes of offloaded
 * state, as planned. */
void training_check_volume(struct checks *c, const struct session *s,
                           const struct report_rank *plan);

/* Does a test run the cell of its matrix with this number?  It runs every cell, or, where it should
 * be short (rig_is_short()), one of `share`, and with another number of ranks other cells: starts
 * on 2, 3 and 4 ranks together run all cells for a share of 3, those on 3 and 4 ranks for a share
 * of 2.  The answer is the same on every rank. */
int training_takes(const struct checks *c, int cell, int share);

/* Return the largest relative difference of two trainings' losses. */
double training_distance(const struct trained *a, const struct trained *b);

#endif
