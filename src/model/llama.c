/* llama.c - Touvron et al. 2023 (arXiv 2302.13971), Grattafiori et al. 2024 (2407.21783); with
 * options of it Mistral (2310.06825): a sliding window, Qwen2 (2407.10671): biases of queries, keys
 * and values, Qwen3 (2505.09388): norms over heads of queries and keys, and Mixtral (2401.04088)
 * and Qwen3-MoE: experts.
 *
 * Units: the embedding, one per layer, and the final norm with the head.  Query, key and
 * value weights are stacked so that one product makes all three; so are gate and up.  Their
 * logical tensors stay separate.
 */
#include <math.h>

#include "graph/build.h"
#include "model/experts.h"
#include "model/names.h"
#include "model/transformer.h"

#define QKV \
    .of = NAMES_STACKED, .hf = "model.layers.%s.self_attn.qkv_proj.weight", .stack = STACK_QKV
#define GATE_UP \
    .of = NAMES_STACKED, .hf = "model.layers.%s.mlp.gate_up_proj.weight", .stack = STACK_GATE_UP

/* The rows of one kind of files come before those of all. */
static const struct model_name llama_names[] = {
    {.own = "layers.%s.attn.q", QKV, .number = 0},
    {.own = "layers.%s.attn.k", QKV, .number = 1},
    {.own = "layers.%s.attn.v", QKV, .number = 2},
    {.own = "layers.%s.mlp.gate", GATE_UP, .number = 0},
    {.own = "layers.%s.mlp.up", GATE_UP, .number = 1},
    {.own = "embed", .hf = "model.embed_tokens.weight"},
    {.own = "layers.%s.norm1", .hf = "model.layers.%s.input_layernorm.weight"},
    {.own = "layers.%s.attn.q", .hf = "model.layers.%s.self_attn.q_proj.weight"},
    {.own = "layers.%s.attn.k", .hf = "model.layers.%s.self_attn.k_proj.weight"},
    {.own = "layers.%s.attn.v", .hf = "model.layers.%s.self_attn.v_proj.weight"},
    {.own = "layers.%s.attn.q.bias", .hf = "model.layers.%s.self_attn.q_proj.bias"},
    {.own = "layers.%s.attn.k.bias", .hf = "model.layers.%s.self_attn.k_proj.bias"},
    {.own = "layers.%s.attn.v.bias", .hf = "model.layers.%s.self_attn.v_proj.bias"},
    {.own = "layers.%s.attn.q.norm", .hf = "model.layers.%s.self_attn.q_norm.weight"},
    {.own = "layers.%s.attn.k.norm", .hf = "model.layers.%s.self_attn.k_norm.weight"},
    {.own = "layers.%s.attn.o", .hf = "model.layers.%s.self_attn.o_proj.weight"},
    {.own = "layers.%s.norm2", .hf = "model.layers.%s.post_attention_layernorm.weight"},
    {.own = "layers.%s.mlp.gate", .hf = "model.layers.%s.mlp.gate_proj.weight"},
    {.own = "layers.%s.mlp.up", .hf = "model.layers.%s.mlp.up_proj.weight"},
    {.own = "layers.%s.mlp.down", .hf = "model.layers.%s.mlp.down_proj.weight"},
    {.own = "layers.%s.mlp.router",
     .of = NAMES_MIXTRAL,
     .hf = "model.layers.%s.block_sparse_moe.gate.weight"},
    {.own = "layers.%s.mlp.experts.gate_up",
     .of = NAMES_MIXTRAL,
     .hf = "model.layers.%s.block_sparse_moe.experts.%e.w1.weight",
     .hf_next = "model.layers.%s.block_sparse_moe.experts.%e.w3.weight"},
    {.own = "layers.%s.mlp.experts.down",
     .of = NAMES_MIXTRAL,
     .hf = "model.layers.%s.block_sparse_moe.experts.%e.w2.weight"},
    {.own = "layers.%s.mlp.router", .of = NAMES_QWEN3_MOE, .hf = "model.layers.%s.mlp.gate.weight"},
    {.own = "layers.%s.mlp.experts.gate_up",
     .of = NAMES_QWEN3_MOE,
     .hf = "model.layers.%s.mlp.experts.%e.gate_proj.weight",
     .hf_next = "model.layers.%s.mlp.experts.%e.up_proj.weight"},
    {.own = "layers.%s.mlp.experts.down",
     .of = NAMES_QWEN3_MOE,
     .hf = "model.layers.%s.mlp.experts.%e.down_proj.weight"},
    {.own = "layers.%s.mlp.router", .of = NAMES_FUSED, .hf = "model.layers.%s.mlp.gate.weight"},
    {.own = "layers.%s.mlp.experts.gate_up",
     .of = NAMES_FUSED,
     .hf = "model.layers.%s.mlp.experts.gate_up_proj"},
    {.own = "layers.%s.mlp.experts.down",
     .of = NAMES_FUSED,
     .hf = "model.layers.%s.mlp.experts.down_proj"},
    {.own = "norm", .hf = "model.norm.weight"},
    {.own = "head", .hf = "lm_head.weight"},
    {0},
};

static void units(struct model *model)
{
    transformer_units(model);
    model->const_width = model->config.head_dim;
}

static int norm_weight(struct graph *graph, const char *name, int64_t hidden)
{
    return transformer_row_vector(graph, &(struct transformer_tensor){name, hidden}, INIT_ONES);
}

static void embed(const struct config_model *c, struct graph *graph)
{
    int table =
        transformer_divided_matrix(graph, (struct transformer_tensor[]){{"embed", c->vocab}}, 1,
                                   c->hidden, c->init_std, transformer_rows(graph, 0));
    int x = build_embedding(graph, build_tokens(graph), table);
    build_output(graph, build_scatter_rows(graph, x, graph->tensor));
}

/* The matrices after the second norm: those of one feed-forward layer, or of experts. */
struct feed_forward {
    int gate_up, down;
    struct experts experts;
};

static struct feed_forward declare_feed_forward(const struct config_model *c, struct graph *graph)
{
    const struct transformer_tensor gate_up[] = {{"mlp.gate", c->ffn}, {"mlp.up", c->ffn}};
    const struct transformer_tensor down = {"mlp.down", c->hidden};
    if (c->experts.count)
        return (struct feed_forward){.experts = experts_declare(graph, c)};
    return (struct feed_forward){
        .gate_up = transformer_divided_matrix(graph, gate_up, 2, c->hidden, c->init_std,
                                              transformer_rows(graph, 0)),
        .down = transformer_divided_matrix(graph, &down, 1, c->ffn, transformer_back_std(c),
                                           transformer_columns(graph, 0))};
}

/* addend + down(swiglu(h)), or what experts make of h */
static int feed_forward(const struct config_model *c, struct graph *graph,
                        const struct feed_forward *own, int h, int addend, float loss_factor)
{
    if (c->experts.count)
        return experts_forward(graph, c, &own->experts, h, addend, loss_factor);
    int s = build_swiglu(graph, transformer_linear(graph, h, own->gate_up));
    return transformer_back(graph, s, own->down, addend);
}

/* x2 = x + o(attention(norm1(x)));  y = x2 + feed_forward(norm2(x2)) */
static void block(const struct config_model *c, struct graph *graph, float loss_factor)
{
    float eps = (float)c->norm_eps;
    int x = build_input(graph, c->hidden);
    int table = build_rope_table(graph, c->head_dim);
    int norm1 = norm_weight(graph, "norm1", c->hidden);
    const struct transformer_qkv qkv =
        transformer_qkv(graph, c, c->qkv_bias ? TRANSFORMER_BIASED : TRANSFORMER_PLAIN);
    int wo = transformer_attention_back(graph, c);
    int norm2 = norm_weight(graph, "norm2", c->hidden);
    const struct feed_forward after = declare_feed_forward(c, graph);

    int h = transformer_all_rows(graph, build_rmsnorm(graph, x, norm1, eps));
    int o = transformer_attention(graph, c, h, &qkv, table);
    int x2,
        h2 = build_rmsnorm_residual(graph, x, transformer_back(graph, o, wo, -1), norm2, eps, &x2);
    build_output(graph,
                 feed_forward(c, graph, &after, transformer_all_rows(graph, h2), x2, loss_factor));
}

static void graph_of(const struct model *model, int kind, enum model_purpose purpose,
                     float loss_factor, struct graph *graph)
{
    const struct config_model *c = &model->config;
    transformer_begin(graph);
    if (kind == TRANSFORMER_EMBED) {
        embed(c, graph);
    } else if (kind == TRANSFORMER_BLOCK) {
        block(c, graph, loss_factor);
    } else {
        int x = build_input(graph, c->hidden);
        int norm = norm_weight(graph, "norm", c->hidden);
        int h = build_rmsnorm(graph, x, norm, (float)c->norm_eps);
        transformer_head(c, h, purpose, loss_factor, graph);
    }
}

/* ---- rotary positions ---- */

/* Llama 3.1's scaling of rotary frequencies: those with wavelengths beyond the original context are
 * divided by factor, those with short wavelengths are kept, and those in between are interpolated.
 */
static double stretch_llama3(const struct config_rope *r, double frequency)
{
    double rotations = (double)r->original_len * frequency / (2 * M_PI);
    if (rotations < r->low_freq_factor)
        return frequency / r->factor;
    if (rotations > r->high_freq_factor)
        return frequency;
    double blend = (rotations - r->low_freq_factor) / (r->high_freq_factor - r->low_freq_factor);
    return (1 - blend) * frequency / r->factor + blend * frequency;
}

/* The number, not always a whole one, of the frequency that rotates so often within the original
 * context. */
static double frequency_rotating(const struct config_rope *r, double rotations, int64_t head_dim)
{
    return (double)head_dim * log((double)r->original_len / (rotations * 2 * M_PI)) /
           (2 * log(r->theta));
}

/* YaRN (Peng et al. 2023, arXiv 2309.00071): from the frequency that rotates beta_fast times on
 * they are stretched more and more, and whole from that of beta_slow on. */
static double stretch_yarn(const struct config_rope *r, double frequency, int64_t i,
                           int64_t head_dim)
{
    double low = frequency_rotating(r, r->yarn.beta_fast, head_dim);
    double high = frequency_rotating(r, r->yarn.beta_slow, head_dim);
    if (r->yarn.truncate) {
        low = floor(low);
        high = ceil(high);
    }
    low = fmax(low, 0);
    high = fmin(high, (double)(head_dim - 1));
    if (low == high)
        high += 0.001;
    double share = fmin(fmax(((double)i - low) / (high - low), 0), 1);
    return share * frequency / r->factor + (1 - share) * frequency;
}

/* The i-th frequency. */
static double frequency_of(const struct config_rope *r, int64_t i, int64_t head_dim)
{
    double frequency = pow(r->theta, -2.0 * (double)i / (double)head_dim);
    switch (r->scaling) {
    case ROPE_SCALING_LINEAR: return frequency / r->factor;
    case ROPE_SCALING_LLAMA3: return stretch_llama3(r, frequency);
    case ROPE_SCALING_YARN: return stretch_yarn(r, frequency, i, head_dim);
    case ROPE_SCALING_NONE: break;
    }
    return frequency;
}

static double yarn_scale(double factor, double m)
{
    return factor <= 1 ? 1 : 0.1 * m * log(factor) + 1;
}

/* What cosines and sines are multiplied by, and with them queries and keys. */
static double attention_factor(const struct config_rope *r)
{
    const struct config_yarn *yarn = &r->yarn;
    if (r->scaling != ROPE_SCALING_YARN)
        return 1;
    if (yarn->attention_factor > 0)
        return yarn->attention_factor;
    if (yarn->mscale > 0 && yarn->mscale_all_dim > 0)
        return yarn_scale(r->factor, yarn->mscale) / yarn_scale(r->factor, yarn->mscale_all_dim);
    return yarn_scale(r->factor, 1);
}

static void table_of(const struct model *model, int64_t seq, float *table)
{
    const struct config_model *c = &model->config;
    const double factor = attention_factor(&c->rope);
    int64_t half = c->head_dim / 2;
    for (int64_t i = 0; i < half; i++) {
        double frequency = frequency_of(&c->rope, i, c->head_dim);
        for (int64_t t = 0; t < seq; t++) {
            table[t * 2 * half + i] = (float)(factor * cos((double)t * frequency));
            table[t * 2 * half + half + i] = (float)(factor * sin((double)t * frequency));
        }
    }
}

const struct model_family model_llama = {
    .name = "llama",
    .names = llama_names,
    .units = units,
    .graph = graph_of,
    .table = table_of,
};
