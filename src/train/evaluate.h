/* evaluate.h - mean loss over a token file, in order. */
#ifndef TRIREME_TRAIN_EVALUATE_H
#define TRIREME_TRAIN_EVALUATE_H

#include "train/batches.h"
#include "train/stop.h"

/* Mean loss of the current parameters over the file's sequences; over those of its first
 * `batches` global batches if that is above 0; NAN where none of their tokens is a target.  valid
 * was opened sequentially.  stop: signals that end it early; NULL: none.  Collective.  The result
 * is the same on all ranks.  Returns 0; or, where there is no loss, EVALUATE_STOPPED when a rank
 * was asked to stop; EVALUATE_UNREADABLE with err naming data.valid when a rank cannot read
 * the file (read_ahead.h); -1 with err set. */
enum { EVALUATE_STOPPED = 1, EVALUATE_UNREADABLE };
int evaluate(struct session *session, struct batches *valid, int64_t batches,
             const struct stop *stop, double *loss, double *targets, struct error *err);

#endif
