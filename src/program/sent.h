/* sent.h - what a transfer sends to other ranks. */
#ifndef TRIREME_PROGRAM_SENT_H
#define TRIREME_PROGRAM_SENT_H

#include "program/program.h"

/* How many numbers of instr->dtype the rank at coord sends by a transfer; 0 for an instruction that
 * is none. */
int64_t sent_elems(const struct program *program, const struct instr *instr,
                   struct mesh_coord coord);

/* Bytes that the program's own rank sends, as comm counts them in a run. */
int64_t sent_bytes(const struct program *program, const struct instr *instr);

/* Put into options what programs of a rank send from GPU to GPU: messages, and the peers. */
void sent_describe(struct mesh_options *options, const struct program *const *programs, int count);

#endif
