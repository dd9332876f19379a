/* steps.h - which pieces of a unit, and which exchanges behind them, have written to a space: how
 * the verifier follows what is kept and what is carried.  For rules_run.c, and verify_values.c,
 * which makes it. */
#ifndef TRIREME_VERIFY_STEPS_H
#define TRIREME_VERIFY_STEPS_H

#include "verify/values.h"

/* Made of a program's segments; steps_close() frees. */
struct steps *steps_open(const struct program *program);
void steps_close(struct steps *steps); /* NULL allowed */

/* Is a space written by steps that follow one another: what is kept, and what is carried? */
int steps_fill(int space);

/* The phase that writes what an instruction of another finds in a space; its own: -1. */
int steps_keeper(int space, enum segment_phase phase);

/* The addend by which an instruction of a unit is known in what it has written to. */
struct addends steps_addend(const struct instr *instr);

/* All that is written to a space that steps fill, of instr's unit and micro-batch: in the phase
 * that keeps it for another, or in its own before it. */
struct addends steps_before(const struct values *v, const struct instr *instr, int space);

/* Of the steps that write to a space in the phase of instr: sum the addends of those before instr
 * into *before.  Returns how many there are behind it. */
int steps_behind(const struct values *v, const struct instr *instr, int space,
                 struct addends *before);

#endif
