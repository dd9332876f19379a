/* pieces.h - what ranks exchange between the pieces of a run (segment.h), as instructions. */
#ifndef TRIREME_PROGRAM_PIECES_H
#define TRIREME_PROGRAM_PIECES_H

#include "program/run.h"

/* Append the exchange that follows a piece of run, which is not its last one.  buffer: the run's,
 * by space. */
void pieces_exchange(struct program *program, const struct run *run, int piece, const int *buffer);

#endif
