/* stages.h - which pipeline stage each unit of a model belongs to; for units.c alone. */
#ifndef TRIREME_SEGMENT_STAGES_H
#define TRIREME_SEGMENT_STAGES_H

#include "segment/units.h"

/* Set units->stages, stage, rank and flops as units->request says, once graphs and boundaries are
 * known. Returns 0, or -1 with err set: more stages than units, numbers of units that do not make
 * the stages, or a boundary that is read beyond the stage behind its own. */
int stages_find(struct units *units, struct error *err);

#endif
