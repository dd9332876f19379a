/* stages.h - which pipeline stage each unit of a model belongs to. */
#ifndef TRIREME_SEGMENT_STAGES_H
#define TRIREME_SEGMENT_STAGES_H

#include "segment/units.h"

/* Cut units into stages where the most expensive stage costs as little as it can; of cuts that are
 * alike in this, the one with the fewest units in the first stages.  stage[u]: of unit u; at least
 * one unit each, so there are at most as many stages. */
void stages_cut(const double *cost, int units, int stages, int *stage);

/* For units.c alone: set units->stages, stage, rank and flops as units->request says, once
 * graphs and boundaries are known. Returns 0, or -1 with err set: more stages than units, numbers
 * of units that do not make the stages, or a boundary that is read beyond the stage after its own.
 */
int stages_find(struct units *units, struct error *err);

#endif
