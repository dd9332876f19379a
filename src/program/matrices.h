/* matrices.h - what comes before UPDATE of a flat whose rule is of whole matrices.
 *
 *   sharded: MOMENTUM of the shard, ALLTOALL of shards to owners, ORTHOGONALIZE there,
 *            ALLTOALL back
 *   whole:   MOMENTUM of all, ORTHOGONALIZE of what the rank owns,
 *            ALLTOALL of that to the others
 *
 * Matrices that all ranks hold are divided among them, too: the products of five steps are 20 m
 * operations or more per element of a matrix whose smaller side is m, the transfer of a result four
 * bytes.  MOMENTUM leaves its result in the gradient's memory; in the end what UPDATE subtracts is
 * there.
 */
#ifndef TRIREME_PROGRAM_MATRICES_H
#define TRIREME_PROGRAM_MATRICES_H

#include "program/owners.h"
#include "program/program.h"

/* Append what brings the matrices of a flat to their owners; sums, grad, slot: buffers where UPDATE
 * works.  Returns the buffer of those that this rank owns, for matrices_end(): grad itself where
 * that is whole. */
int matrices_begin(struct program *program, const struct owners *owners, int flat, int sums,
                   int grad, int slot);

/* Append the ORTHOGONALIZE of the matrices that this rank owns, and the ALLTOALL that brings all of
 * a flat's matrices back into grad. */
void matrices_end(struct program *program, const struct owners *owners, int flat, int matrices,
                  int grad);

#endif
