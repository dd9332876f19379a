/* core_use.h - do the ranks of a run get in one another's way on the cores they have? */
#ifndef TRIREME_TRAIN_CORE_USE_H
#define TRIREME_TRAIN_CORE_USE_H

#include "train/session.h"

/* Are more ranks bound to the cores of this rank than it has cores, so that they wait for one
 * another?  Not collective. */
int core_use_is_crowded(const struct world *world);

/* Warn, on rank 0, of ranks that share too few cores, of ranks with more threads than cores, and of
 * a launcher that binds ranks to half of the cores or less.  At most one warning of each kind,
 * about the first rank that it holds for.  Collective. */
void core_use_warn(const struct session *session);

#endif
