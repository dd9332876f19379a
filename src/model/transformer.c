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

int transformer_divided_vector(struct graph *graph, const struct transformer_part *parts, int count,
                               enum graph_param_init init, struct graph_division division)
{
    return declare(graph, (struct graph_param){.dims = 1, .init = init, .division = division},
                   parts, count);
}

int transformer_vector(struct graph *graph, const struct transformer_part *parts, int count,
                       enum graph_param_init init)
{
    return transformer_divided_vector(graph, parts, count, init, (struct graph_division){0});
}

void transformer_begin(struct graph *graph)
{
    build_divide_boundaries(graph, graph->tensor);
}

int transformer_row_vector(struct graph *graph, const struct transformer_part *part,
                           enum graph_param_init init)
{
    int w = transformer_vector(graph, part, 1, init);
    build_divided(graph, w, graph->tensor);
    return w;
}

int transformer_all_rows(struct graph *graph, int h)
{
    return build_gather_rows(graph, h, graph->tensor);
}

int transformer_back(struct graph *graph, int x, int w, int addend)
{
    if (graph->tensor.size < 2)
        return build_linear(graph, x, w, addend);
    int y = build_scatter_rows(graph, build_linear(graph, x, w, -1), graph->tensor);
    return addend < 0 ? y : build_add(graph, y, addend);
}

int transformer_attention(struct graph *graph, int qkv, int w, int table, int64_t head_dim)
{
    const struct graph_param *param = &graph->params[graph->values[w].index];
    int64_t heads = param->part_rows[0] / head_dim, kv_heads = param->part_rows[1] / head_dim;
    if (table >= 0)
        qkv = build_rope(graph, qkv, table, -1, heads, kv_heads, head_dim);
    return build_attention(graph, qkv, heads, kv_heads, head_dim);
}

struct graph_division transformer_rows(const struct graph *graph, int64_t chunks)
{
    return (struct graph_division){.group = graph->tensor, .dim = 0, .chunks = chunks};
}

struct graph_division transformer_columns(const struct graph *graph, int64_t chunks)
{
    return (struct graph_division){.group = graph->tensor, .dim = 1, .chunks = chunks};
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
    table.division = transformer_rows(graph, 0);
    int w = declare(graph, table, &part, 1);
    int targets = build_targets(graph);
    h = transformer_all_rows(graph, h);
    if (purpose == MODEL_LOSS) {
        build_head_loss_divided(graph, h, w, targets, c->vocab, loss_factor);
        return;
    }
    graph->values[targets].dim[0] = 1; /* the one row asked for */
    int row = build_embedding(graph, targets, h);
    build_divide_boundaries(graph, (struct graph_group){0});
    build_output(graph, build_gather_columns(graph, build_linear_fp32(graph, row, w), w));
}
