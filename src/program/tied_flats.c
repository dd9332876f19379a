/* tied_flats.c - see tied_flats.h. */
#include "program/tied_flats.h"

int tied_flats_other_rank(const struct state *state, int flat)
{
    int own = state->coord.at[MESH_PIPELINE];
    for (int rank = 0; rank < state->layout->shape.degree[MESH_PIPELINE]; rank++)
        if (rank != own && state->has[flat] && units_rank_uses(state->units, rank, flat))
            return rank;
    return -1;
}

/* Append one end of a message of a flat's gradient to or from the other rank.  One stream has the
 * messages of all lower ranks, one those of all upper ones. */
static void message(struct program *program, enum instr_kind kind, int flat, int other, int buffer)
{
    int own = program->state->coord.at[MESH_PIPELINE];
    int goes_up = (kind == INSTR_SEND) == (own < other);
    enum program_stream stream =
        goes_up ? program_point(program, 0, 1, WAY_UP) : program_point(program, 1, 0, WAY_DOWN);
    struct instr *instr = program_add_instr(program, kind, stream);
    instr->flat = flat;
    instr->phase = PHASE_BACKWARD;
    instr->axes = 1u << MESH_PIPELINE;
    instr->peer = other;
    instr->elems = program->units->flat[flat].shard_elems;
    instr->dtype = DTYPE_F32;
    instr_bind(instr, kind == INSTR_SEND ? SLOT_FROM : SLOT_TO, buffer,
               kind == INSTR_SEND ? ACCESS_READ : ACCESS_WRITE);
}

int tied_flats_exchange(struct program *program, int flat, int buffer)
{
    const struct flat *of = &program->units->flat[flat];
    int other = tied_flats_other_rank(program->state, flat);
    int received =
        program_add_buffer(program, POOL_UNSHARDED, (size_t)of->shard_elems * sizeof(float), 0,
                           "%s.grad of rank %d", of->name, other);
    message(program, INSTR_SEND, flat, other, buffer);
    message(program, INSTR_RECV, flat, other, received);
    return received;
}

void tied_flats_add(struct program *program, int flat, int received, int buffer)
{
    struct instr *instr = program_add_instr(program, INSTR_ADD, STREAM_COMPUTE);
    instr->flat = flat;
    instr->elems = program->units->flat[flat].shard_elems;
    instr->dtype = DTYPE_F32;
    instr_bind(instr, SLOT_FROM, received, ACCESS_READ);
    instr_bind(instr, SLOT_TO, buffer, ACCESS_BOTH);
}
