/* schedule_sets.c - which micro-batches' values lie at the same addresses.
 *
 * What a stage makes for a micro-batch lies at one set of addresses, from the first run of the
 * stage for it to the last run that reads anything of it; what it receives, in one of its own,
 * because that begins earlier, when another micro-batch still has what the stage made:
 *
 *   1f1b, rank 0 of 2, micro-batch    0F0 0F1 0B0 0F2 0B1 0F3 0B2
 *     0                               [ set 0   ]
 *     1                                   [ set 1       ]
 *     2                                           [ set 0       ]
 *
 * The stages of a rank share the sets.  A set of what is received goes with one of what is made:
 * the numbers of both repeat together.
 *
 * Where a schedule divides backward, what its input part keeps for its weight part has sets of its
 * own, because it begins later, and with recomputation ends when the other values are long dead:
 *
 *   zb_h1, rank 1 of 4, recompute=full    F0 F1 F2 I0 F3 I1 W0 F4 I2 W1
 *     made for micro-batch 0              [ set 0   ]
 *     made for micro-batch 3                          [ set 0 ...
 *     deferred of micro-batch 0                    [ set 0   ]
 *     deferred of micro-batch 1                          [ set 1      ]
 *
 * The numbers of both do not repeat together, so that parts of backward are captured once for each
 * pair of sets that meets; in return, memory that forward filled is free before the weight part.
 */
#include "program/schedule_runs.h"

#include <stdlib.h>

#include "base/array.h"

/* The runs during which a micro-batch needs its addresses in a stage. */
struct span {
    int at;         /* stage * micro-batches + micro-batch; of what LOAD loads: micro-batch */
    int begin, end; /* the first and the last run; begin past the last run of all: none */
};

static int by_begin(const void *a, const void *b)
{
    const struct span *one = a, *other = b;
    return one->begin != other->begin ? one->begin - other->begin : one->at - other->at;
}

/* Extend a span to runs begin to end. */
static void span_run(struct span *span, int begin, int end)
{
    span->begin = begin < span->begin ? begin : span->begin;
    span->end = end > span->end ? end : span->end;
}

static int is_elsewhere(const struct schedule_runs *runs, int stage)
{
    const struct schedule *s = runs->program->layout->schedule;
    return stage >= 0 && stage < s->stages &&
           s->rank_of[stage] != runs->program->state->coord.at[MESH_PIPELINE];
}

static int is_here(const struct schedule_runs *runs, int stage)
{
    return stage >= 0 && stage < runs->program->units->stages && !is_elsewhere(runs, stage);
}

/* The last run that needs the addresses of what an action uses and sends that way: its own last
 * run, or, if it sends something, the run after it, during which that is sent. */
static int end_of(const struct schedule_runs *runs, const struct schedule_runs_action *action,
                  enum mesh_way way)
{
    int is_up = action->scheduled.phase == PHASE_FORWARD, stage = action->scheduled.stage;
    int sends = is_up == (way == WAY_UP) && is_elsewhere(runs, is_up ? stage + 1 : stage - 1);
    return action->first + action->count - 1 + sends;
}

/* Does an action need the addresses of what passes between units and of what forward keeps?  All do
 * but the weight part of a backward that reads nothing but what the input part keeps for it. */
static int needs_boundaries(const struct schedule_runs *runs,
                            const struct schedule_runs_action *action)
{
    const uint64_t inputs = (1u << BOUNDARY_USES) - 1;
    const uint64_t spaces = inputs << SPACE_INPUT | inputs << SPACE_INPUT_GRAD |
                            space_bit(SPACE_OUTPUT) | space_bit(SPACE_OUTPUT_GRAD) |
                            space_bit(SPACE_SAVED);
    int needs = action->scheduled.phase != PHASE_BACKWARD_WEIGHT;
    for (int r = action->first; r < action->first + action->count; r++)
        needs |= ((runs->run[r].segment->reads | runs->run[r].segment->writes) & spaces) != 0;
    return needs;
}

/* Find the spans of what stages make for each micro-batch, and of what they receive, with the
 * gradient that they send down.  A stage reads what the one below makes, and the one below reads
 * that gradient, where both are here. */
static void find_spans(const struct schedule_runs *runs, struct span *own, struct span *received)
{
    int micros = runs->program->micros, count = runs->program->units->stages * micros;
    for (int at = 0; at < count; at++)
        own[at] = received[at] = (struct span){.at = at, .begin = runs->count};
    for (int k = 0; k < runs->actions; k++) {
        const struct schedule_runs_action *action = &runs->action[k];
        int at = action->scheduled.stage * micros + action->scheduled.micro;
        if (!action->count || !needs_boundaries(runs, action))
            continue;
        span_run(&received[at], action->first, end_of(runs, action, WAY_DOWN));
        span_run(&own[at], action->first, end_of(runs, action, WAY_UP));
        if (is_here(runs, action->scheduled.stage - 1))
            span_run(&own[at - micros], action->first, end_of(runs, action, WAY_UP));
    }
    for (int i = 0; i < runs->arrivals; i++) {
        const struct schedule_arrival *arrival = &runs->arrival[i];
        const struct schedule_action *needs = &runs->action[arrival->needs].scheduled;
        const struct schedule_runs_action *at = &runs->action[arrival->action];
        span_run(&received[needs->stage * micros + needs->micro],
                 at->first + (arrival->is_after ? at->count - 1 : 0), 0);
    }
}

/* Find the spans of what the input part of backward keeps for the weight part. */
static void find_deferred(const struct schedule_runs *runs, struct span *deferred)
{
    int micros = runs->program->micros, count = runs->program->units->stages * micros;
    for (int at = 0; at < count; at++)
        deferred[at] = (struct span){.at = at, .begin = runs->count};
    for (int r = 0; r < runs->count; r++) {
        const struct run *run = &runs->run[r];
        if ((run->segment->reads | run->segment->writes) & space_bit(SPACE_DEFERRED))
            span_run(&deferred[runs->program->units->stage[run->unit] * micros + run->micro], r, r);
    }
}

/* Give each span that has runs a set: of those whose span is over when this one begins, the one
 * that has been free for the longest time, or a new one.  Returns how many sets there are. */
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

/* Give the spans of what is received sets, likewise; received set s goes with own set s % owns. */
static int give_received(struct span *span, int count, int runs, const int *own, int owns, int *set)
{
    int *free_from = NULL, sets = 0, capacity = 0; /* per set: the run after its last */
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

void schedule_find_sets(const struct schedule_runs *runs, struct runs_sets *sets)
{
    int micros = runs->program->micros, count = runs->program->units->stages * micros;
    struct span *own = array_make((size_t)count, sizeof *own);
    struct span *received = array_make((size_t)count, sizeof *received);
    struct span *deferred = array_make((size_t)count, sizeof *deferred);
    struct span *loaded = array_make((size_t)micros, sizeof *loaded);
    *sets = (struct runs_sets){.own = array_make((size_t)count, sizeof(int)),
                               .received = array_make((size_t)count, sizeof(int)),
                               .deferred = array_make((size_t)count, sizeof(int)),
                               .loaded = array_make((size_t)micros, sizeof(int))};
    find_spans(runs, own, received);
    sets->owns = give_sets(own, count, runs->count, sets->own);
    sets->receipts =
        give_received(received, count, runs->count, sets->own, sets->owns, sets->received);
    find_deferred(runs, deferred);
    sets->defers = give_sets(deferred, count, runs->count, sets->deferred);
    for (int m = 0; m < micros; m++)
        loaded[m] = (struct span){.at = m, .begin = runs->count};
    for (int r = 0; r < runs->count; r++)
        span_run(&loaded[runs->run[r].micro], r, r);
    sets->loads = give_sets(loaded, micros, runs->count, sets->loaded);
    free(loaded);
    free(deferred);
    free(received);
    free(own);
}

void schedule_free_sets(struct runs_sets *sets)
{
    free(sets->own);
    free(sets->received);
    free(sets->deferred);
    free(sets->loaded);
}
