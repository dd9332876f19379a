/* report.c - makes the plan of a run: compiles the programs of all ranks in one process, checks
 * them, adds up what they need.
 *
 * No rank is asked and no memory of a model is allocated:
 *
 *   open_model()             makes the model, and its units once for each variant (layout.h)
 *   report_choose_ranks()    chooses the ranks that are compiled
 *   report_compile_ranks()   makes their programs, adds up bytes of memory and of transfers
 *   report_forecast_step()   finds the seconds of a step, where the machine's speeds are known
 *   report_verify_ranks()    makes the verdict, where all ranks were asked for
 */
#include "plan/report.h"

#include <omp.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/round.h"
#include "plan/checkpoint_size.h"
#include "plan/report_private.h"
#include "segment/units_frozen.h"
#include "simulate/timeline.h"

static int open_model(struct report_making *m, const struct config *config, int threads,
                      struct error *err)
{
    int on_gpu = m->report->on_gpu;
    struct device_request request = {.kind = on_gpu ? DEVICE_CUDA : DEVICE_CPU,
                                     .threads = threads,
                                     .planning = 1,
                                     .any_order = !config->train.reproducible,
                                     .attention_bytes = (size_t)config->train.attention_bytes};
    if (config_check_training(config, err) || device_open(&m->device, &request, err) ||
        layout_model(&m->model, config, err))
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

static int make(struct report_making *m, int threads, struct error *err)
{
    struct report *report = m->report;
    const struct config *config = &report->config;
    int per_node = report->ranks % report->nodes ? 0 : report->ranks / report->nodes;
    enum device_kind device = report->on_gpu ? DEVICE_CUDA : DEVICE_CPU;
    if (layout_resolve(&report->layout, config, report->ranks, per_node, device, err))
        return layout_advise(config, report->ranks, per_node, device, err);
    if (open_model(m, config, threads, err) || report_choose_ranks(m, err))
        return -1;
    report_compile_ranks(m);
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
        report_forecast_step(m);
    return 0;
}

/* Measure and check all ranks, or measure some. */
static int make_extent(struct report *report, const struct report_request *request,
                       enum report_extent extent, struct record *record, struct error *err)
{
    struct report_making m = {.report = report, .extent = extent, .record = record};
    *report = (struct report){.config = *request->config,
                              .ranks = request->ranks,
                              .nodes = request->nodes,
                              .speeds = extent == EXTENT_ENDS ? NULL : request->speeds};
    report->on_gpu = report->config.device == CONFIG_DEVICE_CUDA;
    report->steps = report->config.train.epochs > 0 ? 0 : report->config.train.steps;
    int rc = make(&m, request->threads, err);
    if (!rc && extent == EXTENT_WORLD)
        report_verify_ranks(&m);
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
