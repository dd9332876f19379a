/* update_flat.c - FETCH, UPDATE and SPILL of one flat; see update_flat.h.  State that lies where
 * UPDATE works is used in place, without copies. */
#include "program/update_flat.h"

#include "program/offload.h"

int update_list(const struct program *program, int *flat)
{
    int count = 0;
    for (int f = 0; f < program->units->flats; f++)
        if (state_trains(program->state, f))
            flat[count++] = f;
    return count;
}

int update_fetch(struct program *program, int flat, int buffer)
{
    enum state_side side = state_update_side(program->state);
    return buffer < 0 ? -1 : offload_fetch(program, buffer, side, flat, -1);
}

/* Bring a copy back into the buffer that it is of, unless it is that buffer. */
static void spill(struct program *program, int flat, int copy, int buffer)
{
    if (copy != buffer)
        offload_spill(program, copy, buffer, flat, -1);
}

/* Also fetches param, which UPDATE only writes: a skipped update writes nothing, and what is
 * spilled must then be the old values. */
struct update_operands update_fetch_flat(struct program *program, int flat, int grad)
{
    const struct state_flat *own = &program->state->flat[flat];
    struct update_operands here = {.flat = flat,
                                   .grad =
                                       grad >= 0 ? grad : update_fetch(program, flat, own->grad),
                                   .master = update_fetch(program, flat, own->master),
                                   .matrices = -1};
    for (int k = 0; k < OPTIMIZER_SLOTS; k++)
        here.slot[k] = update_fetch(program, flat, own->slot[k]);
    here.param = here.master;
    if (own->param >= 0 && program->units->request.dtype != state_master_dtype(program->state))
        here.param = update_fetch(program, flat, own->param);
    return here;
}

static void spill_flat(struct program *program, const struct update_operands *here)
{
    int flat = here->flat;
    const struct state_flat *own = &program->state->flat[flat];
    spill(program, flat, here->master, own->master);
    for (int k = 0; k < OPTIMIZER_SLOTS; k++)
        spill(program, flat, here->slot[k], own->slot[k]);
    if (own->param >= 0 && own->param != own->master)
        spill(program, flat, here->param, own->param);
}

int update_is_of_matrices(const struct program *program, int flat)
{
    return optimizer_row(program->units->flat[flat].optimizer)->of_matrices;
}

static enum program_stream stream_of(const struct program *program)
{
    if (state_update_side(program->state) == SIDE_HOST)
        return STREAM_HOST;
    return program->layout->host_apart && program_updates_first(program) ? STREAM_UPDATE
                                                                         : STREAM_COMPUTE;
}

void update_write(struct program *program, int sums, const struct update_operands *here)
{
    struct instr *instr = program_add_instr(program, INSTR_UPDATE, stream_of(program));
    instr->flat = here->flat;
    instr->elems = program->units->flat[here->flat].shard_elems;
    instr_bind(instr, SLOT_SUMS, sums, ACCESS_READ);
    instr_bind(instr, SLOT_SHARD_GRAD, here->grad, ACCESS_READ);
    instr_bind(instr, SLOT_MASTER, here->master, ACCESS_BOTH);
    for (int k = 0; k < OPTIMIZER_SLOTS && !update_is_of_matrices(program, here->flat); k++)
        if (here->slot[k] >= 0)
            instr_bind(instr, SLOT_OPTIMIZER + k, here->slot[k], ACCESS_BOTH);
    if (here->param != here->master)
        instr_bind(instr, SLOT_PARAM, here->param, ACCESS_WRITE);
    spill_flat(program, here);
}
