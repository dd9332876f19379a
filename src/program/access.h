/* access.h - who accessed each byte of a buffer: the instruction that wrote it last, and of each
 * stream the last one that has read it since.
 *
 * That is all that an order needs to know.  Instructions of a stream run in its order, so that its
 * last one stands for those before it; and one that writes must come after all that accessed these
 * bytes before, so that it stands for them. */
#ifndef TRIREME_PROGRAM_ACCESS_H
#define TRIREME_PROGRAM_ACCESS_H

#include "program/program.h"

struct access_map;

struct access_map *access_map_create(void);
void access_map_destroy(struct access_map *map); /* NULL allowed */

/* Instruction `instr` of a stream reads or writes bytes [from, to) of the buffer; to SIZE_MAX: up
 * to its end. */
struct access {
    size_t from, to;
    int instr;
    enum program_stream stream;
    int writes;
};

/* Add an access by an instruction that is not before any of those added until now.  Raises
 * after[s], for each stream s but its own, to the last instruction of s that accessed some of the
 * same bytes where one of both writes.  The map keeps intervals of bytes that have the same
 * accesses.  Cost: a binary search among them, one step for each that the access covers, and a
 * memmove of those after it. */
void access_map_add(struct access_map *map, struct access access, int after[STREAMS]);

/* Return the number of intervals in the map; for tests. */
int access_map_intervals(const struct access_map *map);

#endif
