/* ranks.h - how far the programs of all ranks have come, and which instructions of different ranks
 * belong together: what verify_ranks.c, which moves them, and deadlock.c, which says why none
 * moves, share. */
#ifndef TRIREME_VERIFY_RANKS_H
#define TRIREME_VERIFY_RANKS_H

#include "program/program.h"

/* Of one rank. */
struct ranks_progress {
    const struct program *program;
    int *next;         /* per instruction: the next one of its stream; instrs after the last */
    int at[STREAMS];   /* the instruction each stream stands at; instrs when it is done */
    int done[STREAMS]; /* the last completed one, or -1 */
    int issued;        /* how many of the list are */
    int unstarted;     /* transfers before this instruction have started, to their last kernel */
};

struct ranks {
    struct ranks_progress *rank;
    int count;
    const struct mesh_shape *shape; /* of these */
    struct error *err;
};

enum { RANK_TEXT = 112 }; /* of an instruction */

/* The instruction at which a stream stands, if it was issued and, being a transfer, has started;
 * else NULL. */
static inline const struct instr *ranks_ready(const struct ranks_progress *p,
                                              enum program_stream stream)
{
    int i = p->at[stream];
    const struct instr *instr = i < p->issued ? &p->program->instr[i] : NULL;
    return instr && instr_is_transfer(instr) && i > p->unstarted ? NULL : instr;
}

/* The k-th rank of a group, of those that differ from `rank` in the coordinates of its axes alone;
 * -1 if there is none. */
int ranks_member(const struct ranks *g, int rank, unsigned axes, int k);

/* The rank at the other end of a message; -1: there is none. */
int ranks_other_end(const struct ranks *g, int rank, const struct instr *message);

/* Are these the same collective, on two ranks? */
int ranks_same(const struct instr *a, const struct instr *b);

/* Are these the two ends of one message, by what it brings? */
int ranks_same_message(const struct instr *a, const struct instr *b);

/* What rank m stands at on a stream, if it is a transfer of the same group: what m does with others
 * comes first. */
const struct instr *ranks_met_by(const struct ranks *g, int m, enum program_stream stream,
                                 unsigned axes);

#endif
