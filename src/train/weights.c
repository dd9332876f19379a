/* weights.c - see weights.h. */
#include "train/weights.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/philox.h"
#include "device/ops.h"
#include "program/offload.h"

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
    return flat_shard_start(&s->units->flat[unit], program->request.coord.at[MESH_SHARD]);
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

static enum side side_of(const struct session *s, int buffer)
{
    return offload_side(session_program(s), session_program(s)->buffer[buffer].pool);
}

/* Is a buffer where ops work on it? */
static int is_near(const struct session *s, int buffer)
{
    return side_of(s, buffer) == SIDE_DEVICE;
}

/* Is it memory of this process, as any other? */
static int is_plain(const struct session *s, int buffer)
{
    enum side side = side_of(s, buffer);
    return side == SIDE_HOST || (side == SIDE_DEVICE && s->device->kind == DEVICE_CPU);
}

enum { FAR_ELEMS = 1 << 20 }; /* of what is far, at a time */

/* What is computed with, from the masters, where one of them is far. */
static int refresh_far(struct session *s, int master, int param, int64_t elems, struct error *err)
{
    const struct program *program = session_program(s);
    struct device *host = executor_host(s->executor);
    enum dtype dtype = s->layout.dtype, wide = program_master_dtype(program);
    float *from = malloc(FAR_ELEMS * sizeof *from), *to = malloc(FAR_ELEMS * sizeof *to);
    int rc = from && to ? 0 : error_set(err, "out of memory: a part of the parameters");
    for (int64_t at = 0; !rc && at < elems; at += FAR_ELEMS) {
        int64_t part = elems - at < FAR_ELEMS ? elems - at : FAR_ELEMS;
        rc = executor_read(s->executor, program, master, (size_t)at * dtype_bytes(wide), from,
                           (size_t)part * dtype_bytes(wide), err);
        if (!rc)
            host->ops->cast(host, dtype, to, wide, from, part);
        if (!rc)
            rc = executor_write(s->executor, program, param, (size_t)at * dtype_bytes(dtype), to,
                                (size_t)part * dtype_bytes(dtype), err);
    }
    free(from);
    free(to);
    return rc;
}

static int refresh(struct session *s, int unit, struct error *err)
{
    const struct unit_state *state = &session_program(s)->state[unit];
    int64_t elems = s->units->flat[unit].shard_elems;
    if (state->master < 0 || state->param < 0 || state->param == state->master)
        return 0;
    if (!is_near(s, state->master) || !is_near(s, state->param))
        return refresh_far(s, state->master, state->param, elems, err);
    s->device->ops->cast(s->device, s->layout.dtype, state_of(s, state->param),
                         program_master_dtype(session_program(s)), state_of(s, state->master),
                         elems);
    return 0;
}

static int clear_far(struct session *s, int buffer, struct error *err)
{
    size_t most = FAR_ELEMS * sizeof(float), bytes = session_program(s)->buffer[buffer].bytes;
    char *zero = calloc(1, most);
    int rc = zero ? 0 : error_set(err, "out of memory: a part of the state");
    for (size_t at = 0; !rc && at < bytes; at += most)
        rc = executor_write(s->executor, session_program(s), buffer, at, zero,
                            bytes - at < most ? bytes - at : most, err);
    free(zero);
    return rc;
}

static int clear(struct session *s, int buffer, struct error *err)
{
    if (buffer < 0)
        return 0;
    if (!is_near(s, buffer))
        return clear_far(s, buffer, err);
    s->device->ops->fill_zero(s->device, state_of(s, buffer),
                              session_program(s)->buffer[buffer].bytes);
    return 0;
}

/* Padding included, which no checkpoint holds. */
static int clear_state(struct session *s, int unit, struct error *err)
{
    const struct unit_state *state = &session_program(s)->state[unit];
    int rc = clear(s, state->param, err);
    if (!rc && state->master != state->param)
        rc = clear(s, state->master, err);
    for (int k = 0; !rc && k < OPTIMIZER_SLOTS; k++)
        rc = clear(s, state->slot[k], err);
    return rc;
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

/* What is kept in bf16 begins there too. */
static void narrow_host(float *host, int64_t elems)
{
    for (int64_t i = 0; i < elems; i++) {
        bf16 rounded = f32_to_bf16(host[i]);
        memcpy((char *)host + (size_t)i * sizeof rounded, &rounded, sizeof rounded);
    }
}

static int init_unit(struct session *s, int unit, float *host, struct error *err)
{
    const struct flat *flat = &s->units->flat[unit];
    const struct unit_state *state = &session_program(s)->state[unit];
    int64_t start = shard_start(s, unit), end = start + flat->shard_elems;
    enum dtype dtype = program_master_dtype(session_program(s));
    memset(host, 0, (size_t)flat->shard_elems * sizeof *host);
    for (int t = 0; t < flat->tensors; t++) {
        struct part part = part_of(&flat->tensor[t], start, start, end);
        if (part.count)
            init_tensor(s, &flat->tensor[t], part, host);
    }
    if (dtype == DTYPE_BF16)
        narrow_host(host, flat->shard_elems);
    size_t bytes = (size_t)flat->shard_elems * dtype_bytes(dtype);
    if (clear_state(s, unit, err) ||
        executor_write(s->executor, session_program(s), state->master, 0, host, bytes, err))
        return -1;
    return refresh(s, unit, err);
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
    int buffer;
};

enum { SLOT_COUNT = 1 + OPTIMIZER_SLOTS };

static int slots_of(const struct session *s, int unit, struct slot slots[SLOT_COUNT])
{
    const struct unit_state *state = &session_program(s)->state[unit];
    int master = state->master >= 0 ? state->master : state->param;
    const struct optimizer *optimizer = optimizer_row(session_program(s)->request.optimizer);
    enum dtype wide = program_master_dtype(session_program(s));
    enum dtype narrow = session_program(s)->request.optimizer_dtype;
    int count = 0;
    slots[count++] =
        (struct slot){"model/", "", state->master >= 0 ? wide : s->layout.dtype, master};
    for (int k = 0; k < OPTIMIZER_SLOTS && state->slot[k] >= 0; k++)
        slots[count++] = (struct slot){"optimizer/", optimizer->slot[k], narrow, state->slot[k]};
    return count;
}

/* Where a piece that is saved comes from, unless from plain memory. */
struct source {
    struct session *s;
    int buffer;
    size_t from;
};

static int fetch(const struct checkpoint_piece *piece, void *to, int64_t offset, size_t bytes,
                 struct error *err)
{
    const struct source *source = piece->user;
    return executor_read(source->s->executor, session_program(source->s), source->buffer,
                         source->from + (size_t)offset, to, bytes, err);
}

static void give_source(struct checkpoint_piece *piece, struct session *s, int buffer,
                        struct part part)
{
    struct source *source = array_make(1, sizeof *source);
    *source = (struct source){s, buffer, (size_t)part.at * dtype_bytes(piece->dtype)};
    piece->fetch = fetch;
    piece->user = source;
}

/* base: where the slot's shard is in plain memory, or NULL. */
static void make_piece(struct checkpoint_piece *piece, const struct slot *slot,
                       const struct flat_tensor *tensor, struct part part, char *base)
{
    char name[2 * FLAT_NAME];
    snprintf(name, sizeof name, "%s%s%s%s", slot->prefix, slot->name, slot->name[0] ? "/" : "",
             tensor->name);
    size_t from = (size_t)part.at * dtype_bytes(slot->dtype);
    *piece = (struct checkpoint_piece){.name = array_text(name),
                                       .dtype = slot->dtype,
                                       .rank = tensor->dims,
                                       .start = part.start,
                                       .count = part.count,
                                       .data = base ? base + from : NULL};
    for (int i = 0; i < tensor->dims; i++)
        piece->dims[i] = tensor->dim[i];
}

/* Which part of the state pieces are made for: units [first, end), one slot or all (-1), and when
 * saving this rank's 1/replicas of the shard.  host: where that one slot's shard is in memory;
 * NULL: where it lives. */
struct scope {
    int first, end, slot, saving;
    char *host;
};

/* Ranks with the same shard, or with the same whole, divide it among them when saving. */
struct share {
    int64_t part, parts;
};

static struct share share_of(const struct session *s, const struct flat *flat)
{
    const int *degree = s->layout.shape.degree;
    struct mesh_coord coord = session_program(s)->request.coord;
    if (flat_is_sharded(flat))
        return (struct share){coord.at[MESH_REPLICATE], degree[MESH_REPLICATE]};
    return (struct share){layout_data_rank(&s->layout, coord), s->layout.data_ranks};
}

static int pieces_of(struct session *s, struct checkpoint_piece **out, struct scope scope)
{
    struct checkpoint_piece *pieces = NULL;
    int count = 0, capacity = 0;
    for (int u = scope.first; u < scope.end; u++) {
        const struct flat *flat = &s->units->flat[u];
        struct slot slots[SLOT_COUNT];
        int slot_count = slots_of(s, u, slots);
        int64_t start = shard_start(s, u);
        struct share share = scope.saving ? share_of(s, flat) : (struct share){0, 1};
        int64_t from = start + flat->shard_elems * share.part / share.parts;
        int64_t to = start + flat->shard_elems * (share.part + 1) / share.parts;
        for (int t = 0; t < flat->tensors; t++) {
            struct part part = part_of(&flat->tensor[t], start, from, to);
            for (int k = 0; part.count && k < slot_count; k++) {
                if (scope.slot >= 0 && scope.slot != k)
                    continue;
                pieces = array_grow(pieces, count, &capacity, sizeof *pieces);
                char *plain = is_plain(s, slots[k].buffer) ? state_of(s, slots[k].buffer) : NULL;
                make_piece(&pieces[count], &slots[k], &flat->tensor[t], part,
                           scope.host ? scope.host : plain);
                if (scope.saving && !plain)
                    give_source(&pieces[count], s, slots[k].buffer, part);
                count++;
            }
        }
    }
    *out = pieces;
    return count;
}

int weights_pieces(struct session *s, struct checkpoint_piece **pieces)
{
    return pieces_of(s, pieces, (struct scope){0, s->units->count, -1, 1, NULL});
}

void weights_free(struct checkpoint_piece *pieces, int count)
{
    for (int i = 0; i < count; i++) {
        free((char *)pieces[i].name);
        free(pieces[i].user);
    }
    free(pieces);
}

static int load_here(struct session *s, struct checkpoint *checkpoint, struct error *err)
{
    struct checkpoint_piece *wanted;
    int count = pieces_of(s, &wanted, (struct scope){0, s->units->count, -1, 0, NULL});
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
    int count = pieces_of(s, &wanted, (struct scope){unit, unit + 1, k, 0, host});
    memset(host, 0, bytes);
    int rc = checkpoint_load(checkpoint, wanted, count, err);
    weights_free(wanted, count);
    return rc ? -1
              : executor_write(s->executor, session_program(s), slots[k].buffer, 0, host, bytes,
                               err);
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

/* Is all of the state plain memory? */
static int all_plain(const struct session *s)
{
    int plain = 1;
    for (int u = 0; u < s->units->count; u++) {
        struct slot slots[SLOT_COUNT];
        for (int k = slots_of(s, u, slots); k > 0; k--)
            plain &= is_plain(s, slots[k - 1].buffer);
    }
    return plain;
}

int weights_load(struct session *s, struct checkpoint *checkpoint, struct error *err)
{
    int rc = 0;
    for (int u = 0; !rc && u < s->units->count; u++)
        rc = clear_state(s, u, err);
    if (!rc)
        rc = all_plain(s) ? load_here(s, checkpoint, err) : load_through_host(s, checkpoint, err);
    for (int u = 0; !rc && u < s->units->count; u++)
        rc = refresh(s, u, err);
    return rc || device_sync(s->device, err) ? -1 : 0;
}
