/* passes.h - the steps by which program_create() writes a program, in this order. */
#ifndef TRIREME_PROGRAM_PASSES_H
#define TRIREME_PROGRAM_PASSES_H

#include "program/program.h"

/* Write the runs of segments over all micro-batches, with loads and boundaries; around each run the
 * gathers of shard.h and the reductions of gradients.h. */
void pass_schedule(struct program *program);

/* Write the sum over all ranks of the step's sums: loss, targets, stop votes, each flat's squares.
 */
void pass_sums(struct program *program);

/* Write the gradient norm, the sums over ranks, and the updates, unless the next step's program has
 * these. */
void pass_update(struct program *program);

/* Write a RELEASE for every buffer that does not outlive the step, after its last use.  A buffer
 * last used by a transfer is released one RUN or UPDATE later, so that the two can overlap. */
void pass_release(struct program *program);

/* Find what each instruction waits for on other streams: the writers of what it reads, the readers
 * and writers of what it overwrites, and the last users of memory that it takes over.  Waits that
 * others imply are left out. */
void pass_waits(struct program *program);

#endif
