/* overlaps.h - which instructions touch the same bytes of a buffer, for verify.c alone. */
#ifndef TRIREME_VERIFY_OVERLAPS_H
#define TRIREME_VERIFY_OVERLAPS_H

#include "program/program.h"

struct overlaps;

/* Nothing touched yet.  NULL where no unit of the rank exchanges rows in chunks: then buffers need
 * not be looked at by bytes.  Free with overlaps_destroy() (NULL allowed). */
struct overlaps *overlaps_create(const struct program *program);
void overlaps_destroy(struct overlaps *overlaps);

/* Instruction i touches buffer b, or views of it, by any of its operands.  Sets after[s], of each
 * stream but its own, to the last instruction that touched some of the same bytes before, where one
 * of both writes; -1: none. */
void overlaps_add(struct overlaps *overlaps, int i, int b, int after[STREAMS]);

#endif
