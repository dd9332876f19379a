/* passes.h - the passes that write a program.
 *
 * compile.c runs, in this order: pass_schedule() (for PROGRAM_UPDATE overlap_update_plan() and
 * overlap_update_end() instead); for PROGRAM_TRAIN pass_update(); pass_release(); memory_plan();
 * pass_waits(), which program_create_without_waits() leaves out.  pass_sums() is a part of
 * pass_schedule() and pass_update().
 */
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
