/* shard.c - gathers, woven around the runs.
 *
 * plan_gathers() finds the uses that need the parameters gathered first.  Then, run by run,
 * shard_before() issues the run's own gathers, if an earlier run has not done so, and those of the
 * runs ahead as far as prefetch allows, so that they overlap this run:
 *
 *   GATHER 0, GATHER 1, RUN 0, GATHER 2, RUN 1, GATHER 3, RUN 2, ...     (one unit ahead)
 *
 * A parameter that lives on another side (offload) is fetched one run before it is gathered.  One
 * of 4 bits is fetched and gathered as that, and decoded right before the run.
 */
#include "program/shard.h"

#include <stdlib.h>

#include "base/array.h"
#include "program/offload.h"
#include "program/overlap_update.h"

/* Find the uses that must gather.  With PARAMS_STEP it is the first of the step; else each that
 * does not follow directly on another run that uses the flat. */
static void plan_gathers(const struct program *program, struct run *run, int runs)
{
    size_t flats = (size_t)program->units->flats;
    int *last = array_make(flats, sizeof *last); /* the run that used a flat last; -2: none */
    int once = program->layout->strategy.params == PARAMS_STEP;
    for (size_t f = 0; f < flats; f++)
        last[f] = -2;
    for (int r = 0; r < runs; r++)
        for (int k = 0; k < run[r].uses; k++) {
            struct run_use *use = &run[r].use[k];
            if (!use->reads)
                continue;
            use->gathers = state_gathers_flat(program->state, use->flat) &&
                           (once ? last[use->flat] < 0 : last[use->flat] < r - 1);
            last[use->flat] = r;
        }
    free(last);
}

static void plan_uses(const struct program *program, struct run *run)
{
    const struct unit_flats *flats = &program->units->use[run->unit];
    run->uses = flats->count;
    for (int k = 0; k < flats->count; k++)
        run->use[k] = (struct run_use){.flat = flats->flat[k],
                                       .reads = run->segment->reads >> (SPACE_PARAM + k) & 1,
                                       .writes = run->segment->writes >> (SPACE_GRAD + k) & 1,
                                       .param = -1,
                                       .decoded = -1,
                                       .fetched = -1,
                                       .grad = -1,
                                       .follows = -1,
                                       .finished_grad = -1};
}

void shard_plan(const struct program *program, struct run *run, int runs)
{
    for (int r = 0; r < runs; r++)
        plan_uses(program, &run[r]);
    plan_gathers(program, run, runs);
}

/* The buffer for a whole parameter: the state's, or a new one for the next uses. */
static int whole_buffer(struct program *program, int flat)
{
    const struct flat *of = &program->units->flat[flat];
    size_t bytes = flat_kept_bytes(of, of->padded, program->units->request.dtype);
    if (program->state->flat[flat].whole_param >= 0)
        return program->state->flat[flat].whole_param;
    return program_add_buffer(program, POOL_UNSHARDED, bytes, 0, "%s.whole", of->name);
}

/* Bring the shard of a flat that the run gathers to the device. */
static void fetch(struct program *program, const struct run *run, struct run_use *use)
{
    int flat = use->flat;
    if (!use->gathers || use->fetched >= 0)
        return;
    overlap_update_before(program, flat);
    int param = use->fetched = program->state->flat[flat].param;
    if (!state_fetches_params(program->state))
        return;
    if (program->layout->host_apart)
        param = offload_fetch(program, param, SIDE_HOST, flat, run->micro);
    use->fetched = flat_is_sharded(&program->units->flat[flat])
                       ? offload_temporary(program, param, SIDE_DEVICE)
                       : whole_buffer(program, flat);
    offload_copy(program, param, use->fetched, flat, run->micro);
}

/* Append the CAST of the masters to the rank's own shard inside the whole buffer, from which GATHER
 * sends it. */
static int cast_master(struct program *program, const struct run *run, int flat, int whole)
{
    enum dtype dtype = program->units->request.dtype;
    int64_t elems = program->units->flat[flat].shard_elems;
    size_t bytes = (size_t)elems * dtype_bytes(dtype);
    size_t from = (size_t)state_shard_start(program->state, flat) * dtype_bytes(dtype);
    int own = program_add_buffer(program, program->buffer[whole].pool, bytes, 0, "%s.own of whole",
                                 program->units->flat[flat].name);
    state_make_view(program->buffer, own, whole, from);
    program_add_cast(program, flat, run->micro, program->state->flat[flat].master, own, elems,
                     dtype);
    return own;
}

/* Write the GATHER of a flat that the run uses, with its FETCH and CAST; returns the whole buffer.
 */
static int gather(struct program *program, const struct run *run, struct run_use *use)
{
    int flat = use->flat;
    fetch(program, run, use);
    if (!flat_is_sharded(&program->units->flat[flat]))
        return use->fetched;
    int whole = whole_buffer(program, flat), from = use->fetched;
    if (state_casts(program->state, flat))
        from = cast_master(program, run, flat, whole);
    const struct flat *of = &program->units->flat[flat];
    struct instr *instr = program_add_instr(program, INSTR_GATHER, STREAM_GATHER);
    instr->flat = flat;
    instr->micro = run->micro;
    instr->axes = of->shard_axes;
    instr->elems = of->is_nf4 ? (int64_t)nf4_bytes(of->shard_elems) : of->shard_elems;
    instr->dtype = of->is_nf4 ? DTYPE_U8 : program->units->request.dtype;
    instr_bind(instr, SLOT_FROM, from, ACCESS_READ);
    instr_bind(instr, SLOT_TO, whole, ACCESS_WRITE);
    return whole;
}

/* The buffer in which run r finds a flat: its own gather's, or that of the run before. */
static int whole_of(const struct program *program, const struct run *run, int r, int flat)
{
    if (program->state->flat[flat].whole_param >= 0)
        return program->state->flat[flat].whole_param;
    for (int k = 0; r >= 0 && k < run[r].uses; k++) {
        const struct run_use *use = &run[r].use[k];
        if (use->flat == flat && use->reads)
            return use->param >= 0 ? use->param : whole_of(program, run, r - 1, flat);
    }
    return -1;
}

/* Decode a flat of 4 bits for run r, unless the run before it has. */
static void decode(struct program *program, const struct run *run, int r, struct run_use *use)
{
    const struct flat *of = &program->units->flat[use->flat];
    enum dtype dtype = program->units->request.dtype;
    for (int k = 0; r > 0 && k < run[r - 1].uses; k++)
        if (run[r - 1].use[k].flat == use->flat)
            use->decoded = run[r - 1].use[k].decoded;
    if (use->decoded >= 0)
        return;
    use->decoded =
        program_add_buffer(program, POOL_UNSHARDED, (size_t)of->padded * dtype_bytes(dtype), 0,
                           "%s.decoded", of->name);
    struct instr *instr = program_add_instr(program, INSTR_DECODE, STREAM_COMPUTE);
    instr->flat = use->flat;
    instr->micro = run[r].micro;
    instr->phase = run[r].phase;
    instr->elems = of->padded;
    instr->dtype = dtype;
    instr_bind(instr, SLOT_FROM, use->param, ACCESS_READ);
    instr_bind(instr, SLOT_TO, use->decoded, ACCESS_WRITE);
}

/* Write the gathers of a run that are not written yet. */
static void issue(struct program *program, struct run *run)
{
    for (int k = 0; k < run->uses; k++) {
        struct run_use *use = &run->use[k];
        if (use->gathers && use->param < 0)
            use->param = gather(program, run, use);
    }
}

/* Where gathers for later runs stand: before the reduction of a run's gradients, or after it. */
enum prefetch_place { BEFORE_REDUCTION, AFTER_REDUCTION };

/* Write the gathers of the runs after r, as far as prefetch allows, and the FETCHes of the run
 * after these: those that stand at this place. */
static void prefetch(struct program *program, struct run *run, int runs, int r,
                     enum prefetch_place place)
{
    const struct layout *layout = program->layout;
    for (int ahead = 1; r + ahead < runs; ahead++) {
        int backward = segment_phase_is_backward(run[r + ahead].phase);
        int most = backward ? layout->prefetch_backward : layout->prefetch_forward;
        int is_late = backward && layout->prefetch_late;
        int now = place == (is_late ? AFTER_REDUCTION : BEFORE_REDUCTION);
        for (int k = 0; k < run[r + ahead].uses && now && ahead == most + 1; k++)
            fetch(program, &run[r + ahead], &run[r + ahead].use[k]);
        if (ahead > most)
            break;
        if (now)
            issue(program, &run[r + ahead]);
    }
}

void shard_before(struct program *program, struct run *run, int runs, int r)
{
    if (state_gathers_some(program->state))
        issue(program, &run[r]);
    for (int k = 0; k < run[r].uses; k++) {
        struct run_use *use = &run[r].use[k];
        if (!use->reads)
            continue;
        use->param = state_gathers_some(program->state) ? whole_of(program, run, r, use->flat)
                                                        : program->state->flat[use->flat].param;
        if (program->units->flat[use->flat].is_nf4)
            decode(program, run, r, use);
    }
    if (state_gathers_some(program->state))
        prefetch(program, run, runs, r, BEFORE_REDUCTION);
}

void shard_after(struct program *program, struct run *run, int runs, int r)
{
    if (state_gathers_some(program->state))
        prefetch(program, run, runs, r, AFTER_REDUCTION);
}
