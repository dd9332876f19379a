/* streams.h - is an instruction on a stream that can do it, and its memory where that works? */
#ifndef TRIREME_VERIFY_STREAMS_H
#define TRIREME_VERIFY_STREAMS_H

#include "program/program.h"

/* Is an instruction on one of its streams?  Transfers are on streams on which their groups have
 * channels (mesh_attach()), copies on that of their way, and all else is on the compute stream, but
 * for UPDATE, which may be beside it or on the host. */
int streams_allow(const struct program *program, const struct instr *instr);

/* Is the memory of a slot, which has a buffer, where the instruction works?  A FETCH copies from
 * farther away to nearer the device, one side at a time, a SPILL back; on STREAM_HOST operands are
 * in the host's memory, else on the device. */
int streams_reach(const struct program *program, const struct instr *instr, int slot);

#endif
