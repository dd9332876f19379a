/* search_bounds.h - how long a step of a layout takes at least, without planning it.  Private to
 * search.c.
 *
 * What operations take depends on a rank's part of layers and sequences alone: on tensor and
 * context ranks, micro-batch and recomputation.  So one small plan of each such place, of four
 * micro-batches on one stage, gives the times of all units there, and from these follows for every
 * pipeline rank of every layout:
 *
 *   it works        micro-batches x its units' forward and backward, and its update
 *   it waits        before its first stage's first forward, for the stages in front of it; and
 *                   after its last backward for the same stages', unless the schedule has weight
 *                   parts, which other ranks may still compute then
 *   data ranks      exchange parameters and gradients as the strategy says, at best while it waits;
 *                   beside products both lose what the machine's `beside` says
 *
 * The longest rank's sum is the bound, less a fiftieth for what a plan rounds.
 *
 *   1f1b, 3 ranks   rank 1 |f0.|F0 F1 B0 F2 B1 B2|b0.|    waits for rank 0's forward and backward
 */
#ifndef TRIREME_PLAN_SEARCH_BOUNDS_H
#define TRIREME_PLAN_SEARCH_BOUNDS_H

#include "plan/search_candidates.h"

/* Set place, least_s, micro_s and least_bytes of all candidates.  Places are planned by as many
 * threads as there are cores; where a place has no plan, least_s is INFINITY. */
void search_bounds_set(struct search_candidates *list, const struct search_request *request);

#endif
