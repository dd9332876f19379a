/* last_start.h - reading from a run's plan.json with how many ranks the run was last started. */
#ifndef TRIREME_CLI_LAST_START_H
#define TRIREME_CLI_LAST_START_H

#include "config/config.h"

struct last_start {
    char run[CONFIG_TEXT]; /* the path that last_start_read() was given */
    int ranks, nodes;      /* nodes 0: not known, as an earlier version wrote plan.json */
};

/* Read the last start of a run.  path: the directory of the run, its config.yaml, or a checkpoint
 * in it.  Returns 0; or -1 where path belongs to no run or its plan.json has no number of ranks,
 * and last is unchanged. */
int last_start_read(struct last_start *last, const char *path);

#endif
