/* schedule_arrivals.c - when a rank receives what other ranks make for it.
 *
 * What an action makes for another rank is sent after its runs.  This file chooses where the other
 * rank receives it, such that no ranks wait for one another, whatever the schedule.
 *
 * schedule->start gives the time of every action; the time of a message is the end of the action
 * that makes it.  A rank receives its messages in the order of their times, as every sender sends.
 * A message is received before the earlier of
 * - the first action that starts no earlier than the message's time
 * - the action just before the one that needs it, so that it travels during that action's runs.  On
 *   a stream on which the rank also sends, only the first holds: an early RECV would block what the
 *   rank sends after it.
 *
 *   time     0   1   2       4
 *   rank 0   0F0 0F1         0B0 ...    sends 0F0 at 1, 0F1 at 2
 *   rank 1       1F0 1B0     1F1 ...    receives 0F0 before 1F0, 0F1 before 1B0
 *
 * A message of time t then never waits for what comes later than t, on any rank.
 *
 * Where a stage reads several outputs of the stage before, they are as many messages on one stream,
 * and the second one starts when the first one is there.  Transfers start in the order of the list
 * (verify_ranks.c), so that none after the second one starts before that.  Two ranks that each
 * send two messages to the other at the same time, and receive after that, would wait for ever:
 *
 *   time     7               rank 0 has computed 0F2, rank 1 1B1
 *   rank 0   SEND a, SEND b, RECV c, RECV d      SEND b starts when rank 1 has received a, but
 *   rank 1   SEND c, SEND d, RECV a, RECV b      RECV a starts after SEND d
 *
 * There all messages have one order on all ranks, by their times and, of one time, by the ranks
 * that make them; none is received early, and what comes before a message that a rank sends is
 * received after the runs that make that message: rank 1 does RECV a, RECV b, SEND c, SEND d.
 */
#include "program/schedule_runs.h"

#include <stdlib.h>

#include "base/array.h"

static const struct schedule_costs costs = {.forward = 1, .input = 1, .weight = 1}; /* of start */

/* The stage whose action ends with what an action needs; -1: none, or it is the rank's own. */
static int needed_stage(const struct schedule *schedule, const struct schedule_action *action)
{
    int stage = action->phase == PHASE_FORWARD           ? action->stage - 1
                : action->phase == PHASE_BACKWARD_WEIGHT ? -1
                                                         : action->stage + 1;
    if (stage < 0 || stage == schedule->stages ||
        schedule->rank_of[stage] == schedule->rank_of[action->stage])
        return -1;
    return stage;
}

/* When each action ends for which another rank may wait: by stage, forward or not, and micro-batch.
 * For free(). */
static int64_t *find_ends(const struct schedule *s)
{
    int64_t *end = array_make((size_t)s->stages * 2 * (size_t)s->micros, sizeof *end);
    for (int a = 0; a < s->first[s->ranks]; a++) {
        const struct schedule_action *action = &s->action[a];
        int is_forward = action->phase == PHASE_FORWARD;
        if (action->phase != PHASE_BACKWARD_WEIGHT)
            end[(action->stage * 2 + is_forward) * s->micros + action->micro] =
                s->start[a] + schedule_cost(&costs, action->phase);
    }
    return end;
}

static int in_time(const void *a, const void *b)
{
    const struct schedule_arrival *one = a, *other = b;
    if (one->time != other->time)
        return one->time < other->time ? -1 : 1;
    return one->from != other->from ? one->from - other->from : one->needs - other->needs;
}

/* The streams on which the rank sends what its actions make, a bit each. */
static unsigned streams_sent_on(const struct schedule_runs *runs)
{
    const struct schedule *s = runs->program->layout->schedule;
    int own = runs->program->state->coord.at[MESH_PIPELINE];
    unsigned streams = 0;
    for (int stage = 0; stage + 1 < s->stages; stage++) {
        int lower = s->rank_of[stage], upper = s->rank_of[stage + 1];
        if (lower == own && upper != own)
            streams |= 1u << program_point(runs->program, own, upper, WAY_UP);
        if (upper == own && lower != own)
            streams |= 1u << program_point(runs->program, own, lower, WAY_DOWN);
    }
    return streams;
}

/* Choose the action before which each message is received: the first that starts no earlier than
 * the message's time, or, on a stream on which the rank does not send, the one just before the
 * action that needs it, if that is earlier; but no message before one of an earlier time.  start:
 * of the rank's actions. */
static void place_ahead(struct schedule_runs *runs, const int64_t *start)
{
    struct schedule_arrival *arrival = runs->arrival;
    unsigned sent_on = streams_sent_on(runs);
    for (int i = 0, action = 0; i < runs->arrivals; i++) {
        while (start[action] < arrival[i].time)
            action++;
        int ahead = arrival[i].needs ? arrival[i].needs - 1 : 0;
        int can_be_ahead = !(sent_on >> arrival[i].stream & 1) && ahead < action;
        arrival[i].action = can_be_ahead ? ahead : action;
    }
    for (int i = 1; i < runs->arrivals; i++)
        if (arrival[i].action < arrival[i - 1].action)
            arrival[i].action = arrival[i - 1].action;
}

/* Does a message come before what an action of this rank sends, in the order of all ranks?  An
 * action without runs sends nothing.  start: of the action. */
static int comes_first(const struct schedule_runs *runs, const struct schedule_arrival *arrival,
                       const struct schedule_runs_action *action, int64_t start)
{
    int64_t end = start + schedule_cost(&costs, action->scheduled.phase);
    int own = runs->program->state->coord.at[MESH_PIPELINE];
    return action->count && (arrival->time < end || (arrival->time == end && arrival->from < own));
}

/* Choose where each message is received, where all ranks keep one order of messages (second half of
 * the head). */
static void place_in_order(struct schedule_runs *runs, const int64_t *start)
{
    for (int i = 0, action = 0; i < runs->arrivals; i++) {
        struct schedule_arrival *arrival = &runs->arrival[i];
        while (start[action] < arrival->time &&
               !comes_first(runs, arrival, &runs->action[action], start[action]))
            action++;
        arrival->action = action;
        arrival->is_after = start[action] < arrival->time;
    }
}

/* Does a stage read several outputs that units of another rank make? */
static int has_several(const struct units *units)
{
    int read = -1;
    for (int u = 1; u < units->count; u++) {
        read = units->stage[u] == units->stage[u - 1] ? read : -1;
        for (int k = 0; k < units->boundary[u].inputs; k++) {
            int from = units->boundary[u].producer[k];
            if (units->rank[from] == units->rank[u])
                continue;
            if (read >= 0 && read != from)
                return 1;
            read = from;
        }
    }
    return 0;
}

/* List all that the rank receives in training. */
static void find_arrivals(struct schedule_runs *runs)
{
    const struct schedule *s = runs->program->layout->schedule;
    int rank = runs->program->state->coord.at[MESH_PIPELINE];
    int64_t *end = find_ends(s);
    for (int k = 0; k < runs->actions; k++) {
        const struct schedule_action *action = &runs->action[k].scheduled;
        int stage = needed_stage(s, action), is_forward = action->phase == PHASE_FORWARD;
        if (stage >= 0)
            runs->arrival[runs->arrivals++] = (struct schedule_arrival){
                .needs = k,
                .from = s->rank_of[stage],
                .stream = program_point(runs->program, s->rank_of[stage], rank,
                                        is_forward ? WAY_UP : WAY_DOWN),
                .time = end[(stage * 2 + is_forward) * s->micros + action->micro]};
    }
    qsort(runs->arrival, (size_t)runs->arrivals, sizeof *runs->arrival, in_time);
    if (has_several(runs->program->units))
        place_in_order(runs, &s->start[s->first[rank]]);
    else
        place_ahead(runs, &s->start[s->first[rank]]);
    free(end);
}

void schedule_list_arrivals(struct schedule_runs *runs)
{
    runs->arrival = array_make((size_t)runs->actions, sizeof *runs->arrival);
    if (runs->program->units->stages == 1)
        return;
    if (runs->program->kind == PROGRAM_TRAIN) {
        find_arrivals(runs);
        return;
    }
    for (int k = 0; k < runs->actions; k++)
        runs->arrival[runs->arrivals++] = (struct schedule_arrival){.action = k, .needs = k};
}
