/* boundaries.h - which unit reads the output of which earlier unit. */
#ifndef TRIREME_SEGMENT_BOUNDARIES_H
#define TRIREME_SEGMENT_BOUNDARIES_H

#include "segment/units.h"

/* Fill units->boundary by the names in the graphs of the model's units, one each: an input is the
 * output of the nearest earlier unit whose output has the input's name.
 * units needs count.  Returns 0, or -1 with err naming the boundary that no unit puts out, that
 * none reads, or whose shapes differ.
 */
int boundaries_find(struct units *units, struct graph *const *graph, struct error *err);

#endif
