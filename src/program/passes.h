/* passes.h - the steps by which program_create() writes a program, in this order. */
#ifndef TRIREME_PROGRAM_PASSES_H
#define TRIREME_PROGRAM_PASSES_H

#include "program/program.h"

/* The runs of segments over all micro-batches, with loads and boundaries; the sharding
 * strategy's gathers and reductions are woven in by the functions of shard.h as it goes. */
void pass_schedule(struct program *program);

/* The step's sums (loss, targets, stop votes, each flat's squares) over all ranks. */
void pass_sums(struct program *program);

/* Gradient norm, the sums over ranks, and the optimizer, where its updates are not the next step's.
 */
void pass_update(struct program *program);

/* A RELEASE for every buffer that does not outlive the step, after its last use.  A buffer
 * last used by a transfer is released one RUN or UPDATE later, so that the transfer can overlap
 * it. */
void pass_release(struct program *program);

/* What each instruction waits for on other streams: the writers of what it reads, readers
 * and writers of what it overwrites, and the last users of memory it takes over.
 * Waits that others imply are left out. */
void pass_waits(struct program *program);

#endif
