/* play_transfers.c - transfers of a step that is played: the ranks that take part meet, then it
 * begins.
 *
 * - A collective: each group of ranks counts, by stream, the members that have come.  The last one
 *   begins one activity of all of them.
 * - A message: the end that comes first notes the rank that it waits for (play_stream.awaits).  The
 *   other end finds that, and begins one activity of both.
 *
 * A message whose other end is not simulated begins at once.
 */
#include "simulate/play_private.h"

/* All members that are simulated are here. */
static void collective_begin(struct play_engine *e, int rank, int i)
{
    const struct instr *instr = play_instr_of(e, rank, i);
    unsigned axes = instr->axes;
    struct play_cost cost = play_cost_of(e, rank, i);
    struct play_activity *a = play_begin(e, cost, 0);
    for (int other = 0; other < e->request->ranks; other++)
        if (e->first[axes][other] == e->first[axes][rank])
            play_join(e, a, other, e->rank[other].stream[instr->stream].current);
    play_set_rates_of_members(e, a);
}

static void collective_arrive(struct play_engine *e, int rank, int i)
{
    const struct instr *instr = play_instr_of(e, rank, i);
    int *arrived = &e->arrived[instr->axes][e->first[instr->axes][rank] * STREAMS + instr->stream];
    if (++*arrived < e->present[instr->axes][rank])
        return;
    *arrived = 0;
    collective_begin(e, rank, i);
}

/* The simulated rank at the other end, or -1. */
static int other_end(const struct play_engine *e, int rank, const struct instr *instr)
{
    const struct program *program = e->rank[rank].program;
    const struct mesh_shape *shape = &program->layout->shape;
    return e->of_global[mesh_rank(
        shape, mesh_coord_of_member(shape, program->state->coord, instr->axes, instr->peer))];
}

static void message_begin(struct play_engine *e, int rank, int i, int peer, int theirs)
{
    struct play_cost cost = play_cost_of(e, rank, i);
    struct play_activity *a = play_begin(e, cost, 0);
    play_join(e, a, rank, i);
    if (peer >= 0)
        play_join(e, a, peer, theirs);
    play_set_rates_of_members(e, a);
}

/* The message with which the other end's stream waits for this one, or -1. */
static int find_match(const struct play_engine *e, int rank, const struct instr *instr, int peer)
{
    const struct play_stream *s = &e->rank[peer].stream[instr->stream];
    enum instr_kind wanted = instr->kind == INSTR_SEND ? INSTR_RECV : INSTR_SEND;
    return s->awaits == rank && play_instr_of(e, peer, s->current)->kind == wanted ? s->current
                                                                                   : -1;
}

static void message_post(struct play_engine *e, int rank, int i)
{
    const struct instr *instr = play_instr_of(e, rank, i);
    struct play_stream *own = &e->rank[rank].stream[instr->stream];
    int peer = other_end(e, rank, instr);
    int theirs = peer < 0 ? -1 : find_match(e, rank, instr, peer);
    if (peer >= 0 && theirs < 0) {
        own->awaits = peer;
        return;
    }
    if (peer >= 0)
        e->rank[peer].stream[instr->stream].awaits = -1;
    message_begin(e, rank, i, peer, theirs);
}

void play_transfer_arrive(struct play_engine *e, int rank, int i)
{
    if (instr_is_message(play_instr_of(e, rank, i)))
        message_post(e, rank, i);
    else
        collective_arrive(e, rank, i);
}

/* Has transfer i started, to its last kernel? */
static int has_started(const struct play_engine *e, int rank, int i)
{
    const struct instr *instr = play_instr_of(e, rank, i);
    const struct play_stream *s = &e->rank[rank].stream[instr->stream];
    return instr_is_several_transfers(instr) ? s->done >= i : s->next > i;
}

int play_transfer_is_in_order(struct play_engine *e, int rank, int i)
{
    struct play_progress *r = &e->rank[rank];
    if (e->request->host_is_compute || !instr_is_transfer(play_instr_of(e, rank, i)))
        return 1;
    for (; r->unstarted < i; r->unstarted++)
        if (instr_is_transfer(play_instr_of(e, rank, r->unstarted)) &&
            !has_started(e, rank, r->unstarted)) {
            r->stream[play_instr_of(e, rank, i)->stream].starts_after = r->unstarted;
            return 0;
        }
    return 1;
}
