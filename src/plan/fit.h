/* fit.h - the nearest configuration that has room.
 *
 * Changes are tried in the order of what they cost a run: first a strategy that shards more (more
 * communication), then recomputation (time), a smaller micro-batch (the same numbers, smaller
 * products), more shards of a hybrid (communication between nodes), offload (the host's bandwidth),
 * and last more ranks.  A costlier change is made only where all cheaper ones together do not do.
 * Where no disk can be used, what the configuration keeps there comes back first.
 */
#ifndef TRIREME_PLAN_FIT_H
#define TRIREME_PLAN_FIT_H

#include "plan/report.h"

enum { FIT_RANKS_MOST = 4096 };

struct fit {
    int found;
    int ranks, nodes;   /* as asked, or how many it takes */
    char settings[256]; /* "key=value key=value": what changes; "" where ranks alone do */
    struct report_room takes;
};

/* Search from a checked configuration on, whose device is cpu or cuda.  Pure; a plan of one rank
 * for each of a few dozen candidates. */
void fit_find(struct fit *fit, const struct config *config, int ranks, int nodes, int threads,
              const struct report_room *room);

/* "nearest that fits: recompute=full (70.21 GiB a rank)" into text; returns text. */
const char *fit_text(const struct fit *fit, int ranks, char *text, size_t size);

#endif
