/* op_elementwise.c - token embedding, SwiGLU, a factor, and rounding to the format of a graph. */
#include "graph/autodiff.h"
#include "graph/op.h"
#include "device/ops.h"

/* embedding: inputs tokens [rows], table [vocab, hidden]; output y [rows, hidden].  Where a rank
 * has only some rows of the table, from attrs.first on, y is the rank's term of the sum over ranks.
 */
static void embedding_shapes(struct graph *graph, struct graph_node *node)
{
    int64_t shape[2] = {graph_elems(graph, node->in[0]), graph->values[node->in[1]].dim[1]};
    node->out[0] = graph_value(graph, VALUE_TEMP, graph->dtype, 2, shape);
}

static void embedding_gradient(struct autodiff *ad, const struct graph_node *node, int dy)
{
    int back = autodiff_node(ad, &op_embedding_backward, (int[]){dy, node->in[0]}, 2, &node->attrs);
    autodiff_param(ad, back, 0, node->in[1]);
}

static int embedding_run(const struct op_call *call, struct error *err)
{
    const struct graph_value *y = &call->graph->values[call->node->out[0]];
    const struct graph_value *table = &call->graph->values[call->node->in[1]];
    call->device->ops->embedding(call->device, call->graph->dtype, call->out[0], call->in[1],
                                 call->in[0], y->dim[0], y->dim[1], call->node->attrs.first,
                                 table->dim[0]);
    return 0;
}

/* Bytes: of the table only the rows that are looked up count. */
static double embedding_bytes(const struct graph *graph, const struct graph_node *node)
{
    return 2 * (double)graph_bytes(graph, node->out[0]);
}

const struct op op_embedding = {
    .name = "embedding",
    .shapes = embedding_shapes,
    .bytes = embedding_bytes,
    .gradient = embedding_gradient,
    .run = embedding_run,
    .in_format = 1u << 1,
};

static int embedding_backward_run(const struct op_call *call, struct error *err)
{
    const struct graph_value *table = &call->graph->values[call->node->out[0]];
    call->device->ops->embedding_backward(call->device, call->graph->dtype, call->out[0],
                                          call->in[0], call->in[1], call->shape[0], call->shape[1],
                                          call->node->attrs.first, table->dim[0], call->accumulate);
    return 0;
}

const struct op op_embedding_backward = {
    .name = "embedding_backward",
    .run = embedding_backward_run,
    .in_format = 1u << 0,
};

/* swiglu: input gate_up [rows, 2 * ffn]; output y [rows, ffn] */
static void swiglu_shapes(struct graph *graph, struct graph_node *node)
{
    struct graph_value x = graph->values[node->in[0]];
    if (x.dim[1] % 2)
        graph_fail(graph, "swiglu: %lld columns are not a gate and an up half",
                   (long long)x.dim[1]);
    int64_t shape[2] = {x.dim[0], x.dim[1] / 2};
    node->out[0] = graph_value(graph, VALUE_TEMP, x.dtype, 2, shape);
}

static void swiglu_gradient(struct autodiff *ad, const struct graph_node *node, int dy)
{
    int back = autodiff_node(ad, &op_swiglu_backward, (int[]){dy, node->in[0]}, 2, &node->attrs);
    autodiff_give(ad, node->in[0], ad->graph->nodes[back].out[0]);
}

static int swiglu_run(const struct op_call *call, struct error *err)
{
    const struct graph_value *y = &call->graph->values[call->node->out[0]];
    call->device->ops->swiglu(call->device, call->graph->dtype, call->out[0], call->in[0],
                              y->dim[0], y->dim[1]);
    return 0;
}

const struct op op_swiglu = {
    .name = "swiglu",
    .shapes = swiglu_shapes,
    .gradient = swiglu_gradient,
    .flops_each = 2.5,
    .run = swiglu_run,
    .in_format = 1u << 0,
};

static int swiglu_backward_run(const struct op_call *call, struct error *err)
{
    call->device->ops->swiglu_backward(call->device, call->graph->dtype, call->out[0], call->in[0],
                                       call->in[1], call->shape[0], call->shape[1]);
    return 0;
}

const struct op op_swiglu_backward = {
    .name = "swiglu_backward",
    .shapes = op_shaped_as_second,
    .flops_each = 10,
    .run = swiglu_backward_run,
    .in_format = 1u << 0 | 1u << 1,
    .in_place = 1u << 1,
};

/* round: input x, fp32; output y, x in the graph's format.  dy is given to x in y's format: the
 * rules of the ops that make an fp32 x, products and exchanges, take a gradient in either format.
 */
static void round_shapes(struct graph *graph, struct graph_node *node)
{
    const struct graph_value x = graph->values[node->in[0]];
    node->out[0] = graph_value(graph, VALUE_TEMP, graph->dtype, x.dims, x.dim);
}

static void round_gradient(struct autodiff *ad, const struct graph_node *node, int dy)
{
    autodiff_give(ad, node->in[0], dy);
}

static int round_run(const struct op_call *call, struct error *err)
{
    int x = call->node->in[0];
    call->device->ops->cast(call->device, call->graph->dtype, call->out[0],
                            call->graph->values[x].dtype, call->in[0], graph_elems(call->graph, x));
    return 0;
}

const struct op op_round = {
    .name = "round",
    .shapes = round_shapes,
    .gradient = round_gradient,
    .flops_each = 1,
    .run = round_run,
};

/* y = x * attrs.scale, and dx = dy * attrs.scale */
static void scale_gradient(struct autodiff *ad, const struct graph_node *node, int dy)
{
    int back = autodiff_node(ad, &op_scale, &dy, 1, &node->attrs);
    autodiff_give(ad, node->in[0], ad->graph->nodes[back].out[0]);
}

static int scale_run(const struct op_call *call, struct error *err)
{
    int x = call->node->in[0];
    call->device->ops->scale(call->device, call->graph->values[x].dtype, call->out[0], call->in[0],
                             call->node->attrs.scale, graph_elems(call->graph, x));
    return 0;
}

const struct op op_scale = {
    .name = "scale",
    .shapes = op_shaped_as_first,
    .gradient = scale_gradient,
    .flops_each = 1,
    .run = scale_run,
    .in_place = 1u << 0,
};
