/* state.c - the buffers that live from step to step. */
#include "program/passes.h"

#include "base/array.h"
#include "program/offload.h"
#include "program/shard.h"

static const char *prefix(const struct program *program, int unit)
{
    const char *name = program->units->model->unit[unit].prefix;
    return name[0] ? name : unit ? "head." : "embed.";
}

static int shard_buffer(struct program *program, enum mem_pool pool, int unit, const char *what,
                        enum dtype dtype)
{
    size_t bytes = (size_t)program->units->flat[unit].shard_elems * dtype_bytes(dtype);
    return program_buffer(program, pool, bytes, 1, "%s%s", prefix(program, unit), what);
}

/* The own shard inside a whole buffer; where a shard is the whole, that itself. */
static int own_shard(struct program *program, int whole, int unit, const char *what,
                     enum dtype dtype)
{
    size_t bytes = (size_t)program->units->flat[unit].shard_elems * dtype_bytes(dtype);
    if (!shard_splits(program, unit))
        return whole;
    return program_view(program, whole, bytes * (size_t)program->request.coord.at[MESH_SHARD],
                        bytes, "%s%s shard", prefix(program, unit), what);
}

static int whole_buffer(struct program *program, enum mem_pool pool, int unit, const char *what,
                        enum dtype dtype)
{
    size_t bytes = (size_t)program->units->flat[unit].padded * dtype_bytes(dtype);
    return program_buffer(program, pool, bytes, 1, "%s%s", prefix(program, unit), what);
}

static void params(struct program *program, int unit)
{
    const struct offload *offload = &program->request.offload;
    enum mem_pool pool = offload_pool(offload->params, POOL_PARAMS);
    enum dtype dtype = program->units->request.dtype;
    struct unit_state *state = &program->state[unit];
    if (shard_casts_unit(program, unit)) {
        state->param = -1;
    } else if (shard_gathers_unit(program, unit) &&
               program->request.strategy.params == PARAMS_USE) {
        state->param = shard_buffer(program, pool, unit, "param", dtype);
    } else {
        state->whole_param = whole_buffer(program, pool, unit, "param", dtype);
        state->param = own_shard(program, state->whole_param, unit, "param", dtype);
        program->buffer[state->whole_param].partial = state->param != state->whole_param;
    }
    if (dtype == program_master_dtype(program) &&
        !(program->request.training && offload_splits_params(program)))
        state->master = state->param;
    else if (program->request.training)
        state->master = shard_buffer(program, offload_pool(offload->optimizer, POOL_OPTIMIZER),
                                     unit, "master", program_master_dtype(program));
}

/* Do replicas sum whole gradients, which can be done in buckets?  Those that leave as soon as they
 * are summed are summed by unit. */
static int has_buckets(const struct program *program)
{
    return !shard_is_sharded(program) && program->request.shape.degree[MESH_REPLICATE] > 1 &&
           !offload_fetches_grads(program);
}

static enum mem_pool grad_pool(const struct program *program)
{
    return offload_pool(program->request.offload.gradients, POOL_GRADS);
}

/* Units end to end, from the last down, as backward finishes them. */
static void fill_bucket(struct program *program, int from, int to)
{
    struct bucket *bucket = &program->bucket[program->buckets];
    size_t bytes = 0;
    *bucket = (struct bucket){.units = from - to + 1};
    for (int u = from; u >= to; u--)
        bucket->elems += program->units->flat[u].padded;
    bucket->buffer =
        program_buffer(program, grad_pool(program), (size_t)bucket->elems * sizeof(float), 1,
                       "gradients of bucket %d", program->buckets);
    for (int u = from; u >= to; u--) {
        size_t part = (size_t)program->units->flat[u].padded * sizeof(float);
        struct unit_state *state = &program->state[u];
        state->whole_grad =
            program_view(program, bucket->buffer, bytes, part, "%sgrad", prefix(program, u));
        state->grad = state->whole_grad;
        state->bucket = program->buckets;
        bytes += part;
    }
    program->buckets++;
}

static void buckets(struct program *program)
{
    int units = program->units->count, from = units - 1;
    size_t bytes = 0;
    program->bucket = array_make((size_t)units, sizeof *program->bucket);
    for (int u = units - 1; u >= 0; u--) {
        bytes += (size_t)program->units->flat[u].padded * sizeof(float);
        if (u > 0 && bytes < program->request.strategy.bucket_bytes)
            continue;
        fill_bucket(program, from, u);
        from = u - 1;
        bytes = 0;
    }
}

/* A shard, into which whole ones are reduced or where what passes is kept; or the whole. */
static void grads(struct program *program, int unit)
{
    struct unit_state *state = &program->state[unit];
    enum mem_pool pool = grad_pool(program);
    int reduces = shard_splits(program, unit) && program->request.strategy.grads == GRADS_MICRO;
    if (reduces || offload_fetches_grads(program)) {
        state->grad = shard_buffer(program, pool, unit, "grad", DTYPE_F32);
        return;
    }
    state->whole_grad = whole_buffer(program, pool, unit, "grad", DTYPE_F32);
    state->grad = own_shard(program, state->whole_grad, unit, "grad", DTYPE_F32);
}

static void unit_state(struct program *program, int unit)
{
    struct unit_state *state = &program->state[unit];
    const struct optimizer *optimizer = optimizer_row(program->request.optimizer);
    enum mem_pool pool = offload_pool(program->request.offload.optimizer, POOL_OPTIMIZER);
    *state = (struct unit_state){-1, {-1, -1}, -1, -1, -1, -1, -1};
    params(program, unit);
    if (!program->request.training)
        return;
    if (!has_buckets(program))
        grads(program, unit);
    for (int k = 0; k < optimizer->slots; k++)
        state->slot[k] =
            shard_buffer(program, pool, unit, optimizer->slot[k], program->request.optimizer_dtype);
}

void pass_state(struct program *program)
{
    const struct units *units = program->units;
    program->state = array_make((size_t)units->count, sizeof *program->state);
    for (int u = 0; u < units->count; u++)
        unit_state(program, u);
    if (program->request.training && has_buckets(program))
        buckets(program);
    program->sums = program_buffer(program, POOL_WORKSPACE, SUM_COUNT * sizeof(double), 1, "sums");
    program->loss_scale = program_view(program, program->sums, SUM_LOSS_SCALE * sizeof(double),
                                       sizeof(double), "loss scale");
    size_t table = (size_t)(units->request.seq * units->model->const_width) * sizeof(float);
    program->constants = program_buffer(program, POOL_WORKSPACE, table, 1, "constants");
    program->work = program_buffer(program, POOL_WORKSPACE, units->work_bytes, 1, "work");
}
