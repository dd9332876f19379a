/* update_flat.h - the update of one flat: its state is fetched to where UPDATE works, updated, and
 * spilled to where it lives.  Private to the passes that order such updates: update.c at the end of
 * a step, overlap_update.c at the start of the next one.
 */
#ifndef TRIREME_PROGRAM_UPDATE_FLAT_H
#define TRIREME_PROGRAM_UPDATE_FLAT_H

#include "program/program.h"

/* The buffers that UPDATE of a flat works on: where they live, or copies on its side. */
struct update_operands {
    int flat;
    int grad, master, param, slot[OPTIMIZER_SLOTS];
    int matrices; /* those that this rank owns; -1: the rule is not of matrices */
};

/* The flats that the rank updates, in order, into flat (units->flats of them at most); returns how
 * many. */
int update_list(const struct program *program, int *flat);

/* A buffer, or a FETCH of it to where UPDATE works; -1 stays -1.  flat: whose it is, or -1. */
int update_fetch(struct program *program, int flat, int buffer);

/* The operands of a flat, with the FETCHes that brings.  grad: a copy of the gradient that was
 * fetched before, or -1. */
struct update_operands update_fetch_flat(struct program *program, int flat, int grad);

/* UPDATE by the factor in sums, and SPILL of what it wrote.  On a GPU that updates beside forward
 * it is on a stream of its own. */
void update_write(struct program *program, int sums, const struct update_operands *here);

/* Is the rule of a flat's optimizer one of matrices? */
int update_is_of_matrices(const struct program *program, int flat);

#endif
