/* units.c - see units.h. */
#include "segment/units.h"

#include <stdlib.h>

#include "base/array.h"
#include "graph/autodiff.h"

static struct graph *graph_for(const struct units *units, int unit, enum model_purpose purpose,
                               struct error *err)
{
    const struct units_request *r = &units->request;
    int64_t batch = purpose == MODEL_LOGITS ? 1 : r->batch;
    return model_unit_graph(units->model, unit, purpose, batch, r->seq, r->dtype, r->loss_factor,
                            err);
}

static int has_role(const struct graph *graph, enum value_role role)
{
    for (int i = 0; i < graph->value_count; i++)
        if (graph->values[i].role == role)
            return 1;
    return 0;
}

static void grow_work(struct units *units, const struct segment *segment)
{
    if (segment->work_bytes > units->work_bytes)
        units->work_bytes = segment->work_bytes;
}

/* Where the flat layouts of a kind are found while compiling: those of its first unit.  Units
 * of a kind differ only in names, and shared tensors are looked up by name in one unit. */
struct flats {
    const struct flat *own, *shared;
    enum config_recompute recompute;
};

static int compile(struct units *units, struct segment *segment, const struct graph *graph,
                   enum segment_phase phase, struct flats flats, struct device *device,
                   struct error *err)
{
    if (segment_compile(segment, graph, phase, flats.recompute, flats.own, flats.shared, device,
                        err))
        return -1;
    grow_work(units, segment);
    return 0;
}

static int compile_kind(struct units *units, int unit, struct device *device, struct error *err)
{
    struct unit_kind *kind = &units->kind[units->kind_of[unit]];
    int shared = units_shared(units, unit);
    struct flats flats = {&units->flat[unit], shared >= 0 ? &units->flat[shared] : NULL,
                          kind->recompute};
    kind->ends_in_loss = has_role(kind->train, VALUE_LOSS);
    if (autodiff(kind->train, err))
        return -1;
    kind->evaluate = graph_for(units, unit, MODEL_LOSS, err);
    if (!kind->evaluate ||
        compile(units, &kind->evaluation, kind->evaluate, PHASE_FORWARD, flats, device, err))
        return -1;
    if (units->request.with_logits) {
        kind->logits = graph_for(units, unit, MODEL_LOGITS, err);
        if (!kind->logits ||
            compile(units, &kind->logit, kind->logits, PHASE_FORWARD, flats, device, err))
            return -1;
    }
    if (kind->ends_in_loss)
        return compile(units, &kind->both, kind->train, PHASE_BOTH, flats, device, err);
    if (compile(units, &kind->forward, kind->train, PHASE_FORWARD, flats, device, err))
        return -1;
    return compile(units, &kind->backward, kind->train, PHASE_BACKWARD, flats, device, err);
}

/* Of units in a row that hold the same kind of blocks, the first and then one in every so many
 * recomputes; a unit that stands alone recomputes. */
static enum config_recompute policy(const struct units *units, int unit)
{
    const struct model_unit *u = units->model->unit;
    int first = unit, every = units->request.recompute_every;
    while (first > 0 && u[first - 1].kind == u[unit].kind)
        first--;
    return every > 1 && (unit - first) % every ? RECOMPUTE_NONE : units->request.recompute;
}

/* The kind of a unit, a new one if there is none yet. */
static int find_kind(struct units *units, int unit)
{
    const struct model_unit *u = &units->model->unit[unit];
    enum config_recompute recompute = policy(units, unit);
    int k = 0;
    while (k < units->kinds &&
           (units->kind[k].block_kind != u->kind || units->kind[k].blocks != u->blocks ||
            units->kind[k].recompute != recompute))
        k++;
    if (k == units->kinds)
        units->kind[units->kinds++] =
            (struct unit_kind){.block_kind = u->kind, .blocks = u->blocks, .recompute = recompute};
    return k;
}

/* Small units are not worth a transfer per use. */
static void lay_out(struct units *units, int unit, const struct graph *graph)
{
    const struct model_unit *block = &units->model->block[units->model->unit[unit].first];
    struct flat *flat = &units->flat[unit];
    flat_create(flat, graph, block, units->request.shards);
    if (flat->elems >= units->request.persist_below)
        return;
    flat_destroy(flat);
    flat_create(flat, graph, block, 1);
}

static int create_graphs(struct units *units, struct error *err)
{
    for (int u = 0; u < units->count; u++) {
        struct unit_kind *kind = &units->kind[units->kind_of[u] = find_kind(units, u)];
        if (!kind->train)
            kind->train = graph_for(units, u, MODEL_LOSS, err);
        if (!kind->train)
            return -1;
        lay_out(units, u, kind->train);
    }
    return 0;
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
    return 0;
}

int units_create(struct units **out, const struct model *model, const struct units_request *request,
                 struct device *device, struct error *err)
{
    struct units *units = array_make(1, sizeof *units);
    units->model = model;
    units->request = *request;
    units->count = model->units;
    units->flat = array_make((size_t)units->count, sizeof *units->flat);
    units->kind_of = array_make((size_t)units->count, sizeof *units->kind_of);
    units->kind = array_make((size_t)units->count, sizeof *units->kind);
    units->boundary_bytes = (size_t)(request->batch * request->seq * model->config.hidden) *
                            dtype_bytes(request->dtype);
    if (create_graphs(units, err) || compile_all(units, device, err)) {
        units_destroy(units);
        return -1;
    }
    *out = units;
    return 0;
}

static void destroy_kind(struct unit_kind *kind)
{
    segment_destroy(&kind->forward);
    segment_destroy(&kind->backward);
    segment_destroy(&kind->both);
    segment_destroy(&kind->evaluation);
    segment_destroy(&kind->logit);
    graph_destroy(kind->train);
    graph_destroy(kind->evaluate);
    graph_destroy(kind->logits);
}

void units_destroy(struct units *units)
{
    if (!units)
        return;
    for (int u = 0; u < units->count; u++)
        flat_destroy(&units->flat[u]);
    for (int k = 0; k < units->kinds; k++)
        destroy_kind(&units->kind[k]);
    free(units->kind);
    free(units->kind_of);
    free(units->flat);
    free(units);
}
