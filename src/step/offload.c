/* offload.c - see offload.h. */
#include "step/offload.h"

enum mem_pool offload_pool(enum config_offload_to to, enum mem_pool pool)
{
    return to == OFFLOAD_HOST ? POOL_HOST : to == OFFLOAD_DISK ? POOL_DISK : pool;
}

int offload_fetches_params(const struct program *program)
{
    return offload_is_far(offload_pool(program->request.offload.params, POOL_PARAMS));
}

static void copy(struct program *program, enum instr_kind kind, int from, int to, int unit,
                 int micro)
{
    enum stream stream = kind == INSTR_FETCH ? STREAM_FETCH : STREAM_SPILL;
    int index = program_instr(program, kind, stream);
    struct instr *instr = &program->instr[index];
    instr->unit = unit;
    instr->micro = micro;
    instr_bind(instr, SLOT_FROM, from, ACCESS_READ);
    instr_bind(instr, SLOT_TO, to, ACCESS_WRITE);
}

void offload_fetch(struct program *program, int far, int near, int unit, int micro)
{
    copy(program, INSTR_FETCH, far, near, unit, micro);
}

void offload_spill(struct program *program, int near, int far, int unit)
{
    copy(program, INSTR_SPILL, near, far, unit, -1);
}

int offload_near(struct program *program, int far, enum mem_pool pool)
{
    struct buffer home = program->buffer[far];
    return program_buffer(program, pool, home.bytes, 0, "%s near", home.name);
}
