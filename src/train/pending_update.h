/* pending_update.h - with train.overlap_update: the update that a step leaves to the next one, and
 * that is made at once before anything else reads the state (program/overlap_update.h). */
#ifndef TRIREME_TRAIN_PENDING_UPDATE_H
#define TRIREME_TRAIN_PENDING_UPDATE_H

#include "train/session.h"

/* All zero: nothing is pending. */
struct pending_update {
    int is_pending;
    int64_t step; /* whose gradients wait */
    struct optimizer_rule rule;
};

/* Before a step is started: set the rule of its input, which is that of the step itself, to that of
 * the update which its program makes, and note what it will leave.  Nothing changes where a step
 * makes its own update. */
void pending_update_pass(struct pending_update *pending, const struct session *session,
                         struct step_input *input);

/* Make the pending update, if there is one.  No step is under way.  Returns 0, or -1 with err set
 * on this rank alone, as step_start() does (world_must()). */
int pending_update_make(struct pending_update *pending, struct session *session, struct error *err);

#endif
