/* schedule_runs.c - the runs of a rank, from the actions of its schedule, and the pass that writes
 * them.
 *
 * An action becomes the runs of its stage's units.  The unit that ends in the loss makes that, and
 * its gradient, in backward, so that logits exist only a chunk at a time.
 *
 * What an action makes for another rank is sent behind it; when it is received there is chosen so
 * that no ranks wait for one another, whatever the schedule.  All ranks were played together
 * (schedule->start): each message is there at the end of the action that sends it.  All a rank
 * receives, it receives in the order of these times, as every sender sends.  A message is received
 * before the first action that begins no earlier than it is there, or before the one that precedes
 * the action which needs it, so that it travels beside that one's runs.  The latter is not so on a
 * stream on which the rank also sends: what it sends before would wait behind what it gets later.
 *
 *   time     0   1   2       4
 *   rank 0   0F0 0F1         0B0 ...    sends 0F0 at 1, 0F1 at 2
 *   rank 1       1F0 1B0     1F1 ...    receives 0F0 before 1F0, 0F1 before 1B0
 *
 * A message of time t then never waits for what comes later than t, on any rank.
 */
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "program/gradients.h"
#include "program/overlap_update.h"
#include "program/passes.h"
#include "program/runs.h"
#include "program/schedule.h"
#include "program/shard.h"

/* ---- the runs of a rank ---- */

/* An action of the rank, and its runs: those from `first` on. */
struct step {
    struct schedule_action action;
    int first, count;
};

/* To be received before step `before`, on a stream: what step `needs` reads of another rank, which
 * has it at a time. */
struct arrival {
    int before, needs, from;
    enum program_stream stream;
    int64_t time;
};

struct runs {
    const struct program *program;
    struct run *run;
    int count;
    struct step *step;
    int steps;
    struct arrival *arrival;
    int arrivals;
};

/* The run of a unit in an action, if it has one; not where what it makes is not kept, either: what
 * is carried lives in the run alone. */
static void add_run(struct runs *runs, int unit, const struct schedule_action *action)
{
    const struct program *program = runs->program;
    enum segment_phase phase = action->phase;
    int is_both = program->kind == PROGRAM_TRAIN && !program->units->request.splits_loss &&
                  units_kind(program->units, unit)->ends_in_loss;
    if (is_both && (phase == PHASE_BACKWARD || phase == PHASE_BACKWARD_INPUT))
        phase = PHASE_BOTH;
    const struct segment *segment = program_segment(program, unit, phase);
    if (segment->writes & ~(space_bit(SPACE_WORK) | space_bit(SPACE_CARRY)))
        runs->run[runs->count++] = (struct run){.phase = phase,
                                                .unit = unit,
                                                .micro = action->micro,
                                                .action = runs->steps,
                                                .segment = segment};
}

static void add_step(struct runs *runs, const struct schedule_action *action)
{
    struct units_stage own = units_stage(runs->program->units, action->stage);
    int last = own.first + own.count - 1, first = runs->count;
    if (action->phase == PHASE_FORWARD)
        for (int u = own.first; u <= last; u++)
            add_run(runs, u, action);
    else
        for (int u = last; u >= own.first; u--)
            add_run(runs, u, action);
    runs->step[runs->steps++] = (struct step){*action, first, runs->count - first};
}

/* Forward of one micro-batch, stage by stage. */
static void list_forward(struct runs *runs)
{
    const struct schedule *schedule = runs->program->layout->schedule;
    for (int stage = 0; stage < schedule->stages; stage++)
        if (schedule->rank_of[stage] == runs->program->state->coord.at[MESH_PIPELINE])
            add_step(runs, &(struct schedule_action){stage, 0, PHASE_FORWARD});
}

/* All runs of the step. */
static void list_runs(struct runs *runs)
{
    const struct program *program = runs->program;
    const struct schedule *schedule = program->layout->schedule;
    int count, most = 0;
    const struct schedule_action *action =
        schedule_actions(schedule, program->state->coord.at[MESH_PIPELINE], &count);
    for (int stage = 0; stage < schedule->stages; stage++) {
        int units = units_stage(program->units, stage).count;
        most = units > most ? units : most;
    }
    runs->run = array_make((size_t)count * (size_t)most, sizeof *runs->run);
    runs->step = array_make((size_t)count, sizeof *runs->step);
    for (int a = 0; a < count && program->kind == PROGRAM_TRAIN; a++)
        add_step(runs, &action[a]);
    if (program->kind != PROGRAM_TRAIN)
        list_forward(runs);
}

static int left_in_step(const struct runs *runs, int r)
{
    const struct step *step = &runs->step[runs->run[r].action];
    return step->first + step->count - r;
}

/* ---- when messages are received ---- */

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

/* When the actions end that others wait for, by stage, forward or not, and micro-batch.  For
 * free(). */
static int64_t *find_ends(const struct schedule *s)
{
    static const struct schedule_costs costs = {1, 1, 1}; /* as in s->start */
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
    const struct arrival *one = a, *other = b;
    if (one->time != other->time)
        return one->time < other->time ? -1 : 1;
    return one->from != other->from ? one->from - other->from : one->needs - other->needs;
}

/* The streams on which the rank sends what its steps make, a bit each. */
static unsigned streams_sent_on(const struct runs *runs)
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

/* Each before the first step that begins no earlier than it is there, or, on a stream on which the
 * rank does not send, a step ahead of what needs it if that is earlier; and none before one of an
 * earlier time. */
static void place_arrivals(struct runs *runs, const int64_t *start)
{
    struct arrival *arrival = runs->arrival;
    unsigned sent_on = streams_sent_on(runs);
    qsort(arrival, (size_t)runs->arrivals, sizeof *arrival, in_time);
    for (int i = 0, step = 0; i < runs->arrivals; i++) {
        while (start[step] < arrival[i].time)
            step++;
        int ahead = arrival[i].needs ? arrival[i].needs - 1 : 0;
        int can_be_ahead = !(sent_on >> arrival[i].stream & 1) && ahead < step;
        arrival[i].before = can_be_ahead ? ahead : step;
    }
    for (int i = 1; i < runs->arrivals; i++)
        if (arrival[i].before < arrival[i - 1].before)
            arrival[i].before = arrival[i - 1].before;
}

/* What the rank receives in training. */
static void find_arrivals(struct runs *runs)
{
    const struct schedule *s = runs->program->layout->schedule;
    int rank = runs->program->state->coord.at[MESH_PIPELINE];
    int64_t *end = find_ends(s);
    for (int k = 0; k < runs->steps; k++) {
        const struct schedule_action *action = &runs->step[k].action;
        int stage = needed_stage(s, action), is_forward = action->phase == PHASE_FORWARD;
        if (stage >= 0)
            runs->arrival[runs->arrivals++] =
                (struct arrival){.needs = k,
                                 .from = s->rank_of[stage],
                                 .stream = program_point(runs->program, s->rank_of[stage], rank,
                                                         is_forward ? WAY_UP : WAY_DOWN),
                                 .time = end[(stage * 2 + is_forward) * s->micros + action->micro]};
    }
    place_arrivals(runs, &s->start[s->first[rank]]);
    free(end);
}

static void list_arrivals(struct runs *runs)
{
    runs->arrival = array_make((size_t)runs->steps, sizeof *runs->arrival);
    if (runs->program->units->stages == 1)
        return;
    if (runs->program->kind == PROGRAM_TRAIN) {
        find_arrivals(runs);
        return;
    }
    for (int k = 0; k < runs->steps; k++)
        runs->arrival[runs->arrivals++] = (struct arrival){.before = k, .needs = k};
}

/* The runs that read what is received for a step: its own, or, of forward of the unit that does all
 * in backward, those of that. */
static const struct step *reader_of(const struct runs *runs, int k)
{
    const struct step *step = &runs->step[k];
    for (int i = k; i < runs->steps && !step->count; i++)
        if (runs->step[i].action.stage == runs->step[k].action.stage &&
            runs->step[i].action.micro == runs->step[k].action.micro)
            step = &runs->step[i];
    return step;
}

/* Before the first run of a step: receive what is to be there by then.  *next: the first arrival
 * that is not received yet. */
static void receive(struct program *program, struct runs_buffers *buffers, const struct runs *runs,
                    int r, int *next)
{
    int step = runs->run[r].action;
    for (; *next < runs->arrivals && runs->arrival[*next].before <= step; (*next)++) {
        const struct step *reader = reader_of(runs, runs->arrival[*next].needs);
        if (reader->count)
            runs_receive(program, buffers, &runs->run[reader->first], reader->count);
    }
}

/* Behind the last run of a step: send what its runs have made for other ranks. */
static void send(struct program *program, struct runs_buffers *buffers, const struct runs *runs,
                 int r)
{
    const struct step *step = &runs->step[runs->run[r].action];
    if (program->units->stages > 1 && left_in_step(runs, r) == 1)
        runs_send(program, buffers, &runs->run[step->first], step->count);
}

/* ---- sets of places ----
 *
 * What a stage makes for a micro-batch lies in one set of places, from the first run of the stage
 * for it to the last run that reads anything of it; what it receives, in one of its own, because
 * that begins earlier, when another micro-batch still has what the stage made:
 *
 *   1f1b, rank 0 of 2, micro-batch    0F0 0F1 0B0 0F2 0B1 0F3 0B2
 *     0                               [ set 0   ]
 *     1                                   [ set 1       ]
 *     2                                           [ set 0       ]
 *
 * The stages of a rank share the sets.  A set of what is received goes with one of what is made:
 * the numbers of both repeat together.
 */

/* From which run on nothing else may have the places of a micro-batch in a stage, and the last run
 * that does. */
struct span {
    int at, begin, end; /* at: stage * micro-batches + micro-batch */
};

static int by_begin(const void *a, const void *b)
{
    const struct span *one = a, *other = b;
    return one->begin != other->begin ? one->begin - other->begin : one->at - other->at;
}

static void span_run(struct span *span, int begin, int end)
{
    span->begin = begin < span->begin ? begin : span->begin;
    span->end = end > span->end ? end : span->end;
}

static int is_elsewhere(const struct runs *runs, int stage)
{
    const struct schedule *s = runs->program->layout->schedule;
    return stage >= 0 && stage < s->stages &&
           s->rank_of[stage] != runs->program->state->coord.at[MESH_PIPELINE];
}

static int is_here(const struct runs *runs, int stage)
{
    return stage >= 0 && stage < runs->program->units->stages && !is_elsewhere(runs, stage);
}

/* The last run that has places of what a step sends up, or down (way), or uses: what is sent is
 * gone one run later. */
static int end_of(const struct runs *runs, const struct step *step, enum mesh_way way)
{
    int is_up = step->action.phase == PHASE_FORWARD, stage = step->action.stage;
    int sends = is_up == (way == WAY_UP) && is_elsewhere(runs, is_up ? stage + 1 : stage - 1);
    return step->first + step->count - 1 + sends;
}

/* Of what stages make for each micro-batch, and of what they receive, with the gradient that they
 * send down.  A stage reads what the one below makes, and that its gradient, where both are here.
 */
static void find_spans(const struct runs *runs, struct span *own, struct span *received)
{
    int micros = runs->program->micros, count = runs->program->units->stages * micros;
    for (int at = 0; at < count; at++)
        own[at] = received[at] = (struct span){.at = at, .begin = runs->count};
    for (int k = 0; k < runs->steps; k++) {
        const struct step *step = &runs->step[k];
        int at = step->action.stage * micros + step->action.micro;
        if (!step->count)
            continue;
        span_run(&received[at], step->first, end_of(runs, step, WAY_DOWN));
        span_run(&own[at], step->first, end_of(runs, step, WAY_UP));
        if (is_here(runs, step->action.stage - 1))
            span_run(&own[at - micros], step->first, end_of(runs, step, WAY_UP));
    }
    for (int i = 0; i < runs->arrivals; i++) {
        const struct arrival *arrival = &runs->arrival[i];
        const struct schedule_action *needs = &runs->step[arrival->needs].action;
        span_run(&received[needs->stage * micros + needs->micro], runs->step[arrival->before].first,
                 0);
    }
}

/* The set of each span that has runs: of those whose span is over when this one begins the one that
 * has been free for the longest time, or a new one.  Returns how many sets there are. */
static int give_sets(struct span *span, int count, int runs, int *set)
{
    int sets = 0, *done = array_make((size_t)count, sizeof *done); /* per set: its last run */
    qsort(span, (size_t)count, sizeof *span, by_begin);
    for (int i = 0; i < count && span[i].begin < runs; i++) {
        int first = 0;
        for (int k = 1; k < sets; k++)
            first = done[k] < done[first] ? k : first;
        if (sets == 0 || done[first] >= span[i].begin)
            first = sets++;
        set[span[i].at] = first;
        done[first] = span[i].end;
    }
    free(done);
    return sets;
}

/* The same, of those that go with each of the sets of what stages make: own + k * owns for k from 0
 * on. */
static int give_received(struct span *span, int count, int runs, const int *own, int owns, int *set)
{
    int *free_from = NULL, sets = 0, capacity = 0; /* per set: the run behind its last */
    qsort(span, (size_t)count, sizeof *span, by_begin);
    for (int i = 0; i < count && span[i].begin < runs; i++) {
        int k = own[span[i].at];
        while (k < sets && free_from[k] > span[i].begin)
            k += owns;
        while (sets <= k)
            free_from = array_grow(free_from, sets++, &capacity, sizeof *free_from);
        set[span[i].at] = k;
        free_from[k] = span[i].end + 1;
    }
    free(free_from);
    return sets;
}

/* For free_sets(). */
static void find_sets(const struct runs *runs, struct runs_sets *sets)
{
    int micros = runs->program->micros, count = runs->program->units->stages * micros;
    struct span *own = array_make((size_t)count, sizeof *own);
    struct span *received = array_make((size_t)count, sizeof *received);
    *sets = (struct runs_sets){.own = array_make((size_t)count, sizeof(int)),
                               .received = array_make((size_t)count, sizeof(int)),
                               .loaded = array_make((size_t)micros, sizeof(int))};
    find_spans(runs, own, received);
    sets->owns = give_sets(own, count, runs->count, sets->own);
    sets->receipts =
        give_received(received, count, runs->count, sets->own, sets->owns, sets->received);
    for (int m = 0; m < micros; m++)
        own[m] = (struct span){.at = m, .begin = runs->count};
    for (int r = 0; r < runs->count; r++)
        span_run(&own[runs->run[r].micro], r, r);
    sets->loads = give_sets(own, micros, runs->count, sets->loaded);
    free(received);
    free(own);
}

static void free_sets(struct runs_sets *sets)
{
    free(sets->own);
    free(sets->received);
    free(sets->loaded);
}

/* ---- the pass ---- */

static void write_runs(struct program *program, struct runs_buffers *buffers, struct runs *runs)
{
    struct run *run = runs->run;
    char *loaded = array_make((size_t)program->micros, 1);
    for (int r = 0, arrival = 0; r < runs->count; r++) {
        if (!loaded[run[r].micro]++)
            runs_load(program, buffers, run[r].micro);
        receive(program, buffers, runs, r, &arrival);
        shard_before(program, run, runs->count, r);
        overlap_update_before_run(program, &run[r]);
        gradients_before(program, run, runs->count, r);
        runs_write(program, buffers, &run[r]);
        send(program, buffers, runs, r);
        gradients_after(program, run, runs->count, r);
        shard_after(program, run, runs->count, r);
    }
    free(loaded);
}

void pass_schedule(struct program *program)
{
    struct runs runs = {.program = program};
    struct runs_sets sets;
    list_runs(&runs);
    list_arrivals(&runs);
    find_sets(&runs, &sets);
    struct runs_buffers *buffers = runs_open(program, &sets);
    shard_plan(program, runs.run, runs.count);
    gradients_plan(program, runs.run, runs.count);
    runs_plan(program, buffers, runs.run, runs.count);
    overlap_update_plan(program, runs.run, runs.count);
    if (!program->overlap)
        program_zero(program);
    write_runs(program, buffers, &runs);
    overlap_update_end(program);
    if (program->kind == PROGRAM_EVALUATE)
        pass_sums(program);
    runs_close(buffers);
    free_sets(&sets);
    free(runs.run);
    free(runs.step);
    free(runs.arrival);
}
