/* matrices.c - the instructions of a rule of whole matrices (Muon), of one flat:
 *
 *   MOMENTUM        updates the state; the gradient becomes the mean of gradients
 *   ALLTOALL        where ranks share the flat: each part to its matrix's owner (owners.h)
 *   ORTHOGONALIZE   the matrices that the rank owns
 *   ALLTOALL        back
 *
 * matrices_begin() writes the first two, one flat ahead of matrices_end(), which writes the others:
 * so one flat's matrices travel while those of the flat before are made orthogonal.  UPDATE
 * follows, with the result in the gradient's place.
 */
#include "program/matrices.h"

static void momentum(struct program *program, int flat, int sums, int grad, int slot)
{
    struct instr *instr = program_add_instr(program, INSTR_MOMENTUM, STREAM_COMPUTE);
    instr->flat = flat;
    instr->elems = program->units->flat[flat].shard_elems;
    instr_bind(instr, SLOT_SUMS, sums, ACCESS_READ);
    instr_bind(instr, SLOT_SHARD_GRAD, grad, ACCESS_BOTH);
    instr_bind(instr, SLOT_OPTIMIZER, slot, ACCESS_BOTH);
}

static void orthogonalize_range(struct program *program, int flat, struct flat_range range,
                                int matrices)
{
    struct instr *instr = program_add_instr(program, INSTR_ORTHOGONALIZE, STREAM_COMPUTE);
    instr->flat = flat;
    instr->from = range.start;
    instr->elems = range.count;
    instr->first_elem[SLOT_MATRICES] =
        flat_is_sharded(&program->units->flat[flat]) ? range.start : 0;
    instr_bind(instr, SLOT_WORK, program->state->work, ACCESS_WRITE);
    instr_bind(instr, SLOT_MATRICES, matrices, ACCESS_BOTH);
}

/* The place of this rank among those that divide a flat. */
static int member_of(const struct program *program, const struct owners *owners, int flat)
{
    return mesh_member(&program->layout->shape, program->state->coord, owners_axes(owners, flat));
}

/* The elements that two ranges have in common; where there are none, no element at the start of a.
 */
static struct flat_range common(struct flat_range a, struct flat_range b)
{
    int64_t start = a.start > b.start ? a.start : b.start;
    int64_t end = a.start + a.count < b.start + b.count ? a.start + a.count : b.start + b.count;
    return end > start ? (struct flat_range){start, end - start} : (struct flat_range){a.start, 0};
}

/* What member m has of the gradient of a flat. */
static struct flat_range shard_of(const struct program *program, int flat, int m)
{
    const struct flat *of = &program->units->flat[flat];
    return (struct flat_range){flat_shard_start(of, m), of->shard_elems};
}

enum direction { TO_OWNERS, FROM_OWNERS };

/* Append the ALLTOALL between the gradient, of which each rank has its shard, and `matrices`, of
 * which each owner has what it owns.  Where every rank has all of the gradient, matrices is grad,
 * and a rank's own range stays where it is. */
static void all_to_all(struct program *program, const struct owners *owners, int flat,
                       enum direction direction, int grad, int matrices)
{
    int count = owners_count(owners, flat), rank = member_of(program, owners, flat);
    struct flat_range shard = shard_of(program, flat, rank);
    struct flat_range own = owners_range(owners, flat, rank);
    int64_t first = matrices == grad ? 0 : own.start;
    struct instr *instr = program_add_instr(program, INSTR_ALLTOALL, STREAM_REDUCE);
    int grad_slot = direction == TO_OWNERS ? SLOT_FROM : SLOT_TO;
    int matrices_slot = direction == TO_OWNERS ? SLOT_TO : SLOT_FROM;
    instr->flat = flat;
    instr->axes = owners_axes(owners, flat);
    instr->dtype = DTYPE_F32;
    instr->first_elem[grad_slot] = shard.start;
    instr->first_elem[matrices_slot] = first;
    instr_bind(instr, SLOT_FROM, direction == TO_OWNERS ? grad : matrices, ACCESS_READ);
    instr_bind(instr, SLOT_TO, direction == TO_OWNERS ? matrices : grad, ACCESS_WRITE);
    int last = 0;
    for (int m = 0; m < count; m++) {
        /* what member m owns of this rank's shard; what this rank owns of m's shard */
        struct flat_range m_owns = common(shard, owners_range(owners, flat, m));
        struct flat_range rank_owns = common(own, shard_of(program, flat, m));
        int64_t in_grad = m_owns.start - shard.start, in_matrices = rank_owns.start - first;
        struct comm_part part = {.send_from = in_matrices,
                                 .send_elems = rank_owns.count,
                                 .recv_from = in_grad,
                                 .recv_elems = m_owns.count};
        if (direction == TO_OWNERS)
            part = (struct comm_part){.send_from = in_grad,
                                      .send_elems = m_owns.count,
                                      .recv_from = in_matrices,
                                      .recv_elems = rank_owns.count};
        else if (m == rank && matrices == grad)
            part = (struct comm_part){0};
        last = program_add_part(program, part);
    }
    instr->first_part = last - count + 1;
}

/* Memory for what a rank owns of a sharded flat; of a rank that owns nothing, an element. */
static int matrices_buffer(struct program *program, int flat, struct flat_range own)
{
    int64_t elems = own.count ? own.count : 1;
    return program_add_buffer(program, POOL_UNSHARDED, (size_t)elems * sizeof(float), 0,
                              "%s.matrices", program->units->flat[flat].name);
}

int matrices_begin(struct program *program, const struct owners *owners, int flat, int sums,
                   int grad, int slot)
{
    struct flat_range own = owners_range(owners, flat, member_of(program, owners, flat));
    momentum(program, flat, sums, grad, slot);
    if (!flat_is_sharded(&program->units->flat[flat]))
        return grad;
    int matrices = matrices_buffer(program, flat, own);
    all_to_all(program, owners, flat, TO_OWNERS, grad, matrices);
    return matrices;
}

void matrices_end(struct program *program, const struct owners *owners, int flat, int matrices,
                  int grad)
{
    struct flat_range own = owners_range(owners, flat, member_of(program, owners, flat));
    if (own.count)
        orthogonalize_range(program, flat, own, matrices);
    if (owners_axes(owners, flat))
        all_to_all(program, owners, flat, FROM_OWNERS, grad, matrices);
}
