/* trainer.h - a training run from start to end. */
#ifndef TRIREME_TRAIN_TRAINER_H
#define TRIREME_TRAIN_TRAINER_H

#include "train/session.h"

/* Make the run directory with log.txt and the effective config.yaml.  Collective.
 * Returns 0, or -1 on all ranks with err set. */
int trainer_prepare(struct session *session, struct error *err);

/* Train as the session's config asks, in its prepared run directory: resume, steps, evaluation,
 * checkpoints, metrics, trace.  Collective.  Returns 0 when all steps are done; -1 on all ranks
 * with err set: with code EXIT_SAVED and no text when a signal stopped the run and its state
 * is saved. */
int trainer_run(struct session *session, struct error *err);

#endif
