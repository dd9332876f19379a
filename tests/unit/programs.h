/* programs.h - what tests of the verifier share: real programs of every strategy, and verdicts. */
#ifndef TRIREME_TESTS_UNIT_PROGRAMS_H
#define TRIREME_TESTS_UNIT_PROGRAMS_H

#include "tests/unit/rig.h"

/* A small model with the settings of bits: 1: tied, 2: forward, 4: backward prefetch. */
struct config programs_config(int bits, const char *more);

/* Check one rank's training program of two micro-batches with each strategy and bits of settings,
 * on 2 to 4 ranks; each may be changed and changed back.  With CHECK_SHORT=1 three of the eight
 * bits of settings with each strategy, other ones with the next; all by `make check-whole`. */
void programs_everywhere(void (*check)(struct program *program));

/* Of what a program of all units has at least `count`: how many the program of a pipeline stage has
 * at least. */
static inline int programs_share(const struct program *program, int count)
{
    int own = 0, all = program->units->count;
    for (int u = 0; u < all; u++)
        own += program_owns(program, u);
    return own == all ? count : count * own / all / 2;
}

typedef int verdict_fn(const struct program *program, struct error *err);

void assert_right(const struct program *program);

/* Refused by verdict, with one of `names` ("|" between them) as the reason; what was done to
 * instruction i. */
void assert_refused(verdict_fn *verdict, const struct program *program, const char *names,
                    const char *what, int i);

/* By verify_program(). */
void assert_wrong(const struct program *program, const char *names, const char *what, int i);

#endif
