/* update.c - the end of a training step: gradient norm, sums over ranks, optimizer. */
#include "program/passes.h"

#include <stdlib.h>

#include "base/array.h"
#include "program/gradients.h"
#include "program/offload.h"

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

/* Do gradients live farther than UPDATE is? */
static int brings_grads(const struct program *program)
{
    enum mem_pool pool = offload_pool(program->request.offload.gradients, POOL_GRADS);
    return offload_side(program, pool) < offload_update_side(program);
}

/* The buffers of a unit as UPDATE has them: where they live, or near. */
struct at_hand {
    int grad, master, param, slot[OPTIMIZER_SLOTS];
};

/* What is at home on another side is copied here. */
static int bring(struct program *program, int unit, int home)
{
    return home < 0 ? -1 : offload_bring(program, home, offload_update_side(program), unit, -1);
}

static void take_back(struct program *program, int unit, int home, int near)
{
    if (near != home)
        offload_take(program, near, home, unit, -1);
}

/* grad: what was brought before, or -1.  A skipped update writes nothing: what it would write over
 * must be there too. */
static struct at_hand bring_unit(struct program *program, int unit, int grad)
{
    struct unit_state state = program->state[unit];
    struct at_hand near = {.grad = grad >= 0 ? grad : bring(program, unit, state.grad),
                           .master = bring(program, unit, state.master)};
    for (int k = 0; k < OPTIMIZER_SLOTS; k++)
        near.slot[k] = bring(program, unit, state.slot[k]);
    near.param = near.master;
    if (state.param >= 0 && program->units->request.dtype != program_master_dtype(program))
        near.param = bring(program, unit, state.param);
    return near;
}

static void take_unit_back(struct program *program, int unit, const struct at_hand *near)
{
    struct unit_state state = program->state[unit];
    take_back(program, unit, state.master, near->master);
    for (int k = 0; k < OPTIMIZER_SLOTS; k++)
        take_back(program, unit, state.slot[k], near->slot[k]);
    if (state.param >= 0 && state.param != state.master)
        take_back(program, unit, state.param, near->param);
}

static void update(struct program *program, int unit, int sums, const struct at_hand *near)
{
    int on_host = offload_update_side(program) == SIDE_HOST;
    int index = program_instr(program, INSTR_UPDATE, on_host ? STREAM_HOST : STREAM_COMPUTE);
    struct instr *instr = &program->instr[index];
    instr->unit = unit;
    instr->elems = program->units->flat[unit].shard_elems;
    instr_bind(instr, SLOT_SUMS, sums, ACCESS_READ);
    instr_bind(instr, SLOT_SHARD_GRAD, near->grad, ACCESS_READ);
    instr_bind(instr, SLOT_MASTER, near->master, ACCESS_BOTH);
    for (int k = 0; k < OPTIMIZER_SLOTS; k++)
        if (near->slot[k] >= 0)
            instr_bind(instr, SLOT_OPTIMIZER + k, near->slot[k], ACCESS_BOTH);
    if (near->param != near->master)
        instr_bind(instr, SLOT_PARAM, near->param, ACCESS_WRITE);
}

/* Backward finishes the last units first: their norms are taken, and their gradients go where they
 * are needed, while the first ones' are still on their way; those that live elsewhere did so in
 * backward.  State is brought a unit ahead. */
void pass_update(struct program *program)
{
    int units = program->units->count;
    struct at_hand *near = array_make((size_t)units, sizeof *near);
    int *grad = array_make((size_t)units, sizeof *grad);
    for (int u = units - 1; u >= 0; u--) {
        if (!offload_fetches_grads(program))
            gradients_norm(program, u, program->state[u].grad);
        grad[u] = brings_grads(program) ? -1 : bring(program, u, program->state[u].grad);
    }
    near[0] = bring_unit(program, 0, grad[0]);
    pass_sums(program);
    scale(program);
    int sums = bring(program, -1, program->sums);
    for (int u = 0; u < units; u++) {
        if (u + 1 < units)
            near[u + 1] = bring_unit(program, u + 1, grad[u + 1]);
        update(program, u, sums, &near[u]);
        take_unit_back(program, u, &near[u]);
    }
    free(near);
    free(grad);
}
