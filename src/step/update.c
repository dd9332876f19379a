/* update.c - the end of a training step: gradient norm, sums over ranks, optimizer. */
#include "step/passes.h"

#include "step/shard.h"

static void norm(struct program *program, int unit)
{
    int index = program_instr(program, INSTR_NORM, STREAM_COMPUTE);
    struct instr *instr = &program->instr[index];
    instr->unit = unit;
    instr->elems = program->units->flat[unit].shard_elems;
    instr_bind(instr, SLOT_SHARD_GRAD, program->state[unit].grad, ACCESS_READ);
    instr_bind(instr, SLOT_SUMS, program->sums, ACCESS_BOTH);
}

void pass_sums(struct program *program)
{
    const int *degree = program->request.shape.degree;
    if (degree[MESH_REPLICATE] * degree[MESH_SHARD] < 2)
        return;
    int index = program_instr(program, INSTR_ALLREDUCE, STREAM_REDUCE);
    struct instr *instr = &program->instr[index];
    instr->group = GROUP_DATA;
    instr->elems = SUM_REDUCED;
    instr->dtype = DTYPE_F64;
    instr_bind(instr, SLOT_TO, program->sums, ACCESS_BOTH);
}

static void scale(struct program *program)
{
    int index = program_instr(program, INSTR_SCALE, STREAM_COMPUTE);
    instr_bind(&program->instr[index], SLOT_SUMS, program->sums, ACCESS_BOTH);
}

static void update(struct program *program, int unit)
{
    const struct unit_state *state = &program->state[unit];
    int index = program_instr(program, INSTR_UPDATE, STREAM_COMPUTE);
    struct instr *instr = &program->instr[index];
    instr->unit = unit;
    instr->elems = program->units->flat[unit].shard_elems;
    instr_bind(instr, SLOT_SUMS, program->sums, ACCESS_READ);
    instr_bind(instr, SLOT_SHARD_GRAD, state->grad, ACCESS_READ);
    instr_bind(instr, SLOT_MASTER, state->master, ACCESS_BOTH);
    for (int k = 0; k < OPTIMIZER_SLOTS; k++)
        if (state->slot[k] >= 0)
            instr_bind(instr, SLOT_OPTIMIZER + k, state->slot[k], ACCESS_BOTH);
    if (state->param != state->master)
        instr_bind(instr, SLOT_PARAM, state->param, ACCESS_WRITE);
}

/* Backward finishes the last units first: their norms are taken while the first ones' gradients
 * are still on their way. */
void pass_update(struct program *program)
{
    for (int u = program->units->count - 1; u >= 0; u--)
        norm(program, u);
    pass_sums(program);
    scale(program);
    for (int u = 0; u < program->units->count; u++)
        update(program, u);
}
