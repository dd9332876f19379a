/* saved.h - which part of a state its rank writes to a checkpoint. */
#ifndef TRIREME_PROGRAM_SAVED_H
#define TRIREME_PROGRAM_SAVED_H

#include "program/state.h"

/* Does a checkpoint have the rank's part of a flat?  with_frozen: 1: of every flat; 0: of those
 * that are trained and of frozen adapters. */
int saved_has(const struct state *state, int flat, int with_frozen);

/* Set *from and *to so that this rank saves elements [*from, *to) of its shard of a flat; other
 * ranks with the same shard save the rest.  The data ranks divide it.  Of the ranks of a tensor
 * group that all have it only the first saves, and of several stages only that of the flat's unit.
 */
void saved_part(const struct state *state, int flat, int64_t *from, int64_t *to);

/* The format in which a checkpoint has the parameters of a flat: that of the masters where there
 * are any; fp32 of those of 4 bits, whose numbers it keeps. */
enum dtype saved_dtype(const struct state *state, int flat);

/* Return the bytes of what this rank saves in a checkpoint, padding of flats included: parameters
 * (masters where there are any) and the optimizer's state.  with_frozen: as for saved_has(). */
size_t saved_bytes(const struct state *state, int with_frozen);

#endif
