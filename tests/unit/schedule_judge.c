/* schedule_judge.c - is a schedule right?  See any_schedule.h. */
#include <string.h>

#include "tests/unit/any_schedule.h"

/* How many of an action a line has, and where the last one is. */
static int count(const struct any_line *line, int stage, const char *kind, int micro, int *at)
{
    int found = 0;
    for (int a = 0; a < line->count; a++)
        if (line->action[a].stage == stage && line->action[a].micro == micro &&
            !strcmp(line->action[a].kind, kind)) {
            found++;
            *at = a;
        }
    return found;
}

/* Does one line have all that a stage does for a micro-batch, once and in order? */
static int has_all(const struct any_line *line, int stage, int micro)
{
    int f = -1, b = -1, i = -1, w = -1;
    int forward = count(line, stage, "F", micro, &f), whole = count(line, stage, "B", micro, &b);
    int input = count(line, stage, "I", micro, &i), weight = count(line, stage, "W", micro, &w);
    if (forward != 1)
        return 0;
    if (whole)
        return whole == 1 && !input && !weight && f < b;
    return input == 1 && weight == 1 && f < i && i < w;
}

/* The number of stages: one above the largest. */
static int count_stages(const struct any_schedule *s)
{
    int stages = 0;
    for (int rank = 0; rank < s->ranks; rank++)
        for (int a = 0; a < s->line[rank].count; a++)
            if (s->line[rank].action[a].stage >= stages)
                stages = s->line[rank].action[a].stage + 1;
    return stages;
}

/* Is every action that a line has one of those that are asked for, by number? */
static int is_complete(const struct any_schedule *s, int stages)
{
    int needed = 0, there = 0;
    for (int stage = 0; stage < stages; stage++)
        for (int micro = 0; micro < s->micros; micro++) {
            int ranks = 0, ignored;
            for (int rank = 0; rank < s->ranks; rank++)
                if (has_all(&s->line[rank], stage, micro)) {
                    ranks++;
                    needed += count(&s->line[rank], stage, "B", micro, &ignored) ? 2 : 3;
                }
            if (ranks != 1)
                return 0;
        }
    for (int rank = 0; rank < s->ranks; rank++)
        there += s->line[rank].count;
    return there == needed;
}

/* Is each stage on one rank, and has each rank one? */
static int is_placed(const struct any_schedule *s, int stages)
{
    for (int stage = 0; stage < stages; stage++) {
        int ranks = 0;
        for (int rank = 0; rank < s->ranks; rank++) {
            int has = 0;
            for (int a = 0; a < s->line[rank].count; a++)
                has |= s->line[rank].action[a].stage == stage;
            ranks += has;
        }
        if (ranks != 1)
            return 0;
    }
    for (int rank = 0; rank < s->ranks; rank++)
        if (!s->line[rank].count)
            return 0;
    return 1;
}

/* Is an action among those that ranks have played, each the first at[rank] of its line? */
static int is_played(const struct any_schedule *s, const int *at, int stage, const char *kinds,
                     int micro)
{
    for (int rank = 0; rank < s->ranks; rank++)
        for (int a = 0; a < at[rank]; a++)
            if (s->line[rank].action[a].stage == stage && s->line[rank].action[a].micro == micro &&
                strchr(kinds, *s->line[rank].action[a].kind))
                return 1;
    return 0;
}

static int plays(const struct any_schedule *s, int stages)
{
    int at[ANY_RANKS] = {0}, went_on = 1;
    while (went_on) {
        went_on = 0;
        for (int rank = 0; rank < s->ranks; rank++) {
            if (at[rank] == s->line[rank].count)
                continue;
            const struct any_action *a = &s->line[rank].action[at[rank]];
            int can = 1;
            if (*a->kind == 'F' && a->stage > 0)
                can = is_played(s, at, a->stage - 1, "F", a->micro);
            if (strchr("BI", *a->kind) && a->stage < stages - 1)
                can = is_played(s, at, a->stage + 1, "BI", a->micro);
            at[rank] += can;
            went_on |= can;
        }
    }
    for (int rank = 0; rank < s->ranks; rank++)
        if (at[rank] < s->line[rank].count)
            return 0;
    return 1;
}

int schedule_judge(const struct any_schedule *s)
{
    int stages = count_stages(s);
    return is_complete(s, stages) && is_placed(s, stages) && plays(s, stages);
}
