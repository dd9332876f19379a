/* last_start.h - with how many ranks a run was last started, by the plan.json in its directory. */
#ifndef TRIREME_CLI_LAST_START_H
#define TRIREME_CLI_LAST_START_H

#include "config/config.h"

struct last_start {
    char run[CONFIG_TEXT]; /* its directory */
    int ranks, nodes;      /* nodes 0: an earlier version wrote plan.json, without them */
};

/* path: the directory of a run, its config.yaml, or a checkpoint in it.  Returns 0, or -1 where
 * there is no plan.json with a number of ranks. */
int last_start_read(struct last_start *last, const char *path);

#endif
