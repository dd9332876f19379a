/* translator.c - see translator.h.
 *
 *   encoder, of the source's words        decoder, of the target's
 *   hidden  = embed[words]                hidden = embed[words], of the same matrix
 *   hidden  = encode(hidden), each block  hidden = decode(hidden, encoded), each block
 *   encoded = norm(hidden)                loss   = head(norm(hidden)), of that matrix, too
 *
 * A decoder block reads what the encoder put out twice: by attention, and by an op of its own,
 * `blend`, which mixes into each word of the target all words of its sequence's source.
 */
#include "tests/unit/translator.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/philox.h"
#include "graph/autodiff.h"
#include "graph/build.h"
#include "model/transformer.h"

enum kind { SOURCE_EMBED, ENCODE, END, TARGET_EMBED, DECODE, HEAD, WHOLE };
enum { TARGET, SOURCE }; /* sequences */

/* ---- blend ---- */

/* What word s of a source counts for word t of the target. */
static float weight(int64_t t, int64_t s, int64_t sources)
{
    return (float)(1 + (t * 7 + s * 3) % 5) / (float)(3 * sources);
}

/* inputs x [batch * targets, width], e [batch * sources, width]; output x + mixed e.  attrs.seq:
 * targets, attrs.heads: sources */
static void blend_shapes(struct graph *graph, struct graph_node *node)
{
    struct graph_value x = graph->values[node->in[0]];
    node->out[0] = graph_value(graph, VALUE_TEMP, x.dtype, x.dims, x.dim);
}

static int blend_run(const struct op_call *call, struct error *err)
{
    const struct graph_value *like = &call->graph->values[call->node->out[0]];
    int64_t targets = call->node->attrs.seq, sources = call->node->attrs.heads;
    const float *x = call->in[0], *e = call->in[1];
    float *y = call->out[0];
    for (int64_t row = 0; row < like->dim[0]; row++)
        for (int64_t i = 0; i < like->dim[1]; i++) {
            const float *from = e + row / targets * sources * like->dim[1] + i;
            float sum = x[row * like->dim[1] + i];
            for (int64_t s = 0; s < sources; s++)
                sum += weight(row % targets, s, sources) * from[s * like->dim[1]];
            y[row * like->dim[1] + i] = sum;
        }
    return 0;
}

/* inputs dy, e for its shape; output de */
static void blend_back_shapes(struct graph *graph, struct graph_node *node)
{
    struct graph_value e = graph->values[node->in[1]];
    node->out[0] = graph_value(graph, VALUE_TEMP, e.dtype, e.dims, e.dim);
}

static int blend_back_run(const struct op_call *call, struct error *err)
{
    const struct graph_value *like = &call->graph->values[call->node->out[0]];
    int64_t targets = call->node->attrs.seq, sources = call->node->attrs.heads;
    const float *dy = call->in[0];
    float *de = call->out[0];
    for (int64_t row = 0; row < like->dim[0]; row++)
        for (int64_t i = 0; i < like->dim[1]; i++) {
            const float *from = dy + row / sources * targets * like->dim[1] + i;
            float sum = 0;
            for (int64_t t = 0; t < targets; t++)
                sum += weight(t, row % sources, sources) * from[t * like->dim[1]];
            de[row * like->dim[1] + i] = sum;
        }
    return 0;
}

static const struct op blend_back = {
    .name = "blend_backward", .shapes = blend_back_shapes, .run = blend_back_run};

static void blend_gradient(struct autodiff *ad, const struct graph_node *node, int dy)
{
    int back = autodiff_node(ad, &blend_back, (int[]){dy, node->in[1]}, 2, &node->attrs);
    autodiff_give(ad, node->in[1], ad->graph->nodes[back].out[0]);
    autodiff_give(ad, node->in[0], dy);
}

static const struct op blend = {
    .name = "blend", .shapes = blend_shapes, .gradient = blend_gradient, .run = blend_run};

static int build_blend(struct graph *graph, int x, int e)
{
    struct op_attrs attrs = {.seq = graph->length[TARGET], .heads = graph->length[SOURCE]};
    int node = graph_node(graph, &blend, (int[]){x, e}, 2, &attrs);
    return graph->nodes[node].out[0];
}

/* ---- the parts of the model; prefix: of their parameters' names ---- */

static const char *join(char name[GRAPH_NAME], const char *prefix, const char *part)
{
    snprintf(name, GRAPH_NAME, "%s%s", prefix, part);
    return name;
}

static int matrix(struct graph *graph, const char *prefix, const char *part, int64_t rows,
                  int64_t columns)
{
    char name[GRAPH_NAME];
    return transformer_matrix(graph, &(struct transformer_tensor){join(name, prefix, part), rows},
                              1, columns, 0.3);
}

static int norm(struct graph *graph, const char *prefix, const char *part, int x, int64_t width)
{
    char name[GRAPH_NAME];
    int w = transformer_vector(graph, &(struct transformer_tensor){join(name, prefix, part), width},
                               1, INIT_ONES);
    return build_rmsnorm(graph, x, w, 1e-5f);
}

/* Norm of *sum = x + delta. */
static int norm_after(struct graph *graph, const char *prefix, const char *part, int x, int delta,
                      int64_t width, int *sum)
{
    char name[GRAPH_NAME];
    int w = transformer_vector(graph, &(struct transformer_tensor){join(name, prefix, part), width},
                               1, INIT_ONES);
    return build_rmsnorm_residual(graph, x, delta, w, 1e-5f, sum);
}

/* The matrix of words, which the encoder's first unit has. */
static int words(const struct config_model *c, struct graph *graph, int is_borrowed)
{
    struct graph_param param = {.tensors = 1,
                                .tensor_name = {"embed"},
                                .tensor_rows = {c->vocab},
                                .dims = 2,
                                .dim = {c->vocab, c->hidden},
                                .init = INIT_NORMAL,
                                .std = 0.5f,
                                .is_borrowed = is_borrowed};
    return build_param(graph, &param);
}

/* x + down(swiglu(up(norm(x)))) */
static int feed_forward(const struct config_model *c, struct graph *graph, const char *prefix,
                        int x)
{
    int h = norm(graph, prefix, "norm2", x, c->hidden);
    int up = matrix(graph, prefix, "up", 2 * c->ffn, c->hidden);
    int down = matrix(graph, prefix, "down", c->hidden, c->ffn);
    return build_linear(graph, build_swiglu(graph, build_linear(graph, h, up, -1)), down, x);
}

/* x + o(attention(qkv(norm(x)))) */
static int attend(const struct config_model *c, struct graph *graph, const char *prefix, int x)
{
    int64_t width = c->heads * c->head_dim;
    int h = norm(graph, prefix, "norm1", x, c->hidden);
    int qkv = matrix(graph, prefix, "qkv", 3 * width, c->hidden);
    int o = matrix(graph, prefix, "o", c->hidden, width);
    int table = build_rope_table(graph, c->head_dim);
    int turned = build_rope(graph, build_linear(graph, h, qkv, -1), table, -1, c->heads, c->heads,
                            c->head_dim);
    int y = build_attention(graph, turned, c->heads, c->heads, c->head_dim);
    return build_linear(graph, y, o, x);
}

static int encode(const struct config_model *c, struct graph *graph, const char *prefix, int x)
{
    return feed_forward(c, graph, prefix, attend(c, graph, prefix, x));
}

/* A matrix of which a rank of the tensor group has some rows (dim 0) or columns (dim 1). */
static int divided(struct graph *graph, const char *prefix, const char *part, int64_t rows,
                   int64_t columns, int dim)
{
    char name[GRAPH_NAME];
    const struct graph_division division = {.group = graph->tensor, .dim = dim};
    return transformer_divided_matrix(graph,
                                      &(struct transformer_tensor){join(name, prefix, part), rows},
                                      1, columns, 0.3, division);
}

/* x + o(attention(q(norm(x)), kv(encoded))): each word sees all of its source. */
static int attend_source(const struct config_model *c, struct graph *graph, const char *prefix,
                         int x, int encoded)
{
    int64_t width = c->heads * c->head_dim;
    int64_t heads = graph->tensor.size > 1 ? c->heads / graph->tensor.size : c->heads;
    char name[2][GRAPH_NAME];
    const struct graph_division rows = {.group = graph->tensor, .dim = 0};
    const struct transformer_tensor tensors[] = {{join(name[0], prefix, "source.k"), width},
                                                 {join(name[1], prefix, "source.v"), width}};
    int h = norm(graph, prefix, "norm3", x, c->hidden);
    build_divided(graph, h, graph->tensor);
    int q = build_linear(graph, h, divided(graph, prefix, "source.q", width, c->hidden, 0), -1);
    int kv = transformer_divided_matrix(graph, tensors, 2, c->hidden, 0.3, rows);
    int o = divided(graph, prefix, "source.o", c->hidden, width, 1);
    struct build_attention form = {.q = q,
                                   .kv = build_linear(graph, encoded, kv, -1),
                                   .documents = -1,
                                   .mask = BUILD_FULL,
                                   .heads = heads,
                                   .kv_heads = heads,
                                   .head_dim = c->head_dim};
    int y = build_linear(graph, build_attention_of(graph, &form), o, -1);
    int sum,
        n = norm_after(graph, prefix, "norm4", x,
                       build_exchange(graph, &op_all_reduce, y, graph->tensor), c->hidden, &sum);
    return build_linear(graph, n, matrix(graph, prefix, "source.out", c->hidden, c->hidden), sum);
}

static int decode(const struct config_model *c, struct graph *graph, const char *prefix, int x,
                  int encoded)
{
    int up = divided(graph, prefix, "cross.up", c->ffn, c->hidden, 0);
    int down = divided(graph, prefix, "cross.down", c->hidden, c->ffn, 1);
    build_divided(graph, encoded, graph->tensor);
    int cross = build_linear(graph, build_linear(graph, encoded, up, -1), down, -1);
    x = build_blend(graph, attend(c, graph, prefix, x),
                    build_exchange(graph, &op_all_reduce, cross, graph->tensor));
    return feed_forward(c, graph, prefix, attend_source(c, graph, prefix, x, encoded));
}

static void head(const struct config_model *c, struct graph *graph, const char *prefix, int x,
                 int table, float factor)
{
    int h = norm(graph, prefix, "norm", x, c->hidden);
    build_head_loss(graph, h, table, build_targets(graph), factor);
}

static void whole(const struct config_model *c, struct graph *graph, float factor)
{
    char prefix[MODEL_PREFIX];
    int table = words(c, graph, 0);
    build_sequence(graph, SOURCE);
    int x = build_embedding(graph, build_tokens(graph), table);
    for (int l = 0; l < c->layers; l++) {
        snprintf(prefix, sizeof prefix, "encoder.%d.", l);
        x = encode(c, graph, prefix, x);
    }
    int encoded = norm(graph, "encoder.", "norm", x, c->hidden);
    build_sequence(graph, TARGET);
    x = build_embedding(graph, build_tokens(graph), table);
    for (int l = 0; l < c->layers; l++) {
        snprintf(prefix, sizeof prefix, "decoder.%d.", l);
        x = decode(c, graph, prefix, x, encoded);
    }
    head(c, graph, "decoder.", x, table, factor);
}

static int hidden(const struct config_model *c, struct graph *graph)
{
    return build_input(graph, c->hidden);
}

static void graph_of(const struct model *model, int kind, enum model_purpose purpose,
                     float loss_factor, struct graph *graph)
{
    const struct config_model *c = &model->config;
    int is_source = kind == SOURCE_EMBED || kind == ENCODE || kind == END;
    build_sequence(graph, is_source ? SOURCE : TARGET);
    switch ((enum kind)kind) {
    case SOURCE_EMBED:
    case TARGET_EMBED: {
        int table = words(c, graph, kind == TARGET_EMBED);
        build_output(graph, build_embedding(graph, build_tokens(graph), table));
        break;
    }
    case ENCODE: build_output(graph, encode(c, graph, "", hidden(c, graph))); break;
    case END:
        build_output_named(graph, "encoded", norm(graph, "", "norm", hidden(c, graph), c->hidden));
        break;
    case DECODE: {
        int encoded = build_boundary(graph, "encoded", SOURCE, c->hidden);
        build_output(graph, decode(c, graph, "", hidden(c, graph), encoded));
        break;
    }
    case HEAD: head(c, graph, "", hidden(c, graph), words(c, graph, 1), loss_factor); break;
    case WHOLE: whole(c, graph, loss_factor); break;
    }
}

/* ---- the chain ---- */

static void add_unit(struct model *model, enum kind kind, const char *prefix, int number)
{
    struct model_unit *unit = &model->unit[model->units++];
    *unit = (struct model_unit){.kind = kind, .lender = -1};
    if (kind == TARGET_EMBED || kind == HEAD)
        unit->lender = 0;
    if (number >= 0)
        snprintf(unit->prefix, sizeof unit->prefix, "%s%d.", prefix, number);
    else
        snprintf(unit->prefix, sizeof unit->prefix, "%s", prefix);
}

static void begin(struct model *model)
{
    model->unit = array_make(2 * (size_t)model->config.layers + 4, sizeof *model->unit);
    model->const_width = model->config.head_dim;
    model->sequences = 2;
}

static void chain(struct model *model)
{
    begin(model);
    add_unit(model, SOURCE_EMBED, "", -1);
    for (int l = 0; l < model->config.layers; l++)
        add_unit(model, ENCODE, "encoder.", l);
    add_unit(model, END, "encoder.", -1);
    add_unit(model, TARGET_EMBED, "decoder.embed.", -1);
    for (int l = 0; l < model->config.layers; l++)
        add_unit(model, DECODE, "decoder.", l);
    add_unit(model, HEAD, "decoder.", -1);
}

static void one(struct model *model)
{
    begin(model);
    add_unit(model, WHOLE, "", -1);
}

static void table_of(const struct model *model, int64_t seq, float *table)
{
    model_llama.table(model, seq, table);
}

struct model *translator_model(const struct config *config, enum translator_form form)
{
    static const struct model_family families[] = {
        [TRANSLATOR_CHAIN] = {.name = "translator",
                              .units = chain,
                              .graph = graph_of,
                              .table = table_of},
        [TRANSLATOR_WHOLE] = {.name = "translator",
                              .units = one,
                              .graph = graph_of,
                              .table = table_of},
    };
    struct model *model = model_make(&families[form], &config->model);
    if (form == TRANSLATOR_CHAIN)
        layout_wrap(model, config);
    return model;
}

/* ---- data ---- */

static int is_masked(int64_t sample, int64_t at)
{
    return (sample * 5 + at) % 7 == 3;
}

/* Word `at` of the source of a sequence of the step. */
static int32_t source_word(const struct units *units, int64_t sample, int64_t at)
{
    uint64_t vocab = (uint64_t)units->model->config.vocab;
    return (int32_t)(philox_u64((uint64_t)sample, (uint64_t)at) % vocab);
}

/* The word that follows word `at` of the target. */
static int32_t next_word(const struct units *units, int64_t sample, int64_t at)
{
    return source_word(units, sample, at * 3 % units->request.seq[SOURCE]);
}

int translator_load(void *user, const struct step_batch *batch, struct error *err)
{
    const struct translator_data *data = user;
    const struct units *units = data->units;
    const struct units_request *r = &units->request;
    int64_t first = (batch->micro * data->data_ranks + data->data_rank) * r->batch;
    int32_t *source = batch->tokens[SOURCE], *target = batch->tokens[TARGET];
    for (int64_t sample = first; sample < first + r->batch; sample++) {
        for (int64_t i = 0; i < r->seq[SOURCE] && source; i++)
            *source++ = source_word(units, sample, i);
        for (int64_t i = 0; i < r->seq[TARGET] && target; i++)
            *target++ = i ? next_word(units, sample, i - 1) : 0;
        for (int64_t i = 0; i < r->seq[TARGET] && batch->targets; i++)
            batch->targets[(sample - first) * r->seq[TARGET] + i] =
                is_masked(sample, i) ? -1 : next_word(units, sample, i);
    }
    return 0;
}

int translator_train(struct session *s, int steps, struct translator_outcome *outcome,
                     struct error *err)
{
    struct translator_data data = {s->units, s->layout.data_ranks, s->data_rank};
    struct step_output output;
    *outcome = (struct translator_outcome){0};
    rig_init(s);
    for (int step = 0; step < (steps ? steps : TRANSLATOR_STEPS); step++) {
        struct step_input input = rig_input(s, step + 1);
        input.load = translator_load;
        input.user = &data;
        if (executor_run_step(s->executor, s->train, &input, &output, NULL, err))
            return -1;
        outcome->loss[step] = output.loss;
        outcome->norm[step] = output.grad_norm;
        outcome->targets = output.targets;
    }
    if (!s->evaluate)
        return 0;
    struct step_input input = {.load = translator_load, .user = &data};
    int rc = executor_run_step(s->executor, s->evaluate, &input, &output, NULL, err);
    outcome->valid = output.loss;
    return rc;
}
