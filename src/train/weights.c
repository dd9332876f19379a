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

/* Values are functions of their index: threads take what they get. */
static void fill_normal(float *to, uint64_t key, int64_t first, int64_t count, float std,
                        int threads)
{
    enum { CHUNK = 1 << 16 };
#pragma omp parallel for schedule(dynamic) num_threads(threads)
    for (int64_t at = 0; at < count; at += CHUNK)
        philox_fill_normal(to + at, key, (uint64_t)(first + at),
                           count - at < CHUNK ? count - at : CHUNK, 0, std);
}

static void init_tensor(const struct session *s, const struct flat_tensor *tensor, struct part part,
                        float *master)
{
    float *to = master + part.at;
    if (tensor->init == INIT_NORMAL) {
        uint64_t key = philox_key((uint64_t)s->config.seed, tensor->name);
        fill_normal(to, key, part.start, part.count, tensor->std, s->device->threads);
        return;
    }
    for (int64_t i = 0; i < part.count; i++)
        to[i] = tensor->init == INIT_ONES ? 1.0f : 0.0f;
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

static void clear(struct session *s, int buffer)
{
    if (buffer >= 0)
        s->device->ops->fill_zero(s->device, state_of(s, buffer),
                                  session_program(s)->buffer[buffer].bytes);
}

/* Padding included, which no checkpoint holds. */
static void clear_state(struct session *s, int unit)
{
    const struct unit_state *state = &session_program(s)->state[unit];
    clear(s, state->param);
    clear(s, state->master);
    for (int k = 0; k < OPTIMIZER_SLOTS; k++)
        clear(s, state->slot[k]);
}

/* Host memory for one unit's shard of one state. */
static float *make_shard(const struct session *s, struct error *err)
{
    int64_t most = 0;
    for (int u = 0; u < s->units->count; u++)
        if (s->units->flat[u].shard_elems > most)
            most = s->units->flat[u].shard_elems;
    float *shard = malloc((size_t)most * sizeof *shard);
    if (!shard)
        error_set(err, "out of memory: %lld bytes for one unit's parameters",
                  (long long)most * (long long)sizeof *shard);
    return shard;
}

static int init_unit(struct session *s, int unit, float *host, struct error *err)
{
    const struct flat *flat = &s->units->flat[unit];
    const struct unit_state *state = &session_program(s)->state[unit];
    int64_t start = shard_start(s, unit), end = start + flat->shard_elems;
    size_t bytes = (size_t)flat->shard_elems * sizeof *host;
    memset(host, 0, bytes);
    for (int t = 0; t < flat->tensors; t++) {
        struct part part = part_of(&flat->tensor[t], start, start, end);
        if (part.count)
            init_tensor(s, &flat->tensor[t], part, host);
    }
    clear_state(s, unit);
    if (device_upload(s->device, state_of(s, state->master), host, bytes, err))
        return -1;
    refresh(s, unit);
    return 0;
}

int weights_init(struct session *s, struct error *err)
{
    float *host = make_shard(s, err);
    int rc = host ? 0 : -1;
    for (int u = 0; u < s->units->count && !rc; u++)
        rc = init_unit(s, u, host, err);
    free(host);
    return rc || device_sync(s->device, err) ? -1 : 0;
}

/* One kind of state, under one prefix of names. */
struct slot {
    const char *prefix, *name; /* of tensors: prefix, and name/ where there is one */
    enum dtype dtype;
    char *data;
};

enum { SLOT_COUNT = 1 + OPTIMIZER_SLOTS };

static int slots_of(const struct session *s, int unit, struct slot slots[SLOT_COUNT])
{
    const struct unit_state *state = &session_program(s)->state[unit];
    int master = state->master >= 0 ? state->master : state->param;
    const struct optimizer *optimizer = optimizer_row(session_program(s)->request.optimizer);
    int count = 0;
    slots[count++] = (struct slot){"model/", "", state->master >= 0 ? DTYPE_F32 : s->layout.dtype,
                                   state_of(s, master)};
    for (int k = 0; k < OPTIMIZER_SLOTS && state->slot[k] >= 0; k++)
        slots[count++] =
            (struct slot){"optimizer/", optimizer->slot[k], DTYPE_F32, state_of(s, state->slot[k])};
    return count;
}

static int fetch(const struct checkpoint_piece *piece, void *to, int64_t offset, size_t bytes,
                 struct error *err)
{
    return device_download(piece->user, to, (const char *)piece->data + offset, bytes, err);
}

static void make_piece(struct checkpoint_piece *piece, const struct slot *slot,
                       const struct flat_tensor *tensor, struct part part)
{
    char name[2 * FLAT_NAME];
    snprintf(name, sizeof name, "%s%s%s%s", slot->prefix, slot->name, slot->name[0] ? "/" : "",
             tensor->name);
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

/* Which part of the state pieces are made for: units [first, end), one slot or all (-1), and when
 * saving this rank's 1/replicas of the shard. */
struct scope {
    int first, end, slot, saving;
};

static int pieces_of(struct session *s, struct checkpoint_piece **out, struct scope scope)
{
    struct mesh_coord coord = session_program(s)->request.coord;
    int64_t replicas = scope.saving ? s->layout.shape.degree[MESH_REPLICATE] : 1;
    int64_t replica = scope.saving ? coord.at[MESH_REPLICATE] : 0;
    struct checkpoint_piece *pieces = NULL;
    int count = 0, capacity = 0;
    for (int u = scope.first; u < scope.end; u++) {
        const struct flat *flat = &s->units->flat[u];
        struct slot slots[SLOT_COUNT];
        int slot_count = slots_of(s, u, slots);
        int64_t start = shard_start(s, u);
        int64_t from = start + flat->shard_elems * replica / replicas;
        int64_t to = start + flat->shard_elems * (replica + 1) / replicas;
        for (int t = 0; t < flat->tensors; t++) {
            struct part part = part_of(&flat->tensor[t], start, from, to);
            for (int k = 0; part.count && k < slot_count; k++) {
                if (scope.slot >= 0 && scope.slot != k)
                    continue;
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
    int count = pieces_of(s, pieces, (struct scope){0, s->units->count, -1, 1});
    for (int i = 0; i < count && s->device->kind != DEVICE_CPU; i++) {
        (*pieces)[i].fetch = fetch;
        (*pieces)[i].user = s->device;
    }
    return count;
}

void weights_free(struct checkpoint_piece *pieces, int count)
{
    for (int i = 0; i < count; i++)
        free((char *)pieces[i].name);
    free(pieces);
}

static int load_here(struct session *s, struct checkpoint *checkpoint, struct error *err)
{
    struct checkpoint_piece *wanted;
    int count = pieces_of(s, &wanted, (struct scope){0, s->units->count, -1, 0});
    int rc = checkpoint_load(checkpoint, wanted, count, err);
    weights_free(wanted, count);
    return rc;
}

/* One state of one unit at a time through host memory. */
static int load_slot(struct session *s, struct checkpoint *checkpoint, int unit, int k, char *host,
                     struct error *err)
{
    struct checkpoint_piece *wanted;
    struct slot slots[SLOT_COUNT];
    if (k >= slots_of(s, unit, slots))
        return 0;
    size_t bytes = (size_t)s->units->flat[unit].shard_elems * dtype_bytes(slots[k].dtype);
    int count = pieces_of(s, &wanted, (struct scope){unit, unit + 1, k, 0});
    memset(host, 0, bytes);
    for (int i = 0; i < count; i++)
        wanted[i].data = host + ((char *)wanted[i].data - slots[k].data);
    int rc = checkpoint_load(checkpoint, wanted, count, err);
    weights_free(wanted, count);
    return rc ? -1 : device_upload(s->device, slots[k].data, host, bytes, err);
}

static int load_through_host(struct session *s, struct checkpoint *checkpoint, struct error *err)
{
    float *host = make_shard(s, err);
    int rc = host ? 0 : -1;
    for (int u = 0; u < s->units->count; u++)
        for (int k = 0; k < SLOT_COUNT && !rc; k++)
            rc = load_slot(s, checkpoint, u, k, (char *)host, err);
    free(host);
    return rc;
}

int weights_load(struct session *s, struct checkpoint *checkpoint, struct error *err)
{
    for (int u = 0; u < s->units->count; u++)
        clear_state(s, u);
    int rc = s->device->kind == DEVICE_CPU ? load_here(s, checkpoint, err)
                                           : load_through_host(s, checkpoint, err);
    for (int u = 0; !rc && u < s->units->count; u++)
        refresh(s, u);
    return rc || device_sync(s->device, err) ? -1 : 0;
}
