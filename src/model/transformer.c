/* transformer.c - nodes and parameters that decoder families have in common.
 *
 * A family calls these functions in the order in which a unit computes; each appends nodes to the
 * unit's graph and returns the value that the last of them makes.  With tensor ranks it is here
 * that a layer is divided: matrices that are read first (queries, keys and values) by rows, those
 * after them (attn.o) by columns; between units each rank has its own rows of the residual
 * stream.  A block's first half:
 *
 *   x own rows -> norm -> all rows -> qkv of own heads -> attention -> attn.o, own columns
 *              -> sum over ranks, own rows of it -> + x
 *
 * Where ranks outnumber the key heads, or do not divide them, keys and values are a parameter of
 * their own, whole on each rank, and build_pack_heads() picks those that the rank's queries read.
 */
#include "model/transformer.h"

#include <math.h>
#include <stdio.h>

#include "base/array.h"
#include "graph/build.h"
#include "model/adapters.h"

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
        unit->lender = unit->kind == TRANSFORMER_HEAD && model->config.tie_embeddings ? 0 : -1;
        if (unit->kind == TRANSFORMER_BLOCK)
            snprintf(unit->prefix, sizeof unit->prefix, "layers.%d.", u - 1);
    }
}

static int declare(struct graph *graph, struct graph_param param,
                   const struct transformer_tensor *tensors, int count)
{
    param.tensors = count;
    for (int i = 0; i < count; i++) {
        snprintf(param.tensor_name[i], GRAPH_NAME, "%s", tensors[i].name);
        param.tensor_rows[i] = tensors[i].rows;
        param.dim[0] += tensors[i].rows;
    }
    return build_param(graph, &param);
}

/* A matrix of `in` columns, its rows to come. */
static struct graph_param normal(int64_t in, double std)
{
    return (struct graph_param){.dims = 2, .dim = {0, in}, .init = INIT_NORMAL, .std = (float)std};
}

int transformer_divided_matrix(struct graph *graph, const struct transformer_tensor *tensors,
                               int count, int64_t in, double std, struct graph_division division)
{
    struct graph_param param = normal(in, std);
    param.division = division;
    return declare(graph, param, tensors, count);
}

int transformer_matrix(struct graph *graph, const struct transformer_tensor *tensors, int count,
                       int64_t in, double std)
{
    return declare(graph, normal(in, std), tensors, count);
}

int transformer_divided_vector(struct graph *graph, const struct transformer_tensor *tensors,
                               int count, enum graph_param_init init,
                               struct graph_division division)
{
    return declare(graph, (struct graph_param){.dims = 1, .init = init, .division = division},
                   tensors, count);
}

int transformer_vector(struct graph *graph, const struct transformer_tensor *tensors, int count,
                       enum graph_param_init init)
{
    return transformer_divided_vector(graph, tensors, count, init, (struct graph_division){0});
}

void transformer_begin(struct graph *graph)
{
    build_divide_boundaries(graph, graph->tensor);
}

int transformer_row_vector(struct graph *graph, const struct transformer_tensor *tensor,
                           enum graph_param_init init)
{
    int w = transformer_vector(graph, tensor, 1, init);
    build_divided(graph, w, graph->tensor);
    return w;
}

int transformer_all_rows(struct graph *graph, int h)
{
    return build_gather_rows(graph, h, graph->tensor);
}

int transformer_linear(struct graph *graph, int x, int w)
{
    const struct adapters_of own = adapters_declare(graph, w);
    int y = adapters_add_product(graph, &own, x, build_linear(graph, x, w, -1));
    return adapters_scale(graph, &own, y);
}

int transformer_dropout(struct graph *graph, int x, int addend, double share, const char *site)
{
    return build_dropout(graph, x, addend, share, site, 0, graph->tensor);
}

int transformer_back(struct graph *graph, int x, int w, int addend)
{
    const struct adapters_of own = adapters_declare(graph, w);
    int is_divided = graph->tensor.size > 1, y;
    if (!is_divided && own.m < 0) /* the addend goes into the product's epilogue */
        return adapters_add_product(graph, &own, x, build_linear(graph, x, w, addend));
    y = is_divided && graph->tensor.fp32 ? build_linear_fp32(graph, x, w)
                                         : build_linear(graph, x, w, -1);
    y = adapters_add_product(graph, &own, x, y);
    if (is_divided)
        y = build_round(graph, build_scatter_rows(graph, y, graph->tensor));
    y = adapters_scale(graph, &own, y);
    return addend < 0 ? y : build_add(graph, y, addend);
}

static const char *const qkv_names[] = {"attn.q", "attn.k", "attn.v"};

/* What follows a name of queries, keys or values: "" or ".lora_A"; NULL: the name is of others. */
static const char *after_qkv(const char *name)
{
    for (int i = 0; i < 3; i++) {
        size_t length = strlen(qkv_names[i]);
        if (!strncmp(name, qkv_names[i], length))
            return name + length;
    }
    return NULL;
}

int transformer_stacks(const char *one, const char *other)
{
    const char *a = after_qkv(one), *b = after_qkv(other);
    return a && b ? !strcmp(a, b) : !strcmp(one, other);
}

/* Declare numbers [first, end) of queries (0), keys (1) and values (2), stacked: with suffix ""
 * their matrix, with ".bias" the vector of their biases. */
static int declare_qkv(struct graph *graph, const struct config_model *c, int first, int end,
                       const char *suffix, struct graph_division division)
{
    struct graph_param param = {.dims = 1, .init = INIT_ZEROS};
    if (!suffix[0])
        param = normal(c->hidden, c->init_std);
    param.division = division;
    char name[PARAM_TENSORS][GRAPH_NAME];
    struct transformer_tensor tensors[PARAM_TENSORS];
    for (int i = first; i < end; i++) {
        snprintf(name[i], GRAPH_NAME, "%s%s", qkv_names[i], suffix);
        tensors[i] =
            (struct transformer_tensor){name[i], (i ? c->kv_heads : c->heads) * c->head_dim};
    }
    int w = declare(graph, param, tensors + first, end - first);
    if (first > 0)
        build_divided(graph, w, graph->tensor);
    return w;
}

/* Is each key head read on one rank alone?  It is where every query head has a key head of its own,
 * which ranks may share unevenly, or where the ranks divide the key heads. */
static int divides_keys(const struct graph *graph, const struct config_model *c)
{
    int ranks = graph->tensor.size > 1 ? graph->tensor.size : 1;
    return c->kv_heads == c->heads || c->kv_heads % ranks == 0;
}

/* Declare a vector [head_dim] that every rank has whole and applies to its own heads. */
static int head_vector(struct graph *graph, const char *name, int64_t head_dim)
{
    int w = transformer_vector(graph, &(struct transformer_tensor){name, head_dim}, 1, INIT_ONES);
    build_divided(graph, w, graph->tensor);
    return w;
}

struct transformer_qkv transformer_qkv(struct graph *graph, const struct config_model *c,
                                       enum transformer_bias bias)
{
    int is_divided = divides_keys(graph, c), end = is_divided ? 3 : 1;
    struct graph_division heads = transformer_rows(graph, is_divided ? c->kv_heads : c->heads);
    struct graph_division whole = {0};
    struct transformer_qkv qkv = {.bias = -1, .kv = -1, .kv_bias = -1, .q_norm = -1, .k_norm = -1};
    qkv.w = declare_qkv(graph, c, 0, end, "", heads);
    if (bias == TRANSFORMER_BIASED)
        qkv.bias = declare_qkv(graph, c, 0, end, ".bias", heads);
    if (!is_divided)
        qkv.kv = declare_qkv(graph, c, 1, 3, "", whole);
    if (!is_divided && bias == TRANSFORMER_BIASED)
        qkv.kv_bias = declare_qkv(graph, c, 1, 3, ".bias", whole);
    if (c->qk_norm) {
        qkv.q_norm = head_vector(graph, "attn.q.norm", c->head_dim);
        qkv.k_norm = head_vector(graph, "attn.k.norm", c->head_dim);
    }
    return qkv;
}

int transformer_attention_back(struct graph *graph, const struct config_model *c)
{
    struct graph_division heads =
        transformer_columns(graph, divides_keys(graph, c) ? c->kv_heads : c->heads);
    return transformer_divided_matrix(graph, &(struct transformer_tensor){"attn.o", c->hidden}, 1,
                                      c->heads * c->head_dim, transformer_back_std(c), heads);
}

static int project(struct graph *graph, int h, int w, int bias)
{
    int y = transformer_linear(graph, h, w);
    return bias < 0 ? y : build_bias(graph, y, bias);
}

int transformer_positions(struct graph *graph)
{
    return graph->packed || graph->cache ? build_row_positions(graph) : -1;
}

/* The model's sliding window, or 0 where no sequence is longer than that. */
static int64_t window_of(const struct graph *graph, const struct config_model *c)
{
    int64_t ranks = graph->context.size > 1 ? graph->context.size : 1;
    int64_t length = graph->cache ? graph->cache : graph->seq * ranks;
    return c->sliding_window < length ? c->sliding_window : 0;
}

int transformer_attention(struct graph *graph, const struct config_model *c, int h,
                          const struct transformer_qkv *qkv, int table)
{
    const struct graph_param *w = &graph->params[graph->values[qkv->w].index];
    int64_t d = c->head_dim, heads = w->tensor_rows[0] / d, kv_heads = w->tensor_rows[1] / d;
    int64_t first_head = w->box[0].start[0] / d;
    int x = project(graph, h, qkv->w, qkv->bias);
    if (qkv->kv >= 0)
        x = build_pack_heads(graph, x, project(graph, h, qkv->kv, qkv->kv_bias), first_head,
                             c->heads, c->kv_heads, d, &kv_heads);
    if (qkv->q_norm >= 0)
        x = build_qk_norm(graph, x, qkv->q_norm, qkv->k_norm, heads, kv_heads, d,
                          (float)c->norm_eps);
    if (table >= 0)
        x = build_rope(graph, x, table, transformer_positions(graph), heads, kv_heads, d);
    if (graph->cache)
        return build_attention_cached(graph, x, heads, kv_heads, d, window_of(graph, c));
    const struct build_attention form = {.q = x,
                                         .kv = -1,
                                         .documents =
                                             graph->packed ? build_row_documents(graph) : -1,
                                         .window = window_of(graph, c),
                                         .heads = heads,
                                         .kv_heads = kv_heads,
                                         .head_dim = d,
                                         .dropout = c->dropout.attention,
                                         .site = "attn.weights",
                                         .first_head = first_head};
    return build_attention_of(graph, &form);
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
    struct transformer_tensor tensor = {c->tie_embeddings ? "embed" : "head", c->vocab};
    struct graph_param table = normal(c->hidden, c->init_std);
    table.is_borrowed = c->tie_embeddings;
    table.division = transformer_rows(graph, 0);
    int w = declare(graph, table, &tensor, 1);
    int targets = build_targets(graph);
    h = transformer_all_rows(graph, h);
    if (purpose != MODEL_LOGITS) {
        build_head_loss_divided(graph, h, w, targets, c->vocab, loss_factor);
        return;
    }
    graph->values[targets].dim[0] = graph->batch; /* the rows asked for */
    int rows = build_embedding(graph, targets, h);
    build_divide_boundaries(graph, (struct graph_group){0});
    build_output(graph, build_gather_columns(graph, build_linear_fp32(graph, rows, w), w));
}
