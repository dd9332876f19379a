/* search_bounds.h - how long a step of a layout takes at least, without planning it.  Private to
 * search.c.
 *
 * The times of a unit's operations depend on four numbers of a candidate alone: tensor ranks,
 * context ranks, micro-batch and recomputation.  So one small plan for each combination of these,
 * of four micro-batches on one stage, gives the times of all units, and from these follows for
 * every pipeline rank of every layout:
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

/* Set unit_times, least_s, micro_s and least_bytes of all candidates.  Plans are made by as many
 * threads as there are cores; where there is no plan for a candidate's unit times, least_s is 0;
 * where it has more stages than the model has units, INFINITY. */
void search_bounds_set(struct search_candidates *list, const struct search_request *request);

#endif
