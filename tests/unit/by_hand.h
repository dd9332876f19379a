/* by_hand.h - programs of a few ranks written by hand, for what no real one has, and what
 * verify_ranks() says of programs. */
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

/* Append an instruction that waits for instruction `wait` (-1: for none) and, if it moves data, has
 * a buffer of its own; a message is between this stage and the first other one.  Returns its index.
 */
int hand_add(struct program *program, enum instr_kind kind, enum program_stream stream, int wait);

/* Let an instruction do nothing. */
void hand_idle(struct instr *instr);

/* verify_ranks() accepts the programs. */
void hand_fit(struct program *const *programs, int ranks);

/* It refuses them, with one of `names` ("|" between them) as the reason. */
void hand_refused(struct program *const *programs, int ranks, const char *names);

/* It refuses them with this text. */
void hand_refused_as(struct program *const *programs, int ranks, const char *text);

#endif
