/* weights_init.c - initial values: functions of (seed, tensor name, index in the whole tensor),
 * never of the layout. */
#include <stdlib.h>
#include <string.h>

#include "base/philox.h"
#include "base/round.h"
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

int weights_init_part(void *user, const struct flat_part *part, float *to, struct error *err)
{
    const struct session *s = user;
    const struct flat_tensor *tensor = part->tensor;
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
