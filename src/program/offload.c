/* offload.c - see offload.h. */
#include "program/offload.h"

enum side offload_side(const struct program *program, enum mem_pool pool)
{
    int apart = program->request.offload.apart;
    return pool == POOL_DISK ? SIDE_DISK : pool == POOL_HOST && apart ? SIDE_HOST : SIDE_DEVICE;
}

enum mem_pool offload_pool(enum config_offload_to to, enum mem_pool pool)
{
    return to == OFFLOAD_HOST ? POOL_HOST : to == OFFLOAD_DISK ? POOL_DISK : pool;
}

enum side offload_update_side(const struct program *program)
{
    const struct offload *offload = &program->request.offload;
    return offload->apart && offload->optimizer != OFFLOAD_NONE ? SIDE_HOST : SIDE_DEVICE;
}

int offload_fetches_params(const struct program *program)
{
    enum mem_pool pool = offload_pool(program->request.offload.params, POOL_PARAMS);
    return offload_side(program, pool) != SIDE_DEVICE;
}

int offload_fetches_grads(const struct program *program)
{
    enum mem_pool pool = offload_pool(program->request.offload.gradients, POOL_GRADS);
    return offload_side(program, pool) != SIDE_DEVICE;
}

int offload_splits_params(const struct program *program)
{
    return offload_update_side(program) == SIDE_HOST && !offload_fetches_params(program);
}

void offload_copy(struct program *program, int from, int to, int unit, int micro)
{
    enum side above = offload_side(program, program->buffer[to].pool);
    enum side below = offload_side(program, program->buffer[from].pool);
    int fetches = above > below, disk = above == SIDE_DISK || below == SIDE_DISK;
    enum stream stream =
        disk ? (fetches ? STREAM_READ : STREAM_WRITE) : (fetches ? STREAM_FETCH : STREAM_SPILL);
    int index = program_instr(program, fetches ? INSTR_FETCH : INSTR_SPILL, stream);
    struct instr *instr = &program->instr[index];
    instr->unit = unit;
    instr->micro = micro;
    instr_bind(instr, SLOT_FROM, from, ACCESS_READ);
    instr_bind(instr, SLOT_TO, to, ACCESS_WRITE);
}

int offload_near(struct program *program, int buffer, enum side side)
{
    struct buffer home = program->buffer[buffer];
    enum mem_pool pool =
        side == SIDE_HOST || !program->request.offload.apart ? POOL_HOST : POOL_UNSHARDED;
    return program_buffer(program, pool, home.bytes, 0, "%s near", home.name);
}

/* The next side on the way; where the host's memory is the device's there are two. */
static enum side step_towards(const struct program *program, enum side at, enum side to)
{
    if (!program->request.offload.apart)
        return to;
    return at < to ? at + 1 : at - 1;
}

int offload_bring(struct program *program, int buffer, enum side side, int unit, int micro)
{
    enum side at = offload_side(program, program->buffer[buffer].pool);
    while (at != side) {
        at = step_towards(program, at, side);
        int near = offload_near(program, buffer, at);
        offload_copy(program, buffer, near, unit, micro);
        buffer = near;
    }
    return buffer;
}

void offload_take(struct program *program, int near, int home, int unit, int micro)
{
    enum side to = offload_side(program, program->buffer[home].pool);
    enum side at = offload_side(program, program->buffer[near].pool);
    enum side next = step_towards(program, at, to);
    if (next != to)
        near = offload_bring(program, near, next, unit, micro);
    offload_copy(program, near, home, unit, micro);
}
