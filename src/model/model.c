/* model.c - the family table, and functions for models of any family; see model.h. */
#include "model/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "device/ops.h"
#include "graph/build.h"
#include "graph/op.h"

static const struct model_family *const families[] = {&model_llama, &model_gpt2};

static const struct model_family *find(const char *name)
{
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++)
        if (!strcmp(families[i]->name, name))
            return families[i];
    return NULL;
}

struct model *model_make(const struct model_family *family, const struct config_model *config)
{
    struct model *model = array_make(1, sizeof *model);
    model->family = family;
    model->config = *config;
    model->sequences = 1;
    family->units(model);
    model->block = array_make((size_t)model->units, sizeof *model->block);
    for (int u = 0; u < model->units; u++) {
        model->unit[u].first = u;
        model->unit[u].blocks = 1;
        model->block[u] = model->unit[u];
    }
    return model;
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
    *out = model_make(family, config);
    return 0;
}

void model_destroy(struct model *model)
{
    if (!model)
        return;
    free(model->unit);
    free(model->block);
    free(model);
}

/* Join two prefixes: "layers.4." and "layers.7." give "layers.4-7." */
static void join_prefix(char *to, const char *first, const char *last)
{
    char name[2 * MODEL_PREFIX];
    size_t same = 0;
    while (first[same] && first[same] == last[same])
        same++;
    while (same && last[same - 1] != '.')
        same--;
    snprintf(name, sizeof name, "%.*s-%s", (int)strlen(first) - 1, first, last + same);
    snprintf(to, MODEL_PREFIX, "%.*s", MODEL_PREFIX - 1, name);
}

void model_wrap(struct model *model, int blocks)
{
    int *now = array_make((size_t)model->units, sizeof *now); /* the new number of each unit */
    int units = 0;
    for (int u = 0; u < model->units; u++) {
        struct model_unit *last = units ? &model->unit[units - 1] : NULL;
        if (last && last->kind == model->unit[u].kind && last->blocks < blocks) {
            last->blocks++;
            join_prefix(last->prefix, model->block[last->first].prefix, model->unit[u].prefix);
        } else {
            model->unit[units++] = model->unit[u];
        }
        now[u] = units - 1;
    }
    model->units = units;
    for (int u = 0; u < units; u++)
        if (model->unit[u].lender >= 0)
            model->unit[u].lender = now[model->unit[u].lender];
    free(now);
}

static struct graph *build(const struct model *model, int kind, int blocks,
                           enum model_purpose purpose, struct graph *graph, float loss_factor,
                           struct error *err)
{
    graph->blocks = blocks;
    graph->model = model;
    graph->packed = model->packed && purpose != MODEL_LOGITS;
    graph->trains = purpose == MODEL_LOSS;
    graph->seed = model->seed;
    graph->fp8 = model->fp8 && graph->dtype == DTYPE_BF16 && purpose != MODEL_LOGITS;
    graph->logits = graph->dtype == DTYPE_F32 ? DTYPE_F32 : model->logits;
    graph->logits_rows = model->logits_rows;
    for (graph->block = 0; graph->block < blocks; graph->block++) {
        build_sequence(graph, 0);
        model->family->graph(model, kind, purpose, loss_factor, graph);
    }
    if (!graph->err.text[0])
        return graph;
    error_set(err, "model: %s", graph->err.text);
    graph_destroy(graph);
    return NULL;
}

/* The group, with row_chunks set to 1 where the rows of a sequence cannot be cut into so many. */
static struct graph_group cut_rows(struct graph_group group, int64_t batch,
                                   const int64_t seq[SEQUENCES])
{
    for (int s = 0; s < SEQUENCES; s++)
        if (group.row_chunks > 1 && batch * seq[s] % (group.size * group.row_chunks))
            group.row_chunks = 1;
    return group;
}

struct graph *model_unit_graph(const struct model *model, int unit, const struct model_graph *form,
                               struct error *err)
{
    struct graph *graph = graph_create(form->batch, form->seq[0], form->dtype);
    memcpy(graph->length, form->seq, sizeof graph->length);
    graph->tensor = cut_rows(form->tensor, form->batch, form->seq);
    graph->context = form->context;
    graph->cache = form->purpose == MODEL_LOGITS ? form->cache : 0;
    const struct model_unit *u = &model->unit[unit];
    return build(model, u->kind, u->blocks, form->purpose, graph, form->loss_factor, err);
}

/* A graph of one block of a unit and one sequence, for counting. */
static struct graph *probe(const struct model *model, int unit, int64_t seq)
{
    struct graph *graph = graph_create(1, seq, DTYPE_F32);
    return build(model, model->unit[unit].kind, 1, MODEL_LOSS, graph, 1, NULL);
}

/* Is a parameter the matrices of experts, or of the router that chooses some of them? */
static int is_of_mixture(const struct graph *graph, int param)
{
    for (int n = 0; n < graph->node_count; n++) {
        const struct graph_node *node = &graph->nodes[n];
        const struct graph_value *w =
            op_is_router(graph, n) || node->op == &op_experts ? &graph->values[node->in[1]] : NULL;
        if (w && w->role == VALUE_PARAM && w->index == param)
            return 1;
    }
    return 0;
}

/* Call visit for the tensors of a graph of one block. */
static int each_of_graph(const struct graph *graph, const char *prefix,
                         int (*visit)(void *, const struct model_tensor *, struct error *),
                         void *user, struct error *err)
{
    int rc = 0;
    for (int i = 0; !rc && i < graph->param_count; i++) {
        const struct graph_param *param = &graph->params[i];
        for (int p = 0; !rc && p < param->tensors && !param->is_borrowed; p++) {
            struct model_tensor tensor = {.dims = param->dims,
                                          .is_of_experts = is_of_mixture(graph, i)};
            tensor.is_linear = param->dims == 2 && prefix[0] && !tensor.is_of_experts;
            snprintf(tensor.name, sizeof tensor.name, "%s%s", prefix, param->tensor_name[p]);
            for (int d = 0; d < GRAPH_DIMS; d++)
                tensor.dim[d] = d < param->dims ? param->box[p].whole[d] : 1;
            rc = visit(user, &tensor, err);
        }
    }
    return rc;
}

int model_each_tensor(const struct model *model,
                      int (*visit)(void *user, const struct model_tensor *tensor,
                                   struct error *err),
                      void *user, struct error *err)
{
    int rc = 0;
    for (int u = 0; !rc && u < model->units; u++) {
        struct graph *graph = graph_create(1, 1, DTYPE_F32);
        graph = build(model, model->unit[u].kind, 1, MODEL_LOSS, graph, 1, err);
        const struct model_unit *unit = &model->unit[u];
        for (int b = 0; graph && !rc && b < unit->blocks; b++)
            rc = each_of_graph(graph, model->block[unit->first + b].prefix, visit, user, err);
        rc = graph ? rc : -1;
        graph_destroy(graph);
    }
    return rc;
}

const char *model_unit_name(const struct model *model, int unit, char name[MODEL_PREFIX])
{
    const char *prefix = model->unit[unit].prefix;
    snprintf(name, MODEL_PREFIX, "%.*s", prefix[0] ? (int)strlen(prefix) - 1 : MODEL_PREFIX - 1,
             prefix[0] ? prefix
             : unit    ? "head"
                       : "embed");
    return name;
}

int64_t model_unit_params(const struct model *model, int unit)
{
    struct graph *graph = probe(model, unit, 1);
    int64_t elems = 0;
    for (int v = 0; graph && v < graph->value_count; v++)
        if (graph->values[v].role == VALUE_PARAM &&
            !graph->params[graph->values[v].index].is_borrowed)
            elems += graph_elems(graph, v);
    graph_destroy(graph);
    return elems * model->unit[unit].blocks;
}

int64_t model_params(const struct model *model)
{
    int64_t total = 0;
    for (int u = 0; u < model->units; u++)
        total += model_unit_params(model, u);
    return total;
}

int64_t model_params_per_token(const struct model *model)
{
    const struct config_model *c = &model->config;
    int64_t others = c->experts.count ? c->experts.count - c->experts.per_token : 0;
    return model_params(model) - c->layers * others * 3 * c->ffn * c->hidden;
}

/* Of attention, as if each query saw all keys. */
static double full_flops(const struct graph *graph, const struct graph_node *node)
{
    struct graph_node full = *node;
    full.attrs.forms |= ATTENTION_FULL;
    return op_flops(graph, &full);
}

/* Add a node's operations for one sequence: those of forward, and as many again for the gradient of
 * each operand that is made of anything trained. */
static void add_node(struct model_flops *sum, const struct graph *graph,
                     const struct graph_node *node, const char *trains)
{
    int first = node->op == &op_adapter; /* in[0] is what its product is added to */
    int is_product = first || node->op == &op_linear || node->op == &op_experts ||
                     node->op == &op_head_loss || node->op == &op_head_part;
    if (is_product) {
        sum->weights +=
            op_flops(graph, node) * (1 + trains[node->in[first]] + trains[node->in[first + 1]]);
    } else if (node->op == &op_attention) {
        int passes = trains[node->in[0]] ? 3 : 1;
        int is_causal = !(node->attrs.forms & ATTENTION_FULL);
        sum->causal += is_causal ? passes * op_flops(graph, node) : 0;
        sum->full += is_causal ? passes * full_flops(graph, node) : 0;
        sum->weights += is_causal ? 0 : passes * op_flops(graph, node);
    }
}

/* The operations of a unit for one sequence.  *trained: is anything trained before it, and then,
 * in it or before? */
static void add_graph(struct model_flops *sum, const struct graph *graph, int *trained)
{
    char *trains = array_make((size_t)graph->value_count, 1); /* is a value made of such? */
    int before = *trained;
    for (int v = 0; v < graph->value_count; v++) {
        const struct graph_value *value = &graph->values[v];
        trains[v] = (char)(value->role == VALUE_PARAM ? !graph->params[value->index].frozen
                                                      : value->role == VALUE_INPUT && before);
        *trained |= trains[v];
    }
    for (int i = 0; i < graph->node_count; i++) {
        const struct graph_node *node = &graph->nodes[i];
        char any = 0;
        for (int k = 0; k < NODE_INS; k++)
            any |= node->in[k] >= 0 && trains[node->in[k]];
        for (int k = 0; k < NODE_OUTS; k++)
            if (node->out[k] >= 0)
                trains[node->out[k]] = any;
        add_node(sum, graph, node, trains);
    }
    free(trains);
}

struct model_flops model_flops_per_token(const struct model *model, int64_t seq,
                                         void (*freeze)(const void *user, int unit,
                                                        struct graph *graph),
                                         const void *user)
{
    const struct model_graph form = {
        .purpose = MODEL_LOSS, .batch = 1, .seq = {seq, seq}, .dtype = DTYPE_F32, .loss_factor = 1};
    struct model_flops flops = {0};
    int trained = 0;
    for (int u = 0; u < model->units; u++) {
        struct graph *graph = model_unit_graph(model, u, &form, NULL);
        if (graph && freeze)
            freeze(user, u, graph);
        if (graph)
            add_graph(&flops, graph, &trained);
        graph_destroy(graph);
    }
    flops.weights /= (double)seq;
    flops.full = flops.full / (double)seq + flops.weights;
    flops.causal = flops.causal / (double)seq + flops.weights;
    return flops;
}
