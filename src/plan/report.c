/* report.c - compile the programs of all ranks in one process, check them, add up what they need.
 *
 * No rank is asked and no memory of a model is allocated: units are compiled once for each place
 * (layout.h), then for each rank its state and programs (a list that equals that of a rank
 * before is kept once), and from these the bytes per pool, the transfers by the bytes sent, and the
 * operations.  verify_program() of each rank and verify_some_ranks() of all make the verdict, where
 * all ranks were asked for.
 *
 * Programs of several ranks are compiled and checked at once, by as many threads as there are
 * cores.
 *
 * Of a large job only some ranks are compiled.  Along the axes replicate and shard, ranks differ
 * in which interval of each flat is theirs, and the first one counts in the norm what all have: the
 * second does what all behind it do.  So it is along context and tensor, where the units of all
 * places from the second on are alike (units_are_alike()).
 *
 *   pipeline 16, replicate 4, shard 32, tensor 8: 16,384 ranks; 16 x 2 x 2 x 2 = 128 are compiled
 */
#include "plan/report.h"

#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/round.h"
#include "plan/checkpoint_size.h"
#include "plan/report_units.h"
#include "program/compile.h"
#include "program/sent.h"
#include "segment/orthogonalize.h"
#include "segment/units_frozen.h"
#include "simulate/timeline.h"
#include "verify/division.h"
#include "verify/verify.h"

/* Which ranks are compiled. */
enum extent {
    EXTENT_WORLD,    /* all, or as many as the others repeat */
    EXTENT_PIPELINE, /* the first of each coordinate along the pipeline axis */
    EXTENT_ENDS      /* the first two and the last of EXTENT_PIPELINE */
};

struct making {
    struct report *report;
    struct device *device;
    struct model *model;
    struct units **units;    /* per variant: layout_variants() */
    struct mesh_shape shape; /* the mesh of the compiled ranks: see choose_ranks() */
    int ranks;               /* how many are compiled */
    struct record *record;   /* NULL: nothing is recorded */
    enum extent extent;
    struct state **state; /* per compiled rank, as are program and need */
    struct program **program;
    struct memory_need *need;
    int wrong_rank;     /* the first one of which a program beside training's is wrong */
    struct error wrong; /* what is wrong there; no text: nothing */
};

static int open_model(struct making *m, const struct config *config, int threads, struct error *err)
{
    int on_gpu = m->report->on_gpu;
    struct device_request request = {.kind = on_gpu ? DEVICE_CUDA : DEVICE_CPU,
                                     .threads = threads,
                                     .planning = 1,
                                     .any_order = !config->train.reproducible,
                                     .attention_bytes = (size_t)config->train.attention_bytes};
    if (device_open(&m->device, &request, err) || layout_model(&m->model, config, err))
        return -1;
    struct units_request units = layout_units(&m->report->layout, config);
    if (config->generate.samples)
        units.generate = layout_generate(config, config->generate.samples);
    int variants = layout_variants(&m->report->layout),
        made = m->extent == EXTENT_WORLD ? variants : 1;
    m->units = array_make((size_t)variants, sizeof(struct units *));
    for (int variant = 0; variant < made; variant++) {
        layout_set_variant(&units, variant);
        if (units_create(&m->units[variant], m->model, &units, m->device, err))
            return -1;
    }
    fp8_matrices_note(m->units[0], m->report->fp8_note);
    return 0;
}

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

/* Are the units of variants that differ along an axis alike from the second on? */
static int repeats_variants(const struct making *m, enum mesh_axis axis)
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

/* Does a rank behind the second one along an axis do what the second one does? */
static int repeats(const struct making *m, enum mesh_axis axis)
{
    if (axis == MESH_CONTEXT || axis == MESH_TENSOR)
        return repeats_variants(m, axis);
    return axis == MESH_REPLICATE || axis == MESH_SHARD;
}

/* Choose the ranks that are compiled: the first ones of the pipeline axis, if that is enough; else
 * all or, where these are many, two at most along axes on which the others repeat the second,
 * unless each of them owns other matrices. */
static int choose_ranks(struct making *m, struct error *err)
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
static int rank_of(const struct making *m, int i)
{
    struct mesh_coord coord = mesh_coord_of_rank(&m->shape, i);
    if (m->extent == EXTENT_ENDS && coord.at[MESH_PIPELINE] == 2)
        coord.at[MESH_PIPELINE] = m->report->layout.shape.degree[MESH_PIPELINE] - 1;
    return mesh_rank(&m->report->layout.shape, coord);
}

/* The compiled rank that does what a rank of the job does. */
static int compiled_for_rank(const struct making *m, int rank)
{
    struct mesh_coord coord = mesh_coord_of_rank(&m->report->layout.shape, rank);
    for (int axis = 0; axis < MESH_AXES; axis++)
        if (coord.at[axis] >= m->shape.degree[axis])
            coord.at[axis] = m->shape.degree[axis] - 1;
    return mesh_rank(&m->shape, coord);
}

/* Is the step checked, or played? */
static int needs_waits(const struct making *m)
{
    return m->extent == EXTENT_WORLD || m->report->speeds;
}

/* Check the values of a rank's programs beside training's: evaluation, generation.  Races and
 * transfers of these are checked when a run starts. */
static void verify_beside(struct making *m, int i, struct program *const *other, int count)
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
static void compile_rank(struct making *m, int i)
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
static void share_lists(struct making *m, int i)
{
    int places = mesh_members(&m->shape, 1u << MESH_CONTEXT | 1u << MESH_TENSOR);
    if (i >= places)
        program_share_list(m->program[i], m->program[i - places]);
    if (i % places)
        program_share_list(m->program[i], m->program[i - 1]);
}

/* How many ranks are compiled at once: for few, threads are not worth their start. */
static int ranks_at_once(const struct making *m)
{
    enum { FEW_RANKS = 4 };
    return m->ranks < FEW_RANKS ? 1 : omp_get_num_procs();
}

static void compile_ranks(struct making *m)
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

static void compile(struct making *m)
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

/* What is given each instruction of a step that is played. */
struct watching {
    struct record *record; /* NULL: does not */
    struct exposed exposed;
};

static void watch(void *user, int rank, int i, double start_s, double end_s)
{
    record_instr(((struct watching *)user)->record, rank, i, start_s, end_s);
}

static void waited(void *user, int rank, int i, enum play_kind kind, double seconds)
{
    exposed_add(&((struct watching *)user)->exposed, rank, i, seconds);
}

/* Play the request, watched. */
static void play(struct making *m, struct forecast_request *request)
{
    struct report *report = m->report;
    struct watching watching = {.record = m->record};
    request->user = &watching;
    request->watch = m->record ? watch : NULL;
    request->waited = m->extent == EXTENT_WORLD ? waited : NULL;
    if (m->extent == EXTENT_WORLD)
        exposed_begin(&watching.exposed, request->program, request->ranks);
    if (m->record)
        record_begin(m->record, request);
    if (forecast_make(&report->forecast, request, NULL)) {
        report->forecast = (struct forecast){0};
        if (m->record)
            record_free(m->record);
    } else if (m->record)
        record_end(m->record, &report->forecast);
    if (report->forecast.ranks && m->extent == EXTENT_WORLD) {
        int busiest = (int)(forecast_busiest(&report->forecast) - report->forecast.rank);
        report->exposed_rows =
            exposed_list(&watching.exposed, request->program[busiest], busiest, report->exposed);
    }
    exposed_free(&watching.exposed);
}

/* What the files of a node's ranks need, if all need as much as the one that needs most. */
static struct machine_files files_of(const struct making *m)
{
    struct machine_files files = {.ranks =
                                      machine_ranks_per_node(m->report->ranks, m->report->nodes)};
    size_t memory = 0, disk = 0;
    for (int i = 0; i < m->ranks; i++) {
        memory = max_bytes(memory, m->need[i].host_bytes);
        disk = max_bytes(disk, m->need[i].pool_bytes[POOL_DISK]);
    }
    files.memory_bytes = (double)memory * files.ranks;
    files.bytes = (double)disk * files.ranks;
    return files;
}

/* Forecast a step: play all ranks where these are few, else the first at each place of the pipeline
 * axis.  There is no forecast where ranks wait for ever, which verify names. */
static void forecast(struct making *m)
{
    enum { FEW = 64 };
    struct report *report = m->report;
    int stages = m->shape.degree[MESH_PIPELINE], each = m->ranks / stages;
    int all = m->ranks == report->ranks && m->ranks <= FEW, count = all ? m->ranks : stages;
    const struct program **program = array_make((size_t)count, sizeof *program);
    for (int i = 0; i < count; i++)
        program[i] = m->program[all ? i : i * each];
    struct machine_files files = files_of(m);
    struct forecast_request request = {
        .machine = report->speeds,
        .device = m->device,
        .ranks = count,
        .program = program,
        .per_node = machine_ranks_per_node(report->ranks, report->nodes),
        .ns_steps = (int)report->config.train.muon.ns_steps,
        .files = &files,
    };
    play(m, &request);
    report_units_fill(report, &request);
    free(program);
}

/* Check the graphs of all variants, those too of which no rank is compiled. */
static int check_variants(const struct making *m, struct error *err)
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

static void verify(struct making *m)
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

/* Fill in what the ranks of the pipeline axis have, once all that are asked for are measured. */
static void fill_pipeline(struct report *report, const struct units *units)
{
    const struct mesh_shape *shape = &report->layout.shape;
    report->pipeline = array_make((size_t)shape->degree[MESH_PIPELINE], sizeof *report->pipeline);
    for (int u = 0; u < units->count; u++)
        report->pipeline[units->rank[u]].units++;
    for (int at = 0; at < shape->degree[MESH_PIPELINE]; at++)
        for (int f = 0; f < units->flats; f++)
            if (units_rank_uses(units, at, f))
                report->pipeline[at].params += flat_whole_elems(&units->flat[f]);
    for (int r = 0; r < report->measured; r++) {
        const struct memory_need *need = &report->rank[r].need;
        struct report_pipeline *p = &report->pipeline[report->rank[r].coord.at[MESH_PIPELINE]];
        size_t bytes = report->on_gpu ? need->device_bytes : need->total_bytes;
        p->activation_bytes = max_bytes(p->activation_bytes, need->pool_bytes[POOL_ACTIVATIONS]);
        p->memory_bytes = max_bytes(p->memory_bytes, bytes);
    }
}

static void fill_costs(struct report *report, const struct units *units)
{
    report->cost = array_make((size_t)units->stages, sizeof *report->cost);
    for (int stage = 0; stage < units->stages; stage++) {
        struct units_stage own = units_stage(units, stage);
        double flops = 0;
        for (int u = own.first; u < own.first + own.count; u++)
            flops += units->flops[u];
        report->cost[stage] = timeline_costs(flops);
    }
}

static int make(struct making *m, int threads, struct error *err)
{
    struct report *report = m->report;
    const struct config *config = &report->config;
    int per_node = report->ranks % report->nodes ? 0 : report->ranks / report->nodes;
    enum device_kind device = report->on_gpu ? DEVICE_CUDA : DEVICE_CPU;
    if (layout_resolve(&report->layout, config, report->ranks, per_node, device, err))
        return layout_advise(config, report->ranks, per_node, device, err);
    if (open_model(m, config, threads, err) || choose_ranks(m, err))
        return -1;
    compile(m);
    struct model_flops flops = units_flops_per_token(m->units[0], config->data.seq_len);
    report->params = model_params(m->model);
    report->params_per_token = model_params_per_token(m->model);
    for (int f = 0; f < m->units[0]->flats; f++)
        if (!m->units[0]->flat[f].trained)
            report->frozen += flat_whole_elems(&m->units[0]->flat[f]);
    report->nf4 = units_nf4_elems(m->units[0]);
    report->checkpoint_bytes = checkpoint_size_bytes(config, &report->layout, m->units[0]);
    fill_pipeline(report, m->units[0]);
    fill_costs(report, m->units[0]);
    report->flops = flops.causal * (double)layout_step_tokens(&report->layout, config);
    report->whole_flops = flops.full * (double)layout_step_tokens(&report->layout, config);
    if (report->speeds)
        forecast(m);
    return 0;
}

/* Measure and check all ranks, or measure some. */
static int make_extent(struct report *report, const struct report_request *request,
                       enum extent extent, struct record *record, struct error *err)
{
    struct making m = {.report = report, .extent = extent, .record = record};
    *report = (struct report){.config = *request->config,
                              .ranks = request->ranks,
                              .nodes = request->nodes,
                              .speeds = extent == EXTENT_ENDS ? NULL : request->speeds};
    report->on_gpu = report->config.device == CONFIG_DEVICE_CUDA;
    report->steps = report->config.train.epochs > 0 ? 0 : report->config.train.steps;
    int rc = make(&m, request->threads, err);
    if (!rc && extent == EXTENT_WORLD)
        verify(&m);
    for (int i = 0; m.program && i < m.ranks; i++) {
        program_destroy(m.program[i]);
        state_destroy(m.state[i]);
    }
    free(m.need);
    free(m.program);
    free(m.state);
    for (int r = 0; m.units && r < layout_variants(&report->layout); r++)
        units_destroy(m.units[r]);
    free(m.units);
    model_destroy(m.model);
    device_close(m.device);
    if (rc)
        report_free(report);
    return rc;
}

int report_make(struct report *report, const struct report_request *request, struct error *err)
{
    return make_extent(report, request, EXTENT_WORLD, NULL, err);
}

int report_make_recorded(struct report *report, struct record *record,
                         const struct report_request *request, struct error *err)
{
    *record = (struct record){0};
    return make_extent(report, request, EXTENT_WORLD, record, err);
}

int report_measure(struct report *report, const struct report_request *request, struct error *err)
{
    return make_extent(report, request, EXTENT_PIPELINE, NULL, err);
}

int report_probe(struct report *report, const struct report_request *request, struct error *err)
{
    return make_extent(report, request, EXTENT_ENDS, NULL, err);
}

int report_at_once(void)
{
    enum { MOST = 8 };
    int threads = omp_get_max_threads();
    return threads < MOST ? threads : MOST;
}

double report_tokens_per_s(const struct report *report)
{
    double tokens = (double)layout_step_tokens(&report->layout, &report->config);
    return report->forecast.ranks ? tokens / report->forecast.step_s : 0;
}

double report_mfu(const struct report *report, int whole_attention)
{
    double flops = whole_attention ? report->whole_flops : report->flops;
    double peak = report->forecast.ranks ? machine_peak(report->speeds, report->layout.dtype) : 0;
    return peak > 0 ? flops / (report->forecast.step_s * report->ranks * peak) : 0;
}

void report_free(struct report *report)
{
    forecast_free(&report->forecast);
    free(report->unit);
    free(report->rank);
    free(report->pipeline);
    free(report->cost);
    report->unit = NULL;
    report->rank = NULL;
    report->pipeline = NULL;
    report->cost = NULL;
    layout_release(&report->layout);
}
