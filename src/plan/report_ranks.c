/* report_ranks.c - compiles the programs of the ranks of a plan, and measures and checks them.
 *
 * A list of instructions that equals that of a rank before is kept once.  Programs of several ranks
 * are compiled and checked at once, by as many threads as there are cores.
 *
 * Of a large job only some ranks are compiled.  Along the axes replicate and shard, ranks differ
 * in which interval of each flat is theirs, and the first one counts in the norm what all have: the
 * third and all later ones do what the second does.  So it is along context and tensor, where the
 * units of all coordinates from the second on are alike (units_are_alike()).
 *
 *   pipeline 16, replicate 4, shard 32, tensor 8: 16,384 ranks; 16 x 2 x 2 x 2 = 128 are compiled
 */
#include <omp.h>
#include <string.h>

#include "base/array.h"
#include "plan/report_private.h"
#include "program/compile.h"
#include "program/sent.h"
#include "segment/orthogonalize.h"
#include "verify/division.h"
#include "verify/verify.h"

/* ---- which ranks are compiled ---- */

/* Are the units of variants that differ along an axis alike from the second on? */
static int repeats_variants(const struct report_making *m, enum mesh_axis axis)
{
    const struct mesh_shape *shape = &m->report->layout.shape;
    int tensors = shape->degree[MESH_TENSOR], step = axis == MESH_TENSOR ? 1 : tensors;
    for (int variant = 0; variant < layout_variants(&m->report->layout); variant++) {
        int at = variant / step % shape->degree[axis];
        if (at > 1 && !units_are_alike(m->units[variant], m->units[variant - (at - 1) * step]))
            return 0;
    }
    return 1;
}

/* Does a rank after the second one along an axis do what the second one does? */
static int repeats(const struct report_making *m, enum mesh_axis axis)
{
    if (axis == MESH_CONTEXT || axis == MESH_TENSOR)
        return repeats_variants(m, axis);
    return axis == MESH_REPLICATE || axis == MESH_SHARD;
}

/* Choose the ranks that are compiled: the first ones of the pipeline axis, if that is enough; else
 * all or, where these are many, two at most along axes on which the others repeat the second,
 * unless each of them owns other matrices. */
int report_choose_ranks(struct report_making *m, struct error *err)
{
    enum { FEW = 1024, MANY = 4096 };
    const struct report *report = m->report;
    int of_matrices = 0;
    for (int f = 0; f < m->units[0]->flats; f++)
        of_matrices |= optimizer_row(m->units[0]->flat[f].optimizer)->of_matrices;
    m->shape = report->layout.shape;
    for (int axis = 0; axis < MESH_AXES; axis++)
        if (m->extent != EXTENT_WORLD && axis != MESH_PIPELINE)
            m->shape.degree[axis] = 1;
        else if (m->extent == EXTENT_ENDS && m->shape.degree[axis] > 3)
            m->shape.degree[axis] = 3;
        else if (m->extent == EXTENT_WORLD && report->ranks > FEW && !of_matrices &&
                 m->shape.degree[axis] > 2 && repeats(m, axis))
            m->shape.degree[axis] = 2;
    m->ranks = mesh_members(&m->shape, MESH_SETS - 1);
    if (of_matrices && m->ranks > MANY)
        return error_set(err,
                         "with train.optimizer muon each rank owns other matrices, and a plan "
                         "compiles all of them: %d ranks at most, not %d",
                         MANY, m->ranks);
    return 0;
}

/* The number in the job of compiled rank i. */
static int rank_of(const struct report_making *m, int i)
{
    struct mesh_coord coord = mesh_coord_of_rank(&m->shape, i);
    if (m->extent == EXTENT_ENDS && coord.at[MESH_PIPELINE] == 2)
        coord.at[MESH_PIPELINE] = m->report->layout.shape.degree[MESH_PIPELINE] - 1;
    return mesh_rank(&m->report->layout.shape, coord);
}

/* The compiled rank that does what a rank of the job does. */
static int compiled_for_rank(const struct report_making *m, int rank)
{
    struct mesh_coord coord = mesh_coord_of_rank(&m->report->layout.shape, rank);
    for (int axis = 0; axis < MESH_AXES; axis++)
        if (coord.at[axis] >= m->shape.degree[axis])
            coord.at[axis] = m->shape.degree[axis] - 1;
    return mesh_rank(&m->shape, coord);
}

/* ---- what a rank needs ---- */

static double orthogonalize_flops_of(const struct program *program, const struct instr *instr,
                                     int steps)
{
    const struct flat *flat = &program->units->flat[instr->flat];
    struct flat_part part;
    double flops = 0;
    for (int t = -1;
         (t = flat_next_part(flat, instr->from, instr->from + instr->elems, t, &part)) >= 0;)
        flops += orthogonalize_flops(&(struct orthogonalize){
            .rows = part.tensor->box.whole[0], .cols = part.tensor->box.whole[1], .steps = steps});
    return flops;
}

static void measure(struct report_rank *r, const struct program *train, struct mesh_coord coord,
                    int ns_steps)
{
    r->instrs = train->instrs;
    for (int i = 0; i < train->instrs; i++) {
        const struct instr *instr = &train->instr[i];
        if (instr->kind == INSTR_RUN)
            r->flops +=
                units_segment(train->units, instr->unit, instr->phase)->piece[instr->piece].flops;
        if (instr->kind == INSTR_ORTHOGONALIZE)
            r->flops += orthogonalize_flops_of(train, instr, ns_steps);
        if (instr->kind == INSTR_FETCH || instr->kind == INSTR_SPILL)
            r->moved_bytes[instr->stream] += (int64_t)train->buffer[instr->buffer[SLOT_TO]].bytes;
        if (!instr_is_transfer(instr))
            continue;
        int64_t elems = sent_elems(train, instr, coord);
        r->transfers++;
        r->sent_elems += elems;
        r->sent_bytes += elems * (int64_t)dtype_bytes(instr->dtype);
    }
}

/* ---- programs ---- */

/* Is the step checked, or played? */
static int needs_waits(const struct report_making *m)
{
    return m->extent == EXTENT_WORLD || m->report->speeds;
}

/* Check the values of a rank's programs beside training's: evaluation, generation.  Races and
 * transfers of these are checked when a run starts. */
static void verify_beside(struct report_making *m, int i, struct program *const *other, int count)
{
    for (int k = 0; k < count && m->extent == EXTENT_WORLD; k++) {
        struct error err = {0};
        if (!verify_values(other[k], &err))
            continue;
#pragma omp critical
        if (!m->wrong.text[0] || i < m->wrong_rank) {
            m->wrong_rank = i;
            m->wrong = err;
        }
        return;
    }
}

/* Compile the programs of compiled rank i, and find what it needs.  Training, evaluation and
 * generation share slabs, so all of their programs count. */
static void compile_rank(struct report_making *m, int i)
{
    struct report *report = m->report;
    struct mesh_options options = layout_comm(&report->config);
    int variants = layout_variants(&report->layout);
    int rank = rank_of(m, i);
    m->state[i] = state_create(m->units[rank % variants], &report->layout, 1, rank);
    m->program[i] = needs_waits(m) ? program_create(m->state[i], PROGRAM_TRAIN)
                                   : program_create_without_waits(m->state[i], PROGRAM_TRAIN);
    struct program *other[4];
    const struct program *programs[5] = {m->program[i]};
    int count = 0;
    if (report->layout.overlap_update)
        other[count++] = program_create_without_waits(m->state[i], PROGRAM_UPDATE);
    if (report->config.data.valid[0])
        other[count++] = program_create_without_waits(m->state[i], PROGRAM_EVALUATE);
    for (int k = 0; k < 2 && report->config.generate.samples; k++)
        other[count++] =
            program_create_without_waits(m->state[i], k ? PROGRAM_TOKEN : PROGRAM_PROMPT);
    for (int k = 0; k < count; k++)
        programs[1 + k] = other[k];
    memory_need(&m->need[i], programs, 1 + count, &options, m->device->reserve_bytes);
    verify_beside(m, i, other, count);
    for (int k = 0; k < count; k++)
        program_destroy(other[k]);
}

/* Let rank i share its list of instructions with a rank before it that has the same. */
static void share_lists(struct report_making *m, int i)
{
    int variants = mesh_members(&m->shape, 1u << MESH_CONTEXT | 1u << MESH_TENSOR);
    if (i >= variants)
        program_share_list(m->program[i], m->program[i - variants]);
    if (i % variants)
        program_share_list(m->program[i], m->program[i - 1]);
}

/* How many ranks are compiled at once: for few, threads are not worth their start. */
static int ranks_at_once(const struct report_making *m)
{
    enum { FEW_RANKS = 4 };
    return m->ranks < FEW_RANKS ? 1 : omp_get_num_procs();
}

static void compile_ranks(struct report_making *m)
{
    int at_once = ranks_at_once(m);
    for (int first = 0; first < m->ranks; first += at_once) {
        int end = first + at_once < m->ranks ? first + at_once : m->ranks;
#pragma omp parallel for num_threads(at_once) schedule(static, 1)
        for (int i = first; i < end; i++)
            compile_rank(m, i);
        for (int i = first; i < end; i++)
            share_lists(m, i);
    }
}

void report_compile_ranks(struct report_making *m)
{
    struct report *report = m->report;
    m->state = array_make((size_t)m->ranks, sizeof *m->state);
    m->program = array_make((size_t)m->ranks, sizeof *m->program);
    m->need = array_make((size_t)m->ranks, sizeof *m->need);
    compile_ranks(m);
    report->compiled = m->ranks;
    report->measured = m->extent == EXTENT_WORLD ? report->ranks : m->ranks;
    report->rank = array_make((size_t)report->measured, sizeof *report->rank);
    for (int r = 0; r < report->measured; r++) {
        int all = m->extent == EXTENT_WORLD;
        int i = all ? compiled_for_rank(m, r) : r, rank = all ? r : rank_of(m, r);
        report->rank[r].coord = mesh_coord_of_rank(&report->layout.shape, rank);
        report->rank[r].need = m->need[i];
        measure(&report->rank[r], m->program[i], report->rank[r].coord,
                (int)report->config.train.muon.ns_steps);
    }
}

/* ---- checks ---- */

/* Check the graphs of all variants, those too of which no rank is compiled. */
static int check_variants(const struct report_making *m, struct error *err)
{
    unsigned mesh = mesh_wide_axes(&m->report->layout.shape, MESH_SETS - 1);
    char name[MODEL_PREFIX];
    for (int variant = 0; variant < layout_variants(&m->report->layout); variant++)
        for (int u = 0; u < m->model->units; u++) {
            const struct units *units = m->units[variant];
            const struct unit_kind *kind = units_kind(units, u);
            int seen = u > 0 && units->kind_of[u - 1] == units->kind_of[u];
            if (!seen &&
                division_check(kind->train, model_unit_name(m->model, u, name), mesh, 1, err))
                return -1;
        }
    return 0;
}

void report_verify_ranks(struct report_making *m)
{
    struct report *report = m->report;
    int wrong = m->ranks; /* the first rank whose program is */
#pragma omp parallel for num_threads(ranks_at_once(m)) schedule(dynamic) if (m->ranks > 1)
    for (int i = 0; i < m->ranks; i++) {
        struct error err = {0};
        int first;
#pragma omp atomic read
        first = wrong;
        if (i > first || !verify_program(m->program[i], &err))
            continue;
#pragma omp critical
        if (i < wrong) {
            wrong = i;
            report->verdict = err;
        }
    }
    if (wrong == m->ranks && m->wrong.text[0])
        report->verdict = m->wrong;
    report->verified =
        wrong == m->ranks && !m->wrong.text[0] && !check_variants(m, &report->verdict) &&
        !verify_some_ranks((const struct program *const *)m->program, &m->shape, &report->verdict);
}
