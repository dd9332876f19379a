/* gpt2.c - Radford et al. 2019, "Language Models are Unsupervised Multitask Learners".
 *
 * Units: the embedding of tokens and positions, one per layer, and the final norm with the head.
 * Names beside those of the published checkpoints, N being the layer:
 *
 *   embed, positions                    wte.weight, wpe.weight
 *   layers.N.norm1, norm1.bias          h.N.ln_1.weight, ln_1.bias
 *   layers.N.attn.q, attn.k, attn.v     h.N.attn.c_attn.weight: columns q, then k, then v
 *   layers.N.attn.q.bias and so on      h.N.attn.c_attn.bias, in the same order
 *   layers.N.attn.o, attn.o.bias        h.N.attn.c_proj.weight, c_proj.bias
 *   layers.N.norm2, norm2.bias          h.N.ln_2.weight, ln_2.bias
 *   layers.N.mlp.up, mlp.up.bias        h.N.mlp.c_fc.weight, c_fc.bias
 *   layers.N.mlp.down, mlp.down.bias    h.N.mlp.c_proj.weight, c_proj.bias
 *   norm, norm.bias                     ln_f.weight, ln_f.bias
 *
 * Matrices here are [out, in]; c_attn, c_proj and c_fc there are [in, out], so they are transposed.
 */
#include <stdio.h>

#include "graph/build.h"
#include "model/names.h"
#include "model/transformer.h"

#define LAYER(own_end, hf_end)        .own = "layers.%s." own_end, .hf = "transformer.h.%s." hf_end
#define LAYER_MATRIX(own_end, hf_end) LAYER(own_end, hf_end ".weight"), .is_transposed = 1

/* Matrices of layers are transposed there; query, key and value are one tensor. */
static const struct model_name gpt2_names[] = {
    {.own = "embed", .hf = "transformer.wte.weight"},
    {.own = "positions", .hf = "transformer.wpe.weight"},
    {LAYER("norm1", "ln_1.weight")},
    {LAYER("norm1.bias", "ln_1.bias")},
    {LAYER_MATRIX("attn.q", "attn.c_attn"), .stack = STACK_QKV, .number = 0},
    {LAYER_MATRIX("attn.k", "attn.c_attn"), .stack = STACK_QKV, .number = 1},
    {LAYER_MATRIX("attn.v", "attn.c_attn"), .stack = STACK_QKV, .number = 2},
    {LAYER("attn.q.bias", "attn.c_attn.bias"), .stack = STACK_QKV, .number = 0},
    {LAYER("attn.k.bias", "attn.c_attn.bias"), .stack = STACK_QKV, .number = 1},
    {LAYER("attn.v.bias", "attn.c_attn.bias"), .stack = STACK_QKV, .number = 2},
    {LAYER_MATRIX("attn.o", "attn.c_proj")},
    {LAYER("attn.o.bias", "attn.c_proj.bias")},
    {LAYER("norm2", "ln_2.weight")},
    {LAYER("norm2.bias", "ln_2.bias")},
    {LAYER_MATRIX("mlp.up", "mlp.c_fc")},
    {LAYER("mlp.up.bias", "mlp.c_fc.bias")},
    {LAYER_MATRIX("mlp.down", "mlp.c_proj")},
    {LAYER("mlp.down.bias", "mlp.c_proj.bias")},
    {.own = "norm", .hf = "transformer.ln_f.weight"},
    {.own = "norm.bias", .hf = "transformer.ln_f.bias"},
    {.own = "head", .hf = "lm_head.weight"},
    {0},
};

/* Norm of x with its own weight and bias. */
static int norm(const struct config_model *c, struct graph *graph, int x, const char *name)
{
    char bias[GRAPH_NAME];
    snprintf(bias, sizeof bias, "%s.bias", name);
    int w = transformer_row_vector(graph, &(struct transformer_tensor){name, c->hidden}, INIT_ONES);
    int b =
        transformer_row_vector(graph, &(struct transformer_tensor){bias, c->hidden}, INIT_ZEROS);
    return build_layernorm(graph, x, w, b, (float)c->norm_eps);
}

static void embed(const struct config_model *c, struct graph *graph)
{
    struct transformer_tensor tokens = {"embed", c->vocab}, places = {"positions", c->max_seq_len};
    const struct graph_division rows = transformer_rows(graph, 0);
    int table = transformer_divided_matrix(graph, &tokens, 1, c->hidden, c->init_std, rows);
    int positions = transformer_divided_matrix(graph, &places, 1, c->hidden, c->init_std, rows);
    int x = build_embedding(graph, build_tokens(graph), table);
    x = build_positions(graph, x, positions, transformer_positions(graph));
    x = build_scatter_rows(graph, x, graph->tensor);
    build_output(graph, transformer_dropout(graph, x, -1, c->dropout.embed, "embed"));
}

/* x + h w^T + b, of which training drops a share of what is added to x; without, x is added in the
 * product. */
static int add_back(const struct config_model *c, struct graph *graph, int x, int h, int w, int b,
                    const char *site)
{
    if (!graph->trains || !c->dropout.residual)
        return build_bias(graph, transformer_back(graph, h, w, x), b);
    int y = build_bias(graph, transformer_back(graph, h, w, -1), b);
    return transformer_dropout(graph, y, x, c->dropout.residual, site);
}

/* x + o(attention(qkv(h))) */
static int attention(const struct config_model *c, struct graph *graph, int x, int h)
{
    const struct transformer_qkv qkv = transformer_qkv(graph, c, TRANSFORMER_BIASED);
    int wo = transformer_attention_back(graph, c);
    int bo = transformer_row_vector(graph, &(struct transformer_tensor){"attn.o.bias", c->hidden},
                                    INIT_ZEROS);
    int o = transformer_attention(graph, c, transformer_all_rows(graph, h), &qkv, -1);
    return add_back(c, graph, x, o, wo, bo, "attn.o");
}

/* x + down(gelu(up(h))) */
static int mlp(const struct config_model *c, struct graph *graph, int x, int h)
{
    struct transformer_tensor up = {"mlp.up", c->ffn}, up_bias = {"mlp.up.bias", c->ffn};
    struct transformer_tensor down = {"mlp.down", c->hidden},
                              down_bias = {"mlp.down.bias", c->hidden};
    const struct graph_division rows = transformer_rows(graph, 0);
    int wup = transformer_divided_matrix(graph, &up, 1, c->hidden, c->init_std, rows);
    int bup = transformer_divided_vector(graph, &up_bias, 1, INIT_ZEROS, rows);
    int wdown = transformer_divided_matrix(graph, &down, 1, c->ffn, transformer_back_std(c),
                                           transformer_columns(graph, 0));
    int bdown = transformer_row_vector(graph, &down_bias, INIT_ZEROS);
    int u = transformer_linear(graph, transformer_all_rows(graph, h), wup);
    return add_back(c, graph, x, build_gelu(graph, u, bup), wdown, bdown, "mlp.down");
}

static void block(const struct config_model *c, struct graph *graph)
{
    int x = build_input(graph, c->hidden);
    x = attention(c, graph, x, norm(c, graph, x, "norm1"));
    x = mlp(c, graph, x, norm(c, graph, x, "norm2"));
    build_output(graph, x);
}

static void graph_of(const struct model *model, int kind, enum model_purpose purpose,
                     float loss_factor, struct graph *graph)
{
    const struct config_model *c = &model->config;
    transformer_begin(graph);
    if (kind == TRANSFORMER_EMBED) {
        embed(c, graph);
    } else if (kind == TRANSFORMER_BLOCK) {
        block(c, graph);
    } else {
        int h = norm(c, graph, build_input(graph, c->hidden), "norm");
        transformer_head(c, h, purpose, loss_factor, graph);
    }
}

/* Positions are parameters. */
static void no_table(const struct model *model, int64_t seq, float *table)
{
}

const struct model_family model_gpt2 = {
    .name = "gpt2",
    .names = gpt2_names,
    .units = transformer_units,
    .graph = graph_of,
    .table = no_table,
};
