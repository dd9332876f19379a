/* programs.h - for tests of the verifier: real programs of every strategy, and checks of verdicts.
 */
#ifndef TRIREME_TESTS_UNIT_PROGRAMS_H
#define TRIREME_TESTS_UNIT_PROGRAMS_H

#include "tests/unit/rig.h"

/* Return the configuration of a small model.  bits: sum of 1: tied embeddings, 2: forward prefetch,
 * 4: backward prefetch; more: further settings. */
struct config programs_config(int bits, const char *more);

/* Call `check` on the training program, of one or two micro-batches, of one rank of 2 to 4, for
 * each strategy and all eight values of bits; check may change the program and change it back. With
 * CHECK_SHORT=1 each strategy has two of the eight values, other ones than the strategy before
 * it; make check-whole has all. */
void programs_everywhere(void (*check)(struct program *program));

/* Where a program of all units and two micro-batches has at least `count` of something, return how
 * many the program of a pipeline stage, or of one micro-batch, has at least. */
static inline int programs_share(const struct program *program, int count)
{
    int own = 0, all = program->units->count;
    for (int u = 0; u < all; u++)
        own += program_owns(program, u);
    count = program->micros == 1 ? count / 2 : count;
    return own == all ? count : count * own / all / 2;
}

typedef int verdict_fn(const struct program *program, struct error *err);

/* Check that verify_program() accepts the program. */
void assert_right(const struct program *program);

/* Check that verdict refuses the program with a text that has one of `names`, "a|b".  what, i: what
 * the test did to which instruction, for the message. */
void assert_refused(verdict_fn *verdict, const struct program *program, const char *names,
                    const char *what, int i);

/* Check that verify_program() refuses the program; else like assert_refused(). */
void assert_wrong(const struct program *program, const char *names, const char *what, int i);

#endif
