/* fit.h - the nearest configuration that fits the memory.
 *
 * Changes are tried in the order of what they cost a run: first no copy of the state for a
 * checkpoint (checkpoint.async=false), then the schedule that keeps the fewest micro-batches alive,
 * a strategy that shards more (more communication), recomputation (time), a smaller micro-batch
 * (the same numbers, smaller products), more shards of a hybrid (communication between nodes),
 * offload (the host's bandwidth), and last more ranks.  A costlier change is made only where all
 * cheaper ones together are not enough.  Where the machine's speeds are known, forecasts choose
 * between recomputation and a smaller micro-batch.  Where no disk can be used, the search begins
 * with the configuration without it, its state on the device.
 */
#ifndef TRIREME_PLAN_FIT_H
#define TRIREME_PLAN_FIT_H

#include "plan/report.h"
#include "plan/settings.h"

enum { FIT_RANKS_MOST = 4096 };

struct fit {
    int node_is_taken; /* 1: limits are REPORT_NODE_TAKEN, so that nothing is sought */
    int found;         /* 1: the fields that follow are set */
    int ranks, nodes;  /* ranks as asked for, or as many as are needed */
    /* "key=value key=value": what changes; "" where ranks alone do */
    char settings[SETTINGS_BYTES];
    struct memory_limits takes; /* memory that a rank then needs */
    double tokens_per_s;        /* as it is forecast; 0: not known */
};

/* Search for the nearest configuration that fits limits, beginning with a checked one whose device
 * is cpu or cuda.  speeds: of the machine, by which recomputation and the micro-batch are chosen
 * (NULL: not known, and the order above counts).  Has no side effects; plans one rank of each of a
 * few dozen candidates. */
void fit_find(struct fit *fit, const struct config *config, int ranks, int nodes, int threads,
              const struct memory_limits *limits, const struct machine *speeds);

/* The same on the same ranks and with the same offloads: what changes is checkpoint.async,
 * the schedule, the strategy, recomputation, the micro-batch or the shards of a hybrid. */
void fit_find_here(struct fit *fit, const struct config *config, int ranks, int nodes, int threads,
                   const struct memory_limits *limits);

/* Write to text "nearest that fits: recompute=full (70.21 GiB a rank)"; returns text. */
const char *fit_text(const struct fit *fit, int ranks, char *text, size_t size);

#endif
