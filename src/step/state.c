/* state.c - the buffers that live from step to step. */
#include "step/passes.h"

#include "base/array.h"

static const char *prefix(const struct program *program, int unit)
{
    const char *name = program->units->model->unit[unit].prefix;
    return name[0] ? name : unit ? "head." : "embed.";
}

static int state_buffer(struct program *program, enum mem_pool pool, int unit, const char *what,
                        enum dtype dtype)
{
    size_t bytes = (size_t)program->units->flat[unit].shard_elems * dtype_bytes(dtype);
    return program_buffer(program, pool, bytes, 1, "%s%s", prefix(program, unit), what);
}

static void unit_state(struct program *program, int unit)
{
    enum dtype dtype = program->units->request.dtype;
    struct unit_state *state = &program->state[unit];
    int training = program->request.training;
    *state = (struct unit_state){-1, -1, -1, -1, -1};
    state->param = state_buffer(program, POOL_PARAMS, unit, "param", dtype);
    if (dtype == DTYPE_F32)
        state->master = state->param;
    else if (training)
        state->master = state_buffer(program, POOL_OPTIMIZER, unit, "master", DTYPE_F32);
    if (!training)
        return;
    state->grad = state_buffer(program, POOL_GRADS, unit, "grad", DTYPE_F32);
    state->first = state_buffer(program, POOL_OPTIMIZER, unit, "exp_avg", DTYPE_F32);
    state->second = state_buffer(program, POOL_OPTIMIZER, unit, "exp_avg_sq", DTYPE_F32);
}

void pass_state(struct program *program)
{
    const struct units *units = program->units;
    program->state = array_make((size_t)units->count, sizeof *program->state);
    for (int u = 0; u < units->count; u++)
        unit_state(program, u);
    program->sums = program_buffer(program, POOL_WORKSPACE, SUM_COUNT * sizeof(double), 1, "sums");
    size_t table = (size_t)(units->request.seq * units->model->const_width) * sizeof(float);
    program->constants = program_buffer(program, POOL_WORKSPACE, table, 1, "constants");
    program->work = program_buffer(program, POOL_WORKSPACE, units->work_bytes, 1, "work");
}
