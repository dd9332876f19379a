/* pending_update.h - with train.overlap_update: the update that a step leaves to the next one, and
 * that is made at once before anything else reads the state (program/overlap_update.h).
 *
 *   struct step_input input = ...;
 *   pending_update_pass(&pending, session, &input, &err);   its rule is now that of the step before
 *   rc = step_start(...);
 *   pending_update_started(&pending, session, rc);
 *   ...
 *   pending_update_make(&pending, session, &err);       before a checkpoint, an evaluation, ...
 */
#ifndef TRIREME_TRAIN_PENDING_UPDATE_H
#define TRIREME_TRAIN_PENDING_UPDATE_H

#include "train/session.h"

/* A step whose gradients are not used yet, and the rule of its update. */
struct pending_update_step {
    int64_t step; /* 0: none */
    struct optimizer_rule rule;
};

/* All zero: nothing is pending. */
struct pending_update {
    struct pending_update_step last; /* the step whose update is pending */
    struct pending_update_step next; /* the step that is being started */
    int is_broken;                   /* 1: some flats may be updated, and others not */
};

/* Before a step is started: set the rule of its input, which is that of the step itself, to that of
 * the update which its program makes.  Nothing changes where a step makes its own update.  Returns
 * 0, or -1 with err set after a failure, as pending_update_make() does. */
int pending_update_pass(struct pending_update *pending, const struct session *session,
                        struct step_input *input, struct error *err);

/* Note the outcome rc of step_start(), after pending_update_pass().  With 0 the update of that step
 * is pending from now on.  Else part of the update before it may have been made, and what follows
 * is refused. */
void pending_update_started(struct pending_update *pending, const struct session *session, int rc);

/* Make the pending update, if there is one.  No step is under way.  Not collective.  Returns 0, or
 * -1 with err set on this rank alone, as step_start() does (world_end_job_if_failed()): from then
 * on always, as some flats may be updated and others not. */
int pending_update_make(struct pending_update *pending, struct session *session, struct error *err);

#endif
