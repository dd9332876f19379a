/* units.c - from a model to flats and segments.
 *
 * The graph of each unit says which boundaries it reads (boundaries.h) and, with what is frozen,
 * which kind it is of: equal blocks that are recomputed and frozen alike.  One graph of a kind is
 * kept.  Then come the units' flats (fates.h).  Then each kind is compiled once, by the places of
 * its first unit's tensors, and the tensors of each flat are divided into sections by who writes
 * their gradients.
 */
#include "segment/fp8_matrices.h"
#include "segment/units.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/round.h"
#include "graph/autodiff.h"
#include "graph/op.h"
#include "segment/boundaries.h"
#include "segment/fates.h"
#include "segment/optimizer.h"
#include "segment/orthogonalize.h"
#include "segment/stages.h"
#include "segment/units_frozen.h"

static struct graph *graph_for(const struct units *units, int unit, enum model_purpose purpose,
                               int64_t batch, struct error *err)
{
    const struct units_request *r = &units->request;
    struct model_graph form = {.purpose = purpose,
                               .batch = batch,
                               .dtype = r->dtype,
                               .tensor = r->tensor,
                               .context = r->context,
                               .loss_factor = r->loss_factor};
    memcpy(form.seq, r->seq, sizeof form.seq);
    return model_unit_graph(units->model, unit, &form, err);
}

static struct graph *generate_graph(const struct units *units, int unit, enum units_generation pass,
                                    struct error *err)
{
    const struct units_request *r = &units->request;
    struct model_graph form = {
        .purpose = MODEL_LOGITS,
        .batch = r->generate.batch,
        .seq = {pass == GENERATE_PROMPT ? r->generate.prompt : 1},
        .cache = r->generate.cache,
        .dtype = r->dtype,
        .tensor = r->tensor,
    };
    form.tensor.row_chunks = 1; /* training's are of its rows */
    return model_unit_graph(units->model, unit, &form, err);
}

static int compile(struct units *units, const struct unit_kind *kind, struct segment *segment,
                   const struct graph *graph, enum segment_phase phase, struct device *device,
                   struct error *err)
{
    int64_t *positions = graph->cache ? &units->generate_positions : &units->positions;
    if (graph->positions && (!*positions || graph->positions < *positions))
        *positions = graph->positions;
    if (segment_compile(segment, graph, phase, kind->recompute, kind->place, device, err))
        return -1;
    units->work_bytes = max_bytes(units->work_bytes, segment->work_bytes);
    return 0;
}

/* Where the parameters of a kind lie is found in the flats of its first unit: units of a kind
 * differ only in names. */
static void place_params(struct units *units, int unit)
{
    struct unit_kind *kind = &units->kind[units->kind_of[unit]];
    const struct graph *graph = kind->train;
    const struct model_unit *block = &units->model->block[units->model->unit[unit].first];
    kind->place = array_make((size_t)graph->param_count, sizeof *kind->place);
    for (int i = 0; i < graph->param_count; i++) {
        char name[FLAT_NAME];
        units_param_name(name, &graph->params[i], 0, block);
        kind->place[i] = (struct segment_param_place){.use = -1};
        for (int k = 0; k < units->use[unit].count; k++) {
            const struct flat *flat = &units->flat[units->use[unit].flat[k]];
            int tensor = flat_find(flat, name);
            if (tensor >= 0)
                kind->place[i] =
                    (struct segment_param_place){k, tensor, flat->tensor[tensor].offset};
        }
    }
}

/* Do units of a kind run in a phase of training? */
static int has_phase(const struct units *units, const struct unit_kind *kind,
                     enum segment_phase phase)
{
    const struct units_request *r = &units->request;
    int is_both = kind->ends_in_loss && !r->splits_loss;
    switch (phase) {
    case PHASE_BOTH: return is_both;
    case PHASE_FORWARD: return !is_both;
    case PHASE_BACKWARD: return !is_both && !r->splits_backward;
    default: return !is_both && r->splits_backward;
    }
}

static int compile_kind(struct units *units, int unit, struct device *device, struct error *err)
{
    struct unit_kind *kind = &units->kind[units->kind_of[unit]];
    place_params(units, unit);
    kind->ends_in_loss = graph_find(kind->train, VALUE_LOSS) >= 0;
    if (autodiff(kind->train, err))
        return -1;
    const struct units_request *r = &units->request;
    kind->evaluate =
        graph_for(units, unit, MODEL_EVALUATION, r->eval_batch ? r->eval_batch : r->batch, err);
    if (!kind->evaluate ||
        compile(units, kind, &kind->evaluation, kind->evaluate, PHASE_FORWARD, device, err))
        return -1;
    for (int pass = 0; r->generate.batch && pass < GENERATE_PASSES; pass++) {
        kind->generate[pass] = generate_graph(units, unit, pass, err);
        if (!kind->generate[pass] || compile(units, kind, &kind->generation[pass],
                                             kind->generate[pass], PHASE_FORWARD, device, err))
            return -1;
    }
    for (int phase = 0; phase < PHASES; phase++)
        if (has_phase(units, kind, phase) &&
            compile(units, kind, &kind->segment[phase], kind->train, phase, device, err))
            return -1;
    return 0;
}

/* Does a unit recompute, and what?  Of neighbouring units that hold the same kind of blocks, the
 * first one and then every recompute_every-th recomputes as the request says. */
static enum config_recompute policy(const struct units *units, int unit)
{
    const struct model_unit *u = units->model->unit;
    int first = unit, every = units->request.recompute_every;
    while (first > 0 && u[first - 1].kind == u[unit].kind)
        first--;
    return every > 1 && (unit - first) % every ? RECOMPUTE_NONE : units->request.recompute;
}

/* Set `frozen` and `has_more_readers` of the inputs of a unit's graph.  trains: per unit before it,
 * is its output made of anything that is trained? */
static void describe_inputs(const struct units *units, int unit, struct graph *graph,
                            const char *trains)
{
    const struct unit_boundaries *own = &units->boundary[unit];
    for (int k = 0; k < own->inputs; k++) {
        graph->input[k].frozen = !trains[own->producer[k]];
        graph->input[k].has_more_readers = units->boundary[own->producer[k]].readers > 1;
    }
}

static int is_trained(const struct graph *graph)
{
    int trained = 0;
    for (int i = 0; i < graph->param_count; i++)
        trained |= !graph->params[i].frozen;
    for (int k = 0; k < graph->inputs; k++)
        trained |= !graph->input[k].frozen;
    return trained;
}

static int is_alike(const struct unit_kind *a, const struct unit_kind *b)
{
    if (a->block_kind != b->block_kind || a->blocks != b->blocks || a->recompute != b->recompute)
        return 0;
    int alike = 1;
    for (int i = 0; i < a->train->param_count; i++)
        alike &= a->train->params[i].frozen == b->train->params[i].frozen &&
                 a->train->params[i].frozen_adapter == b->train->params[i].frozen_adapter;
    for (int k = 0; k < a->train->inputs; k++)
        alike &= a->train->input[k].frozen == b->train->input[k].frozen &&
                 a->train->input[k].has_more_readers == b->train->input[k].has_more_readers;
    return alike;
}

/* Find the kind of a unit, or make a new one.  graph, the unit's, becomes the new kind's, or is
 * freed. */
static void find_kind(struct units *units, int unit, struct graph *graph)
{
    const struct model_unit *u = &units->model->unit[unit];
    const struct unit_kind own = {.block_kind = u->kind,
                                  .blocks = u->blocks,
                                  .recompute = policy(units, unit),
                                  .train = graph};
    int k = 0;
    while (k < units->kinds && !is_alike(&units->kind[k], &own))
        k++;
    units->kind_of[unit] = k;
    if (k < units->kinds)
        graph_destroy(graph);
    else
        units->kind[units->kinds++] = own;
}

/* Find the kinds of all units, whose graphs are taken over. */
static int find_kinds(struct units *units, struct graph **graph, struct error *err)
{
    char *trains = array_make((size_t)units->count, 1);
    int rc = 0;
    for (int u = 0; !rc && u < units->count; u++) {
        describe_inputs(units, u, graph[u], trains);
        rc = units_freeze(units, u, graph[u], err);
        trains[u] = (char)is_trained(graph[u]);
        if (!rc) {
            find_kind(units, u, graph[u]);
            graph[u] = NULL;
        }
    }
    free(trains);
    return rc;
}

/* Refuse units that read targets of different sequences: a micro-batch has those of one. */
static int check_targets(const struct units *units, struct graph *const *graph, struct error *err)
{
    int reader = -1, sequence = -1; /* the first unit with targets, and what these are of */
    for (int u = 0; u < units->count; u++) {
        int targets = graph_find(graph[u], VALUE_TARGETS);
        if (targets < 0)
            continue;
        int own = graph[u]->values[targets].index;
        if (reader >= 0 && own != sequence)
            return error_set(err,
                             "model: unit %d reads targets of sequence %d, unit %d those of "
                             "sequence %d; all units must read targets of one sequence",
                             u, own, reader, sequence);
        reader = reader < 0 ? u : reader;
        sequence = own;
    }
    return 0;
}

/* The boundaries and kinds of units, by a graph of each. */
static int find_boundaries_and_kinds(struct units *units, struct error *err)
{
    struct graph **graph = array_make((size_t)units->count, sizeof(struct graph *));
    int rc = 0;
    for (int u = 0; !rc && u < units->count; u++) {
        graph[u] = graph_for(units, u, MODEL_LOSS, units->request.batch, err);
        rc = graph[u] ? 0 : -1;
    }
    if (!rc)
        rc = check_targets(units, graph, err);
    if (!rc)
        rc = boundaries_find(units, graph, err);
    if (!rc)
        rc = find_kinds(units, graph, err);
    for (int u = 0; u < units->count; u++)
        graph_destroy(graph[u]);
    free(graph);
    return rc;
}

/* Bytes of what a unit of this graph puts out; of none 0. */
static size_t output_bytes(const struct graph *graph)
{
    int output = graph ? graph_find(graph, VALUE_OUTPUT) : -1;
    return output < 0 ? 0 : graph_bytes(graph, output);
}

static int compile_all(struct units *units, struct device *device, struct error *err)
{
    int done = 0; /* kinds are numbered as their first units come */
    for (int u = 0; u < units->count; u++) {
        if (units->kind_of[u] < done)
            continue;
        if (compile_kind(units, u, device, err))
            return -1;
        done++;
    }
    for (int u = 0; u < units->count; u++) {
        const struct unit_kind *kind = units_kind(units, u);
        units->boundary[u].eval_bytes = output_bytes(kind->evaluate);
        for (int pass = 0; pass < GENERATE_PASSES; pass++)
            units->boundary[u].generate_bytes[pass] = output_bytes(kind->generate[pass]);
    }
    return 0;
}

/* ORTHOGONALIZE works where segments do. */
static void grow_work_by_matrices(struct units *units, struct device *device)
{
    for (int f = 0; f < units->flats; f++) {
        const struct flat *flat = &units->flat[f];
        if (!flat->trained || !optimizer_row(flat->optimizer)->of_matrices)
            continue;
        for (int t = 0; t < flat->tensors; t++) {
            const struct orthogonalize matrix = {.rows = flat->tensor[t].box.whole[0],
                                                 .cols = flat->tensor[t].box.whole[1],
                                                 .dtype = units->request.ns_dtype};
            size_t bytes = orthogonalize_bytes(device, &matrix);
            units->work_bytes = max_bytes(units->work_bytes, bytes);
        }
    }
}

/* ---- sections ---- */

/* The phases in which a unit writes the gradient of tensor t of its use-th flat, a bit each. */
static unsigned writing_phases(const struct units *units, int unit, int use, int t)
{
    unsigned phases = 0;
    for (int phase = 0; phase < PHASES; phase++)
        if (segment_writes_tensor(units_segment(units, unit, phase), use, t))
            phases |= 1u << phase;
    return phases;
}

static int is_written(const struct units *units, int flat, int t)
{
    for (int u = 0; u < units->count; u++)
        for (int k = 0; k < units->use[u].count; k++)
            if (units->use[u].flat[k] == flat && writing_phases(units, u, k, t))
                return 1;
    return 0;
}

/* Split each section into the tensors whose gradients a unit writes in the same phases.  Sections
 * are numbered in the order of their first tensors. */
static int split_sections(const struct units *units, int unit, int use, struct error *err)
{
    struct flat *flat = &units->flat[units->use[unit].flat[use]];
    int was[FLAT_SECTIONS], sections = 0;
    unsigned phases[FLAT_SECTIONS];
    for (int t = 0; flat->trained && t < flat->tensors; t++) {
        int *section = &flat->tensor[t].section, s = 0;
        unsigned written = writing_phases(units, unit, use, t);
        while (s < sections && (was[s] != *section || phases[s] != written))
            s++;
        if (s == FLAT_SECTIONS)
            return error_set(err, "the units that use %s write more than %d parts of its gradient",
                             flat->name, FLAT_SECTIONS);
        was[s] = *section;
        phases[s] = written;
        sections += s == sections;
        *section = s;
    }
    flat->sections = sections;
    return 0;
}

/* A section: tensors of a flat whose gradients the same units write in the same phases. */
static int find_sections(const struct units *units, struct error *err)
{
    for (int u = 0; u < units->count; u++)
        for (int k = 0; k < units->use[u].count; k++)
            if (split_sections(units, u, k, err))
                return -1;
    for (int f = 0; f < units->flats; f++)
        for (int t = 0; units->flat[f].trained && t < units->flat[f].tensors; t++)
            if (!is_written(units, f, t))
                return error_set(err, "%s: no unit makes a gradient of it",
                                 units->flat[f].tensor[t].name);
    return 0;
}

/* Ranks that share sequences have two chunks of each, and a token that continues one is in none. */
static int check_context(const struct units_request *r, struct error *err)
{
    if (r->context.size > 1 && (r->seq[0] % 2 || r->seq[1]))
        return error_set(err,
                         "parallel.context %d: %lld tokens of each sequence are not two equal "
                         "chunks of one sequence",
                         r->context.size, (long long)r->seq[0]);
    if (r->context.size > 1 && r->generate.batch)
        return error_set(err, "generation needs whole sequences; set parallel.context to 1, as any "
                              "checkpoint can be loaded with it");
    return 0;
}

int units_create(struct units **out, const struct model *model, const struct units_request *request,
                 struct device *device, struct error *err)
{
    struct units *units = array_make(1, sizeof *units);
    units->model = model;
    units->request = *request;
    if (check_context(request, err)) {
        free(units);
        return -1;
    }
    if (request->freeze) {
        units->freeze = array_make(strlen(request->freeze) + 1, 1);
        strcpy(units->freeze, request->freeze);
        units->request.freeze = units->freeze;
    }
    units->count = model->units;
    units->flat = array_make(FLAT_USES * (size_t)units->count, sizeof *units->flat);
    units->use = array_make((size_t)units->count, sizeof *units->use);
    units->kind_of = array_make((size_t)units->count, sizeof *units->kind_of);
    units->kind = array_make((size_t)units->count, sizeof *units->kind);
    units->boundary = array_make((size_t)units->count, sizeof *units->boundary);
    if (find_boundaries_and_kinds(units, err) || fates_make_flats(units, err) ||
        units_check_freeze(model, request->freeze, err) || compile_all(units, device, err) ||
        fp8_matrices_check(units, err) || find_sections(units, err) || stages_find(units, err)) {
        units_destroy(units);
        return -1;
    }
    grow_work_by_matrices(units, device);
    units->request.rank_of = NULL;
    units->request.stage_units = NULL;
    *out = units;
    return 0;
}

void units_flats(const struct units *units, int unit, const struct flat *flat[FLAT_USES])
{
    for (int k = 0; k < FLAT_USES; k++)
        flat[k] = k < units->use[unit].count ? &units->flat[units->use[unit].flat[k]] : NULL;
}

int units_constants(const struct units *units, float *constants, struct error *err)
{
    const struct model *model = units->model;
    struct graph_group context = units->request.context;
    int64_t own = units_const_rows(units), all = own;
    struct sequence_part part = {0};
    if (!model->packed && context.size > 1) {
        all = own * context.size;
        part = graph_sequence_part(own, context);
    }
    size_t row = (size_t)model->const_width * sizeof *constants;
    float *table = malloc((size_t)all * row + 1);
    if (!table)
        return error_set(err, "out of memory: constants of the model");
    model->family->table(model, all, table);
    for (int64_t r = 0; r < own && row; r++)
        memcpy(constants + r * model->const_width,
               table + sequence_position(&part, r) * model->const_width, row);
    free(table);
    return 0;
}

size_t units_cache_bytes(const struct units *units, int unit)
{
    const struct graph *graph = units_kind(units, unit)->generate[GENERATE_TOKEN];
    size_t bytes = 0;
    for (int v = 0; graph && v < graph->value_count; v++)
        if (graph->values[v].role == VALUE_CACHE && graph->values[v].producer < 0)
            bytes += graph_bytes(graph, v);
    return bytes;
}

int64_t units_expert_tokens_elems(const struct units *units, int unit)
{
    const struct graph *graph = units_kind(units, unit)->train;
    return graph ? op_experts_before(graph, graph->node_count) : 0;
}

struct units_stage units_stage(const struct units *units, int stage)
{
    int first = 0, end;
    while (first < units->count && units->stage[first] < stage)
        first++;
    for (end = first; end < units->count && units->stage[end] == stage; end++)
        continue;
    return (struct units_stage){.first = first, .count = end - first};
}

int units_rank_uses(const struct units *units, int rank, int flat)
{
    for (int u = 0; u < units->count; u++)
        for (int k = 0; k < units->use[u].count && units->rank[u] == rank; k++)
            if (units->use[u].flat[k] == flat)
                return 1;
    return 0;
}

static void destroy_kind(struct unit_kind *kind)
{
    for (int phase = 0; phase < PHASES; phase++)
        segment_destroy(&kind->segment[phase]);
    segment_destroy(&kind->evaluation);
    graph_destroy(kind->train);
    graph_destroy(kind->evaluate);
    for (int pass = 0; pass < GENERATE_PASSES; pass++) {
        segment_destroy(&kind->generation[pass]);
        graph_destroy(kind->generate[pass]);
    }
    free(kind->place);
}

void units_destroy(struct units *units)
{
    if (!units)
        return;
    for (int f = 0; f < units->flats; f++)
        flat_destroy(&units->flat[f]);
    for (int k = 0; k < units->kinds; k++)
        destroy_kind(&units->kind[k]);
    free(units->kind);
    free(units->kind_of);
    free(units->boundary);
    free(units->stage);
    free(units->flops);
    free(units->rank);
    free(units->freeze);
    free(units->use);
    free(units->flat);
    free(units);
}

int64_t units_nf4_elems(const struct units *units)
{
    int64_t elems = 0;
    for (int f = 0; f < units->flats; f++)
        elems += units->flat[f].is_nf4 ? flat_whole_elems(&units->flat[f]) : 0;
    return elems;
}
