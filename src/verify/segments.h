/* segments.h - does each step of a unit's segments find what its node reads?
 *
 * verify_values() follows what buffers hold from one RUN to the next.  Inside a RUN a step finds
 * the values of other steps at offsets that segment_compile() chose, and parameters at the offsets
 * that it was compiled with.  Here both are compared with the graph and with the flats.
 */
#ifndef TRIREME_VERIFY_SEGMENTS_H
#define TRIREME_VERIFY_SEGMENTS_H

#include "program/program.h"

/* Of the rank's units:
 *  - the segments of all phases together run each node of the graph that training or evaluation
 *    needs once (what backward makes again aside), each piece after the one before;
 *  - each step finds all bytes of its operands where it looks for them: those of a temporary were
 *    written by the step that makes it, in this phase or in the one that keeps it, and by none
 *    since; those of anything else lie at that value's place in its space;
 *  - no step overwrites what it reads, unless its op works in place, and all stay in their space;
 *  - pieces say what their steps read and write;
 *  - each parameter, and its gradient, is where the flats of every unit have the tensors of these
 *    names; gradients of a section are written in the same phases, each is written before it is
 *    added to, and those of all that is trained are.
 * Returns 0, or -1 with err naming unit, phase and op ("wrong place", "wrong steps", "wrong flat").
 */
int segments_check(const struct program *program, struct error *err);

#endif
