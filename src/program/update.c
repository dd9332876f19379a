/* update.c - the end of a training step: gradient norm, sums over ranks, optimizer.
 *
 *   NORM of each flat (behind SEND, RECV and ADD of those in copies.h), ALLREDUCE of the sums,
 * among them each flat's squares, which SCALE adds, then for each flat FETCH, UPDATE, SPILL
 *
 * with FETCH and SPILL only of what lives on another side than the optimizer works on.  Before
 * UPDATE of a flat whose rule is of matrices come MOMENTUM and ORTHOGONALIZE (matrices.h): MOMENTUM
 * a flat ahead, UPDATE behind the next such flat's ORTHOGONALIZE, so that the transfers between
 * overlap products.
 */
#include "program/passes.h"

#include <stdlib.h>

#include "base/array.h"
#include "program/copies.h"
#include "program/gradients.h"
#include "program/matrices.h"
#include "program/offload.h"

/* All elements of a buffer of sums over the ranks along axes. */
static void sum_over(struct program *program, unsigned axes, int buffer)
{
    int64_t elems = (int64_t)(program->buffer[buffer].bytes / sizeof(double));
    if (mesh_members(&program->layout->shape, axes) > 1)
        program_all_reduce(program, -1, -1, axes, buffer, elems, DTYPE_F64);
}

void pass_sums(struct program *program)
{
    sum_over(program, MESH_DATA, program->state->summed);
    sum_over(program, 1u << MESH_PIPELINE, program->state->summed);
    sum_over(program, 1u << MESH_TENSOR, program->state->counted);
}

/* Do gradients live on a side from which UPDATE's must be fetched? */
static int fetches_grads(const struct program *program)
{
    const struct state *state = program->state;
    return state_side(state, state_grad_pool(state)) < state_update_side(state);
}

/* The buffers that UPDATE of a flat works on: where they live, or copies on its side. */
struct operands {
    int flat;
    int grad, master, param, slot[OPTIMIZER_SLOTS];
    int matrices; /* those that this rank owns; -1: the rule is not of matrices */
};

/* A buffer, or a copy of it where UPDATE works. */
static int fetch(struct program *program, int flat, int buffer)
{
    enum state_side side = state_update_side(program->state);
    return buffer < 0 ? -1 : offload_fetch(program, buffer, side, flat, -1);
}

static void spill(struct program *program, int flat, int copy, int buffer)
{
    if (copy != buffer)
        offload_spill(program, copy, buffer, flat, -1);
}

/* grad: a copy that was fetched before, or -1.  A skipped update writes nothing: what it would
 * write over must be there too. */
static struct operands fetch_flat(struct program *program, int flat, int grad)
{
    const struct state_flat *own = &program->state->flat[flat];
    struct operands here = {.flat = flat,
                            .grad = grad >= 0 ? grad : fetch(program, flat, own->grad),
                            .master = fetch(program, flat, own->master),
                            .matrices = -1};
    for (int k = 0; k < OPTIMIZER_SLOTS; k++)
        here.slot[k] = fetch(program, flat, own->slot[k]);
    here.param = here.master;
    if (own->param >= 0 && program->units->request.dtype != state_master_dtype(program->state))
        here.param = fetch(program, flat, own->param);
    return here;
}

static void spill_flat(struct program *program, const struct operands *here)
{
    int flat = here->flat;
    const struct state_flat *own = &program->state->flat[flat];
    spill(program, flat, here->master, own->master);
    for (int k = 0; k < OPTIMIZER_SLOTS; k++)
        spill(program, flat, here->slot[k], own->slot[k]);
    if (own->param >= 0 && own->param != own->master)
        spill(program, flat, here->param, own->param);
}

static int is_of_matrices(const struct program *program, int flat)
{
    return optimizer_row(program->units->flat[flat].optimizer)->of_matrices;
}

static void update(struct program *program, int sums, const struct operands *here)
{
    int on_host = state_update_side(program->state) == SIDE_HOST;
    struct instr *instr =
        program_instr(program, INSTR_UPDATE, on_host ? STREAM_HOST : STREAM_COMPUTE);
    instr->flat = here->flat;
    instr->elems = program->units->flat[here->flat].shard_elems;
    instr_bind(instr, SLOT_SUMS, sums, ACCESS_READ);
    instr_bind(instr, SLOT_SHARD_GRAD, here->grad, ACCESS_READ);
    instr_bind(instr, SLOT_MASTER, here->master, ACCESS_BOTH);
    for (int k = 0; k < OPTIMIZER_SLOTS && !is_of_matrices(program, here->flat); k++)
        if (here->slot[k] >= 0)
            instr_bind(instr, SLOT_OPTIMIZER + k, here->slot[k], ACCESS_BOTH);
    if (here->param != here->master)
        instr_bind(instr, SLOT_PARAM, here->param, ACCESS_WRITE);
    spill_flat(program, here);
}

/* The flats that are updated, in order; returns how many. */
static int list_trained(const struct program *program, int *flat)
{
    int count = 0;
    for (int f = 0; f < program->units->flats; f++)
        if (state_trains(program->state, f))
            flat[count++] = f;
    return count;
}

static void begin_matrices(struct program *program, const struct owners *owners, int sums,
                           struct operands *here)
{
    if (is_of_matrices(program, here->flat))
        here->matrices =
            matrices_begin(program, owners, here->flat, sums, here->grad, here->slot[0]);
}

/* How far state is fetched before UPDATE of flat number i of the list: one flat ahead, or to the
 * next whose rule is of matrices, so that those travel while this one's are made orthogonal. */
static int ahead_of(const struct program *program, const int *flat, int count, int i)
{
    int next = i + 1;
    while (next < count && is_of_matrices(program, flat[i]) && !is_of_matrices(program, flat[next]))
        next++;
    return next < count ? next : count - 1;
}

/* The flats that are updated, in order, with their gradients where those are fetched already, else
 * -1.  here[0] is fetched. */
static void update_all(struct program *program, const int *flat, const int *grad, int count,
                       int sums, struct operands *here)
{
    struct owners *owners = owners_create(program->units, program->layout);
    const struct operands *late = NULL; /* its matrices are on their way back */
    begin_matrices(program, owners, sums, &here[0]);
    for (int i = 0, begun = 1; i < count; i++) {
        const struct operands *now = &here[i];
        for (; begun <= ahead_of(program, flat, count, i); begun++) {
            here[begun] = fetch_flat(program, flat[begun], grad[begun]);
            begin_matrices(program, owners, sums, &here[begun]);
        }
        if (is_of_matrices(program, now->flat)) {
            matrices_end(program, owners, now->flat, now->matrices, now->grad);
            const struct operands *before = late;
            late = now;
            now = before;
        }
        if (now)
            update(program, sums, now);
    }
    if (late)
        update(program, sums, late);
    owners_destroy(owners);
}

/* Backward finishes the last flats first: their norms are taken and their gradients copied to where
 * UPDATE works while the first flats' are still being summed.  Gradients that live elsewhere were
 * measured in backward. */
void pass_update(struct program *program)
{
    size_t flats = (size_t)program->units->flats;
    struct operands *here = array_make(flats, sizeof *here);
    int *grad = array_make(flats, sizeof *grad), *flat = array_make(flats, sizeof *flat);
    int *received = array_make(flats, sizeof *received);
    int count = list_trained(program, flat);
    for (int i = 0; i < count; i++)
        received[i] = copies_other_rank(program->state, flat[i]) < 0
                          ? -1
                          : copies_exchange(program, flat[i], program->state->flat[flat[i]].grad);
    for (int i = count - 1; i >= 0; i--) {
        int sum = program->state->flat[flat[i]].grad;
        if (received[i] >= 0)
            copies_add(program, flat[i], received[i], sum);
        if (!state_fetches_grads(program->state))
            gradients_norm(program, flat[i], sum);
        grad[i] = fetches_grads(program) ? -1 : fetch(program, flat[i], sum);
    }
    here[0] = fetch_flat(program, flat[0], grad[0]);
    pass_sums(program);
    instr_bind(program_instr(program, INSTR_SCALE, STREAM_COMPUTE), SLOT_SUMS, program->state->sums,
               ACCESS_BOTH);
    update_all(program, flat, grad, count, fetch(program, -1, program->state->sums), here);
    free(here);
    free(received);
    free(grad);
    free(flat);
}
