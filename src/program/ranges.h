/* ranges.h - who was last given each byte of a slab. */
#ifndef TRIREME_PROGRAM_RANGES_H
#define TRIREME_PROGRAM_RANGES_H

#include <stddef.h>

struct ranges;

struct ranges *ranges_create(void);
void ranges_destroy(struct ranges *ranges); /* NULL allowed */

/* Give the bytes from offset on to owner.  Returns how many ranges of others lay there until now,
 * and their owners in *had (valid until the next call; an owner may be there more than once); bytes
 * that had no owner are in none of them.  Cost: a binary search among the ranges, and a memmove of
 * those after it. */
int ranges_give(struct ranges *ranges, size_t offset, size_t bytes, int owner, const int **had);

#endif
