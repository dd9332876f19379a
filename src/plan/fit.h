/* fit.h - the nearest configuration that fits the memory.
 *
 * Changes are tried in the order of what they cost a run: first the schedule that keeps the fewest
 * micro-batches alive, then a strategy that shards more (more communication), recomputation (time),
 * a smaller micro-batch (the same numbers, smaller products), more shards of a hybrid
 * (communication between nodes), offload (the host's bandwidth), and last more ranks.  A costlier
 * change is made only where all cheaper ones together are not enough.  Where no disk can be used,
 * the search begins with the configuration without it, its state on the device.
 */
#ifndef TRIREME_PLAN_FIT_H
#define TRIREME_PLAN_FIT_H

#include "plan/report.h"

enum { FIT_RANKS_MOST = 4096 };

struct fit {
    int found;
    int ranks, nodes;   /* ranks as asked for, or as many as are needed */
    char settings[256]; /* "key=value key=value": what changes; "" where ranks alone do */
    struct memory_limits takes;
};

/* Search, beginning with a checked configuration whose device is cpu or cuda.  Has no side effects;
 * plans one rank of each of a few dozen candidates. */
void fit_find(struct fit *fit, const struct config *config, int ranks, int nodes, int threads,
              const struct memory_limits *limits);

/* The same with the ranks and the offloads that there are: what changes is the schedule, the
 * strategy, recomputation, the micro-batch or the shards of a hybrid. */
void fit_find_here(struct fit *fit, const struct config *config, int ranks, int nodes, int threads,
                   const struct memory_limits *limits);

/* "nearest that fits: recompute=full (70.21 GiB a rank)" into text; returns text. */
const char *fit_text(const struct fit *fit, int ranks, char *text, size_t size);

#endif
