/* state.c - the buffers that live from step to step.
 *
 * For each flat: what it is computed with (whole, or a shard), what is updated (masters, where the
 * formats differ), gradients (whole, in buckets, or a shard) and the optimizer's slots, each in the
 * pool where the layout keeps it.  Then the step's sums, the model's constants and the workspace.
 *
 * Of a trained flat on several data ranks, with fp32 gradients and nothing offloaded:
 *
 *                     param                   whole_param   grad                  whole_grad
 *   NO_SHARD          = whole_param           whole         = whole_grad          view of a bucket
 *   SHARD_OPTIM       view of whole_param     whole         view of whole_grad    whole
 *   SHARD_GRAD_OP     view of whole_param     whole         shard                 -1
 *   FULL_SHARD fp32   shard                   -1            shard                 -1
 *   FULL_SHARD bf16   -1: GATHER casts        -1            shard                 -1
 *                     the master
 *
 * The master is param itself where both have one format (bf16 without fp32 masters is as fp32
 * here), else a buffer of the elements that the rank updates.  A flat that is whole on every rank
 * (parallel.persist_below) has param = whole_param and grad = whole_grad in all rows.  On several
 * stages FULL_SHARD keeps parameters as SHARD_GRAD_OP does, unless parallel.pipeline_reshard is
 * set.  A bf16 gradient of a flat that is split is always a shard.
 *
 * Where gradients pass (state_grads_pass()) their buffers are listed here, but do not outlive the
 * step: each program that uses them gives them places.
 */
#include "program/state.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/array.h"
#include "program/memory.h"

enum state_side state_side(const struct state *state, enum mem_pool pool)
{
    int apart = state->layout->host_apart;
    return pool == POOL_DISK ? SIDE_DISK : pool == POOL_HOST && apart ? SIDE_HOST : SIDE_DEVICE;
}

enum mem_pool state_pool(enum config_offload_to to, enum mem_pool pool)
{
    return to == OFFLOAD_HOST ? POOL_HOST : to == OFFLOAD_DISK ? POOL_DISK : pool;
}

enum state_side state_update_side(const struct state *state)
{
    const struct layout *layout = state->layout;
    return layout->host_apart && layout->offload.optimizer != OFFLOAD_NONE ? SIDE_HOST
                                                                           : SIDE_DEVICE;
}

int state_fetches_params(const struct state *state)
{
    enum mem_pool pool = state_pool(state->layout->offload.params, POOL_PARAMS);
    return state_side(state, pool) != SIDE_DEVICE;
}

enum mem_pool state_grad_pool(const struct state *state)
{
    return state_grads_pass(state) ? POOL_ACTIVATIONS
                                   : state_pool(state->layout->offload.gradients, POOL_GRADS);
}

int state_fetches_grads(const struct state *state)
{
    return state_side(state, state_grad_pool(state)) != SIDE_DEVICE;
}

/* Does the optimizer work on a copy of the parameters, even where these are fp32 too? */
static int has_own_masters(const struct state *state)
{
    return state_update_side(state) == SIDE_HOST && !state_fetches_params(state);
}

int state_append_buffer(struct program_buffer **list, int *count, int *capacity, enum mem_pool pool,
                        size_t bytes, int persistent, const char *fmt, va_list args)
{
    struct program_buffer buffer = {
        .pool = pool, .bytes = bytes, .persistent = persistent, .whole = -1, .like = -1};
    vsnprintf(buffer.name, sizeof buffer.name, fmt, args);
    *list = array_grow(*list, *count, capacity, sizeof **list);
    (*list)[*count] = buffer;
    return (*count)++;
}

int state_make_view(struct program_buffer *list, int b, int whole, size_t from)
{
    list[b].pool = list[whole].pool;
    list[b].persistent = list[whole].persistent;
    list[b].partial = list[whole].partial;
    list[b].whole = whole;
    list[b].from = from;
    return b;
}

static int state_buffer(struct state *state, enum mem_pool pool, size_t bytes, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
static int state_buffer(struct state *state, enum mem_pool pool, size_t bytes, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    int b = state_append_buffer(&state->buffer, &state->buffers, &state->capacity, pool, bytes, 1,
                                fmt, args);
    va_end(args);
    return b;
}

static const struct flat *flat_of(const struct state *state, int flat)
{
    return &state->units->flat[flat];
}

/* Append a buffer for elements of a flat: all, or those of its shard. */
static int flat_buffer(struct state *state, enum mem_pool pool, int flat, int64_t elems,
                       const char *what, enum dtype dtype)
{
    return state_buffer(state, pool, (size_t)elems * dtype_bytes(dtype), "%s.%s",
                        flat_of(state, flat)->name, what);
}

/* Append a buffer for elements of a flat's gradient. */
static int grad_buffer(struct state *state, int flat, int64_t elems)
{
    int b = flat_buffer(state, state_grad_pool(state), flat, elems, "grad",
                        flat_of(state, flat)->grad_dtype);
    state->buffer[b].persistent = !state_grads_pass(state);
    return b;
}

/* Append a view of the rank's shard in the whole buffer of a flat; returns it, or the whole where
 * the flat is not split. */
static int own_shard(struct state *state, int whole, int flat, const char *what)
{
    const struct flat *of = flat_of(state, flat);
    if (!flat_is_sharded(flat_of(state, flat)))
        return whole;
    size_t bytes = state->buffer[whole].bytes / (size_t)(of->padded / of->shard_elems);
    size_t place = (size_t)(state_shard_start(state, flat) / of->shard_elems);
    int own = state_buffer(state, state->buffer[whole].pool, bytes, "%s.%s", of->name, what);
    return state_make_view(state->buffer, own, whole, place * bytes);
}

/* Append a buffer for so many elements of a flat's parameters, in the form in which they are kept.
 */
static int param_buffer(struct state *state, int flat, int64_t elems)
{
    enum mem_pool pool = state_pool(state->layout->offload.params, POOL_PARAMS);
    return state_buffer(state, pool,
                        flat_kept_bytes(flat_of(state, flat), elems, state->units->request.dtype),
                        "%s.param", flat_of(state, flat)->name);
}

static void make_param_buffers(struct state *state, int flat)
{
    enum mem_pool masters = state_pool(state->layout->offload.optimizer, POOL_OPTIMIZER);
    enum dtype dtype = state->units->request.dtype, wide = state_master_dtype(state);
    int64_t shard = flat_of(state, flat)->shard_elems;
    struct state_flat *own = &state->flat[flat];
    if (state_casts(state, flat)) {
        own->param = -1;
    } else if (state_gathers_flat(state, flat) && state->layout->strategy.params == PARAMS_USE) {
        own->param = param_buffer(state, flat, shard);
    } else {
        own->whole_param = param_buffer(state, flat, flat_of(state, flat)->padded);
        own->param = own_shard(state, own->whole_param, flat, "param shard");
        state->buffer[own->whole_param].partial = own->param != own->whole_param;
    }
    if (flat_of(state, flat)->is_nf4)
        return;
    if (dtype == wide && !(state_trains(state, flat) && has_own_masters(state)))
        own->master = own->param;
    else if (state_trains(state, flat))
        own->master = flat_buffer(state, masters, flat, shard, "master", wide);
}

/* Do data ranks sum whole gradients, which can be done in buckets?  Those that leave as soon as
 * they are summed are summed one by one. */
static int has_buckets(const struct state *state)
{
    return !state_has_shards(state) && mesh_members(&state->layout->shape, MESH_DATA) > 1 &&
           !state_fetches_grads(state);
}

/* The next trained flat before number f whose gradient has this format, or -1. */
static int trained_before(const struct state *state, int f, enum dtype dtype)
{
    for (f--; f >= 0 && !(state_trains(state, f) && flat_of(state, f)->grad_dtype == dtype); f--)
        continue;
    return f;
}

static size_t gradient_bytes(const struct state *state, int flat)
{
    return (size_t)flat_of(state, flat)->padded * dtype_bytes(flat_of(state, flat)->grad_dtype);
}

/* Flats end to end, from number `from` down to number `to`, as backward finishes them. */
static void fill_bucket(struct state *state, int from, int to)
{
    struct state_bucket *bucket = &state->bucket[state->buckets];
    enum dtype dtype = flat_of(state, from)->grad_dtype;
    size_t bytes = 0;
    *bucket = (struct state_bucket){.dtype = dtype};
    for (int f = from; f >= to; f = trained_before(state, f, dtype)) {
        bucket->elems += flat_of(state, f)->padded;
        bucket->flats++;
    }
    bucket->buffer =
        state_buffer(state, state_grad_pool(state), (size_t)bucket->elems * dtype_bytes(dtype),
                     "gradients of bucket %d", state->buckets);
    state->buffer[bucket->buffer].persistent = !state_grads_pass(state);
    for (int f = from; f >= to; f = trained_before(state, f, dtype)) {
        struct state_flat *own = &state->flat[f];
        int grad = grad_buffer(state, f, flat_of(state, f)->padded);
        own->grad = own->whole_grad = state_make_view(state->buffer, grad, bucket->buffer, bytes);
        own->bucket = state->buckets;
        bytes += gradient_bytes(state, f);
    }
    state->buckets++;
}

/* Fill buckets with the gradients of one format, from the last flat to the first.  A bucket ends
 * when it has bucket_bytes, or where the next gradient is summed over other axes. */
static void fill_buckets(struct state *state, enum dtype dtype)
{
    int from = trained_before(state, state->units->flats, dtype);
    size_t bytes = 0;
    for (int f = from; f >= 0; f = trained_before(state, f, dtype)) {
        bytes += gradient_bytes(state, f);
        int next = trained_before(state, f, dtype);
        if (next >= 0 && flat_of(state, next)->sum_axes == flat_of(state, f)->sum_axes &&
            bytes < state->layout->strategy.bucket_bytes)
            continue;
        fill_bucket(state, from, f);
        from = next;
        bytes = 0;
    }
}

/* Make the buffer of a gradient: of its shard alone where the whole one passes, to be reduced to
 * the shard or spilled; else of the whole, with a view of the shard.  A 16-bit gradient that is
 * split always passes: its sum cannot be written into the whole that it is made of (group.h). */
static void make_grad_buffers(struct state *state, int flat)
{
    struct state_flat *own = &state->flat[flat];
    const struct flat *of = flat_of(state, flat);
    int reduces = flat_is_sharded(flat_of(state, flat)) &&
                  (state->layout->strategy.grads == GRADS_MICRO || of->grad_dtype != DTYPE_F32);
    if (reduces || state_fetches_grads(state)) {
        own->grad = grad_buffer(state, flat, of->shard_elems);
        return;
    }
    own->whole_grad = grad_buffer(state, flat, of->padded);
    own->grad = own_shard(state, own->whole_grad, flat, "grad shard");
}

static void make_flat(struct state *state, int flat)
{
    struct state_flat *own = &state->flat[flat];
    const struct flat *of = flat_of(state, flat);
    const struct optimizer *optimizer = optimizer_row(of->optimizer);
    enum mem_pool pool = state_pool(state->layout->offload.optimizer, POOL_OPTIMIZER);
    *own = (struct state_flat){
        .master = -1, .param = -1, .grad = -1, .whole_param = -1, .whole_grad = -1, .bucket = -1};
    for (int k = 0; k < OPTIMIZER_SLOTS; k++)
        own->slot[k] = -1;
    if (!state->has[flat])
        return;
    make_param_buffers(state, flat);
    if (!state_trains(state, flat))
        return;
    if (!has_buckets(state))
        make_grad_buffers(state, flat);
    for (int k = 0; k < optimizer->slots; k++)
        own->slot[k] =
            flat_buffer(state, pool, flat, optimizer_slot_elems(optimizer, k, of->shard_elems),
                        optimizer->slot[k].name,
                        optimizer_slot_dtype(optimizer, k, state->layout->optimizer_dtype));
}

/* Append a view of sums [from, to). */
static int view_of_sums(struct state *state, int from, int to, const char *name)
{
    int b = state_buffer(state, POOL_WORKSPACE, (size_t)(to - from) * sizeof(double), "%s", name);
    return state_make_view(state->buffer, b, state->sums, (size_t)from * sizeof(double));
}

/* Make the caches of the rank's own units: those of other stages run on other ranks. */
static void make_caches(struct state *state)
{
    const struct units *units = state->units;
    state->cache = array_make((size_t)units->count, sizeof *state->cache);
    for (int u = 0; u < units->count; u++) {
        size_t bytes = units_cache_bytes(units, u);
        int is_own = units->rank[u] == state->coord.at[MESH_PIPELINE];
        state->cache[u] = bytes && is_own
                              ? state_buffer(state, POOL_ACTIVATIONS, bytes, "cache of unit %d", u)
                              : -1;
    }
}

static int64_t expert_tokens_elems(const struct state *state, int unit)
{
    return state->training ? units_expert_tokens_elems(state->units, unit) : 0;
}

int64_t state_expert_tokens_elems(const struct state *state)
{
    int64_t elems = 0;
    for (int u = 0; u < state->units->count; u++)
        elems += expert_tokens_elems(state, u);
    return elems;
}

/* Make the views of what units count of their experts, from number `from` of the sums on. */
static void make_expert_tokens(struct state *state, int from)
{
    state->expert_tokens = array_make((size_t)state->units->count, sizeof *state->expert_tokens);
    for (int u = 0; u < state->units->count; u++) {
        int to = from + (int)expert_tokens_elems(state, u);
        state->expert_tokens[u] =
            to > from ? view_of_sums(state, from, to, "tokens at experts") : -1;
        from = to;
    }
}

static void make_common(struct state *state)
{
    const struct units *units = state->units;
    size_t table = (size_t)(units_const_rows(units) * units->model->const_width) * sizeof(float);
    int first = SUM_COUNT + (state->training ? units->flats : 0);
    int sums = first + (int)state_expert_tokens_elems(state);
    state->sums = state_buffer(state, POOL_WORKSPACE, (size_t)sums * sizeof(double), "sums");
    state->loss_scale = view_of_sums(state, SUM_LOSS_SCALE, SUM_LOSS_SCALE + 1, "loss scale");
    state->over_data = view_of_sums(state, SUM_OVER_DATA, sums, "sums over data");
    state->over_tensor = view_of_sums(state, SUM_OVER_TENSOR, sums, "sums over tensor");
    make_expert_tokens(state, first);
    state->constants = state_buffer(state, POOL_WORKSPACE, table, "constants");
    state->work = state_buffer(state, POOL_WORKSPACE, units->work_bytes, "work");
}

struct state *state_create(const struct units *units, const struct layout *layout, int training,
                           int rank)
{
    struct state *state = array_make(1, sizeof *state);
    state->units = units;
    state->layout = layout;
    state->coord = mesh_coord_of_rank(&layout->shape, rank);
    state->training = training;
    state->flat = array_make((size_t)units->flats, sizeof *state->flat);
    state->has = array_make((size_t)units->flats, 1);
    for (int f = 0; f < units->flats; f++)
        state->has[f] = (char)units_rank_uses(units, state->coord.at[MESH_PIPELINE], f);
    for (int f = 0; f < units->flats; f++)
        make_flat(state, f);
    state->bucket = array_make((size_t)units->flats, sizeof *state->bucket);
    if (training && has_buckets(state)) {
        fill_buckets(state, DTYPE_F32);
        fill_buckets(state, DTYPE_BF16);
    }
    make_caches(state);
    make_common(state);
    size_t pool_bytes[POOL_COUNT];
    memory_place_persistent(state->buffer, state->buffers, pool_bytes);
    return state;
}

void state_destroy(struct state *state)
{
    if (!state)
        return;
    free(state->buffer);
    free(state->flat);
    free(state->has);
    free(state->cache);
    free(state->expert_tokens);
    free(state->bucket);
    free(state);
}
