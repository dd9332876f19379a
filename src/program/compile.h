/* compile.h - from units and a request to a program: the passes of passes.h, then memory and waits.
 */
#ifndef TRIREME_STEP_COMPILE_H
#define TRIREME_STEP_COMPILE_H

#include "program/program.h"

/* Compile the step of the rank at request->coord: instructions, waits and memory.  Pure: needs
 * no ranks, no data.  Returns 0 and a program for program_destroy(), or -1 with err set. */
int program_create(struct program **program, const struct units *units,
                   const struct program_request *request, struct error *err);

#endif
