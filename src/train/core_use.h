/* core_use.h - do the ranks of a run get in one another's way on the cores they have? */
#ifndef TRIREME_TRAIN_CORE_USE_H
#define TRIREME_TRAIN_CORE_USE_H

#include "train/session.h"

/* Are more ranks bound to the cores of this rank than it has cores, so that they wait for one
 * another?  Not collective. */
int core_use_is_crowded(const struct world *world);

/* Warn, on rank 0, of ranks that share too few cores, of threads that do, and of a launcher that
 * binds ranks to half of the cores or less.  A warning of each kind at most, of the first rank that
 * has the trouble.  Collective. */
void core_use_warn(const struct session *session);

#endif
