/* op_attention.c - rotary positions and causal grouped-query attention.
 *
 * rope: inputs x, cos_sin; output y.  attention: input qkv; outputs o, lse.
 */
#include "graph/autodiff.h"
#include "graph/op.h"
#include "device/ops.h"

static struct rope rope_of(const struct graph *graph, const struct graph_node *node)
{
    const struct op_attrs *a = &node->attrs;
    return (struct rope){
        .dt = graph->dtype,
        .rows = graph->values[node->in[0]].dim[0],
        .seq = a->seq,
        .row_heads = a->heads + 2 * a->kv_heads,
        .rotated = a->rotated,
        .head_dim = a->head_dim,
        .inverse = a->inverse,
    };
}

static void rope_shapes(struct graph *graph, struct graph_node *node)
{
    struct graph_value x = graph->values[node->in[0]];
    const struct op_attrs *a = &node->attrs;
    if (x.dim[1] != (a->heads + 2 * a->kv_heads) * a->head_dim || a->head_dim % 2) {
        graph_fail(graph, "rope: rows of %lld are not %lld + 2 x %lld heads of %lld (even)",
                   (long long)x.dim[1], (long long)a->heads, (long long)a->kv_heads,
                   (long long)a->head_dim);
        return;
    }
    node->out[0] = graph_value(graph, VALUE_TEMP, x.dtype, 2, x.dim);
}

static void rope_gradient(struct autodiff *ad, int index)
{
    struct graph_node node = ad->graph->nodes[index];
    int dy = autodiff_grad(ad, node.out[0]);
    if (dy < 0)
        return;
    node.attrs.inverse = !node.attrs.inverse;
    int back = autodiff_node(ad, OP_ROPE, (int[]){dy, node.in[1]}, 2, &node.attrs);
    autodiff_give(ad, node.in[0], ad->graph->nodes[back].out[0]);
}

static double rope_flops(const struct graph *graph, const struct graph_node *node)
{
    return 3.0 * (double)graph->values[node->in[0]].dim[0] *
           (double)(node->attrs.rotated * node->attrs.head_dim);
}

static int rope_run(const struct op_call *call, struct error *err)
{
    struct rope rope = rope_of(call->graph, call->node);
    call->device->ops->rope(call->device, &rope, call->out[0], call->in[0], call->in[1]);
    return 0;
}

const struct op op_rope = {
    .name = "rope",
    .shapes = rope_shapes,
    .gradient = rope_gradient,
    .flops = rope_flops,
    .run = rope_run,
    .in_place = 1u << 0,
};

static struct attention attention_of(const struct graph *graph, const struct graph_node *node)
{
    const struct op_attrs *a = &node->attrs;
    return (struct attention){
        .dt = graph->dtype,
        .batch = graph->rows / a->seq,
        .seq = a->seq,
        .heads = a->heads,
        .kv_heads = a->kv_heads,
        .head_dim = a->head_dim,
        .scale = a->scale,
    };
}

static void attention_shapes(struct graph *graph, struct graph_node *node)
{
    struct attention a = attention_of(graph, node);
    if (a.kv_heads < 1 || a.heads % a.kv_heads) {
        graph_fail(graph, "attention: %lld heads are not a multiple of %lld key-value heads",
                   (long long)a.heads, (long long)a.kv_heads);
        return;
    }
    int64_t out[2] = {graph->rows, a.heads * a.head_dim};
    int64_t lse[3] = {a.batch, a.heads, a.seq};
    node->out[0] = graph_value(graph, VALUE_TEMP, graph->dtype, 2, out);
    node->out[1] = graph_value(graph, VALUE_TEMP, DTYPE_F32, 3, lse);
}

static void attention_gradient(struct autodiff *ad, int index)
{
    struct graph_node node = ad->graph->nodes[index];
    int dout = autodiff_grad(ad, node.out[0]);
    if (dout < 0)
        return;
    int back = autodiff_node(ad, OP_ATTENTION_BACKWARD,
                             (int[]){dout, node.out[0], node.out[1], node.in[0]}, 4, &node.attrs);
    autodiff_give(ad, node.in[0], ad->graph->nodes[back].out[0]);
}

/* Products of the causal half: each is 2 * head_dim per pair of positions. */
static double products(const struct graph *graph, const struct graph_node *node, int count)
{
    struct attention a = attention_of(graph, node);
    double pairs = 0.5 * (double)a.seq * (double)(a.seq + 1);
    return count * 2.0 * (double)(a.batch * a.heads * a.head_dim) * pairs;
}

static double attention_flops(const struct graph *graph, const struct graph_node *node)
{
    return products(graph, node, 2);
}

static size_t attention_scratch(struct device *d, const struct graph *graph,
                                const struct graph_node *node)
{
    struct attention a = attention_of(graph, node);
    return d->ops->attention_scratch(d, &a, DEVICE_FORWARD);
}

static int attention_run(const struct op_call *call, struct error *err)
{
    struct attention a = attention_of(call->graph, call->node);
    call->device->ops->attention(call->device, &a, call->out[0], call->out[1], call->in[0],
                                 call->scratch);
    return 0;
}

const struct op op_attention = {
    .name = "attention",
    .shapes = attention_shapes,
    .gradient = attention_gradient,
    .flops = attention_flops,
    .scratch = attention_scratch,
    .run = attention_run,
};

static void backward_shapes(struct graph *graph, struct graph_node *node)
{
    struct graph_value qkv = graph->values[node->in[3]];
    node->out[0] = graph_value(graph, VALUE_TEMP, qkv.dtype, 2, qkv.dim);
}

static double backward_flops(const struct graph *graph, const struct graph_node *node)
{
    return products(graph, node, 5);
}

static size_t backward_scratch(struct device *d, const struct graph *graph,
                               const struct graph_node *node)
{
    struct attention a = attention_of(graph, node);
    return d->ops->attention_scratch(d, &a, DEVICE_BACKWARD);
}

static int backward_run(const struct op_call *call, struct error *err)
{
    struct attention a = attention_of(call->graph, call->node);
    call->device->ops->attention_backward(call->device, &a, call->out[0], call->in[0], call->in[1],
                                          call->in[2], call->in[3], call->scratch);
    return 0;
}

const struct op op_attention_backward = {
    .name = "attention_backward",
    .shapes = backward_shapes,
    .flops = backward_flops,
    .scratch = backward_scratch,
    .run = backward_run,
};
