/* play.c - plays a step: when instructions start and end, one event after another.  See play.h.
 *
 * What is in progress is an activity: an instruction of one rank, or a transfer of several.  It has
 * so many seconds left at full speed, and a rate that changes when something else begins or ends
 * beside it; so its end is known until then.
 *
 *   loop   the activity that ends first ends
 *          its ranks go on: their hosts issue, their streams start what can start
 *          rates of all that runs on these ranks are set anew
 *
 * A rank keeps of each stream the last instruction that has ended there.  As streams are in order,
 * instruction i of a stream has ended where that is not before i.
 *
 * Its parts: play_engine.c makes what is known of each rank and group, play_activity.c sets rates,
 * play_transfers.c lets the members of a transfer meet, play_waits.c adds up what ranks wait for,
 * by the kinds of play_kind.c.
 */
#include "simulate/play_private.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"

/* ---- ends ---- */

/* Note in a stream that instruction i, which it started last, has ended now. */
static void stream_ended(struct play_stream *s, int i, double start_s, double now)
{
    s->open = 0;
    s->done = i;
    s->started = start_s;
    s->ended = now;
    s->came = s->current_came;
    s->held_by = s->current_held_by;
    s->took = now > start_s ? i : s->current_held_by;
    s->worked = now > start_s ? i : s->worked;
}

static void instr_ended(struct play_engine *e, int rank, int i, double start_s)
{
    struct play_progress *r = &e->rank[rank];
    const struct instr *instr = play_instr_of(e, rank, i);
    struct play_stream *s = &r->stream[instr->stream];
    struct play_rank *out = &e->play->rank[rank];
    double took = e->now - start_s;
    out->busy_s[instr->stream] += took;
    out->end_s = e->now;
    if (took > 0 && e->request->watch)
        e->request->watch(e->request->user, rank, i, start_s, e->now);
    if (play_takes_compute(e, instr->stream)) {
        out->seconds[play_kind_of(instr)] += took;
        r->idle_since = e->now;
        r->waits_for = -1;
        memcpy(r->busy_before_s, out->busy_s, sizeof r->busy_before_s);
    }
    stream_ended(s, i, start_s, e->now);
    if (play_is_hosts(e, instr->stream)) {
        r->issued = i + 1;
        r->host_runs = 0;
    }
}

/* ---- starts ---- */

/* Are all instructions that this one waits for complete?  If not, note the first that is not, where
 * the compute stream waits for it. */
static int may_start(struct play_engine *e, int rank, const struct instr *instr)
{
    struct play_progress *r = &e->rank[rank];
    for (int s = 0; s < STREAMS; s++)
        if (instr->wait[s] > r->stream[s].done) {
            if (play_takes_compute(e, instr->stream) || e->request->host_is_compute)
                r->waits_for = instr->wait[s];
            return 0;
        }
    return 1;
}

/* The instruction of its own rank, not of the compute stream, for which this one waited until now;
 * -1: none. */
static int held_by(const struct play_engine *e, int rank, const struct instr *instr)
{
    const struct play_progress *r = &e->rank[rank];
    for (int s = 0; s < STREAMS; s++) {
        const struct play_stream *stream = &r->stream[s];
        int waits = s == (int)instr->stream || instr->wait[s] >= 0;
        if (waits && !play_takes_compute(e, s) && stream->done >= 0 && stream->ended == e->now)
            return stream->took;
    }
    return -1;
}

/* Start instruction i, whose waits are over, on its stream. */
static void start(struct play_engine *e, int rank, int i)
{
    struct play_progress *r = &e->rank[rank];
    const struct instr *instr = play_instr_of(e, rank, i);
    struct play_stream *s = &r->stream[instr->stream];
    int is_compute = play_takes_compute(e, instr->stream);
    s->current_came = e->now;
    s->current_held_by = held_by(e, rank, instr);
    if (s->current_held_by < 0)
        s->current_held_by = s->starts_after;
    s->starts_after = -1;
    s->open = 1;
    s->current = i;
    s->next = r->next_on_stream[i];
    if (instr_is_transfer(instr)) {
        play_transfer_arrive(e, rank, i);
        return;
    }
    struct play_cost cost = play_cost_of(e, rank, i);
    if (cost.seconds <= 0) {
        stream_ended(s, i, e->now, e->now);
        return;
    }
    if (is_compute)
        play_account_wait(e, rank);
    play_join(e, play_begin(e, cost, is_compute || instr->stream == STREAM_UPDATE), rank, i);
    play_set_rates(e, rank);
}

/* Let the host issue what it can; 1: it did. */
static int issue(struct play_engine *e, int rank)
{
    struct play_progress *r = &e->rank[rank];
    int before = r->issued;
    while (r->issued < r->program->instrs && !r->host_runs) {
        const struct instr *instr = play_instr_of(e, rank, r->issued);
        int is_host = play_is_hosts(e, instr->stream);
        if ((is_host || e->request->host_is_compute) && !may_start(e, rank, instr))
            break;
        if (is_host) {
            int i = r->issued;
            start(e, rank, i);
            if (r->stream[instr->stream].open) {
                r->host_runs = 1;
                return 1;
            }
        }
        r->issued++;
    }
    return r->issued > before;
}

/* Start what the streams can; 1: something was started. */
static int start_streams(struct play_engine *e, int rank)
{
    struct play_progress *r = &e->rank[rank];
    int started = 0;
    for (int s = 0; s < STREAMS; s++) {
        struct play_stream *stream = &r->stream[s];
        while (!play_is_hosts(e, s) && !stream->open && stream->next < r->issued &&
               may_start(e, rank, play_instr_of(e, rank, stream->next)) &&
               play_transfer_is_in_order(e, rank, stream->next)) {
            start(e, rank, stream->next);
            started = 1;
        }
    }
    return started;
}

static void go_on(struct play_engine *e, int rank)
{
    int more = 1;
    while (more) {
        more = issue(e, rank);
        more |= start_streams(e, rank);
    }
}

/* ---- the step ---- */

static struct play_activity *first_to_end(const struct play_engine *e)
{
    struct play_activity *first = e->running[0];
    for (int i = 1; i < e->count; i++)
        if (e->running[i]->end_s < first->end_s)
            first = e->running[i];
    return first;
}

static int is_over(const struct play_engine *e, int rank)
{
    const struct play_progress *r = &e->rank[rank];
    int over = r->issued == r->program->instrs;
    for (int s = 0; s < STREAMS; s++)
        over &= r->stream[s].next >= r->program->instrs && !r->stream[s].open;
    return over;
}

/* Ranks that are not over wait for one another: name one. */
static int stuck(const struct play_engine *e, struct error *err)
{
    char name[160];
    for (int r = 0; r < e->request->ranks; r++)
        if (!is_over(e, r)) {
            const struct play_progress *rank = &e->rank[r];
            int i = rank->waits_for >= 0                   ? rank->waits_for
                    : rank->issued < rank->program->instrs ? rank->issued
                                                           : rank->program->instrs - 1;
            return error_set(err, "rank %d waits for ever for %s", rank->global,
                             instr_text(rank->program, i, name, sizeof name));
        }
    return 0;
}

/* An activity ends, and its ranks go on.  They may use it for the next one. */
static void end(struct play_engine *e, struct play_activity *a)
{
    int members = a->members;
    for (int m = 0; m < members; m++) {
        e->ended = array_grow(e->ended, m, &e->ended_capacity, sizeof *e->ended);
        e->ended[m] = a->member[m];
    }
    play_end(e, a);
    for (int m = 0; m < members; m++)
        instr_ended(e, e->ended[m].rank, e->ended[m].instr, a->start_s);
    play_set_rates_of_members(e, a);
    for (int m = 0; m < members; m++)
        go_on(e, e->ended[m].rank);
}

int play_step(struct play *play, const struct play_request *request, struct error *err)
{
    struct play_engine engine = {.request = request, .play = play}, *e = &engine;
    *play = (struct play){.ranks = request->ranks};
    play->rank = array_make((size_t)request->ranks, sizeof *play->rank);
    play_engine_make(e);
    for (int r = 0; r < request->ranks; r++)
        go_on(e, r);
    while (e->count) {
        struct play_activity *a = first_to_end(e);
        e->now = a->end_s > e->now ? a->end_s : e->now;
        end(e, a);
    }
    for (int r = 0; r < request->ranks; r++)
        play_account_end(e, r);
    play->step_s = e->now + request->step_s;
    int rc = stuck(e, err);
    play_engine_free(e);
    if (rc)
        play_free(play);
    return rc;
}

void play_free(struct play *play)
{
    free(play->rank);
    *play = (struct play){0};
}
