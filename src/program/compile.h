/* compile.h - from a state to a program over it: the passes of passes.h, then memory and waits. */
#ifndef TRIREME_PROGRAM_COMPILE_H
#define TRIREME_PROGRAM_COMPILE_H

#include "program/program.h"

/* Compile the step of the rank whose state it is: instructions, waits and memory.  Pure: needs no
 * ranks, no data.  state must outlive the program, which is for program_destroy(). */
struct program *program_create(const struct state *state, enum program_kind kind);

/* The same for a program that is only measured: its instructions and memory.  Finding the waits
 * takes a third of the time of compiling.  verify_program() and forecast_make() refuse it, and it
 * is not to be run. */
struct program *program_create_without_waits(const struct state *state, enum program_kind kind);

#endif
