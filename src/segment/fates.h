/* fates.h - which tensors of a unit share a fate: its flats. */
#ifndef TRIREME_SEGMENT_FATES_H
#define TRIREME_SEGMENT_FATES_H

#include "segment/units.h"

/* Make units->flat and units->use of the kinds of units that are known: of each unit a flat for
 * every fate that tensors of its own have, then those of another unit that hold what it shares.
 * units->flat has space for FLAT_USES of each unit.
 * Returns 0, or -1 with err set, where units_destroy() frees what was made:
 * - a unit needs more than FLAT_USES flats
 * - train.grad_dtype is 16-bit, and no trained matrix can have it
 * - two units want different parts of a matrix that they share, or disagree which ranks make terms
 *   of its gradient
 * - a division cuts the blocks of a row (of the optimizer, or of nf4)
 * - a divided matrix is to be made orthogonal
 * - the optimizer works on blocks, or lora.quantize_base is nf4, and no tensor has whole blocks
 */
int fates_make_flats(struct units *units, struct error *err);

#endif
