/* transformer.c - see transformer.h. */
#include "model/transformer.h"

#include <math.h>
#include <stdio.h>

#include "base/array.h"
#include "graph/build.h"

void transformer_units(struct model *model)
{
    int layers = (int)model->config.layers;
    model->units = layers + 2;
    model->unit = array_make((size_t)model->units, sizeof *model->unit);
    for (int u = 0; u < model->units; u++) {
        struct model_unit *unit = &model->unit[u];
        unit->kind = u == 0        ? TRANSFORMER_EMBED
                     : u <= layers ? TRANSFORMER_BLOCK
                                   : TRANSFORMER_HEAD;
        unit->shared = unit->kind == TRANSFORMER_HEAD && model->config.tie_embeddings ? 0 : -1;
        if (unit->kind == TRANSFORMER_BLOCK)
            snprintf(unit->prefix, sizeof unit->prefix, "layers.%d.", u - 1);
    }
}

static int declare(struct graph *graph, struct graph_param param,
                   const struct transformer_part *parts, int count)
{
    param.parts = count;
    for (int i = 0; i < count; i++) {
        snprintf(param.part[i], GRAPH_NAME, "%s", parts[i].name);
        param.part_rows[i] = parts[i].rows;
        param.dim[0] += parts[i].rows;
    }
    return build_param(graph, &param);
}

/* A matrix of `in` columns, its rows to come. */
static struct graph_param normal(int64_t in, double std)
{
    return (struct graph_param){.dims = 2, .dim = {0, in}, .init = INIT_NORMAL, .std = (float)std};
}

int transformer_divided_matrix(struct graph *graph, const struct transformer_part *parts, int count,
                               int64_t in, double std, struct graph_division division)
{
    struct graph_param param = normal(in, std);
    param.division = division;
    return declare(graph, param, parts, count);
}

int transformer_matrix(struct graph *graph, const struct transformer_part *parts, int count,
                       int64_t in, double std)
{
    return declare(graph, normal(in, std), parts, count);
}

int transformer_vector(struct graph *graph, const struct transformer_part *parts, int count,
                       enum graph_param_init init)
{
    return declare(graph, (struct graph_param){.dims = 1, .init = init}, parts, count);
}

double transformer_back_std(const struct config_model *config)
{
    return config->init_std / sqrt(2.0 * (double)config->layers);
}

void transformer_head(const struct config_model *c, int h, enum model_purpose purpose,
                      float loss_factor, struct graph *graph)
{
    struct transformer_part part = {c->tie_embeddings ? "embed" : "head", c->vocab};
    struct graph_param table = normal(c->hidden, c->init_std);
    table.shared = c->tie_embeddings;
    int w = declare(graph, table, &part, 1);
    int targets = build_targets(graph);
    if (purpose == MODEL_LOSS) {
        build_head_loss(graph, h, w, targets, loss_factor);
        return;
    }
    graph->values[targets].dim[0] = 1; /* the one row asked for */
    build_output(graph, build_linear_fp32(graph, build_embedding(graph, targets, h), w));
}
