/* shard.c - see shard.h. */
#include "program/shard.h"

#include <stdlib.h>

#include "base/array.h"
#include "program/gradients.h"

static int reads(const struct run *run, enum segment_space space)
{
    return run->segment->reads >> space & 1;
}

/* The flat parameter run uses by its own / by sharing, or -1. */
static int used(const struct program *program, const struct run *run, int by_sharing)
{
    if (!reads(run, by_sharing ? SPACE_SHARED : SPACE_PARAM))
        return -1;
    return by_sharing ? units_shared(program->units, run->unit) : run->unit;
}

/* A gather serves consecutive runs, and one more is needed where a run in between did without; or
 * it serves the step. */
static void plan_gathers(const struct program *program, struct run *run, int runs)
{
    int *last = array_make((size_t)program->units->count, sizeof *last);
    int once = program->request.strategy.params == PARAMS_STEP;
    for (int u = 0; u < program->units->count; u++)
        last[u] = -2;
    for (int r = 0; r < runs; r++)
        for (int k = 0; k < 2; k++) {
            int unit = used(program, &run[r], k);
            int lacks = unit >= 0 && shard_gathers_unit(program, unit) &&
                        (once ? last[unit] < 0 : last[unit] < r - 1);
            run[r].gather[k] = lacks ? unit : -1;
            if (unit >= 0)
                last[unit] = r;
        }
    free(last);
}

void shard_plan(const struct program *program, struct run *run, int runs)
{
    for (int r = 0; r < runs; r++)
        run[r].param = run[r].shared = run[r].fetched[0] = run[r].fetched[1] = -1;
    plan_gathers(program, run, runs);
    gradients_plan(program, run, runs);
}

/* Where a gather puts the whole parameter: where it stays, or for the next uses. */
static int whole_buffer(struct program *program, int unit)
{
    const struct units *units = program->units;
    size_t bytes = (size_t)units->flat[unit].padded * dtype_bytes(units->request.dtype);
    if (program->state[unit].whole_param >= 0)
        return program->state[unit].whole_param;
    return program_buffer(program, POOL_UNSHARDED, bytes, 0, "%swhole",
                          units->model->unit[unit].prefix);
}

/* The shard of the k-th gather of a run, near. */
static void fetch(struct program *program, struct run *run, int k)
{
    int unit = run->gather[k];
    if (unit < 0 || run->fetched[k] >= 0)
        return;
    int param = run->fetched[k] = program->state[unit].param;
    if (!offload_fetches_params(program))
        return;
    if (program->request.offload.apart)
        param = offload_bring(program, param, SIDE_HOST, unit, run->micro);
    run->fetched[k] = shard_splits(program, unit) ? offload_near(program, param, SIDE_DEVICE)
                                                  : whole_buffer(program, unit);
    offload_copy(program, param, run->fetched[k], unit, run->micro);
}

void shard_cast(struct program *program, const struct run *run, int unit, int from, int to,
                int64_t elems, enum dtype dtype)
{
    int index = program_instr(program, INSTR_CAST, STREAM_COMPUTE);
    struct instr *instr = &program->instr[index];
    instr->unit = unit;
    instr->micro = run->micro;
    instr->elems = elems;
    instr->dtype = dtype;
    instr_bind(instr, SLOT_FROM, from, ACCESS_READ);
    instr_bind(instr, SLOT_TO, to, ACCESS_WRITE);
}

/* The own shard at its place in the whole, made from the masters. */
static int cast_master(struct program *program, const struct run *run, int unit, int whole)
{
    enum dtype dtype = program->units->request.dtype;
    int64_t elems = program->units->flat[unit].shard_elems;
    size_t bytes = (size_t)elems * dtype_bytes(dtype);
    int own = program_view(program, whole, bytes * (size_t)program->request.coord.at[MESH_SHARD],
                           bytes, "%sown of whole", program->units->model->unit[unit].prefix);
    shard_cast(program, run, unit, program->state[unit].master, own, elems, dtype);
    return own;
}

static int gather(struct program *program, struct run *run, int k)
{
    int unit = run->gather[k];
    fetch(program, run, k);
    if (!shard_splits(program, unit))
        return run->fetched[k];
    int whole = whole_buffer(program, unit), from = run->fetched[k];
    if (shard_casts_unit(program, unit))
        from = cast_master(program, run, unit, whole);
    int index = program_instr(program, INSTR_GATHER, STREAM_GATHER);
    struct instr *instr = &program->instr[index];
    instr->unit = unit;
    instr->micro = run->micro;
    instr->group = MESH_SHARD;
    instr->elems = program->units->flat[unit].shard_elems;
    instr->dtype = program->units->request.dtype;
    instr_bind(instr, SLOT_FROM, from, ACCESS_READ);
    instr_bind(instr, SLOT_TO, whole, ACCESS_WRITE);
    return whole;
}

/* The buffer run r computes with: its own gather's, or that of the run before. */
static int whole_of(const struct program *program, const struct run *run, int r, int unit)
{
    if (program->state[unit].whole_param >= 0)
        return program->state[unit].whole_param;
    for (int k = 0; k < 2 && r >= 0; k++) {
        if (used(program, &run[r], k) != unit)
            continue;
        int buffer = k ? run[r].shared : run[r].param;
        return buffer >= 0 ? buffer : whole_of(program, run, r - 1, unit);
    }
    return -1;
}

static void issue(struct program *program, struct run *run, int r)
{
    for (int k = 0; k < 2; k++) {
        int *buffer = k ? &run[r].shared : &run[r].param;
        if (run[r].gather[k] >= 0 && *buffer < 0)
            *buffer = gather(program, &run[r], k);
    }
}

/* Gathers of the runs ahead, as far as prefetch allows; those of backward either before this
 * run's reduction is issued or (late) behind it.  A shard that is far is fetched one run earlier
 * than it is gathered. */
static void prefetch(struct program *program, struct run *run, int runs, int r, int late)
{
    const struct program_request *request = &program->request;
    for (int ahead = 1; r + ahead < runs; ahead++) {
        int backward = run[r + ahead].phase == PHASE_BACKWARD;
        int most = backward ? request->prefetch_backward : request->prefetch_forward;
        int now = late == (backward && request->prefetch_late);
        for (int k = 0; k < 2 && now && ahead == most + 1; k++)
            fetch(program, &run[r + ahead], k);
        if (ahead > most)
            break;
        if (now)
            issue(program, run, r + ahead);
    }
}

void shard_before(struct program *program, struct run *run, int runs, int r)
{
    int own = used(program, &run[r], 0), shared = used(program, &run[r], 1);
    if (!shard_gathers(program)) {
        run[r].param = own >= 0 ? program->state[own].param : -1;
        run[r].shared = shared >= 0 ? program->state[shared].param : -1;
        gradients_before(program, run, runs, r);
        return;
    }
    issue(program, run, r);
    run[r].param = own >= 0 ? whole_of(program, run, r, own) : -1;
    run[r].shared = shared >= 0 ? whole_of(program, run, r, shared) : -1;
    prefetch(program, run, runs, r, 0);
    gradients_before(program, run, runs, r);
}

void shard_after(struct program *program, struct run *run, int runs, int r)
{
    gradients_after(program, run, runs, r);
    if (shard_gathers(program))
        prefetch(program, run, runs, r, 1);
}
