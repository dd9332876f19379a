/* any_schedule.c - see any_schedule.h.
 *
 * A right schedule is a list scheduling of a pipeline: again and again one of the ranks that have
 * an action whose needs are done takes one of those.  Which rank and which action are drawn, in a
 * style that is drawn once: all alike, forward as far ahead as it goes, backward as soon as it can
 * be, weight parts put off until nothing else is left, ... What comes out can be played to the
 * end, for it was. */
#include "tests/unit/any_schedule.h"

#include <stdio.h>

enum part { FORWARD, INPUT, WEIGHT, PARTS };

enum { NEVER, ALWAYS, SOMETIMES, CHANCES }; /* how often backward is in two parts */

struct maker {
    struct any *any;
    struct any_schedule *schedule;
    int rank_of[ANY_STAGES];
    int done[ANY_STAGES][ANY_MICROS][PARTS];
    int split;         /* NEVER, ALWAYS, SOMETIMES */
    int prefers;       /* the part that is taken before others; PARTS: none */
    int strictness;    /* it is so, but for one of so many times */
    int puts_off;      /* 1: weight parts come when nothing else can */
    int takes_laziest; /* 1: the rank with the fewest actions goes on, 0: any */
};

/* Each stage on any rank, but one on each rank at least. */
static void place_stages(struct maker *m)
{
    int ranks = m->schedule->ranks, stages = m->schedule->stages, taken[ANY_STAGES] = {0};
    for (int s = 0; s < stages; s++)
        m->rank_of[s] = any_pick(m->any, ranks);
    for (int rank = 0; rank < ranks; rank++) {
        int s = any_pick(m->any, stages);
        while (taken[s])
            s = (s + 1) % stages;
        taken[s] = 1;
        m->rank_of[s] = rank;
    }
}

static int is_ready(const struct maker *m, int stage, int micro, enum part part)
{
    if (m->done[stage][micro][part])
        return 0;
    if (part == FORWARD)
        return stage == 0 || m->done[stage - 1][micro][FORWARD];
    if (part == INPUT)
        return m->done[stage][micro][FORWARD] &&
               (stage == m->schedule->stages - 1 || m->done[stage + 1][micro][INPUT]);
    return m->done[stage][micro][INPUT];
}

/* The actions that a rank may take, of one part or, where that is PARTS, of all; returns how many.
 */
static int list_ready(const struct maker *m, int rank, enum part only, struct any_action *action,
                      enum part *parts)
{
    int count = 0;
    for (int i = 0; i < m->schedule->stages * m->schedule->micros * PARTS; i++) {
        enum part part = (enum part)(i % PARTS);
        int micro = i / PARTS % m->schedule->micros, stage = i / PARTS / m->schedule->micros;
        if (m->rank_of[stage] == rank && (only == PARTS || only == part) &&
            is_ready(m, stage, micro, part)) {
            parts[count] = part;
            action[count++] = (struct any_action){.stage = stage, .micro = micro};
        }
    }
    return count;
}

/* One of the ready actions of a rank, by the style; 0: there is none. */
static int take_one(struct maker *m, int rank)
{
    struct any_action ready[ANY_ACTIONS];
    enum part parts[ANY_ACTIONS];
    int follows = any_pick(m->any, m->strictness) > 0, count = 0;
    if (follows && m->prefers < PARTS)
        count = list_ready(m, rank, (enum part)m->prefers, ready, parts);
    for (int part = INPUT; part >= FORWARD && !count && m->puts_off && follows; part--)
        count = list_ready(m, rank, (enum part)part, ready, parts);
    if (!count)
        count = list_ready(m, rank, PARTS, ready, parts);
    if (!count)
        return 0;
    int k = any_pick(m->any, 2) ? any_pick(m->any, count) : 0; /* 0: the first micro-batch's */
    struct any_action action = ready[k];
    int is_split = m->split == ALWAYS || (m->split == SOMETIMES && any_pick(m->any, 2));
    action.kind = parts[k] == FORWARD ? "F" : parts[k] == WEIGHT ? "W" : is_split ? "I" : "B";
    m->done[action.stage][action.micro][parts[k]] = 1;
    if (*action.kind == 'B')
        m->done[action.stage][action.micro][WEIGHT] = 1;
    struct any_line *line = &m->schedule->line[rank];
    line->action[line->count++] = action;
    return 1;
}

static int laziest(const struct any_schedule *s)
{
    int least = 0;
    for (int rank = 1; rank < s->ranks; rank++)
        if (s->line[rank].count < s->line[least].count)
            least = rank;
    return least;
}

void any_schedule(struct any *any, int ranks, struct any_schedule *s)
{
    *s = (struct any_schedule){.ranks = ranks, .micros = 1 + any_pick(any, ANY_MICROS)};
    s->stages = ranks + any_pick(any, ANY_STAGES - ranks + 1);
    struct maker m = {.any = any,
                      .schedule = s,
                      .split = any_pick(any, CHANCES),
                      .prefers = any_pick(any, PARTS + 1),
                      .strictness = 1 + any_pick(any, 20),
                      .puts_off = any_pick(any, 2),
                      .takes_laziest = any_pick(any, 2)};
    place_stages(&m);
    for (int idle = 0; idle < ranks;) { /* until no rank can go on */
        int rank = m.takes_laziest ? laziest(s) : any_pick(any, ranks), took = 0;
        for (idle = 0; idle < ranks && !took; idle += !took)
            took = take_one(&m, (rank + idle) % ranks);
    }
}

/* ---- changes ---- */

static struct any_action *any_action(struct any *any, struct any_line *line)
{
    return &line->action[any_pick(any, line->count)];
}

static void drop(struct any_line *line, int at)
{
    for (line->count--; at < line->count; at++)
        line->action[at] = line->action[at + 1];
}

static void insert(struct any_line *line, int at, struct any_action action)
{
    for (int k = line->count++; k > at; k--)
        line->action[k] = line->action[k - 1];
    line->action[at] = action;
}

/* Each gets the schedule and a rank of it that has actions. */
static void change_order(struct any *any, struct any_schedule *s, int rank)
{
    struct any_line *line = &s->line[rank];
    int i = any_pick(any, line->count);
    int k = any_pick(any, 2) ? any_pick(any, line->count) : (i + 1) % line->count;
    struct any_action kept = line->action[i];
    line->action[i] = line->action[k];
    line->action[k] = kept;
}

static void change_number(struct any *any, struct any_schedule *s, int rank)
{
    drop(&s->line[rank], any_pick(any, s->line[rank].count));
}

static void change_to_two(struct any *any, struct any_schedule *s, int rank)
{
    struct any_line *line = &s->line[rank];
    struct any_action action = *any_action(any, line);
    insert(line, any_pick(any, line->count + 1), action);
}

static void change_rank(struct any *any, struct any_schedule *s, int rank)
{
    struct any_line *line = &s->line[rank];
    struct any_line *to = &s->line[(rank + any_pick(any, s->ranks)) % s->ranks];
    int at = any_pick(any, line->count);
    struct any_action action = line->action[at];
    drop(line, at);
    insert(to, any_pick(any, to->count + 1), action);
}

static void change_micro(struct any *any, struct any_schedule *s, int rank)
{
    any_action(any, &s->line[rank])->micro = any_pick(any, s->micros + 1);
}

static void change_stage(struct any *any, struct any_schedule *s, int rank)
{
    any_action(any, &s->line[rank])->stage = any_pick(any, s->stages + 1);
}

static void change_letter(struct any *any, struct any_schedule *s, int rank)
{
    static const char *const kinds[] = {"F", "B", "I", "W", "X", "f"};
    any_action(any, &s->line[rank])->kind = kinds[any_pick(any, 6)];
}

static void change_to_transfer(struct any *any, struct any_schedule *s, int rank)
{
    static const char *const kinds[] = {"SEND_F",  "SEND_B",  "RECV_F",     "RECV_B",
                                        "UNSHARD", "RESHARD", "REDUCE_GRAD"};
    any_action(any, &s->line[rank])->kind = kinds[any_pick(any, 7)];
}

static void change_lines(struct any *any, struct any_schedule *s, int rank)
{
    int other = any_pick(any, s->ranks);
    struct any_line kept = s->line[rank];
    s->line[rank] = s->line[other];
    s->line[other] = kept;
}

/* A backward action in two parts, one right behind the other: as right as before. */
static void change_to_parts(struct any *any, struct any_schedule *s, int rank)
{
    struct any_line *line = &s->line[rank];
    int at = any_pick(any, line->count);
    for (int k = 0; k < line->count && *line->action[at].kind != 'B'; k++)
        at = (at + 1) % line->count;
    struct any_action action = line->action[at];
    if (*action.kind != 'B')
        return;
    line->action[at].kind = "I";
    action.kind = "W";
    insert(line, at + 1, action);
}

static const struct change {
    const char *name;
    void (*apply)(struct any *any, struct any_schedule *schedule, int rank);
} changes[] = {
    {.name = "two actions swapped", .apply = change_order},
    {.name = "two actions swapped", .apply = change_order}, /* the change that is often right */
    {.name = "an action dropped", .apply = change_number},
    {.name = "an action doubled", .apply = change_to_two},
    {.name = "an action moved", .apply = change_rank},
    {.name = "another micro-batch", .apply = change_micro},
    {.name = "another stage", .apply = change_stage},
    {.name = "another letter", .apply = change_letter},
    {.name = "a transfer", .apply = change_to_transfer},
    {.name = "lines exchanged", .apply = change_lines},
    {.name = "backward in two parts", .apply = change_to_parts},
};
enum { CHANGES = sizeof changes / sizeof changes[0] };

const char *any_schedule_change(struct any *any, struct any_schedule *s)
{
    const struct change *change = NULL;
    int count = any_pick(any, 2) ? 1 : 1 + any_pick(any, ANY_CHANGES);
    for (int k = 0; k < count; k++) {
        int rank = any_pick(any, s->ranks);
        while (!s->line[rank].count)
            rank = (rank + 1) % s->ranks;
        change = &changes[any_pick(any, CHANGES)];
        change->apply(any, s, rank);
    }
    return change->name;
}

/* ---- text ---- */

int any_schedule_write(struct any *any, const struct any_schedule *s, const char *path)
{
    static const char *const around[][2] = {{"", ""}, {" ", " "}, {"\"", "\""}, {",", ""}};
    FILE *file = fopen(path, "w");
    int is_plain = any_pick(any, 2);
    if (!file)
        return -1;
    for (int rank = 0; rank < s->ranks; rank++) {
        const struct any_line *line = &s->line[rank];
        for (int a = 0; a < line->count; a++) {
            const struct any_action *action = &line->action[a];
            const char *const *with = around[is_plain ? 0 : any_pick(any, 4)];
            fprintf(file, "%s%s%d%s%d%s", a ? "," : "", with[0], action->stage, action->kind,
                    action->micro, with[1]);
        }
        fputs(is_plain ? "\n" : "\r\n", file);
    }
    return fclose(file) ? -1 : 0;
}
