/* writers.h - the pieces of a unit, and the exchanges after them, that have written to a space:
 * how the verifier follows what is kept and what is carried.  For rules_run.c, and verify_values.c,
 * which makes it. */
#ifndef TRIREME_VERIFY_WRITERS_H
#define TRIREME_VERIFY_WRITERS_H

#include "verify/values.h"

/* Made of a program's segments; writers_close() frees. */
struct writers *writers_open(const struct program *program);
void writers_close(struct writers *writers); /* NULL allowed */

/* Is a space written by writers that follow one another: what is kept, and what is carried? */
int writers_fill(int space);

/* The phase that writes what an instruction of another finds in a space; its own: -1. */
int writers_keeper(int space, enum segment_phase phase);

/* The addend by which an instruction of a unit is known in what it has written to. */
struct addends writers_addend(const struct instr *instr);

/* All that is written to a space that writers fill, of instr's unit and micro-batch: in the phase
 * that keeps it for another, or in its own before it. */
struct addends writers_before(const struct values *v, const struct instr *instr, int space);

/* Of the writers that write to a space in the phase of instr: sum the addends of those before instr
 * into *before.  Returns how many there are after it. */
int writers_after(const struct values *v, const struct instr *instr, int space,
                  struct addends *before);

#endif
