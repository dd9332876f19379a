/* timeline.c - see timeline.h: schedule_play_stages() says when actions start; a rank waits when
 * none of its own runs. */
#include "simulate/timeline.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"

struct schedule_costs timeline_costs(double forward_flops)
{
    int64_t thousands = forward_flops > 1000 ? (int64_t)(forward_flops / 1000) : 1;
    return (struct schedule_costs){.forward = thousands, .input = thousands, .weight = thousands};
}

static int64_t cost_of(const struct timeline *t, int a)
{
    const struct schedule_action *action = &t->schedule->action[a];
    return schedule_cost(&t->cost[action->stage], action->phase);
}

void timeline_fill(struct timeline *timeline, const struct schedule *schedule,
                   const struct schedule_costs *cost)
{
    size_t stages = (size_t)schedule->stages, ranks = (size_t)schedule->ranks;
    *timeline = (struct timeline){
        .schedule = schedule,
        .cost = array_make(stages, sizeof *timeline->cost),
        .start = array_make((size_t)schedule->first[schedule->ranks], sizeof *timeline->start),
        .busy = array_make(ranks, sizeof *timeline->busy),
    };
    memcpy(timeline->cost, cost, stages * sizeof *cost);
    timeline->makespan = schedule_play_stages(schedule, timeline->cost, timeline->start, NULL);
    for (int rank = 0; rank < schedule->ranks; rank++)
        for (int a = schedule->first[rank]; a < schedule->first[rank + 1]; a++)
            timeline->busy[rank] += cost_of(timeline, a);
}

void timeline_free(struct timeline *timeline)
{
    free(timeline->cost);
    free(timeline->start);
    free(timeline->busy);
    *timeline = (struct timeline){0};
}

int64_t timeline_end(const struct timeline *timeline, int a)
{
    return timeline->start[a] + cost_of(timeline, a);
}

double timeline_idle(const struct timeline *timeline, int rank)
{
    return 1 - (double)timeline->busy[rank] / (double)timeline->makespan;
}

double timeline_idle_mean(const struct timeline *timeline)
{
    double idle = 0;
    for (int rank = 0; rank < timeline->schedule->ranks; rank++)
        idle += timeline_idle(timeline, rank);
    return idle / timeline->schedule->ranks;
}
