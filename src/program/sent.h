/* sent.h - what a transfer sends to other ranks. */
#ifndef TRIREME_PROGRAM_SENT_H
#define TRIREME_PROGRAM_SENT_H

#include "program/program.h"

/* Count the numbers, in instr->dtype, that the rank at coord sends by a transfer; 0 for an
 * instruction that is no transfer. */
int64_t sent_elems(const struct program *program, const struct instr *instr,
                   struct mesh_coord coord);

/* Count the bytes that the program's rank sends by an instruction, as comm counts them in a run. */
int64_t sent_bytes(const struct program *program, const struct instr *instr);

/* Set in options what programs of a rank send from GPU to GPU: the groups whose members all send to
 * one another (messages), and the peers of SEND and RECV. */
void sent_describe(struct mesh_options *options, const struct program *const *programs, int count);

#endif
