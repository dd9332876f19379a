/* checkpoint_list.h - what trireme checkpoint ls prints. */
#ifndef TRIREME_CLI_CHECKPOINT_LIST_H
#define TRIREME_CLI_CHECKPOINT_LIST_H

#include "io/checkpoint.h"

/* Print a table of checkpoints.  For a run, whose directory is named (else NULL), also print its
 * branch, and the branches that were left: where each began, and its checkpoints in branches/.
 * Returns 0, or -1 with err set. */
int checkpoint_list_print(const struct checkpoint_entry *entries, int count, const char *run,
                          struct error *err);

#endif
