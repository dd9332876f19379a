/* verify_ranks.c - all ranks' programs played together; see verify.h.
 *
 * Every rank has a place in each of its streams, and one in its list: instructions are issued in
 * order, each when its waits and the compute instructions before it are complete, so that one
 * that has to wait holds up what follows on every stream (the strictest way in which an executor
 * may work).  A collective completes when all members of its group stand at it; a message when
 * sender and receiver do.
 */
#include "verify/verify.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"

enum { TEXT = 112 };

struct player {
    const struct program *program;
    int at[STREAMS];   /* the instruction each stream stands at; instrs when it is done */
    int done[STREAMS]; /* the last completed one, or -1 */
    int issued;        /* how many of the list are */
};

struct game {
    struct player *player;
    int ranks;
    struct error *err;
};

/* Issue what can be. */
static void issue(struct player *p)
{
    for (; p->issued < p->program->instrs && p->issued <= p->at[STREAM_COMPUTE]; p->issued++)
        for (int s = 0; s < STREAMS; s++)
            if (p->program->instr[p->issued].wait[s] > p->done[s])
                return;
}

/* The first instruction of a stream from `from` on; instrs if there is none. */
static int next_on(const struct program *program, enum stream stream, int from)
{
    while (from < program->instrs && program->instr[from].stream != stream)
        from++;
    return from;
}

static void advance(struct player *p, enum stream stream)
{
    p->done[stream] = p->at[stream];
    p->at[stream] = next_on(p->program, stream, p->at[stream] + 1);
    issue(p);
}

static void place(struct player *p, const struct program *program)
{
    p->program = program;
    for (int s = 0; s < STREAMS; s++) {
        p->at[s] = next_on(program, s, 0);
        p->done[s] = -1;
    }
    issue(p);
}

/* The instruction at which a stream stands, if it was issued; else NULL. */
static const struct instr *ready(const struct player *p, enum stream stream)
{
    int i = p->at[stream];
    return i < p->issued ? &p->program->instr[i] : NULL;
}

static int is_transfer(const struct instr *instr)
{
    return instr->group >= 0;
}

static int say(struct game *g, const char *what, int a, int b, enum stream stream)
{
    char here[TEXT], there[TEXT];
    instr_text(g->player[a].program, g->player[a].at[stream], here, sizeof here);
    instr_text(g->player[b].program, g->player[b].at[stream], there, sizeof there);
    return error_set(g->err, "verify: %s: rank %d is at instruction %d (%s), rank %d at %d (%s)",
                     what, a, g->player[a].at[stream], here, b, g->player[b].at[stream], there);
}

/* The ranks of a group, which lie at equal distances. */
struct seats {
    int first, stride, count;
};

static struct seats seats_of(const struct game *g, int rank, int group)
{
    const struct mesh_shape *shape = &g->player[rank].program->request.shape;
    struct mesh_coord coord = mesh_place(shape, rank), next;
    int axis = group == GROUP_DATA ? MESH_SHARD : group, count = shape->degree[axis];
    coord.at[axis] = 0;
    if (group == GROUP_DATA) {
        coord.at[MESH_REPLICATE] = 0; /* shards run faster than replicas */
        count *= shape->degree[MESH_REPLICATE];
    }
    next = coord;
    next.at[axis]++;
    int first = mesh_rank(shape, coord);
    return (struct seats){first, mesh_rank(shape, next) - first, count};
}

/* The k-th of them; -1 if there is none. */
static int member(const struct seats *seats, int k)
{
    return k >= 0 && k < seats->count ? seats->first + k * seats->stride : -1;
}

static int same(const struct instr *a, const struct instr *b)
{
    return a->kind == b->kind && a->group == b->group && a->elems == b->elems &&
           a->dtype == b->dtype && a->unit == b->unit && a->micro == b->micro;
}

/* 1: completed; 0: someone is not there yet; -1: they do not match. */
static int try_collective(struct game *g, int rank, enum stream stream, const struct instr *mine)
{
    struct seats seats = seats_of(g, rank, mine->group);
    for (int k = 0, m; (m = member(&seats, k)) >= 0; k++) {
        const struct instr *theirs = ready(&g->player[m], stream);
        if (!theirs || theirs->group != mine->group)
            return 0; /* what they are at, perhaps with others, comes first */
        if (!same(mine, theirs))
            return say(g, "collective mismatch", rank, m, stream);
    }
    for (int k = 0, m; (m = member(&seats, k)) >= 0; k++)
        advance(&g->player[m], stream);
    return 1;
}

static int try_message(struct game *g, int rank, enum stream stream, const struct instr *mine)
{
    struct seats seats = seats_of(g, rank, mine->group);
    int other = member(&seats, mine->peer);
    if (other < 0)
        return say(g, "message to no rank", rank, rank, stream);
    const struct instr *theirs = ready(&g->player[other], stream);
    if (!theirs || theirs->kind != (mine->kind == INSTR_SEND ? INSTR_RECV : INSTR_SEND))
        return 0;
    seats = seats_of(g, other, theirs->group);
    if (member(&seats, theirs->peer) != rank)
        return 0;
    if (theirs->elems != mine->elems || theirs->dtype != mine->dtype)
        return say(g, "message size mismatch", rank, other, stream);
    advance(&g->player[rank], stream);
    advance(&g->player[other], stream);
    return 1;
}

/* One attempt to move a stream of a rank: 1 moved, 0 not, -1 wrong. */
static int try_stream(struct game *g, int rank, enum stream stream)
{
    const struct instr *instr = ready(&g->player[rank], stream);
    if (!instr)
        return 0;
    if (instr->kind == INSTR_SEND || instr->kind == INSTR_RECV)
        return try_message(g, rank, stream, instr);
    if (is_transfer(instr))
        return try_collective(g, rank, stream, instr);
    advance(&g->player[rank], stream);
    return 1;
}

static int finished(const struct player *p)
{
    for (int s = 0; s < STREAMS; s++)
        if (p->at[s] < p->program->instrs)
            return 0;
    return 1;
}

/* Nobody moves: name the first rank that stands at a transfer, and whom it waits for. */
static int stuck(struct game *g)
{
    for (int r = 0; r < g->ranks; r++)
        for (int s = 0; s < STREAMS; s++) {
            const struct instr *instr = ready(&g->player[r], s);
            if (!instr || !is_transfer(instr))
                continue;
            int message = instr->kind == INSTR_SEND || instr->kind == INSTR_RECV;
            struct seats seats = seats_of(g, r, instr->group);
            int other = message ? member(&seats, instr->peer) : -1;
            for (int k = 0; !message; k++) {
                other = member(&seats, k);
                if (other < 0 || !ready(&g->player[other], s))
                    break;
            }
            char text[TEXT];
            instr_text(g->player[r].program, g->player[r].at[s], text, sizeof text);
            const char *what = !message                    ? "deadlock"
                               : instr->kind == INSTR_SEND ? "missing RECV"
                                                           : "missing SEND";
            return error_set(g->err,
                             "verify: %s: rank %d waits for ever at instruction %d (%s) for rank "
                             "%d, which never joins",
                             what, r, g->player[r].at[s], text, other);
        }
    return error_set(g->err, "verify: deadlock: no rank can go on");
}

static int play(struct game *g)
{
    for (;;) {
        int moved = 0, unfinished = 0;
        for (int r = 0; r < g->ranks; r++) {
            for (int s = 0; s < STREAMS; s++) {
                int rc;
                while ((rc = try_stream(g, r, s)) > 0)
                    moved = 1;
                if (rc < 0)
                    return -1;
            }
            unfinished |= !finished(&g->player[r]);
        }
        if (!unfinished)
            return 0;
        if (!moved)
            return stuck(g);
    }
}

int verify_ranks(const struct program *const *programs, int ranks, struct error *err)
{
    struct game g = {.ranks = ranks, .err = err};
    g.player = array_make((size_t)ranks, sizeof *g.player);
    for (int r = 0; r < ranks; r++)
        place(&g.player[r], programs[r]);
    int rc = play(&g);
    free(g.player);
    return rc;
}
