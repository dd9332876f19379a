/* nccl_reduce.h - sums of emulated collectives. */
#ifndef TRIREME_EMULATE_NCCL_REDUCE_H
#define TRIREME_EMULATE_NCCL_REDUCE_H

#include <nccl.h>
#include <stdint.h>

namespace emulate
{

/* Bytes of an element; 0 for types the emulation does not have. */
uint64_t type_bytes(int type);

/* Does the emulation have op for type? */
bool reduces(int type, int op);

/* to[count] = from[first] op from[first + 1] op ... round the ring of ranks, each result rounded to
 * type as it would be on its way through a link.  to may be one of from. */
void reduce(int type, int op, void *to, const void *const from[], int ranks, int first,
            uint64_t count);

} // namespace emulate

#endif
