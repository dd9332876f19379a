/* sent.h - what a transfer sends to other ranks. */
#ifndef TRIREME_PROGRAM_SENT_H
#define TRIREME_PROGRAM_SENT_H

#include "program/program.h"

/* By the rank at coord, in numbers of instr->dtype; 0 of what is no transfer. */
int64_t sent_elems(const struct program *program, const struct instr *instr,
                   struct mesh_coord coord);

/* Bytes that the program's own rank sends, as comm counts them in a run. */
int64_t sent_bytes(const struct program *program, const struct instr *instr);

/* The groups, by their axes, in which programs of a rank exchange parts between any two members on
 * the reduce stream: struct mesh_options' messages. */
unsigned sent_messages(const struct program *const *programs, int count);

#endif
