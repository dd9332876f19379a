/* scaler.h - the loss scale of fp16: the loss is multiplied by it so that gradients are neither
 * lost below fp16's range nor too large for it.
 *
 * A step whose gradients are not finite updates nothing.  Whether gradients are finite follows from
 * their norm, a sum over all ranks, so that all ranks decide the same without communication.
 */
#ifndef TRIREME_TRAIN_SCALER_H
#define TRIREME_TRAIN_SCALER_H

#include "config/config.h"

struct scaler {
    int active, dynamic;   /* active 0: the scale is 1; dynamic 0: it does not change */
    double scale;          /* of the next step */
    double least;          /* min_loss_scale */
    int64_t window;        /* finite steps in a row after which it doubles */
    int64_t finite;        /* steps since the last change or overflow */
    int hysteresis, spare; /* overflows that halve it; how many more of them until it is halved */
    int64_t skipped;       /* steps of the run that updated nothing */
};

/* Return the scaler of a configuration before its first step.  Only precision fp16 has an active
 * one; others keep the scale 1. */
struct scaler scaler_begin(const struct config *config);

/* Go on from a checkpoint: its scale, where the configuration's is dynamic too, and its count of
 * skipped steps. */
void scaler_resume(struct scaler *scaler, const struct scaler *saved);

/* Update the scale after a step; overflowed is 1 when its gradients were not finite.  DeepSpeed's
 * rule: the first hysteresis - 1 overflows only use up `spare`; each further one halves the scale,
 * down to min_loss_scale; loss_scale_window finite steps in a row double it and restore `spare`. */
void scaler_update(struct scaler *scaler, int overflowed);

/* Is the scale one that cannot become smaller? */
int scaler_at_end(const struct scaler *scaler);

#endif
