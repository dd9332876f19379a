/* play.c - see play.h.
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
 */
#include "simulate/play_private.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"

const char *play_kind_name(enum play_kind kind)
{
    static const char *const names[] = {
        [PLAY_FORWARD] = "forward",
        [PLAY_BACKWARD] = "backward",
        [PLAY_UPDATE] = "update",
        [PLAY_GATHER] = "gather",
        [PLAY_REDUCE] = "reduce",
        [PLAY_ALL_REDUCE] = "all-reduce",
        [PLAY_ALL_TO_ALL] = "all-to-all",
        [PLAY_MESSAGE] = "message",
        [PLAY_COPY] = "copy",
        [PLAY_RANKS] = "other ranks",
    };
    return names[kind];
}

static const struct instr *instr_of(const struct play_engine *e, int rank, int i)
{
    return &e->rank[rank].program->instr[i];
}

enum play_kind play_kind_of(const struct instr *instr)
{
    static const enum play_kind kinds[INSTR_KINDS] = {
        [INSTR_GATHER] = PLAY_GATHER,        [INSTR_REDUCE] = PLAY_REDUCE,
        [INSTR_ALLREDUCE] = PLAY_ALL_REDUCE, [INSTR_ALLTOALL] = PLAY_ALL_TO_ALL,
        [INSTR_SEND] = PLAY_MESSAGE,         [INSTR_RECV] = PLAY_MESSAGE,
        [INSTR_FETCH] = PLAY_COPY,           [INSTR_SPILL] = PLAY_COPY,
    };
    if (instr_is_of_phase(instr))
        return instr->phase == PHASE_FORWARD ? PLAY_FORWARD : PLAY_BACKWARD;
    return kinds[instr->kind] ? kinds[instr->kind] : PLAY_UPDATE;
}

/* Does the host do what is on a stream itself? */
static int is_hosts(const struct play_engine *e, enum program_stream stream)
{
    return stream == STREAM_HOST || (e->request->host_is_compute && stream == STREAM_COMPUTE);
}

static int takes_compute(const struct play_engine *e, enum program_stream stream)
{
    return stream == STREAM_COMPUTE || (e->request->host_is_compute && stream == STREAM_HOST);
}

/* ---- what the compute stream waits for ---- */

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
static void account_wait(struct play_engine *e, int rank)
{
    struct play_progress *r = &e->rank[rank];
    double from = r->idle_since;
    if (e->now <= from)
        return;
    if (r->waits_for < 0) {
        int work = host_work(e, rank);
        add_wait(e, rank, work, work < 0 ? PLAY_RANKS : play_kind_of(instr_of(e, rank, work)),
                 e->now - from);
        return;
    }
    const struct instr *instr = instr_of(e, rank, r->waits_for);
    const struct play_stream *s = &r->stream[instr->stream];
    double started = play_kind_of(instr) == PLAY_COPY ? from : within(s->started, from, e->now);
    double came = within(s->came, from, started);
    if (s->held_by < 0)
        add_wait(e, rank, r->waits_for, PLAY_RANKS, came - from);
    else
        add_wait(e, rank, s->held_by, play_kind_of(instr_of(e, rank, s->held_by)), came - from);
    add_wait(e, rank, r->waits_for, PLAY_RANKS, started - came);
    add_wait(e, rank, r->waits_for, play_kind_of(instr), e->now - started);
}

/* Are all instructions that this one waits for complete?  If not, note the first that is not, where
 * the compute stream waits for it. */
static int may_start(struct play_engine *e, int rank, const struct instr *instr)
{
    struct play_progress *r = &e->rank[rank];
    for (int s = 0; s < STREAMS; s++)
        if (instr->wait[s] > r->stream[s].done) {
            if (takes_compute(e, instr->stream) || e->request->host_is_compute)
                r->waits_for = instr->wait[s];
            return 0;
        }
    return 1;
}

/* ---- the ends of instructions ---- */

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
    const struct instr *instr = instr_of(e, rank, i);
    struct play_stream *s = &r->stream[instr->stream];
    struct play_rank *out = &e->play->rank[rank];
    double took = e->now - start_s;
    out->busy_s[instr->stream] += took;
    out->end_s = e->now;
    if (took > 0 && e->request->watch)
        e->request->watch(e->request->user, rank, i, start_s, e->now);
    if (takes_compute(e, instr->stream)) {
        out->seconds[play_kind_of(instr)] += took;
        r->idle_since = e->now;
        r->waits_for = -1;
        memcpy(r->busy_before_s, out->busy_s, sizeof r->busy_before_s);
    }
    stream_ended(s, i, start_s, e->now);
    if (is_hosts(e, instr->stream)) {
        r->issued = i + 1;
        r->host_runs = 0;
    }
}

/* ---- transfers ---- */

static struct play_cost cost_of(const struct play_engine *e, int rank, int i)
{
    return e->request->cost(e->request->user, rank, i);
}

/* All members that are simulated are here. */
static void collective_begin(struct play_engine *e, int rank, int i)
{
    const struct instr *instr = instr_of(e, rank, i);
    unsigned axes = instr->axes;
    struct play_cost cost = cost_of(e, rank, i);
    struct play_activity *a = play_begin(e, cost, 0);
    for (int other = 0; other < e->request->ranks; other++)
        if (e->first[axes][other] == e->first[axes][rank])
            play_join(e, a, other, e->rank[other].stream[instr->stream].current);
    play_set_rates_of_members(e, a);
}

static void collective_arrive(struct play_engine *e, int rank, int i)
{
    const struct instr *instr = instr_of(e, rank, i);
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
    struct play_cost cost = cost_of(e, rank, i);
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
    return s->awaits == rank && instr_of(e, peer, s->current)->kind == wanted ? s->current : -1;
}

static void message_post(struct play_engine *e, int rank, int i)
{
    const struct instr *instr = instr_of(e, rank, i);
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

/* ---- starts ---- */

/* The instruction of its own rank, not of the compute stream, for which this one waited until now;
 * -1: none. */
static int held_by(const struct play_engine *e, int rank, const struct instr *instr)
{
    const struct play_progress *r = &e->rank[rank];
    for (int s = 0; s < STREAMS; s++) {
        const struct play_stream *stream = &r->stream[s];
        int waits = s == (int)instr->stream || instr->wait[s] >= 0;
        if (waits && !takes_compute(e, s) && stream->done >= 0 && stream->ended == e->now)
            return stream->took;
    }
    return -1;
}

/* Start instruction i, whose waits are over, on its stream. */
static void start(struct play_engine *e, int rank, int i)
{
    struct play_progress *r = &e->rank[rank];
    const struct instr *instr = instr_of(e, rank, i);
    struct play_stream *s = &r->stream[instr->stream];
    int is_compute = takes_compute(e, instr->stream);
    s->current_came = e->now;
    s->current_held_by = held_by(e, rank, instr);
    if (s->current_held_by < 0)
        s->current_held_by = s->starts_after;
    s->starts_after = -1;
    s->open = 1;
    s->current = i;
    s->next = r->next_on_stream[i];
    if (instr_is_message(instr)) {
        message_post(e, rank, i);
        return;
    }
    if (instr_is_transfer(instr)) {
        collective_arrive(e, rank, i);
        return;
    }
    struct play_cost cost = cost_of(e, rank, i);
    if (cost.seconds <= 0) {
        stream_ended(s, i, e->now, e->now);
        return;
    }
    if (is_compute)
        account_wait(e, rank);
    play_join(e, play_begin(e, cost, is_compute || instr->stream == STREAM_UPDATE), rank, i);
    play_set_rates(e, rank);
}

/* Let the host issue what it can; 1: it did. */
static int issue(struct play_engine *e, int rank)
{
    struct play_progress *r = &e->rank[rank];
    int before = r->issued;
    while (r->issued < r->program->instrs && !r->host_runs) {
        const struct instr *instr = instr_of(e, rank, r->issued);
        int is_host = is_hosts(e, instr->stream);
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

/* Has transfer i started, to its last kernel? */
static int has_started(const struct play_engine *e, int rank, int i)
{
    const struct instr *instr = instr_of(e, rank, i);
    const struct play_stream *s = &e->rank[rank].stream[instr->stream];
    return instr_is_several_transfers(instr) ? s->done >= i : s->next > i;
}

/* May instruction i start, as to the order of transfers?  Those of a GPU are kernels of NCCL, which
 * starts them in the order of the list, on whatever streams. */
static int is_in_order(struct play_engine *e, int rank, int i)
{
    struct play_progress *r = &e->rank[rank];
    if (e->request->host_is_compute || !instr_is_transfer(instr_of(e, rank, i)))
        return 1;
    for (; r->unstarted < i; r->unstarted++)
        if (instr_is_transfer(instr_of(e, rank, r->unstarted)) &&
            !has_started(e, rank, r->unstarted)) {
            r->stream[instr_of(e, rank, i)->stream].starts_after = r->unstarted;
            return 0;
        }
    return 1;
}

/* Start what the streams can; 1: something was started. */
static int start_streams(struct play_engine *e, int rank)
{
    struct play_progress *r = &e->rank[rank];
    int started = 0;
    for (int s = 0; s < STREAMS; s++) {
        struct play_stream *stream = &r->stream[s];
        while (!is_hosts(e, s) && !stream->open && stream->next < r->issued &&
               may_start(e, rank, instr_of(e, rank, stream->next)) &&
               is_in_order(e, rank, stream->next)) {
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

static void make_groups(struct play_engine *e, unsigned axes)
{
    int ranks = e->request->ranks;
    if (e->arrived[axes])
        return;
    e->arrived[axes] = array_make((size_t)ranks * STREAMS, sizeof(int));
    e->first[axes] = array_make((size_t)ranks, sizeof(int));
    e->present[axes] = array_make((size_t)ranks, sizeof(int));
    for (int r = 0; r < ranks; r++) {
        const struct mesh_coord *own = &e->rank[r].program->state->coord;
        int first = 0, same = 0;
        for (; !same; first += !same) {
            const struct mesh_coord *other = &e->rank[first].program->state->coord;
            same = 1;
            for (int axis = 0; axis < MESH_AXES; axis++)
                same &= axes >> axis & 1 || own->at[axis] == other->at[axis];
        }
        e->first[axes][r] = first;
    }
    for (int r = 0; r < ranks; r++)
        for (int other = 0; other < ranks; other++)
            e->present[axes][r] += e->first[axes][other] == e->first[axes][r];
}

static void make_rank(struct play_engine *e, int rank)
{
    struct play_progress *r = &e->rank[rank];
    const struct program *program = r->program;
    int behind[STREAMS];
    r->next_on_stream = array_make((size_t)program->instrs + 1, sizeof *r->next_on_stream);
    for (int s = 0; s < STREAMS; s++)
        behind[s] = program->instrs;
    for (int i = program->instrs - 1; i >= 0; i--) {
        enum program_stream stream = program->instr[i].stream;
        r->next_on_stream[i] = behind[stream];
        behind[stream] = i;
    }
    for (int s = 0; s < STREAMS; s++)
        r->stream[s] = (struct play_stream){.next = behind[s],
                                            .awaits = -1,
                                            .done = -1,
                                            .held_by = -1,
                                            .worked = -1,
                                            .took = -1,
                                            .starts_after = -1};
    r->waits_for = -1;
    for (int i = 0; i < program->instrs; i++)
        if (program->instr[i].axes)
            make_groups(e, program->instr[i].axes);
}

static void make_engine(struct play_engine *e)
{
    const struct play_request *request = e->request;
    const struct mesh_shape *shape = &request->program[0]->layout->shape;
    e->world = mesh_members(shape, MESH_SETS - 1);
    e->rank = array_make((size_t)request->ranks, sizeof *e->rank);
    e->of_global = array_make((size_t)e->world, sizeof *e->of_global);
    for (int g = 0; g < e->world; g++)
        e->of_global[g] = -1;
    for (int r = 0; r < request->ranks; r++) {
        e->rank[r].program = request->program[r];
        e->rank[r].global = mesh_rank(shape, request->program[r]->state->coord);
        e->of_global[e->rank[r].global] = r;
    }
    for (int r = 0; r < request->ranks; r++)
        make_rank(e, r);
}

static void free_engine(struct play_engine *e)
{
    for (int r = 0; r < e->request->ranks; r++)
        free(e->rank[r].next_on_stream);
    for (unsigned axes = 0; axes < MESH_SETS; axes++) {
        free(e->arrived[axes]);
        free(e->first[axes]);
        free(e->present[axes]);
    }
    for (int i = 0; i < e->count; i++)
        play_activity_free(e->running[i]);
    for (int i = 0; i < e->spares; i++)
        play_activity_free(e->spare[i]);
    free(e->ended);
    free(e->running);
    free(e->spare);
    free(e->rank);
    free(e->of_global);
}

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

/* Note what the compute stream of a rank waits for from its last work to the end of the step: until
 * the rank has ended, for the stream of its own that works longest meanwhile, by the last
 * instruction there that takes time; then for the rank that ends last. */
static void account_end(struct play_engine *e, int rank)
{
    struct play_rank *out = &e->play->rank[rank];
    struct play_progress *r = &e->rank[rank];
    int last = -1;
    double longest_s = 0;
    for (int s = 0; s < STREAMS; s++) {
        double busy_s = takes_compute(e, s) ? 0 : out->busy_s[s] - r->busy_before_s[s];
        if (busy_s > longest_s) {
            last = r->stream[s].worked;
            longest_s = busy_s;
        }
    }
    add_wait(e, rank, last, last < 0 ? PLAY_RANKS : play_kind_of(instr_of(e, rank, last)),
             out->end_s - r->idle_since);
    add_wait(e, rank, -1, PLAY_RANKS, e->now - out->end_s);
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
    make_engine(e);
    for (int r = 0; r < request->ranks; r++)
        go_on(e, r);
    while (e->count) {
        struct play_activity *a = first_to_end(e);
        e->now = a->end_s > e->now ? a->end_s : e->now;
        end(e, a);
    }
    for (int r = 0; r < request->ranks; r++)
        account_end(e, r);
    play->step_s = e->now + request->step_s;
    int rc = stuck(e, err);
    free_engine(e);
    if (rc)
        play_free(play);
    return rc;
}

void play_free(struct play *play)
{
    free(play->rank);
    *play = (struct play){0};
}
