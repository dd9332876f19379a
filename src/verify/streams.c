/* streams.c - see streams.h. */
#include "verify/streams.h"

/* A set of streams, a bit each. */
enum {
    COMPUTE = 1 << STREAM_COMPUTE,
    GATHER = 1 << STREAM_GATHER,
    REDUCE = 1 << STREAM_REDUCE,
    POINTS = 0xff << STREAM_POINT,
    FETCHES = 1 << STREAM_FETCH | 1 << STREAM_READ,
    SPILLS = 1 << STREAM_SPILL | 1 << STREAM_WRITE,
    ANY = (1 << STREAMS) - 1
};
_Static_assert(POINTS >> STREAM_POINT_7 == 1, "streams of messages in one run");

/* The streams that each kind of instruction may be on. */
static const unsigned streams[INSTR_KINDS] = {
    [INSTR_ZERO] = COMPUTE,
    [INSTR_LOAD] = COMPUTE,
    [INSTR_RUN] = COMPUTE,
    [INSTR_ADD] = COMPUTE,
    [INSTR_CAST] = COMPUTE,
    [INSTR_DECODE] = COMPUTE,
    [INSTR_GATHER] = GATHER,
    [INSTR_REDUCE] = REDUCE,
    [INSTR_ALLREDUCE] = REDUCE,
    [INSTR_ALLTOALL] = REDUCE,
    [INSTR_SEND] = POINTS,
    [INSTR_RECV] = POINTS,
    [INSTR_FETCH] = FETCHES,
    [INSTR_SPILL] = SPILLS,
    [INSTR_NORM] = COMPUTE,
    [INSTR_SCALE] = COMPUTE,
    [INSTR_MOMENTUM] = COMPUTE,
    [INSTR_ORTHOGONALIZE] = COMPUTE,
    [INSTR_UPDATE] = COMPUTE | 1 << STREAM_UPDATE | 1 << STREAM_HOST,
    [INSTR_RELEASE] = ANY,
};

/* Where memory is, away from the device first. */
enum side { DISK, HOST, DEVICE };

static enum side side_of(const struct program *program, int buffer)
{
    enum mem_pool pool = program->buffer[buffer].pool;
    return pool == POOL_DISK                                  ? DISK
           : pool == POOL_HOST && program->layout->host_apart ? HOST
                                                              : DEVICE;
}

int streams_allow(const struct program *program, const struct instr *instr)
{
    unsigned here = 1u << instr->stream;
    if (instr_is_message(instr) && here & POINTS)
        return program->layout->shape.points >> (instr->stream - STREAM_POINT) & 1;
    return (here & streams[instr->kind]) != 0;
}

/* Does a copy go the way of its kind and stream? */
static int goes_its_way(const struct program *program, const struct instr *instr)
{
    enum side from = side_of(program, instr->buffer[SLOT_FROM]),
              to = side_of(program, instr->buffer[SLOT_TO]);
    enum side far = from < to ? from : to, near = from < to ? to : from;
    int is_of_file = instr->stream == STREAM_READ || instr->stream == STREAM_WRITE;
    int is_one_side = far + 1 == near || (far + 2 == near && !program->layout->host_apart);
    return is_one_side && (instr->kind == INSTR_FETCH) == (from < to) &&
           is_of_file == (far == DISK);
}

int streams_reach(const struct program *program, const struct instr *instr, int slot)
{
    enum side side = instr->stream == STREAM_HOST ? HOST : DEVICE;
    if (instr->kind == INSTR_RELEASE)
        return 1;
    if (instr_is_copy(instr) && instr->buffer[SLOT_FROM] >= 0 && instr->buffer[SLOT_TO] >= 0)
        return goes_its_way(program, instr);
    return side_of(program, instr->buffer[slot]) == side;
}
