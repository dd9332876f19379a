/* schedule.c - see schedule.h: a schedule is made from a row or a file, then checked alike.
 *
 * Checked is that each stage does each micro-batch's phases once, on its rank, forward first; and,
 * by playing all ranks together (schedule_play.c), that no action waits for itself.
 */
#include "program/schedule_private.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"

int schedule_is_file(const char *name)
{
    size_t length = strlen(name);
    return length > 4 && !strcmp(name + length - 4, ".csv");
}

/* ---- from a row ---- */

static int check_chunks(const struct schedule_row *row, int chunks, struct error *err)
{
    if (chunks < row->chunks_least)
        return error_set(err,
                         "parallel.virtual_stages is %d, and parallel.schedule %s has at least %d "
                         "stages on each rank; set it to %d",
                         chunks, row->name, row->chunks_least, row->chunks_least);
    if (row->chunks_most && chunks > row->chunks_most)
        return error_set(err,
                         "parallel.virtual_stages is %d, and parallel.schedule %s has %d on each "
                         "rank; leave it at %d, or set parallel.schedule=interleaved_1f1b",
                         chunks, row->name, row->chunks_most, row->chunks_most);
    return 0;
}

struct schedule_facts schedule_facts(const struct schedule_row *row)
{
    return (struct schedule_facts){.chunks = row->chunks,
                                   .chunks_most = row->chunks_most,
                                   .splits_backward = row->splits_backward};
}

int schedule_rank_of(const struct schedule_row *row, int ranks, int stage)
{
    int at = stage % ranks, is_back = stage / ranks % 2;
    return row->placement == PLACED_V && is_back ? ranks - 1 - at : at;
}

static int from_row(struct schedule *s, const struct schedule_request *request,
                    struct schedule_list *list, struct error *err)
{
    const struct schedule_row *row = schedule_row(request->name);
    if (!row)
        return error_set(err, "parallel.schedule: there is no \"%s\"", request->name);
    int chunks = request->chunks ? request->chunks : row->chunks;
    if (s->ranks == 1 && !request->chunks)
        chunks = row->chunks_least; /* there is nothing to interleave */
    if (check_chunks(row, chunks, err))
        return -1;
    s->stages = s->ranks * chunks;
    s->splits_backward = row->splits_backward;
    s->rank_of = array_make((size_t)s->stages, sizeof *s->rank_of);
    for (int stage = 0; stage < s->stages; stage++)
        s->rank_of[stage] = schedule_rank_of(row, s->ranks, stage);
    for (int rank = 0; rank < s->ranks; rank++) {
        s->first[rank] = list->count;
        row->list(s, rank, list);
    }
    s->first[s->ranks] = list->count;
    return 0;
}

/* ---- is it right ---- */

/* Add an action of a rank to there[stage, micro-batch], which has a bit for each phase.  Refuse one
 * on another rank than its stage, one that is there twice, and one before what it needs. */
static int note_action(const struct schedule *s, int rank, const struct schedule_action *action,
                       unsigned char *there, struct error *err)
{
    static const unsigned before[PHASES] = {[PHASE_BACKWARD] = 1u << PHASE_FORWARD,
                                            [PHASE_BACKWARD_INPUT] = 1u << PHASE_FORWARD,
                                            [PHASE_BACKWARD_WEIGHT] = 1u << PHASE_BACKWARD_INPUT};
    char text[SCHEDULE_TEXT];
    unsigned char *at = &there[action->stage * s->micros + action->micro];
    schedule_text(action, text);
    if (s->rank_of[action->stage] != rank)
        return error_set(err, "%s is on rank %d, and stage %d has actions on rank %d too", text,
                         rank, action->stage, s->rank_of[action->stage]);
    if (*at >> action->phase & 1)
        return error_set(err, "rank %d has %s twice", rank, text);
    if (~*at & before[action->phase])
        return error_set(err, "rank %d has %s before its %s", rank, text,
                         action->phase == PHASE_BACKWARD_WEIGHT ? "input part" : "forward");
    *at |= (unsigned char)(1u << action->phase);
    return 0;
}

/* Does each stage do all of each micro-batch? */
static int check_all(const struct schedule *s, const unsigned char *there, struct error *err)
{
    char text[SCHEDULE_TEXT];
    unsigned whole = s->splits_backward ? 1u << PHASE_FORWARD | 1u << PHASE_BACKWARD_INPUT |
                                              1u << PHASE_BACKWARD_WEIGHT
                                        : 1u << PHASE_FORWARD | 1u << PHASE_BACKWARD;
    for (int i = 0; i < s->stages * s->micros; i++)
        for (int phase = 0; phase < PHASES; phase++)
            if ((whole & ~there[i]) >> phase & 1) {
                struct schedule_action lacks = {i / s->micros, i % s->micros,
                                                (enum segment_phase)phase};
                return error_set(err, "rank %d lacks %s", s->rank_of[lacks.stage],
                                 schedule_text(&lacks, text));
            }
    return 0;
}

/* Check that the actions of all ranks are a schedule, and find when they start. */
static int check(struct schedule *s, struct error *err)
{
    unsigned char *there = array_make((size_t)s->stages * (size_t)s->micros, 1);
    int rc = 0;
    for (int rank = 0; rank < s->ranks; rank++)
        for (int a = s->first[rank]; !rc && a < s->first[rank + 1]; a++)
            rc = note_action(s, rank, &s->action[a], there, err);
    if (!rc)
        rc = check_all(s, there, err);
    s->start = array_make((size_t)s->first[s->ranks], sizeof *s->start);
    if (!rc && schedule_play(s, &(struct schedule_costs){1, 1, 1}, s->start, err) < 0)
        rc = -1;
    free(there);
    return rc;
}

/* ---- */

/* Is some forward action of the last stage not followed at once by its whole backward? */
static int splits_loss(const struct schedule *s)
{
    int last = s->stages - 1, count;
    const struct schedule_action *action = schedule_actions(s, s->rank_of[last], &count);
    for (int a = 0; a < count; a++)
        if (action[a].stage == last && action[a].phase == PHASE_FORWARD &&
            (action[a + 1].stage != last || action[a + 1].micro != action[a].micro ||
             action[a + 1].phase != PHASE_BACKWARD))
            return 1;
    return 0;
}

int schedule_create(struct schedule **schedule, const struct schedule_request *request,
                    struct error *err)
{
    struct schedule *s = array_make(1, sizeof *s);
    struct schedule_list list = {0};
    int is_file = schedule_is_file(request->name);
    s->ranks = request->ranks;
    s->micros = request->micros;
    s->first = array_make((size_t)s->ranks + 1, sizeof *s->first);
    int rc =
        is_file ? schedule_read(s, request->name, &list, err) : from_row(s, request, &list, err);
    s->action = list.action;
    if (!rc && check(s, err)) {
        error_prefix(err, "parallel.schedule %s", request->name);
        rc = -1;
    }
    if (rc) {
        schedule_destroy(s);
        return -1;
    }
    s->splits_loss = splits_loss(s);
    *schedule = s;
    return 0;
}

void schedule_destroy(struct schedule *schedule)
{
    if (!schedule)
        return;
    free(schedule->rank_of);
    free(schedule->first);
    free(schedule->action);
    free(schedule->start);
    free(schedule);
}
