/* overlaps.h - which instructions touch the same bytes of a buffer, for verify.c alone. */
#ifndef TRIREME_VERIFY_OVERLAPS_H
#define TRIREME_VERIFY_OVERLAPS_H

#include "program/program.h"

struct overlaps;

/* Nothing touched yet.  NULL where no unit of the rank exchanges rows in parts: then buffers need
 * not be looked at by bytes.  Free with overlaps_destroy() (NULL allowed). */
struct overlaps *overlaps_create(const struct program *program);
void overlaps_destroy(struct overlaps *overlaps);

/* Instruction i touches buffer b, or views of it, by any of its operands.  Sets *other to the
 * instructions before it that touched some of the same bytes, where one of both writes; valid until
 * the next call.  Returns how many. */
int overlaps_add(struct overlaps *overlaps, int i, int b, const int **other);

#endif
