/* update.c - the end of a training step: gradient norm, sums over ranks, and the optimizer, unless
 * that is left to the next step (overlap_update.h).
 *
 *   SEND, RECV, ADD      of flats with a copy on another rank (tied_flats.h)
 *   NORM                 of each flat
 *   ALLREDUCE            of the sums, among them the squares of each flat
 *   SCALE                adds these
 *   FETCH, UPDATE, SPILL of each flat
 *
 * with FETCH and SPILL only of what lives on another side than the optimizer works on.  Before
 * UPDATE of a flat whose rule is of matrices come MOMENTUM and ORTHOGONALIZE (matrices.h): MOMENTUM
 * a flat ahead, UPDATE after the next such flat's ORTHOGONALIZE, so that the transfers between
 * overlap products.
 */
#include "program/passes.h"

#include <stdlib.h>

#include "base/array.h"
#include "program/tied_flats.h"
#include "program/gradients.h"
#include "program/matrices.h"
#include "program/update_flat.h"

/* Sum all elements of a buffer of sums over the ranks along axes. */
static void sum_over(struct program *program, unsigned axes, int buffer)
{
    int64_t elems = (int64_t)(program->buffer[buffer].bytes / sizeof(double));
    if (mesh_members(&program->layout->shape, axes) > 1)
        program_add_all_reduce(program, -1, -1, axes, buffer, elems, DTYPE_F64);
}

void pass_sums(struct program *program)
{
    sum_over(program, MESH_DATA, program->state->over_data);
    sum_over(program, 1u << MESH_PIPELINE, program->state->over_data);
    sum_over(program, 1u << MESH_TENSOR, program->state->over_tensor);
}

/* Do gradients live farther from the device than UPDATE works, so that each UPDATE needs a FETCH of
 * its own? */
static int update_fetches_grads(const struct program *program)
{
    const struct state *state = program->state;
    return state_side(state, state_grad_pool(state)) < state_update_side(state);
}

static void begin_matrices(struct program *program, const struct owners *owners, int sums,
                           struct update_operands *here)
{
    if (update_is_of_matrices(program, here->flat))
        here->matrices =
            matrices_begin(program, owners, here->flat, sums, here->grad, here->slot[0]);
}

/* How far state is fetched before UPDATE of flat number i of the list: one flat ahead, or to the
 * next whose rule is of matrices, so that those travel while this one's are made orthogonal. */
static int ahead_of(const struct program *program, const int *flat, int count, int i)
{
    int next = i + 1;
    while (next < count && update_is_of_matrices(program, flat[i]) &&
           !update_is_of_matrices(program, flat[next]))
        next++;
    return next < count ? next : count - 1;
}

/* Write the updates of the `count` flats of flat[], in order.  grad: of each the copy of its
 * gradient where UPDATE works, or -1: not fetched yet; here: space for the operands of each, of
 * which here[0] are fetched. */
static void update_all(struct program *program, const int *flat, const int *grad, int count,
                       int sums, struct update_operands *here)
{
    struct owners *owners = owners_create(program->units, program->layout);
    int late = -1; /* the flat whose matrices are on their way back */
    begin_matrices(program, owners, sums, &here[0]);
    for (int i = 0, begun = 1; i < count; i++) {
        int ready = i;
        for (; begun <= ahead_of(program, flat, count, i); begun++) {
            here[begun] = update_fetch_flat(program, flat[begun], grad[begun]);
            begin_matrices(program, owners, sums, &here[begun]);
        }
        if (update_is_of_matrices(program, flat[i])) {
            matrices_end(program, owners, flat[i], here[i].matrices, here[i].grad);
            ready = late;
            late = i;
        }
        if (ready >= 0)
            update_write(program, sums, &here[ready]);
    }
    if (late >= 0)
        update_write(program, sums, &here[late]);
    owners_destroy(owners);
}

/* Write the norms of the flats' gradients, and the copies of gradients to where UPDATE works, the
 * last flat first: backward finishes its gradient first, so that this goes on while those of the
 * first flats are still being summed.  The norms of gradients that live elsewhere were taken in
 * backward.  grad: set, for each flat, to the copy, or -1 where none is made yet; NULL: UPDATE
 * comes in the next step, and nothing is copied. */
static void take_norms(struct program *program, const int *flat, int count, int *grad)
{
    int *received = array_make((size_t)program->units->flats, sizeof *received);
    for (int i = 0; i < count; i++)
        received[i] =
            tied_flats_other_rank(program->state, flat[i]) < 0
                ? -1
                : tied_flats_exchange(program, flat[i], program->state->flat[flat[i]].grad);
    for (int i = count - 1; i >= 0; i--) {
        int sum = program->state->flat[flat[i]].grad;
        if (received[i] >= 0)
            tied_flats_add(program, flat[i], received[i], sum);
        if (!state_fetches_grads(program->state))
            gradients_norm(program, flat[i], sum);
        if (grad)
            grad[i] = update_fetches_grads(program) ? -1 : update_fetch(program, flat[i], sum);
    }
    free(received);
}

void pass_update(struct program *program)
{
    size_t flats = (size_t)program->units->flats;
    struct update_operands *here = array_make(flats, sizeof *here);
    int *grad = array_make(flats, sizeof *grad), *flat = array_make(flats, sizeof *flat);
    int count = update_list(program, flat); /* 0: the rank trains nothing */
    int is_here = count > 0 && !program_updates_first(program);
    take_norms(program, flat, count, is_here ? grad : NULL);
    if (is_here)
        here[0] = update_fetch_flat(program, flat[0], grad[0]);
    pass_sums(program);
    instr_bind(program_add_instr(program, INSTR_SCALE, STREAM_COMPUTE), SLOT_SUMS,
               program->state->sums, ACCESS_BOTH);
    if (is_here)
        update_all(program, flat, grad, count, update_fetch(program, -1, program->state->sums),
                   here);
    free(here);
    free(grad);
    free(flat);
}
