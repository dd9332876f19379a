/* play_waits.c - what the compute stream of a rank waits for in a step that is played.
 *
 * All the time in which a compute stream does nothing goes to a kind of work, and to the
 * instruction of its own rank that it waited for, if there is one.  A wait is noted when it is
 * over: when the stream has work again, and at the end of the step.  An example, on a GPU:
 *
 *   compute     |forward 3|        waits for GATHER 4          |forward 4|
 *   copies      |FETCH 4           |
 *   transfers                      |others come to it |it moves|
 *   it goes to            |  copy  |   other ranks    | gather |
 */
#include "simulate/play_private.h"

static void add_wait(struct play_engine *e, int rank, int instr, enum play_kind kind,
                     double seconds)
{
    if (seconds <= 0)
        return;
    e->play->rank[rank].seconds[kind] += seconds;
    if (instr >= 0 && e->request->waited)
        e->request->waited(e->request->user, rank, instr, kind, seconds);
}

static double within(double value, double least, double most)
{
    return value < least ? least : value > most ? most : value;
}

/* The instruction of the host's own that ended now, on a GPU, which got nothing to do until then;
 * -1: there is none. */
static int host_work(const struct play_engine *e, int rank)
{
    const struct play_stream *host = &e->rank[rank].stream[STREAM_HOST];
    return !e->request->host_is_compute && host->done >= 0 && host->ended == e->now ? host->done
                                                                                    : -1;
}

/* Note what the compute stream of a rank has waited for since its last work ended.  The time is
 * that of the instruction it waited for, in parts:
 *
 *   until that had come       to what held it on its own rank, as a FETCH holds a GATHER of
 *                             offloaded parameters, or a transfer that NCCL starts first
 *   until it started          to the ranks that it waited for
 *   until now                 to its kind: it moved
 *
 * Copies wait for copies before them, not for ranks. */
void play_account_wait(struct play_engine *e, int rank)
{
    struct play_progress *r = &e->rank[rank];
    double from = r->idle_since;
    if (e->now <= from)
        return;
    if (r->waits_for < 0) {
        int work = host_work(e, rank);
        add_wait(e, rank, work, work < 0 ? PLAY_RANKS : play_kind_of(play_instr_of(e, rank, work)),
                 e->now - from);
        return;
    }
    const struct instr *instr = play_instr_of(e, rank, r->waits_for);
    const struct play_stream *s = &r->stream[instr->stream];
    double started = play_kind_of(instr) == PLAY_COPY ? from : within(s->started, from, e->now);
    double came = within(s->came, from, started);
    if (s->held_by < 0)
        add_wait(e, rank, r->waits_for, PLAY_RANKS, came - from);
    else
        add_wait(e, rank, s->held_by, play_kind_of(play_instr_of(e, rank, s->held_by)),
                 came - from);
    add_wait(e, rank, r->waits_for, PLAY_RANKS, started - came);
    add_wait(e, rank, r->waits_for, play_kind_of(instr), e->now - started);
}

/* Note what the compute stream of a rank waits for from its last work to the end of the step: until
 * the rank has ended, for the stream of its own that works longest meanwhile, by the last
 * instruction there that takes time; then for the rank that ends last. */
void play_account_end(struct play_engine *e, int rank)
{
    struct play_rank *out = &e->play->rank[rank];
    struct play_progress *r = &e->rank[rank];
    int last = -1;
    double longest_s = 0;
    for (int s = 0; s < STREAMS; s++) {
        double busy_s = play_takes_compute(e, s) ? 0 : out->busy_s[s] - r->busy_before_s[s];
        if (busy_s > longest_s) {
            last = r->stream[s].worked;
            longest_s = busy_s;
        }
    }
    add_wait(e, rank, last, last < 0 ? PLAY_RANKS : play_kind_of(play_instr_of(e, rank, last)),
             out->end_s - r->idle_since);
    add_wait(e, rank, -1, PLAY_RANKS, e->now - out->end_s);
}
