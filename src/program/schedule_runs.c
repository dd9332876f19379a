/* schedule_runs.c - the runs of a rank, from the actions of its schedule, and the pass that writes
 * them.
 *
 * An action becomes the runs of its stage's units.  The unit that ends in the loss makes that, and
 * its gradient, in backward, so that logits exist only a chunk at a time.
 *
 * What an action makes for another rank is sent behind it; when it is received there is chosen so
 * that no ranks wait for one another, whatever the schedule.  All ranks are played together
 * (schedule_play()): each message is there at the end of the action that sends it.  All a rank
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

/* The run of a unit in an action, if it has one; not where what it makes is not kept, either. */
static void add_run(struct runs *runs, int unit, const struct schedule_action *action)
{
    const struct program *program = runs->program;
    enum segment_phase phase = action->phase;
    int is_both = program->kind == PROGRAM_TRAIN && !program->units->request.splits_loss &&
                  units_kind(program->units, unit)->ends_in_loss;
    if (is_both && (phase == PHASE_BACKWARD || phase == PHASE_BACKWARD_INPUT))
        phase = PHASE_BOTH;
    const struct segment *segment = program_segment(program, unit, phase);
    if (segment->writes & ~(1u << SPACE_WORK))
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
static int64_t *find_ends(const struct schedule *s, const int64_t *start,
                          const struct schedule_costs *costs)
{
    int64_t *end = array_make((size_t)s->stages * 2 * (size_t)s->micros, sizeof *end);
    for (int a = 0; a < s->first[s->ranks]; a++) {
        const struct schedule_action *action = &s->action[a];
        int is_forward = action->phase == PHASE_FORWARD;
        if (action->phase != PHASE_BACKWARD_WEIGHT)
            end[(action->stage * 2 + is_forward) * s->micros + action->micro] =
                start[a] + schedule_cost(costs, action->phase);
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
    for (int i = runs->arrivals - 2; i >= 0; i--)
        if (arrival[i].before > arrival[i + 1].before && !(sent_on >> arrival[i].stream & 1))
            arrival[i].before = arrival[i + 1].before;
    for (int i = 1; i < runs->arrivals; i++)
        if (arrival[i].before < arrival[i - 1].before)
            arrival[i].before = arrival[i - 1].before;
}

/* What the rank receives in training. */
static void find_arrivals(struct runs *runs)
{
    static const struct schedule_costs costs = {1, 1, 1};
    const struct schedule *s = runs->program->layout->schedule;
    int rank = runs->program->state->coord.at[MESH_PIPELINE];
    int64_t *start = array_make((size_t)s->first[s->ranks], sizeof *start);
    schedule_play(s, &costs, start, NULL); /* it ends: schedule_create() has tried it */
    int64_t *end = find_ends(s, start, &costs);
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
    place_arrivals(runs, &start[s->first[rank]]);
    free(end);
    free(start);
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

/* ---- sets of buffers ---- */

/* From which run on nothing else may have a micro-batch's places, and its last run. */
struct span {
    int micro, begin, end;
};

static int by_begin(const void *a, const void *b)
{
    const struct span *one = a, *other = b;
    return one->begin != other->begin ? one->begin - other->begin : one->micro - other->micro;
}

/* A micro-batch begins with a step of its own, or before it with one at which something of it is
 * received.  What is sent of another dies a run after that one's last: there is a step in between.
 */
static int begin_of(const struct runs *runs, int step)
{
    return runs->step[runs->program->units->stages > 1 && step ? step - 1 : step].first;
}

static void begin_at(struct span *span, int run)
{
    span->begin = run < span->begin ? run : span->begin;
}

static void find_spans(const struct runs *runs, struct span *span)
{
    for (int m = 0; m < runs->program->micros; m++)
        span[m] = (struct span){.micro = m, .begin = runs->count};
    for (int k = 0; k < runs->steps; k++) {
        const struct step *step = &runs->step[k];
        struct span *of = &span[step->action.micro];
        if (step->count) {
            begin_at(of, begin_of(runs, k));
            of->end = step->first + step->count - 1;
        }
    }
    for (int i = 0; i < runs->arrivals; i++) {
        const struct arrival *arrival = &runs->arrival[i];
        begin_at(&span[runs->step[arrival->needs].action.micro], begin_of(runs, arrival->before));
    }
}

/* A set of buffers for each micro-batch: of those whose micro-batch is done when this one begins
 * the one that was done first, or a new one.  Returns how many sets there are. */
static int find_sets(const struct runs *runs, int *set)
{
    int micros = runs->program->micros, sets = 0;
    struct span *span = array_make((size_t)micros, sizeof *span);
    int *done = array_make((size_t)micros, sizeof *done); /* per set: the last run that has it */
    find_spans(runs, span);
    qsort(span, (size_t)micros, sizeof *span, by_begin);
    for (int i = 0; i < micros; i++) {
        int first = 0;
        for (int k = 1; k < sets; k++)
            first = done[k] < done[first] ? k : first;
        if (sets == 0 || done[first] >= span[i].begin)
            first = sets++;
        set[span[i].micro] = first;
        done[first] = span[i].end;
    }
    free(done);
    free(span);
    return sets;
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
    int *set = array_make((size_t)program->micros, sizeof *set);
    list_runs(&runs);
    list_arrivals(&runs);
    int sets = find_sets(&runs, set);
    struct runs_buffers *buffers = runs_open(program, set, sets);
    shard_plan(program, runs.run, runs.count);
    gradients_plan(program, runs.run, runs.count);
    runs_plan(program, buffers, runs.run, runs.count);
    instr_bind(program_instr(program, INSTR_ZERO, STREAM_COMPUTE), SLOT_SUMS, program->state->sums,
               ACCESS_WRITE);
    write_runs(program, buffers, &runs);
    if (program->kind == PROGRAM_EVALUATE)
        pass_sums(program);
    runs_close(buffers);
    free(set);
    free(runs.run);
    free(runs.step);
    free(runs.arrival);
}
