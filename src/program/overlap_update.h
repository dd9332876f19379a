/* overlap_update.h - the update of a step as the beginning of the next one's program, beside
 * forward (layout.overlap_update).
 *
 * A step leaves its gradients and their factor in the state.  The next one updates each flat before
 * its first use, so that the update of a unit, and the copies of offloaded state, run beside
 * forward of the units before it.  On a GPU, whose update has a stream of its own:
 *
 *   update   UPDATE 0 | UPDATE 1 | UPDATE 2 | ...
 *   compute             RUN 0    | RUN 1    | RUN 2 ...   ZERO, RUN head, backward, NORMs, SCALE
 *
 * and with state on a disk (FETCH and SPILL as copies there and back, one flat ahead):
 *
 *   copies   FETCH 0, FETCH 1 | SPILL 0, FETCH 2   | SPILL 1, FETCH 3   | ...
 *   compute                     UPDATE 0 | RUN 0   | UPDATE 1 | RUN 1   | ...
 *
 * The step's sums hold the factor until the last UPDATE has read it: they are cleared (ZERO) before
 * the first RUN or NORM that needs them, which is after forward of all units.  A factor of NaN,
 * which ZERO leaves, updates nothing: so does the first step of a run.  PROGRAM_UPDATE has these
 * updates and ZERO alone: it is run before anything else reads the state.
 */
#ifndef TRIREME_PROGRAM_OVERLAP_UPDATE_H
#define TRIREME_PROGRAM_OVERLAP_UPDATE_H

#include "program/run.h"

/* Begin: flats are updated in the order in which the runs first read them, those that none reads
 * before them.  Without effect where the program does not update first. */
void overlap_update_plan(struct program *program, const struct run *run, int runs);

/* Write the updates that are not written yet, up to that of a flat, if it has one: an instruction
 * that reads it follows. */
void overlap_update_before(struct program *program, int flat);

/* The same for the flats of a run, one of those planned; and ZERO where it is the first that needs
 * the sums. */
void overlap_update_before_run(struct program *program, const struct run *run);

/* Write ZERO, unless it is written: sums are added to after this. */
void overlap_update_before_sums(struct program *program);

/* Write all that is left, ZERO too, and end. */
void overlap_update_end(struct program *program);

#endif
