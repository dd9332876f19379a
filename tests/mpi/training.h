/* training.h - steps of training as tests of several ranks take them: from a token file of rank 0,
 * through sessions, with losses and a hash of the state at the end. */
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

/* How to train: from where, to which step, and whether to save there. */
struct training {
    const char *tokens;      /* token file */
    const char *checkpoints; /* where a state is saved; NULL: nowhere */
    int from, to;            /* finished steps before and after; from above 0: resume */
    int masked;              /* 1: drop targets, many in some samples and none in others */
};

/* What came out. */
struct trained {
    double loss[TRAINING_STEPS], norm[TRAINING_STEPS]; /* of the steps done here */
    double targets;                                    /* of the last step */
    double scale[TRAINING_STEPS];                      /* of the loss, in the step */
    int64_t skipped;                                   /* steps without an update, of all */
    double valid_loss, valid_targets;                  /* at the end, where data.valid is set */
    uint64_t hash;                                     /* of this rank's state at the end */
};

/* A temporary directory with tokens.h5 in it, made by rank 0; dir of 64 bytes.  Collective. */
void training_data(struct checks *c, char *dir, int64_t vocab);

/* Load the newest good checkpoint at path into a session.  Collective.  0, or -1 with err set. */
int training_load(struct session *session, const char *path, struct run_position *position,
                  struct error *err);

/* Train a session of the world.  Collective. */
void training_run(struct checks *c, const struct config *config, const struct training *how,
                  struct trained *trained);

/* The same on one rank alone: rank 0 computes, all get the result (but for the hash). */
void training_reference(struct checks *c, const struct config *config, const struct training *how,
                        struct trained *trained);

/* What the step last started sent to other ranks, and moved of offloaded state, is as planned. */
void training_check_volume(struct checks *c, const struct session *s,
                           const struct report_rank *plan);

/* Whether a test runs its cell of this number: each, or where it should be short (rig_is_short) one
 * of `share`, other cells with another number of ranks.  Ranks 2, 3 and 4 together run all cells
 * for a share of 3, ranks 3 and 4 for a share of 2.  The same on every rank. */
int training_takes(const struct checks *c, int cell, int share);

/* The largest relative difference of losses. */
double training_distance(const struct trained *a, const struct trained *b);

#endif
