/* memory_budget.h - whether a run fits into memory and disk, before the first allocation. */
#ifndef TRIREME_TRAIN_MEMORY_BUDGET_H
#define TRIREME_TRAIN_MEMORY_BUDGET_H

#include "train/session.h"

/* Compare what a session's programs were planned to take with the free memory of its GPU, and with
 * its share of the node's memory, and whether offload.path can hold what is to be there.  Not
 * collective.  Returns 0, or -1 with err saying what is short and err->room of one rank. */
int memory_budget_check(const struct session *session, struct error *err);

#endif
