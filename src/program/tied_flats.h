/* tied_flats.h - flats that two ranks of the pipeline axis have, such as the matrix of tied
 * embeddings.
 *
 * Each of the two has a copy, with its state, and makes the gradient of its own units.  At the end
 * of a step they send one another what they made; both then have the same sum, to the bit, and make
 * the same update.  The norm counts it, and checkpoints save it, where its own unit is. */
#ifndef TRIREME_PROGRAM_TIED_FLATS_H
#define TRIREME_PROGRAM_TIED_FLATS_H

#include "program/program.h"

/* The other rank of the pipeline axis that has a flat of this rank's; -1: none. */
int tied_flats_other_rank(const struct state *state, int flat);

/* Append the exchange of a flat's gradient, complete in buffer on this rank; returns the buffer
 * that receives the other's. */
int tied_flats_exchange(struct program *program, int flat, int buffer);

/* Append the ADD of the received gradient to the one in buffer. */
void tied_flats_add(struct program *program, int flat, int received, int buffer);

#endif
