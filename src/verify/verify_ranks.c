/* verify_ranks.c - all ranks' programs gone through together; see verify.h.
 *
 * Every rank has a place in each of its streams, and one in its list: instructions are issued in
 * order, each when its waits are complete, so that one that has to wait holds up what follows on
 * every stream (the strictest way in which an executor may work).  What is no transfer is complete
 * as soon as it was issued and its stream has come to it.  Transfers start in the order of the list
 * too, as NCCL's kernels do where several communicators share a GPU (NCCL_LAUNCH_ORDER_IMPLICIT):
 * one that is after another on its stream holds up those that follow on other streams, and one that
 * is several kernels (a sum of 16 bits) until it is complete.  A collective completes when all
 * members of its group stand at it, a message when sender and receiver do.
 */
#include "verify/verify.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "verify/deadlock.h"
#include "verify/ranks.h"

/* Issue instructions in the order of the list, as far as their waits allow. */
static void issue(struct ranks_progress *p)
{
    for (; p->issued < p->program->instrs; p->issued++)
        for (int s = 0; s < STREAMS; s++)
            if (p->program->instr[p->issued].wait[s] > p->done[s])
                return;
}

/* Start transfers in the order of the list, as far as each is the one at which its stream stands.
 */
static void start(struct ranks_progress *p)
{
    for (; p->unstarted < p->issued; p->unstarted++) {
        const struct instr *instr = &p->program->instr[p->unstarted];
        int at = p->at[instr->stream];
        if (instr_is_transfer(instr) &&
            (at < p->unstarted || (at == p->unstarted && instr_is_several_transfers(instr))))
            return;
    }
}

static void advance(struct ranks_progress *p, enum program_stream stream)
{
    p->done[stream] = p->at[stream];
    p->at[stream] = p->next[p->at[stream]];
    issue(p);
    start(p);
}

static void place(struct ranks_progress *p, const struct program *program)
{
    p->program = program;
    p->next = array_make((size_t)program->instrs, sizeof *p->next);
    for (int s = 0; s < STREAMS; s++) {
        p->at[s] = program->instrs;
        p->done[s] = -1;
    }
    for (int i = program->instrs - 1; i >= 0; i--) {
        int *at = &p->at[program->instr[i].stream];
        p->next[i] = *at;
        *at = i;
    }
    issue(p);
    start(p);
}

/* Instruction i of rank a does not go with instruction k of rank b. */
static int wrong(struct ranks *g, const char *what, int a, int i, int b, int k)
{
    char here[RANK_TEXT], there[RANK_TEXT];
    instr_text(g->rank[a].program, i, here, sizeof here);
    instr_text(g->rank[b].program, k, there, sizeof there);
    return error_set(g->err, "verify: %s: rank %d is at instruction %d (%s), rank %d at %d (%s)",
                     what, a, i, here, b, k, there);
}

/* What member k of an ALLTOALL of rank r gives and gets; NULL: the list is too short. */
static const struct comm_part *part_of(const struct ranks *g, int r, const struct instr *instr,
                                       int k)
{
    const struct program *program = g->rank[r].program;
    int at = instr->first_part + k;
    return instr->first_part >= 0 && at < program->parts ? &program->part[at] : NULL;
}

/* Do members `at` and k of an ALLTOALL, ranks r and m, each get from the other what that gives? */
static int parts_match(const struct ranks *g, int r, const struct instr *mine, int at, int m,
                       const struct instr *theirs, int k)
{
    const struct comm_part *one = part_of(g, r, mine, k), *two = part_of(g, m, theirs, at);
    if (!one || !two || one->send_elems != two->recv_elems || one->recv_elems != two->send_elems)
        return 0;
    /* Of a flat, what is sent and what is received is the same range. */
    return mine->flat < 0 ||
           ((!one->send_elems || mine->first_elem[SLOT_FROM] + one->send_from ==
                                     theirs->first_elem[SLOT_TO] + two->recv_from) &&
            (!one->recv_elems || theirs->first_elem[SLOT_FROM] + two->send_from ==
                                     mine->first_elem[SLOT_TO] + one->recv_from));
}

/* Do the members of a collective that have come to it do the same?  0, or -1 with err set. */
static int check_members(struct ranks *g, int rank, enum program_stream stream,
                         const struct instr *mine, int first)
{
    const struct mesh_shape *shape = g->shape;
    int at = mesh_member(shape, mesh_coord_of_rank(shape, rank), mine->axes);
    for (int k = first, m; (m = ranks_member(g, rank, mine->axes, k)) >= 0; k++) {
        const struct instr *theirs = ranks_met_by(g, m, stream, mine->axes);
        if (theirs &&
            (!ranks_same(mine, theirs) ||
             (mine->kind == INSTR_ALLTOALL && !parts_match(g, rank, mine, at, m, theirs, k))))
            return wrong(g, "collective mismatch", rank, g->rank[rank].at[stream], m,
                         g->rank[m].at[stream]);
    }
    return 0;
}

/* 1: completed; 0: someone is not there yet; -1: they do not match.  Ranks are gone through in
 * order: that someone is missing shows in the last member first. */
static int try_collective(struct ranks *g, int rank, enum program_stream stream,
                          const struct instr *mine)
{
    unsigned axes = mine->axes;
    for (int k = mesh_members(g->shape, axes) - 1; k >= 0; k--)
        if (!ranks_met_by(g, ranks_member(g, rank, axes, k), stream, axes))
            return 0;
    if (check_members(g, rank, stream, mine, 0))
        return -1;
    int members = mine->kind == INSTR_ALLTOALL ? mesh_members(g->shape, axes) : 0;
    for (int k = 0; k < members; k++) { /* each pair has its size */
        int m = ranks_member(g, rank, axes, k);
        if (check_members(g, m, stream, ranks_ready(&g->rank[m], stream), k))
            return -1;
    }
    for (int k = 0, m; (m = ranks_member(g, rank, axes, k)) >= 0; k++)
        advance(&g->rank[m], stream);
    return 1;
}

/* The message of a kind to or from `other` at which a stream of a rank stands; NULL: it does not.
 */
static const struct instr *open_message(const struct ranks *g, int rank, enum program_stream stream,
                                        enum instr_kind kind, int other)
{
    const struct instr *instr = ranks_ready(&g->rank[rank], stream);
    return instr && instr->kind == kind && ranks_other_end(g, rank, instr) == other ? instr : NULL;
}

/* The message at which a stream stands: 1: both ends were there; 0: not yet; -1: wrong. */
static int try_message(struct ranks *g, int rank, enum program_stream stream,
                       const struct instr *mine)
{
    int at = g->rank[rank].at[stream], other = ranks_other_end(g, rank, mine);
    if (other < 0)
        return wrong(g, "message to no rank", rank, at, rank, at);
    const struct instr *theirs =
        open_message(g, other, stream, mine->kind == INSTR_SEND ? INSTR_RECV : INSTR_SEND, rank);
    if (!theirs)
        return 0;
    int there = g->rank[other].at[stream];
    if (theirs->elems != mine->elems || theirs->dtype != mine->dtype)
        return wrong(g, "message size mismatch", rank, at, other, there);
    if (!ranks_same_message(mine, theirs))
        return wrong(g, "message mismatch", rank, at, other, there);
    advance(&g->rank[rank], stream);
    advance(&g->rank[other], stream);
    return 1;
}

/* One attempt to move a stream of a rank: 1 moved, 0 not, -1 wrong. */
static int try_stream(struct ranks *g, int rank, enum program_stream stream)
{
    const struct instr *instr = ranks_ready(&g->rank[rank], stream);
    if (!instr)
        return 0;
    if (instr_is_message(instr))
        return try_message(g, rank, stream, instr);
    if (instr_is_transfer(instr))
        return try_collective(g, rank, stream, instr);
    advance(&g->rank[rank], stream);
    return 1;
}

/* Collectives that some members are at, and do not agree on.  0, or -1 with err set. */
static int check_standing(struct ranks *g)
{
    for (int r = 0; r < g->count; r++)
        for (int s = 0; s < STREAMS; s++) {
            const struct instr *instr = ranks_ready(&g->rank[r], s);
            if (instr && instr_is_transfer(instr) && !instr_is_message(instr) &&
                check_members(g, r, s, instr, 0))
                return -1;
        }
    return 0;
}

static int go_through(struct ranks *g)
{
    for (int moved = 1; moved;) {
        moved = 0;
        for (int r = 0; r < g->count; r++)
            for (int s = 0; s < STREAMS; s++) {
                int rc;
                while ((rc = try_stream(g, r, s)) > 0)
                    moved = 1;
                if (rc < 0)
                    return -1;
            }
    }
    for (int r = 0; r < g->count; r++)
        for (int s = 0; s < STREAMS; s++)
            if (g->rank[r].at[s] < g->rank[r].program->instrs)
                return check_standing(g) ? -1 : deadlock_find(g);
    return 0;
}

/* An all-to-all has a part for every rank of its group: none may have been left out. */
static int check_all_to_alls(struct ranks *g)
{
    for (int r = 0; r < g->count; r++)
        for (int i = 0; i < g->rank[r].program->instrs; i++) {
            const struct program *p = g->rank[r].program;
            unsigned axes = p->instr[i].axes;
            if (p->instr[i].kind == INSTR_ALLTOALL &&
                mesh_members(&p->layout->shape, axes) != mesh_members(g->shape, axes))
                return wrong(g, "all-to-all with ranks that are not looked at", r, i, r, i);
        }
    return 0;
}

static int play(struct ranks *g, const struct program *const *programs)
{
    g->rank = array_make((size_t)g->count, sizeof *g->rank);
    for (int r = 0; r < g->count; r++)
        place(&g->rank[r], programs[r]);
    int rc = check_all_to_alls(g) || go_through(g) ? -1 : 0;
    for (int r = 0; r < g->count; r++)
        free(g->rank[r].next);
    free(g->rank);
    return rc;
}

int verify_ranks(const struct program *const *programs, int ranks, struct error *err)
{
    struct ranks g = {.count = ranks, .shape = &programs[0]->layout->shape, .err = err};
    return play(&g, programs);
}

int verify_some_ranks(const struct program *const *programs, const struct mesh_shape *shape,
                      struct error *err)
{
    struct ranks g = {.count = mesh_members(shape, MESH_SETS - 1), .shape = shape, .err = err};
    return play(&g, programs);
}
