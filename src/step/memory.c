/* memory.c - see memory.h. */
#include "step/memory.h"

#include <stdlib.h>

#include "base/array.h"
#include "step/place.h"

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
        if (!buffer->persistent || buffer->pool != pool)
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
        if (buffer->persistent || buffer->pool != pool || life[b].first < 0)
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
    free(life);
}

void memory_join(size_t pool_bytes[POOL_COUNT], const struct program *program)
{
    for (int pool = 0; pool < POOL_COUNT; pool++)
        if (program->pool_bytes[pool] > pool_bytes[pool])
            pool_bytes[pool] = program->pool_bytes[pool];
}
