/* timeline.h - when each action of a schedule runs on its rank, and how much of a step ranks wait.
 *
 * Each stage has costs of its own.  Their unit is the caller's: nanoseconds where actions were
 * measured, thousands of floating point operations (timeline_costs()) where nothing is known but
 * the model.  Transfers take no time.
 */
#ifndef TRIREME_SIMULATE_TIMELINE_H
#define TRIREME_SIMULATE_TIMELINE_H

#include "program/schedule.h"

struct timeline {
    const struct schedule *schedule; /* the caller's */
    struct schedule_costs *cost;     /* per stage: a copy */
    int64_t *start;                  /* per action, in the order of schedule->action; from 0 on */
    int64_t *busy;                   /* per rank: what its actions take together */
    int64_t makespan;                /* when the last action of all ranks ends */
};

/* What a stage's actions cost by the floating point operations of its forward for a micro-batch, in
 * thousands: forward, the input part of backward and the weight part take as many each.  At least 1
 * each. */
struct schedule_costs timeline_costs(double forward_flops);

/* Play a schedule; cost[s] is what actions of stage s take.  Fills a timeline for timeline_free();
 * schedule has to live as long.  It cannot fail: schedules that schedule_create() makes end. */
void timeline_fill(struct timeline *timeline, const struct schedule *schedule,
                   const struct schedule_costs *cost);
void timeline_free(struct timeline *timeline);

/* When action a, of schedule->action, ends. */
int64_t timeline_end(const struct timeline *timeline, int a);

/* The share of the step, from its start to its last action's end, that a rank waits; and the mean
 * of all ranks. */
double timeline_idle(const struct timeline *timeline, int rank);
double timeline_idle_mean(const struct timeline *timeline);

#endif
