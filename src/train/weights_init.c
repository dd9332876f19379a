/* weights_init.c - initial values: functions of (seed, tensor name, index in the whole tensor),
 * never of the layout; magnitudes of adapters, of the rows of the whole matrix that they belong to,
 * wherever that is read from. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/philox.h"
#include "base/round.h"
#include "model/adapters.h"
#include "train/weights_private.h"
#include "train/weights.h"

/* Elements [from, end) of a tensor's box: each is a function of its index in the whole. */
static void fill_runs(float *to, uint64_t key, const struct flat_tensor *tensor, int64_t from,
                      int64_t end)
{
    const struct box *box = &tensor->box, whole = box_whole(box->dims, box->whole);
    int64_t run, first;
    for (int64_t at = from; at < end; at += run) {
        run = min_i64(box_run(box, &whole, at, &first), end - at);
        if (tensor->init == INIT_NORMAL)
            philox_fill_normal(to + (at - from), key, (uint64_t)first, run, 0, tensor->std);
        else
            philox_fill_uniform(to + (at - from), key, (uint64_t)first, run, tensor->std);
    }
}

/* Values are functions of their index, so threads may share them out in any way. */
static void fill_random(float *to, uint64_t key, const struct flat_part *part, int threads)
{
    enum { CHUNK = 1 << 16 };
#pragma omp parallel for schedule(dynamic) num_threads(threads)
    for (int64_t at = 0; at < part->count; at += CHUNK)
        fill_runs(to + at, key, part->tensor, part->start + at,
                  part->start + min_i64(at + CHUNK, part->count));
}

/* The whole of a tensor of the model, for reading any of it; NULL: there is none. */
static const struct flat_tensor *find_tensor(const struct session *s, const char *name)
{
    for (int f = 0; f < s->units->flats; f++) {
        int t = flat_find(&s->units->flat[f], name);
        if (t >= 0)
            return &s->units->flat[f].tensor[t];
    }
    return NULL;
}

static float norm_of(const float *row, int64_t columns)
{
    double sum = 0;
    for (int64_t i = 0; i < columns; i++)
        sum += (double)row[i] * row[i];
    return (float)sqrt(sum);
}

int weights_norms_part(const struct session *s, const struct flat_part *part,
                       weights_fill_part *fill, void *user, float *to, struct error *err)
{
    enum { BLOCK = 1 << 20 }; /* elements in memory at a time, or a row */
    char name[MODEL_TENSOR];
    const struct flat_tensor *found =
        adapters_magnitude_of(part->tensor->name, name) ? find_tensor(s, name) : NULL;
    if (!found)
        return error_set(err, "%s belongs to no matrix of the model", part->tensor->name);
    struct flat_tensor matrix = *found;
    matrix.box = box_whole(2, found->box.whole);
    matrix.elems = box_elems(&matrix.box);
    int64_t columns = matrix.box.whole[1], most = max_i64(BLOCK / columns, 1);
    int64_t first = part->tensor->box.start[0] + part->start;
    float *rows = malloc((size_t)(min_i64(most, part->count) * columns + 1) * sizeof *rows);
    int rc = rows ? 0 : error_set(err, "out of memory: rows of %s", name);
    for (int64_t at = 0; !rc && at < part->count; at += most) {
        int64_t count = min_i64(most, part->count - at);
        const struct flat_part some = {
            .tensor = &matrix, .start = (first + at) * columns, .count = count * columns};
        rc = fill(user, &some, rows, err);
        for (int64_t i = 0; !rc && i < count; i++)
            to[at + i] = norm_of(rows + i * columns, columns);
    }
    free(rows);
    return rc ? -1 : 0;
}

int weights_init_part(void *user, const struct flat_part *part, float *to, struct error *err)
{
    const struct session *s = user;
    const struct flat_tensor *tensor = part->tensor;
    if (tensor->init == INIT_ROW_NORMS)
        return weights_norms_part(s, part, weights_init_part, user, to, err);
    if (tensor->init == INIT_NORMAL || tensor->init == INIT_UNIFORM) {
        uint64_t key = philox_key((uint64_t)s->config.seed, tensor->name);
        fill_random(to, key, part, s->device->threads);
        return 0;
    }
    for (int64_t i = 0; i < part->count; i++)
        to[i] = tensor->init == INIT_ONES ? 1.0f : 0.0f;
    return 0;
}

/* Round values in place, from the first to the last, to the format in which they are kept. */
static void narrow(float *values, int64_t elems, enum dtype dtype)
{
    for (int64_t i = 0; i < elems && dtype != DTYPE_F32; i++) {
        uint16_t rounded = dtype == DTYPE_BF16 ? f32_to_bf16(values[i]) : f32_to_f16(values[i]);
        memcpy((char *)values + (size_t)i * sizeof rounded, &rounded, sizeof rounded);
    }
}

static int fill_flat(struct session *s, int f, float *shard, weights_fill_part *fill, void *user,
                     struct error *err)
{
    const struct flat *flat = &s->units->flat[f];
    struct weights_slot slots[WEIGHTS_SLOTS];
    struct flat_part part;
    int64_t start = state_shard_start(s->state, f), end = start + flat->shard_elems;
    if (!weights_slots(s, f, slots))
        return 0;
    memset(shard, 0, (size_t)flat->shard_elems * sizeof *shard);
    for (int t = -1; (t = flat_next_part(flat, start, end, t, &part)) >= 0;)
        if (fill(user, &part, shard + part.at, err))
            return -1;
    narrow(shard, flat->shard_elems, slots[0].dtype);
    if (weights_clear(s, f, err) ||
        executor_write(s->executor, &s->state->buffer[slots[0].buffer], 0, shard,
                       (size_t)flat->shard_elems * dtype_bytes(slots[0].dtype), err))
        return -1;
    return weights_refresh(s, f, err);
}

int weights_fill(struct session *s, const char *flats, weights_fill_part *fill, void *user,
                 struct error *err)
{
    float *shard = weights_make_shard(s, err);
    int rc = shard ? 0 : -1;
    for (int f = 0; f < s->units->flats && !rc; f++)
        rc = flats && !flats[f] ? 0 : fill_flat(s, f, shard, fill, user, err);
    free(shard);
    return rc || device_sync(s->device, err) ? -1 : 0;
}

int weights_init(struct session *s, struct error *err)
{
    return weights_fill(s, NULL, weights_init_part, s, err);
}
