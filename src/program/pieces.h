/* pieces.h - what ranks exchange between the pieces of a run (segment.h), as instructions. */
#ifndef TRIREME_PROGRAM_PIECES_H
#define TRIREME_PROGRAM_PIECES_H

#include "program/run.h"

/* The group of a set of mesh axes (bits), as instructions name it; -1: there is none. */
int pieces_group(unsigned axes);

/* Append the exchange that follows a piece of run, which is not its last one.  buffer: the run's,
 * by space. */
void pieces_exchange(struct program *program, const struct run *run, int piece, const int *buffer);

#endif
