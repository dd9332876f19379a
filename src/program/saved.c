/* saved.c - see saved.h. */
#include "program/saved.h"

void saved_part(const struct state *state, int f, int64_t *from, int64_t *to)
{
    const struct flat *flat = &state->units->flat[f];
    const struct mesh_shape *shape = &state->layout->shape;
    unsigned data = state->units->request.data_axes & ~flat->shard_axes;
    int64_t share = mesh_member(shape, state->coord, data), shares = mesh_members(shape, data);
    *from = flat->shard_elems * share / shares;
    *to = flat->shard_elems * (share + 1) / shares;
    if (mesh_member(shape, state->coord, 1u << MESH_TENSOR & ~flat->divided_axes) ||
        !state_owns(state, f))
        *to = *from;
}

int saved_has(const struct state *state, int f, int with_frozen)
{
    const struct flat *flat = &state->units->flat[f];
    return state->has[f] && (with_frozen || flat->trained || flat->is_frozen_adapter);
}

/* Bytes of an element of a flat in a checkpoint. */
static size_t elem_bytes(const struct state *state, int f)
{
    const struct state_flat *own = &state->flat[f];
    size_t bytes = dtype_bytes(own->master >= 0 ? state_master_dtype(state) : state->layout->dtype);
    for (int k = 0; k < OPTIMIZER_SLOTS && own->slot[k] >= 0; k++)
        bytes += dtype_bytes(state->layout->optimizer_dtype);
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
        bytes += (size_t)(to - from) * elem_bytes(state, f);
    }
    return bytes;
}
