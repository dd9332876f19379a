/* deadlock.h - why no rank goes on. */
#ifndef TRIREME_VERIFY_DEADLOCK_H
#define TRIREME_VERIFY_DEADLOCK_H

#include "verify/ranks.h"

/* No rank moves, and what they stand at does not contradict.  Set g->err to one line: the cycle of
 * instructions that wait for one another ("deadlock"), or the instruction that waits for one that
 * the other rank does not have, or has no more ("missing RECV", "missing GATHER", ...).  Returns
 * -1. */
int deadlock_find(const struct ranks *g);

#endif
