/* saved.c - see saved.h. */
#include "program/saved.h"

void saved_part(const struct state *state, int f, int64_t *from, int64_t *to)
{
    const struct flat *flat = &state->units->flat[f];
    const struct mesh_shape *shape = &state->layout->shape;
    unsigned data = state->units->request.data_axes & ~flat->shard_axes;
    int64_t share = mesh_member(shape, state->coord, data), shares = mesh_members(shape, data);
    int64_t blocks = flat->shard_elems / flat->block;
    *from = blocks * share / shares * flat->block;
    *to = blocks * (share + 1) / shares * flat->block;
    if (mesh_member(shape, state->coord, 1u << MESH_TENSOR & ~flat->divided_axes) ||
        !state_owns(state, f))
        *to = *from;
}

int saved_has(const struct state *state, int f, int with_frozen)
{
    const struct flat *flat = &state->units->flat[f];
    return state->has[f] && (with_frozen || flat->trained || flat->is_frozen_adapter);
}

enum dtype saved_dtype(const struct state *state, int f)
{
    if (state->units->flat[f].is_nf4)
        return DTYPE_F32;
    return state->flat[f].master >= 0 ? state_master_dtype(state) : state->layout->dtype;
}

/* Bytes of so many elements of a flat, whole blocks, in a checkpoint. */
static size_t bytes_of(const struct state *state, int f, int64_t elems)
{
    const struct state_flat *own = &state->flat[f];
    const struct optimizer *optimizer = optimizer_row(state->units->flat[f].optimizer);
    size_t bytes = (size_t)elems * dtype_bytes(saved_dtype(state, f));
    for (int k = 0; k < OPTIMIZER_SLOTS && own->slot[k] >= 0; k++)
        bytes += optimizer_slot_bytes(optimizer, k, elems, state->layout->optimizer_dtype);
    return bytes;
}

size_t saved_bytes(const struct state *state, int with_frozen)
{
    size_t bytes = 0;
    for (int f = 0; f < state->units->flats; f++) {
        int64_t from, to;
        if (!saved_has(state, f, with_frozen))
            continue;
        saved_part(state, f, &from, &to);
        bytes += bytes_of(state, f, to - from);
    }
    return bytes;
}
