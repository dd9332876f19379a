/* owners.h - which rank makes which matrices orthogonal.
 *
 * A matrix is made orthogonal whole, by one rank: of the shard group where the flat is sharded,
 * else of all data ranks, which hold it alike.  A rank owns consecutive tensors of a flat, one
 * range of it, so that what one rank sends to another is one range too.  The ranges of a flat are
 * chosen so that the largest costs least; the next flat's largest goes to the rank with the least
 * so far.
 *
 *   flat 0  | q k v o | gate | up | down |      ranks 0, 1, 2, 3
 *   flat 1  | q k v o | gate | up | down |      ranks 1, 2, 3, 0  (say)
 *
 * Pure: all ranks find the same.
 */
#ifndef TRIREME_PROGRAM_OWNERS_H
#define TRIREME_PROGRAM_OWNERS_H

#include "program/layout.h"
#include "segment/units.h"

struct owners;

/* Choose the owners of every flat whose rule is of whole matrices.  units and layout
 * must outlive what this returns, which owners_destroy() frees (NULL allowed). */
struct owners *owners_create(const struct units *units, const struct layout *layout);
void owners_destroy(struct owners *owners);

/* The mesh axes of the ranks among whom the matrices of a flat are divided; 0: one alone has all.
 */
unsigned owners_axes(const struct owners *owners, int flat);

/* The number of ranks along owners_axes(). */
int owners_count(const struct owners *owners, int flat);

/* What member `rank` of that group owns of a flat; no elements: nothing. */
struct flat_range owners_range(const struct owners *owners, int flat, int rank);

#endif
