/* evaluate.h - mean loss over a token file, in order. */
#ifndef TRIREME_TRAIN_EVALUATE_H
#define TRIREME_TRAIN_EVALUATE_H

#include "train/batches.h"
#include "train/stop.h"

/* Set *loss to the mean loss of the current parameters over the sequences of valid, which was
 * opened with LOADER_SEQUENTIAL; with `batches` above 0 over its first `batches` global batches;
 * NAN where none of their tokens is a target.  *targets becomes the number of targets.  stop:
 * signals that end it early; NULL: none.  Collective.  Returns, the same on all ranks, 0; or,
 * without a loss, EVALUATE_STOPPED when a rank was asked to stop; EVALUATE_UNREADABLE with err
 * naming data.valid when a rank cannot read the file (read_ahead.h); -1 with err set. */
enum { EVALUATE_STOPPED = 1, EVALUATE_UNREADABLE };
int evaluate(struct session *session, struct batches *valid, int64_t batches,
             const struct stop *stop, double *loss, double *targets, struct error *err);

#endif
