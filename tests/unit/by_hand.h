/* by_hand.h - writing programs of a few ranks by hand, for faults that no compiled program has, and
 * checking what verify_ranks() says. */
#ifndef TRIREME_TESTS_UNIT_BY_HAND_H
#define TRIREME_TESTS_UNIT_BY_HAND_H

#include "program/program.h"

enum { HAND_RANKS = 8 };

/* Programs without units, of ranks along one axis: pipeline stages, or shards. */
struct hand {
    struct layout layout;
    int ranks;
    struct state state[HAND_RANKS];
    struct program rank[HAND_RANKS], *program[HAND_RANKS];
};

void hand_open(struct hand *hand, int ranks, enum mesh_axis axis);
void hand_close(struct hand *hand);

/* Append an instruction that waits for instruction `wait` (-1: for none).  One that moves data has
 * a buffer of its own; a message goes between this stage and the first other one.  Returns the
 * instruction's index. */
int hand_add(struct program *program, enum instr_kind kind, enum program_stream stream, int wait);

/* Let an instruction do nothing. */
void hand_idle(struct instr *instr);

/* Check that verify_ranks() accepts the programs. */
void hand_fit(struct program *const *programs, int ranks);

/* Check that verify_ranks() refuses the programs with a text that has one of `names`, "a|b". */
void hand_refused(struct program *const *programs, int ranks, const char *names);

/* Check that verify_ranks() refuses the programs with exactly this text. */
void hand_refused_as(struct program *const *programs, int ranks, const char *text);

#endif
