/* memory.c - see memory.h. */
#include "program/memory.h"

#include <stdlib.h>

#include "base/array.h"
#include "segment/place.h"

struct lifetime *memory_lifetimes(const struct program *program)
{
    struct lifetime *life = array_make((size_t)program->buffers, sizeof *life);
    for (int b = 0; b < program->buffers; b++)
        life[b] = (struct lifetime){-1, -1};
    for (int i = 0; i < program->instrs; i++)
        for (int s = 0; s < SLOTS; s++) {
            int b = program->instr[i].buffer[s];
            if (b < 0)
                continue;
            b = buffer_root(program, b);
            if (life[b].first < 0)
                life[b].first = i;
            life[b].last = i;
        }
    return life;
}

static size_t round_up(size_t bytes)
{
    return (bytes + PLACE_ALIGN - 1) / PLACE_ALIGN * PLACE_ALIGN;
}

static size_t place_persistent(struct program *program, enum mem_pool pool)
{
    size_t at = 0;
    for (int b = 0; b < program->buffers; b++) {
        struct buffer *buffer = &program->buffer[b];
        if (!buffer->persistent || buffer->pool != pool || buffer->whole >= 0)
            continue;
        buffer->offset = at;
        at += round_up(buffer->bytes);
    }
    return at;
}

static size_t place_passing(struct program *program, enum mem_pool pool, size_t base,
                            const struct lifetime *life)
{
    int count = 0;
    int *which = array_make((size_t)program->buffers, sizeof *which);
    struct place *items = array_make((size_t)program->buffers, sizeof *items);
    for (int b = 0; b < program->buffers; b++) {
        const struct buffer *buffer = &program->buffer[b];
        if (buffer->persistent || buffer->pool != pool || life[b].first < 0 || buffer->whole >= 0)
            continue;
        which[count] = b;
        items[count++] =
            (struct place){.bytes = buffer->bytes, .first = life[b].first, .last = life[b].last};
    }
    size_t bytes = place_items(items, count);
    for (int i = 0; i < count; i++)
        program->buffer[which[i]].offset = base + items[i].offset;
    free(which);
    free(items);
    return bytes;
}

void memory_plan(struct program *program)
{
    struct lifetime *life = memory_lifetimes(program);
    for (int pool = 0; pool < POOL_COUNT; pool++) {
        size_t base = place_persistent(program, pool);
        program->pool_bytes[pool] = base + place_passing(program, pool, base, life);
    }
    for (int b = 0; b < program->buffers; b++) {
        struct buffer *view = &program->buffer[b];
        if (view->whole >= 0)
            view->offset = program->buffer[view->whole].offset + view->from;
    }
    free(life);
}

void memory_join(size_t pool_bytes[POOL_COUNT], const struct program *program)
{
    for (int pool = 0; pool < POOL_COUNT; pool++)
        if (program->pool_bytes[pool] > pool_bytes[pool])
            pool_bytes[pool] = program->pool_bytes[pool];
}

size_t memory_turn_bytes(const struct program *program)
{
    const struct units_request *r = &program->units->request;
    size_t batch = (size_t)(r->batch * r->seq) * sizeof(int32_t);
    return round_up(SUM_COUNT * sizeof(double) + 2 * (size_t)program->request.micros * batch);
}

size_t memory_device_bytes(const size_t pool_bytes[POOL_COUNT])
{
    return mem_bytes(pool_bytes) - pool_bytes[POOL_HOST];
}

static double gib(size_t bytes)
{
    return (double)bytes / (1 << 30);
}

int memory_fits(const size_t pool_bytes[POOL_COUNT], size_t reserve, size_t free_bytes,
                struct error *err)
{
    enum { TEXT = 400 };
    char text[TEXT] = "";
    size_t need = memory_device_bytes(pool_bytes) + reserve, used = 0;
    if (need <= free_bytes)
        return 0;
    for (int pool = 0; pool <= POOL_COUNT && used < TEXT; pool++) {
        size_t bytes = pool < POOL_COUNT ? pool_bytes[pool] : reserve;
        if (bytes && pool != POOL_HOST && pool != POOL_DISK)
            used +=
                (size_t)snprintf(text + used, TEXT - used, "%s%s %.2f", used ? ", " : "",
                                 pool < POOL_COUNT ? mem_pool_name(pool) : "reserve", gib(bytes));
    }
    return error_set(err,
                     "the run needs %.2f GiB of device memory (%s) and %.2f GiB are free: short "
                     "by %.2f GiB; recompute=full, a smaller train.micro_batch and more shards "
                     "take less",
                     gib(need), text, gib(free_bytes), gib(need - free_bytes));
}
