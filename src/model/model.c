/* model.c - the family table, and what can be said of any model; see model.h. */
#include "model/model.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "graph/op.h"
#include "model/llama.h"

static const struct model_family *const families[] = {&model_llama};

static const struct model_family *find(const char *name)
{
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++)
        if (!strcmp(families[i]->name, name))
            return families[i];
    return NULL;
}

int model_create(struct model **out, const struct config_model *config, struct error *err)
{
    const struct model_family *family = find(config->family);
    if (!family)
        return error_set(err, "model.family: no family \"%s\"", config->family);
    if (config->layers < 1)
        return error_set(err,
                         "model.layers: at least one layer, not %lld; name a model.preset or "
                         "define the model by its fields",
                         (long long)config->layers);
    struct model *model = array_make(1, sizeof *model);
    model->family = family;
    model->config = *config;
    family->units(model);
    *out = model;
    return 0;
}

void model_destroy(struct model *model)
{
    if (!model)
        return;
    free(model->unit);
    free(model);
}

struct graph *model_graph(const struct model *model, int kind, enum model_purpose purpose,
                          int64_t batch, int64_t seq, enum dtype dtype, float loss_scale,
                          struct error *err)
{
    struct graph *graph = graph_create(batch, seq, dtype);
    model->family->graph(model, kind, purpose, loss_scale, graph);
    if (!graph->err.text[0])
        return graph;
    error_set(err, "model: %s", graph->err.text);
    graph_destroy(graph);
    return NULL;
}

/* A graph of one short sequence, for counting. */
static struct graph *probe(const struct model *model, int kind, int64_t seq)
{
    return model_graph(model, kind, MODEL_LOSS, 1, seq, DTYPE_F32, 1, NULL);
}

int64_t model_params(const struct model *model)
{
    int64_t of_kind[MODEL_KINDS] = {0}, total = 0;
    for (int u = 0; u < model->units; u++) {
        int kind = model->unit[u].kind;
        struct graph *graph = of_kind[kind] ? NULL : probe(model, kind, 1);
        for (int i = 0; graph && i < graph->param_count; i++)
            if (!graph->params[i].shared)
                of_kind[kind] += graph_param_elems(&graph->params[i]);
        graph_destroy(graph);
        total += of_kind[kind];
    }
    return total;
}

/* Forward operations of linear layers, and of attention, for one sequence. */
static void count(const struct graph *graph, double *linear, double *attention)
{
    for (int i = 0; i < graph->node_count; i++) {
        const struct op *op = graph->nodes[i].op;
        double flops = op_flops(graph, &graph->nodes[i]);
        if (op == op_row(OP_LINEAR) || op == op_row(OP_HEAD_LOSS))
            *linear += flops;
        if (op == op_row(OP_ATTENTION))
            *attention += flops;
    }
}

struct model_flops model_flops_per_token(const struct model *model, int64_t seq)
{
    double linear[MODEL_KINDS] = {0}, attention[MODEL_KINDS] = {0};
    char seen[MODEL_KINDS] = {0};
    struct model_flops flops = {0};
    for (int u = 0; u < model->units; u++) {
        int kind = model->unit[u].kind;
        struct graph *graph = seen[kind] ? NULL : probe(model, kind, seq);
        if (graph)
            count(graph, &linear[kind], &attention[kind]);
        graph_destroy(graph);
        seen[kind] = 1;
        flops.weights += 3 * linear[kind] / (double)seq;
        flops.causal += 3 * attention[kind] / (double)seq;
    }
    flops.full = flops.weights + flops.causal * 2 * (double)seq / (double)(seq + 1);
    flops.causal += flops.weights;
    return flops;
}
