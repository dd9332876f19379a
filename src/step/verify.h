/* verify.h - is a program right, before it runs?
 *
 * The checks know nothing of the passes that wrote the list: they look at operands, offsets
 * and waits alone, so a mistake in a pass is found, not repeated.
 */
#ifndef TRIREME_STEP_VERIFY_H
#define TRIREME_STEP_VERIFY_H

#include "step/program.h"

/* One rank's program:
 *  - every wait names an earlier instruction of another stream ("wait cycle");
 *  - every buffer is written before it is read ("read before written"), its accesses are
 *    ordered where one of them writes ("race"), it is released once, after its last use
 *    ("released twice", "never released", "used after release");
 *  - buffers that share memory follow one another: the first is released, and that is ordered
 *    before the second's first use ("memory reused too early", "memory reused in flight"); all
 *    lie inside their slab ("outside its slab").
 * Returns 0, or -1 with err naming what, instruction, and buffers. */
int verify_program(const struct program *program, struct error *err);

/* The programs of all ranks (rank i at programs[i]) together: plays them with every transfer as
 * a rendezvous.  Collectives must match in kind, group, size and order ("collective mismatch");
 * every message has its partner ("missing RECV", "missing SEND"); nobody waits for ever
 * ("deadlock").  Returns 0, or -1 with err naming ranks and instructions. */
int verify_ranks(const struct program *const *programs, int ranks, struct error *err);

#endif
