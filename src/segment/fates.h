/* fates.h - which tensors of a unit share a fate: its flats. */
#ifndef TRIREME_SEGMENT_FATES_H
#define TRIREME_SEGMENT_FATES_H

#include "segment/units.h"

/* Make units->flat and units->use of the kinds of units that are known: of each unit a flat for
 * every fate that tensors of its own have, then those of another unit that hold what it shares.
 * units->flat has space for FLAT_USES of each unit.  Returns 0, or -1 with err set: too many flats,
 * a shared matrix of which two units want different parts, a divided one that is to be made
 * orthogonal, one whose division cuts an optimizer's blocks; or such blocks, and no tensor that has
 * them. */
int fates_make_flats(struct units *units, struct error *err);

#endif
