/* weights.c - see weights.h. */
#include "train/weights.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/philox.h"
#include "device/ops.h"

/* The part of a tensor inside [from, to) of its unit's flat parameter. */
struct part {
    int64_t start, count; /* in the tensor */
    int64_t at;           /* in the shard */
};

static struct part part_of(const struct flat_tensor *tensor, int64_t shard_start, int64_t from,
                           int64_t to)
{
    int64_t start = tensor->offset > from ? tensor->offset : from;
    int64_t end = tensor->offset + tensor->elems < to ? tensor->offset + tensor->elems : to;
    if (start >= end)
        return (struct part){0};
    return (struct part){start - tensor->offset, end - start, start - shard_start};
}

static void *state_of(const struct session *s, int buffer)
{
    return buffer < 0 ? NULL : executor_buffer(s->executor, session_program(s), buffer);
}

static int64_t shard_start(const struct session *s, int unit)
{
    const struct program *program = session_program(s);
    return program->request.coord.at[MESH_SHARD] * s->units->flat[unit].shard_elems;
}

static void init_tensor(const struct session *s, const struct flat_tensor *tensor, struct part part,
                        float *master)
{
    float *to = master + part.at;
    if (tensor->init == INIT_NORMAL) {
        uint64_t key = philox_key((uint64_t)s->config.seed, tensor->name);
        philox_fill_normal(to, key, (uint64_t)part.start, part.count, 0, tensor->std);
        return;
    }
    for (int64_t i = 0; i < part.count; i++)
        to[i] = tensor->init == INIT_ONES ? 1.0f : 0.0f;
}

static void clear(void *data, int64_t elems)
{
    if (data)
        memset(data, 0, (size_t)elems * sizeof(float));
}

/* What is computed with, from the masters. */
static void refresh(struct session *s, int unit)
{
    const struct unit_state *state = &session_program(s)->state[unit];
    if (state->master < 0 || state->param == state->master)
        return;
    s->device->ops->cast(s->device, s->layout.dtype, state_of(s, state->param), DTYPE_F32,
                         state_of(s, state->master), s->units->flat[unit].shard_elems);
}

void weights_init(struct session *s)
{
    for (int u = 0; u < s->units->count; u++) {
        const struct flat *flat = &s->units->flat[u];
        const struct unit_state *state = &session_program(s)->state[u];
        float *master = state_of(s, state->master);
        int64_t start = shard_start(s, u), end = start + flat->shard_elems;
        clear(master, flat->shard_elems);
        clear(state_of(s, state->first), flat->shard_elems);
        clear(state_of(s, state->second), flat->shard_elems);
        for (int t = 0; t < flat->tensors; t++) {
            struct part part = part_of(&flat->tensor[t], start, start, end);
            if (part.count)
                init_tensor(s, &flat->tensor[t], part, master);
        }
        refresh(s, u);
    }
}

/* One kind of state, under one prefix of names. */
struct slot {
    const char *prefix;
    enum dtype dtype;
    char *data;
};

enum { SLOT_COUNT = 3 };

static int slots_of(const struct session *s, int unit, struct slot slots[SLOT_COUNT])
{
    const struct unit_state *state = &session_program(s)->state[unit];
    int master = state->master >= 0 ? state->master : state->param;
    slots[0] = (struct slot){"model/", state->master >= 0 ? DTYPE_F32 : s->layout.dtype,
                             state_of(s, master)};
    slots[1] = (struct slot){"optimizer/exp_avg/", DTYPE_F32, state_of(s, state->first)};
    slots[2] = (struct slot){"optimizer/exp_avg_sq/", DTYPE_F32, state_of(s, state->second)};
    return state->first >= 0 ? SLOT_COUNT : 1;
}

static void make_piece(struct checkpoint_piece *piece, const struct slot *slot,
                       const struct flat_tensor *tensor, struct part part)
{
    char name[2 * FLAT_NAME];
    snprintf(name, sizeof name, "%s%s", slot->prefix, tensor->name);
    *piece =
        (struct checkpoint_piece){.name = strdup(name),
                                  .dtype = slot->dtype,
                                  .rank = tensor->dims,
                                  .start = part.start,
                                  .count = part.count,
                                  .data = slot->data + (size_t)part.at * dtype_bytes(slot->dtype)};
    for (int i = 0; i < tensor->dims; i++)
        piece->dims[i] = tensor->dim[i];
}

/* The pieces of this rank; of its 1/replicas of the shard when it saves. */
static int pieces_of(struct session *s, struct checkpoint_piece **out, int saving)
{
    struct mesh_coord coord = session_program(s)->request.coord;
    int64_t replicas = saving ? s->layout.shape.degree[MESH_REPLICATE] : 1;
    int64_t replica = saving ? coord.at[MESH_REPLICATE] : 0;
    struct checkpoint_piece *pieces = NULL;
    int count = 0, capacity = 0;
    for (int u = 0; u < s->units->count; u++) {
        const struct flat *flat = &s->units->flat[u];
        struct slot slots[SLOT_COUNT];
        int slot_count = slots_of(s, u, slots);
        int64_t start = shard_start(s, u);
        int64_t from = start + flat->shard_elems * replica / replicas;
        int64_t to = start + flat->shard_elems * (replica + 1) / replicas;
        for (int t = 0; t < flat->tensors; t++) {
            struct part part = part_of(&flat->tensor[t], start, from, to);
            for (int k = 0; part.count && k < slot_count; k++) {
                pieces = array_grow(pieces, count, &capacity, sizeof *pieces);
                make_piece(&pieces[count++], &slots[k], &flat->tensor[t], part);
            }
        }
    }
    *out = pieces;
    return count;
}

int weights_pieces(struct session *s, struct checkpoint_piece **pieces)
{
    return pieces_of(s, pieces, 1);
}

void weights_free(struct checkpoint_piece *pieces, int count)
{
    for (int i = 0; i < count; i++)
        free((char *)pieces[i].name);
    free(pieces);
}

int weights_load(struct session *s, struct checkpoint *checkpoint, struct error *err)
{
    struct checkpoint_piece *wanted;
    for (int u = 0; u < s->units->count; u++) { /* padding, which no checkpoint holds */
        const struct unit_state *state = &session_program(s)->state[u];
        int64_t elems = s->units->flat[u].shard_elems;
        memset(state_of(s, state->param), 0, (size_t)elems * dtype_bytes(s->layout.dtype));
        clear(state_of(s, state->master), elems);
        clear(state_of(s, state->first), elems);
        clear(state_of(s, state->second), elems);
    }
    int count = pieces_of(s, &wanted, 0);
    int rc = checkpoint_load(checkpoint, wanted, count, err);
    weights_free(wanted, count);
    for (int u = 0; !rc && u < s->units->count; u++)
        refresh(s, u);
    return rc;
}
