/* deadlock.c - see deadlock.h.
 *
 * Every instruction that is not complete waits for another one:
 *
 *   the instruction is                       it waits for
 *   the first that is not issued             one that it names
 *   after that                              the first that is not issued
 *   issued, but not the next of its stream   the one at which the stream stands
 *   a transfer that has not started          the first transfer before it that has not, to its last
 *                                            kernel
 *   a message                                its other end
 *   a collective                             the same one of a member that has not come to it
 *
 * Whoever follows these from any instruction comes to one a second time: from there to there is the
 * cycle that is shown.
 *
 *   rank 0   SEND forward <---------------- RECV forward   rank 1
 *               |                             ^
 *               v comes after                 | comes after
 *            RECV backward ---------------> SEND backward
 *
 * Or the list of the other rank has no such instruction: then that is what is wrong.
 */
#include "verify/deadlock.h"

#include "base/text.h"

/* Members of a cycle that are shown: so many from its beginning, and from its end. */
enum { SHOWN_FIRST = 4, SHOWN_LAST = 2 };

/* An instruction of a rank. */
struct rank_instr {
    int rank, at;
};

/* Why one waits for another: words for the message. */
static const char waits_for[] = "waits for", comes_after[] = "comes after",
                  starts_after[] = "starts after";

static int same_rank_instr(struct rank_instr a, struct rank_instr b)
{
    return a.rank == b.rank && a.at == b.at;
}

static const struct instr *instr_at(const struct ranks *g, struct rank_instr one)
{
    return &g->rank[one.rank].program->instr[one.at];
}

/* What holds up an instruction that is not issued, as the list is issued in order. */
static const char *issued_after(const struct ranks *g, struct rank_instr from,
                                struct rank_instr *to)
{
    const struct ranks_progress *p = &g->rank[from.rank];
    *to = (struct rank_instr){from.rank, p->issued};
    if (from.at > p->issued)
        return comes_after;
    int s = 0;
    while (p->program->instr[from.at].wait[s] <= p->done[s])
        s++;
    to->at = p->program->instr[from.at].wait[s];
    return waits_for;
}

/* The first instruction that rank `other` has not completed and that is the other end of a message
 * of `rank`, or the same collective; -1: there is none. */
static int find_partner(const struct ranks *g, int rank, int other, const struct instr *mine)
{
    const struct ranks_progress *p = &g->rank[other];
    for (int i = p->at[mine->stream]; i < p->program->instrs; i = p->next[i]) {
        const struct instr *theirs = &p->program->instr[i];
        if (!instr_is_message(mine)
                ? ranks_same(mine, theirs)
                : instr_is_message(theirs) && theirs->kind != mine->kind &&
                      ranks_same_message(mine, theirs) && ranks_other_end(g, other, theirs) == rank)
            return i;
    }
    return -1;
}

/* The rank that a transfer waits for: the other end, or the first member that has not come. */
static int awaited_rank(const struct ranks *g, int rank, const struct instr *transfer)
{
    int other, k = 0;
    if (instr_is_message(transfer))
        return ranks_other_end(g, rank, transfer);
    do
        other = ranks_member(g, rank, transfer->axes, k++);
    while (other >= 0 && ranks_met_by(g, other, transfer->stream, transfer->axes));
    return other;
}

/* What an instruction that is not complete waits for; returns why, or NULL: for rank to->rank,
 * which has no such instruction. */
static const char *follow(const struct ranks *g, struct rank_instr from, struct rank_instr *to)
{
    const struct ranks_progress *p = &g->rank[from.rank];
    const struct instr *instr = instr_at(g, from);
    int head = p->at[instr->stream];
    if (from.at >= p->issued)
        return issued_after(g, from, to);
    *to = (struct rank_instr){from.rank, head};
    if (from.at > head)
        return comes_after;
    if (!ranks_ready(p, instr->stream)) {
        to->at = p->unstarted;
        return starts_after;
    }
    to->rank = awaited_rank(g, from.rank, instr);
    to->at = to->rank < 0 ? -1 : find_partner(g, from.rank, to->rank, instr);
    return to->at < 0 ? NULL : waits_for;
}

static int missing(const struct ranks *g, struct rank_instr from)
{
    const struct instr *instr = instr_at(g, from);
    enum instr_kind kind = instr->kind == INSTR_SEND   ? INSTR_RECV
                           : instr->kind == INSTR_RECV ? INSTR_SEND
                                                       : instr->kind;
    char text[RANK_TEXT];
    instr_text(g->rank[from.rank].program, from.at, text, sizeof text);
    return error_set(g->err,
                     "verify: missing %s: rank %d waits for ever at instruction %d (%s) for rank "
                     "%d, which has no such %s left",
                     instr_name(kind), from.rank, from.at, text, awaited_rank(g, from.rank, instr),
                     instr_name(kind));
}

/* "rank 0 SEND forward layers.1 micro 2" */
static void append_name(const struct ranks *g, struct rank_instr one)
{
    char text[RANK_TEXT];
    text_append(g->err->text, sizeof g->err->text, "rank %d %s", one.rank,
                instr_text(g->rank[one.rank].program, one.at, text, sizeof text));
}

/* The same, " (instruction 7, stream point)". */
static void append_member(const struct ranks *g, struct rank_instr one)
{
    append_name(g, one);
    text_append(g->err->text, sizeof g->err->text, " (instruction %d, stream %s)", one.at,
                program_stream_name(instr_at(g, one)->stream));
}

/* Of a cycle of so many, the member to begin with: the first of the lowest rank.  That waits for
 * another rank, as what waits for its own rank waits for what is before it in the list. */
static struct rank_instr first_of(const struct ranks *g, struct rank_instr one, int length)
{
    struct rank_instr first = one;
    for (int k = 1; k < length; k++) {
        follow(g, one, &one);
        if (one.rank < first.rank || (one.rank == first.rank && one.at < first.at))
            first = one;
    }
    return first;
}

static int show_cycle(const struct ranks *g, struct rank_instr one, int length)
{
    int hidden = length - SHOWN_FIRST - SHOWN_LAST; /* 1: to say so would be no shorter */
    struct rank_instr first = one = first_of(g, one, length);
    error_set(g->err, "verify: deadlock: ");
    append_member(g, one);
    for (int k = 1; k <= length; k++) {
        const char *why = follow(g, one, &one), *which = k > 1 ? ", which " : " ";
        if (hidden > 1 && k >= SHOWN_FIRST && k < SHOWN_FIRST + hidden)
            continue;
        if (hidden > 1 && k == SHOWN_FIRST + hidden)
            text_append(g->err->text, sizeof g->err->text, ", and so on through %d more, to ",
                        hidden);
        else
            text_append(g->err->text, sizeof g->err->text, "%s%s ", which, why);
        if (k < length)
            append_member(g, one);
    }
    append_name(g, first);
    text_append(g->err->text, sizeof g->err->text, " again");
    return -1;
}

/* An instruction that is not complete, of the lowest rank that has one. */
static int find_start(const struct ranks *g, struct rank_instr *start)
{
    for (start->rank = 0; start->rank < g->count; start->rank++)
        for (int s = 0; s < STREAMS; s++) {
            const struct ranks_progress *p = &g->rank[start->rank];
            start->at = p->at[s];
            if (start->at < p->program->instrs)
                return 1;
        }
    return 0;
}

/* By Brent's algorithm (1980), which needs no list of what it has passed: `old` waits at each
 * instruction whose number is a power of two until `one` comes by again, `length` later. */
int deadlock_find(const struct ranks *g)
{
    struct rank_instr one, old, next;
    int length = 0, limit = 1;
    if (!find_start(g, &one))
        return error_set(g->err, "verify: deadlock: no rank can go on");
    old = one;
    do {
        if (length == limit) {
            old = one;
            limit *= 2;
            length = 0;
        }
        if (!follow(g, one, &next))
            return missing(g, one);
        one = next;
        length++;
    } while (!same_rank_instr(one, old));
    return show_cycle(g, one, length);
}
