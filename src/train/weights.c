/* weights.c - the rank's state by flat, wherever it lives.
 *
 * A buffer of state is in the device's memory, in the host's or in a file.  What is in the device's
 * memory is cleared and cast by its ops; anything else passes through CHUNK_ELEMS elements of host
 * memory at a time (executor_read, executor_write).
 */
#include <stdlib.h>

#include "device/ops.h"
#include "program/saved.h"
#include "train/weights_private.h"

enum { CHUNK_ELEMS = 1 << 20 };

int weights_slots(const struct session *s, int flat, struct weights_slot slots[WEIGHTS_SLOTS])
{
    const struct state_flat *own = &s->state->flat[flat];
    const struct optimizer *optimizer = optimizer_row(s->units->flat[flat].optimizer);
    int count = 0, has_master = own->master >= 0;
    if (!s->state->has[flat])
        return 0;
    slots[count++] = (struct weights_slot){
        .prefix = "model/",
        .name = "",
        .dtype = saved_dtype(s->state, flat),
        .block = 1,
        .buffer = has_master ? own->master : own->param,
        .is_nf4 = s->units->flat[flat].is_nf4,
    };
    for (int k = 0; k < OPTIMIZER_SLOTS && own->slot[k] >= 0; k++)
        slots[count++] = (struct weights_slot){
            .prefix = "optimizer/",
            .name = optimizer->slot[k].name,
            .dtype = optimizer_slot_dtype(optimizer, k, s->layout.optimizer_dtype),
            .block = optimizer->slot[k].kept == KEPT_LARGEST ? optimizer->block : 1,
            .buffer = own->slot[k]};
    return count;
}

static enum state_side side_of(const struct session *s, int buffer)
{
    return state_side(s->state, s->state->buffer[buffer].pool);
}

static void *address(const struct session *s, int buffer)
{
    return executor_buffer(s->executor, &s->state->buffer[buffer]);
}

void *weights_plain(const struct session *s, int buffer)
{
    enum state_side side = side_of(s, buffer);
    int plain = side == SIDE_HOST || (side == SIDE_DEVICE && s->device->kind == DEVICE_CPU);
    return plain ? address(s, buffer) : NULL;
}

void *weights_numbers(const struct session *s, const struct weights_slot *slot)
{
    return slot->is_nf4 ? NULL : weights_plain(s, slot->buffer);
}

size_t weights_byte_offset(const struct weights_slot *slot, int64_t at)
{
    return slot->is_nf4 ? nf4_bytes(at) : (size_t)(at / slot->block) * dtype_bytes(slot->dtype);
}

static int clear_elsewhere(struct session *s, int buffer, struct error *err)
{
    size_t most = CHUNK_ELEMS * sizeof(float), bytes = s->state->buffer[buffer].bytes;
    char *zero = calloc(1, most);
    int rc = zero ? 0 : error_set(err, "out of memory: a part of the state");
    for (size_t at = 0; !rc && at < bytes; at += most)
        rc = executor_write(s->executor, &s->state->buffer[buffer], at, zero,
                            bytes - at < most ? bytes - at : most, err);
    free(zero);
    return rc;
}

static int clear(struct session *s, int buffer, struct error *err)
{
    struct device *host = executor_host(s->executor);
    size_t bytes = buffer < 0 ? 0 : s->state->buffer[buffer].bytes;
    if (!bytes)
        return 0;
    if (side_of(s, buffer) == SIDE_DEVICE)
        s->device->ops->fill_zero(s->device, address(s, buffer), bytes);
    else if (host && weights_plain(s, buffer))
        host->ops->fill_zero(host, weights_plain(s, buffer), bytes);
    else
        return clear_elsewhere(s, buffer, err);
    return 0;
}

int weights_clear_but(struct session *s, int flat, int but, struct error *err)
{
    const struct state_flat *own = &s->state->flat[flat];
    int rc = own->param == but ? 0 : clear(s, own->param, err);
    if (!rc && own->master != own->param && own->master != but)
        rc = clear(s, own->master, err);
    for (int k = 0; !rc && k < OPTIMIZER_SLOTS; k++)
        rc = clear(s, own->slot[k], err);
    return rc;
}

int weights_clear(struct session *s, int flat, struct error *err)
{
    return weights_clear_but(s, flat, -1, err);
}

/* Cast masters to parameters through host memory, where one of the two is not on the device. */
static int refresh_elsewhere(struct session *s, int master, int param, int64_t elems,
                             struct error *err)
{
    struct device *host = executor_host(s->executor);
    enum dtype dtype = s->layout.dtype, wide = state_master_dtype(s->state);
    float *from = malloc(CHUNK_ELEMS * sizeof *from), *to = malloc(CHUNK_ELEMS * sizeof *to);
    int rc = from && to ? 0 : error_set(err, "out of memory: a part of the parameters");
    for (int64_t at = 0; !rc && at < elems; at += CHUNK_ELEMS) {
        int64_t part = elems - at < CHUNK_ELEMS ? elems - at : CHUNK_ELEMS;
        rc = executor_read(s->executor, &s->state->buffer[master], (size_t)at * dtype_bytes(wide),
                           from, (size_t)part * dtype_bytes(wide), err);
        if (!rc)
            host->ops->cast(host, dtype, to, wide, from, part);
        if (!rc)
            rc = executor_write(s->executor, &s->state->buffer[param],
                                (size_t)at * dtype_bytes(dtype), to,
                                (size_t)part * dtype_bytes(dtype), err);
    }
    free(from);
    free(to);
    return rc;
}

int weights_refresh(struct session *s, int flat, struct error *err)
{
    const struct state_flat *own = &s->state->flat[flat];
    int64_t elems = s->units->flat[flat].shard_elems;
    if (own->master < 0 || own->param < 0 || own->param == own->master)
        return 0;
    if (side_of(s, own->master) != SIDE_DEVICE || side_of(s, own->param) != SIDE_DEVICE)
        return refresh_elsewhere(s, own->master, own->param, elems, err);
    s->device->ops->cast(s->device, s->layout.dtype, address(s, own->param),
                         state_master_dtype(s->state), address(s, own->master), elems);
    return 0;
}
