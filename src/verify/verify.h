/* verify.h - is a program right, before it runs?
 *
 * The checks know nothing of the passes that wrote the list: they look at operands, offsets
 * and waits alone, so a mistake in a pass is found, not repeated.  Together they say that the
 * program is safe (no race, no deadlock, no memory used twice) and that it is the step: what it
 * leaves behind is the optimizer's update with the gradient of the whole batch.
 */
#ifndef TRIREME_VERIFY_VERIFY_H
#define TRIREME_VERIFY_VERIFY_H

#include "program/program.h"

/* One rank's program:
 *  - every wait names an earlier instruction of another stream ("wrong wait");
 *  - every instruction is on a stream that can do it ("wrong stream"), and its memory where that
 *    works: what is offloaded is fetched first ("out of reach": streams.h);
 *  - every buffer is written before it is read ("read before written"), its accesses are
 *    ordered where one of them writes ("race"), it is released once, after its last use
 *    ("released twice", "never released", "used after release"), and not later than
 *    that needs ("released late");
 *  - the parts of an all-to-all lie in its buffers ("wrong size"), and what it receives does not
 *    overlap ("parts overlap");
 *  - buffers that share memory follow one another: the first is released, and that is ordered
 *    before the second's first use ("memory reused too early", "memory reused in flight"); all
 *    lie inside their slab ("outside its slab"); state has its sizes (persistent.h);
 *  - the flats are divided and summed over ranks as the units' graphs say ("wrong flat"), the
 *    micro-batches are the global batch ("wrong count"), and gradients are those of its mean
 *    ("wrong factor": graphs.h);
 *  - each tensor is updated by the rule of the configuration, or frozen ("wrong update":
 *    updaters.h);
 *  - what a unit's graph has divided among ranks comes together again (division.h);
 *  - inside a RUN each step finds its operands, and parameters lie in their flats (segments.h);
 *  - and verify_values() of it.
 * Returns 0, or -1 with err naming what, instruction, and buffers. */
int verify_program(const struct program *program, struct error *err);

/* What one rank's program computes, if it has no hazards: values are followed from instruction to
 * instruction by what they mean ("wrong value", "wrong size").
 *  - Every instruction has its operands, and a RUN those of its segment and no others ("wrong
 *    operand").
 *  - A RUN computes with the parameters of its unit, whole, none of them updated yet or, in a
 *    program that updates first, all that are trained updated before, on its own
 *    micro-batch's activations and gradients, and what its own forward kept.
 *  - A gradient that is measured, left to the next step or updated with is that of its unit, of
 *    this step or, where the program updates first, for the update of the one before, for each
 *    micro-batch once, through each unit that uses the parameters once, and summed over every
 *    data axis once: no micro-batch left out or added twice, no sum over ranks left out (on all
 *    ranks alike, too), done twice, or added to what is not summed over the same ranks.
 *  - The norm has every unit's square once, of ranks that hold the same from the first of them, the
 *    loss every micro-batch once, and the factor of the update is made of these when they are
 *    complete.
 *  - Each master and each of the optimizer's slots is updated once, and at the end all that
 *    persists is, wherever it lives.
 * What ops do is not seen here.
 * Returns 0, or -1 with err naming instruction, buffer, what that holds and what it should. */
int verify_values(const struct program *program, struct error *err);

/* The programs of all ranks (rank i at programs[i]) together: plays them with every transfer as
 * a rendezvous, started in the order of the list.  Collectives must match in kind, operator,
 * formats, group, size and order, an all-to-all in the size of each part ("collective mismatch");
 * every message has its other end, and every collective all its members ("missing RECV", "missing
 * SEND", "missing GATHER", ...); nobody waits for ever ("deadlock": with the instructions and ranks
 * that wait for one another in a cycle).  Each program is one that verify_program() accepts.
 * Returns 0, or -1 with err naming ranks and instructions. */
int verify_ranks(const struct program *const *programs, int ranks, struct error *err);

/* The same of some ranks of a large mesh, those of a smaller one: along an axis whose degree in
 * shape is less than the programs' layout has, the ranks left out do what the last one there does,
 * so that they come to each transfer when it does.  No all-to-all may go over such an axis. */
int verify_some_ranks(const struct program *const *programs, const struct mesh_shape *shape,
                      struct error *err);

#endif
