/* offload.c - the copies between sides.
 *
 * Pools are on sides (state_side()): POOL_DISK on the disk's, POOL_HOST on the host's where that
 * memory is apart from the device's, all others on the device's.  A copy goes one side at a time,
 * disk <-> host <-> device, and each of the four ways has a stream of its own, so that copies
 * overlap each other and the kernels.  Where the host's memory is the device's there are two sides.
 */
#include "program/offload.h"

static enum state_side side_of(const struct program *program, int buffer)
{
    return state_side(program->state, program->buffer[buffer].pool);
}

void offload_copy(struct program *program, int from, int to, int flat, int micro)
{
    enum state_side to_side = side_of(program, to), from_side = side_of(program, from);
    int fetches = to_side > from_side, disk = to_side == SIDE_DISK || from_side == SIDE_DISK;
    enum program_stream stream =
        disk ? (fetches ? STREAM_READ : STREAM_WRITE) : (fetches ? STREAM_FETCH : STREAM_SPILL);
    struct instr *instr = program_add_instr(program, fetches ? INSTR_FETCH : INSTR_SPILL, stream);
    instr->flat = flat;
    instr->micro = micro;
    instr_bind(instr, SLOT_FROM, from, ACCESS_READ);
    instr_bind(instr, SLOT_TO, to, ACCESS_WRITE);
}

int offload_temporary(struct program *program, int buffer, enum state_side side)
{
    struct program_buffer of = program->buffer[buffer];
    enum mem_pool pool =
        side == SIDE_HOST || !program->layout->host_apart ? POOL_HOST : POOL_UNSHARDED;
    return program_add_buffer(program, pool, of.bytes, 0, "%s copy", of.name);
}

/* The next side on the way from side `at` to side `to`. */
static enum state_side step_towards(const struct program *program, enum state_side at,
                                    enum state_side to)
{
    if (!program->layout->host_apart)
        return to;
    return at < to ? at + 1 : at - 1;
}

int offload_fetch(struct program *program, int buffer, enum state_side side, int flat, int micro)
{
    enum state_side at = side_of(program, buffer);
    while (at != side) {
        at = step_towards(program, at, side);
        int copy = offload_temporary(program, buffer, at);
        offload_copy(program, buffer, copy, flat, micro);
        buffer = copy;
    }
    return buffer;
}

void offload_spill(struct program *program, int from, int to, int flat, int micro)
{
    enum state_side next = step_towards(program, side_of(program, from), side_of(program, to));
    if (next != side_of(program, to))
        from = offload_fetch(program, from, next, flat, micro);
    offload_copy(program, from, to, flat, micro);
}
