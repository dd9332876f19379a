/* memory.c - where the buffers of a program lie in the slab of their pool.
 *
 *   | persistent buffers, one after the other | buffers of the step, by their lifetimes |
 *
 * A buffer of the step lives from the first instruction that names it, or a view of it, to the
 * last; those whose lives do not overlap may share memory (place.h).  A view lies in its whole.
 * What a rank needs is the largest slab of each pool over its programs, and what is beside slabs.
 */
#include "program/memory.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/round.h"
#include "program/saved.h"
#include "program/sent.h"
#include "segment/place.h"

/* A whole lives from the first instruction that names it or a view of it to the last. */
static void live_with_view(struct memory_lifetime *whole, struct memory_lifetime *view)
{
    if (view->first >= 0 && (whole->first < 0 || view->first < whole->first))
        whole->first = view->first;
    whole->last = view->last > whole->last ? view->last : whole->last;
    *view = (struct memory_lifetime){-1, -1};
}

struct memory_lifetime *memory_lifetimes(const struct program *program)
{
    struct memory_lifetime *life = array_make((size_t)program->buffers, sizeof *life);
    for (int b = 0; b < program->buffers; b++)
        life[b] = (struct memory_lifetime){-1, -1};
    for (int i = 0; i < program->instrs; i++)
        for (uint64_t left = program->instr[i].bound; left; left &= left - 1) {
            int b = program->instr[i].buffer[__builtin_ctzll(left)];
            if (life[b].first < 0)
                life[b].first = i;
            life[b].last = i;
        }
    for (int b = 0; b < program->buffers; b++)
        if (program->buffer[b].whole >= 0)
            live_with_view(&life[program->buffer[b].whole], &life[b]);
    return life;
}

/* Place the persistent buffers of a pool from 0 on; returns the bytes they take. */
static size_t place_persistent(struct program_buffer *list, int count, enum mem_pool pool)
{
    size_t at = 0;
    for (int b = 0; b < count; b++) {
        struct program_buffer *buffer = &list[b];
        if (!buffer->persistent || buffer->pool != pool || buffer->whole >= 0)
            continue;
        buffer->offset = at;
        at += round_up_bytes(buffer->bytes, PLACE_ALIGN);
    }
    return at;
}

/* Place the step's buffers of a pool from `base` on; returns the bytes they take.  items, item_of:
 * space for as many as there are buffers. */
static size_t place_passing(struct program *program, enum mem_pool pool, size_t base,
                            const struct memory_lifetime *life, struct place *items,
                            struct place **item_of)
{
    int count = 0;
    for (int b = 0; b < program->buffers; b++) {
        const struct program_buffer *buffer = &program->buffer[b];
        item_of[b] = NULL;
        if (buffer->persistent || buffer->pool != pool || life[b].first < 0 || buffer->whole >= 0)
            continue;
        item_of[b] = &items[count];
        items[count++] = (struct place){.bytes = buffer->bytes,
                                        .first = life[b].first,
                                        .last = life[b].last,
                                        .like = buffer->like < 0 ? NULL : item_of[buffer->like]};
    }
    size_t bytes = place_items(items, count);
    for (int b = 0; b < program->buffers; b++)
        if (item_of[b])
            program->buffer[b].offset = base + item_of[b]->offset;
    return bytes;
}

static void place_views(struct program_buffer *list, int count)
{
    for (int b = 0; b < count; b++)
        if (list[b].whole >= 0)
            list[b].offset = list[list[b].whole].offset + list[b].from;
}

void memory_place_persistent(struct program_buffer *list, int count, size_t pool_bytes[POOL_COUNT])
{
    for (int pool = 0; pool < POOL_COUNT; pool++)
        pool_bytes[pool] = place_persistent(list, count, pool);
    place_views(list, count);
}

void memory_plan(struct program *program)
{
    struct memory_lifetime *life = memory_lifetimes(program);
    struct place *items = array_make((size_t)program->buffers, sizeof *items);
    struct place **item_of = array_make((size_t)program->buffers, sizeof *item_of);
    for (int pool = 0; pool < POOL_COUNT; pool++) {
        size_t base = place_persistent(program->buffer, program->buffers, pool);
        program->pool_bytes[pool] = base + place_passing(program, pool, base, life, items, item_of);
    }
    place_views(program->buffer, program->buffers);
    free(item_of);
    free(items);
    free(life);
}

/* The host's copy of what LOADs load in a step, and of its sums. */
static size_t step_bytes(const struct program *program)
{
    size_t bytes = program->buffer[program->state->sums].bytes;
    for (int i = 0; i < program->instrs; i++)
        for (int k = 0; k < LOAD_SLOTS && program->instr[i].kind == INSTR_LOAD; k++)
            if (program->instr[i].buffer[k] >= 0)
                bytes += program->buffer[program->instr[i].buffer[k]].bytes;
    return round_up_bytes(bytes, PLACE_ALIGN);
}

static size_t logits_bytes(const struct program *program)
{
    return program->logits < 0 ? 0 : program->buffer[program->logits].bytes;
}

void memory_slabs(struct memory_need *need, const struct program *const *programs, int count)
{
    *need = (struct memory_need){0};
    for (int i = 0; i < count; i++) {
        for (int pool = 0; pool < POOL_COUNT; pool++)
            need->slab_bytes[pool] =
                max_bytes(need->slab_bytes[pool], programs[i]->pool_bytes[pool]);
        need->step_bytes = max_bytes(need->step_bytes, step_bytes(programs[i]));
        need->logits_bytes = max_bytes(need->logits_bytes, logits_bytes(programs[i]));
    }
}

/* Bytes of a pool that lie on a GPU; of the reserve for POOL_COUNT. */
static size_t on_gpu(const struct memory_need *need, int pool)
{
    switch (pool) {
    case POOL_HOST:
    case POOL_DISK: return 0;
    case POOL_COMM: return need->pool_bytes[pool] - need->staging_bytes;
    case POOL_COUNT: return need->reserve_bytes;
    default: return need->pool_bytes[pool];
    }
}

/* A GPU's transfers have staging on it, and in the host's memory too, where its steps' inputs and
 * sums are as well, and logits. */
static void add_gpu(struct memory_need *need, const struct mesh_shape *shape,
                    const struct mesh_options *options, size_t reserve_bytes)
{
    need->pool_bytes[POOL_COMM] += mesh_device_staging_bytes(shape, options);
    need->pool_bytes[POOL_HOST] += MEMORY_STEPS * need->step_bytes + need->logits_bytes +
                                   mesh_host_staging_bytes(shape, options);
    need->nccl_bytes = mesh_reserve_bytes(shape, options);
    need->reserve_bytes = reserve_bytes + need->nccl_bytes;
    for (int pool = 0; pool <= POOL_COUNT; pool++)
        need->device_bytes += on_gpu(need, pool);
}

/* The copy of the state that a checkpoint in the background is written from. */
static size_t copy_bytes(const struct state *state)
{
    enum layout_copy copy = state->layout->copy;
    return state->training && copy != COPY_NONE ? saved_bytes(state, copy == COPY_ALL) : 0;
}

void memory_need(struct memory_need *need, const struct program *const *programs, int count,
                 const struct mesh_options *options, size_t reserve_bytes)
{
    const struct layout *layout = programs[0]->layout;
    memory_slabs(need, programs, count);
    memcpy(need->pool_bytes, need->slab_bytes, sizeof need->pool_bytes);
    need->staging_bytes = mesh_staging_bytes(&layout->shape);
    need->pool_bytes[POOL_COMM] += need->staging_bytes;
    need->copy_bytes = copy_bytes(programs[0]->state);
    need->pool_bytes[POOL_HOST] += need->copy_bytes;
    if (layout->host_apart) {
        struct mesh_options with_swaps = *options;
        sent_describe(&with_swaps, programs, count);
        add_gpu(need, &layout->shape, &with_swaps, reserve_bytes);
    }
    need->total_bytes = mem_bytes(need->pool_bytes);
    need->host_bytes =
        layout->host_apart ? need->pool_bytes[POOL_HOST] + need->staging_bytes : need->total_bytes;
}

int memory_fits(const struct memory_need *need, size_t free_bytes, struct error *err)
{
    enum { TEXT = 400 };
    char text[TEXT] = "";
    size_t used = 0;
    if (need->device_bytes <= free_bytes)
        return 0;
    for (int pool = 0; pool <= POOL_COUNT && used < TEXT; pool++)
        if (on_gpu(need, pool))
            used += (size_t)snprintf(text + used, TEXT - used, "%s%s %.2f", used ? ", " : "",
                                     pool < POOL_COUNT ? mem_pool_name(pool) : "reserve",
                                     gib_of(on_gpu(need, pool)));
    return error_set(err,
                     "the run needs %.2f GiB of device memory (%s) and %.2f GiB are free: short "
                     "by %.2f GiB; recompute=full and more shards take less, and so does a much "
                     "smaller train.micro_batch",
                     gib_of(need->device_bytes), text, gib_of(free_bytes),
                     gib_of(need->device_bytes - free_bytes));
}
