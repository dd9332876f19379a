/* checkpoint_list.h - the table of trireme checkpoint ls. */
#ifndef TRIREME_CLI_CHECKPOINT_LIST_H
#define TRIREME_CLI_CHECKPOINT_LIST_H

#include "io/checkpoint.h"

/* The checkpoints that an argument means: itself, those of a folder, or those of a run. */
struct checkpoint_selection {
    struct checkpoint_entry *entries; /* [count] */
    int count;
    const char *run; /* directory of the run; NULL: the argument is not a run */
};

/* Print a table of checkpoints.  For a run also print its branch, and the branches that were left:
 * where each began, and its checkpoints in branches/.  Returns 0, or -1 with err set. */
int checkpoint_list_print(const struct checkpoint_selection *selection, struct error *err);

#endif
