/* schedule_play.c - when each action of a schedule starts, and which wait for one another.
 *
 * Each rank goes through its actions in order, as far as what they need is there, one rank after
 * the other until no rank can go on.  What is then left waits in a circle: from a rank that cannot
 * go on follow the rank whose action it waits for, and so on, until one comes again.
 */
#include "program/schedule_private.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/text.h"

/* What of a stage and micro-batch ends at a time of its own.  B is the slot of BACKWARD, or of
 * BACKWARD_INPUT. */
enum slot { SLOT_F, SLOT_B, SLOT_W, SLOTS_EACH };

struct schedule_player {
    const struct schedule *schedule;
    const struct schedule_costs *costs; /* of stage s: costs[s * costs_each] */
    int costs_each;                     /* 1: each stage has its own; 0: one for all */
    int64_t *start;
    int64_t *end;  /* by stage, micro-batch and slot: when it ends; -1: not known yet */
    int64_t *time; /* per rank: when it is free */
    int *at;       /* per rank: its next action */
};

static enum slot slot_of(enum segment_phase phase)
{
    return phase == PHASE_FORWARD ? SLOT_F : phase == PHASE_BACKWARD_WEIGHT ? SLOT_W : SLOT_B;
}

static int64_t cost_of(const struct schedule_player *p, const struct schedule_action *a)
{
    return schedule_cost(&p->costs[a->stage * p->costs_each], a->phase);
}

static int64_t *end_of(const struct schedule_player *p, int stage, int micro, enum slot slot)
{
    return &p->end[((int64_t)stage * p->schedule->micros + micro) * SLOTS_EACH + (int)slot];
}

/* What must have ended before an action of the same micro-batch starts. */
struct need {
    int stage;
    enum slot slot;
};
enum { NEEDS = 2 };

/* List what an action needs; returns how many. */
static int list_needs(const struct schedule *s, const struct schedule_action *a,
                      struct need need[NEEDS])
{
    int needs = 0;
    switch (slot_of(a->phase)) {
    case SLOT_F:
        if (a->stage > 0)
            need[needs++] = (struct need){a->stage - 1, SLOT_F};
        break;
    case SLOT_B:
        need[needs++] = (struct need){a->stage, SLOT_F};
        if (a->stage + 1 < s->stages)
            need[needs++] = (struct need){a->stage + 1, SLOT_B};
        break;
    default: need[needs++] = (struct need){a->stage, SLOT_B};
    }
    return needs;
}

/* From when on an action has what it needs; -1: not yet, and *missing is what it lacks first. */
static int64_t ready_at(const struct schedule_player *p, const struct schedule_action *a,
                        struct schedule_action *missing)
{
    struct need need[NEEDS];
    int needs = list_needs(p->schedule, a, need);
    int64_t ready = 0;
    for (int k = 0; k < needs; k++) {
        int64_t end = *end_of(p, need[k].stage, a->micro, need[k].slot);
        if (end < 0) {
            enum segment_phase backward =
                p->schedule->splits_backward ? PHASE_BACKWARD_INPUT : PHASE_BACKWARD;
            *missing = (struct schedule_action){need[k].stage, a->micro,
                                                need[k].slot == SLOT_F ? PHASE_FORWARD : backward};
            return -1;
        }
        ready = end > ready ? end : ready;
    }
    return ready;
}

/* Play the next actions of a rank, as far as it can go; returns how many these are. */
static int go_on(struct schedule_player *p, int rank)
{
    const struct schedule *s = p->schedule;
    struct schedule_action missing;
    int done = 0;
    for (; p->at[rank] < s->first[rank + 1]; p->at[rank]++, done++) {
        const struct schedule_action *a = &s->action[p->at[rank]];
        int64_t ready = ready_at(p, a, &missing);
        if (ready < 0)
            break;
        int64_t start = ready > p->time[rank] ? ready : p->time[rank];
        p->start[p->at[rank]] = start;
        p->time[rank] = start + cost_of(p, a);
        *end_of(p, a->stage, a->micro, slot_of(a->phase)) = p->time[rank];
    }
    return done;
}

/* Name the circle in which a rank stands: "rank 0 at 0B0 waits for 1B0 of rank 1, rank 1 at 1F1
 * waits for ...". */
static int name_circle(const struct schedule_player *p, int rank, struct error *err)
{
    enum { MOST = 8, TEXT = 400 };
    const struct schedule *s = p->schedule;
    char text[TEXT] = "", here[SCHEDULE_TEXT], there[SCHEDULE_TEXT];
    struct schedule_action missing = {0};
    for (int k = 0; k < s->ranks; k++) { /* by then it is in the circle, if it was not before */
        ready_at(p, &s->action[p->at[rank]], &missing);
        rank = s->rank_of[missing.stage];
    }
    int begin = rank, named = 0;
    do {
        const struct schedule_action *a = &s->action[p->at[rank]];
        ready_at(p, a, &missing);
        int other = s->rank_of[missing.stage];
        if (named++ < MOST)
            text_append(text, sizeof text, "%srank %d at %s waits for %s of rank %d",
                        named > 1 ? ", " : "", rank, schedule_text(a, here),
                        schedule_text(&missing, there), other);
        rank = other;
    } while (rank != begin);
    return error_set(err, "actions wait for one another: %s%s", text,
                     named > MOST ? ", and so on" : "");
}

static int64_t play(struct schedule_player *p, struct error *err)
{
    const struct schedule *s = p->schedule;
    int left = s->first[s->ranks];
    int64_t last = 0;
    while (left > 0) {
        int before = left;
        for (int rank = 0; rank < s->ranks; rank++)
            left -= go_on(p, rank);
        if (left < before)
            continue;
        int rank = 0;
        while (p->at[rank] == s->first[rank + 1])
            rank++;
        return name_circle(p, rank, err);
    }
    for (int rank = 0; rank < s->ranks; rank++)
        last = p->time[rank] > last ? p->time[rank] : last;
    return last;
}

static int64_t play_with(const struct schedule *schedule, const struct schedule_costs *costs,
                         int costs_each, int64_t *start, struct error *err)
{
    size_t ends = (size_t)schedule->stages * (size_t)schedule->micros * SLOTS_EACH;
    size_t ranks = (size_t)schedule->ranks;
    struct schedule_player p = {
        .schedule = schedule,
        .costs = costs,
        .costs_each = costs_each,
        .start = start,
        .end = array_make(ends, sizeof *p.end),
        .time = array_make(ranks, sizeof *p.time),
        .at = array_make(ranks, sizeof *p.at),
    };
    memset(p.end, -1, ends * sizeof *p.end);
    memcpy(p.at, schedule->first, ranks * sizeof *p.at);
    int64_t last = play(&p, err);
    free(p.end);
    free(p.time);
    free(p.at);
    return last;
}

int64_t schedule_play(const struct schedule *schedule, const struct schedule_costs *costs,
                      int64_t *start, struct error *err)
{
    return play_with(schedule, costs, 0, start, err);
}

int64_t schedule_play_stages(const struct schedule *schedule, const struct schedule_costs *costs,
                             int64_t *start, struct error *err)
{
    return play_with(schedule, costs, 1, start, err);
}
