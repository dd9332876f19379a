/* op_elementwise.c - SwiGLU, a factor, rounding to the format of a graph, and sums of two tensors.
 */
#include "graph/autodiff.h"
#include "graph/op.h"
#include "device/ops.h"

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

static void add_shapes(struct graph *graph, struct graph_node *node)
{
    int64_t elems = graph_elems(graph, node->in[0]), others = graph_elems(graph, node->in[1]);
    if (elems != others)
        graph_fail(graph, "add: %lld and %lld elements", (long long)elems, (long long)others);
    op_shaped_as_first(graph, node);
}

static void add_gradient(struct autodiff *ad, const struct graph_node *node, int dy)
{
    autodiff_give(ad, node->in[0], dy);
    autodiff_give(ad, node->in[1], dy);
}

static int add_run(const struct op_call *call, struct error *err)
{
    call->device->ops->add(call->device, call->graph->dtype, call->out[0], call->in[0], call->in[1],
                           graph_elems(call->graph, call->node->out[0]));
    return 0;
}

const struct op op_add = {
    .name = "add",
    .shapes = add_shapes,
    .gradient = add_gradient,
    .flops_each = 1,
    .run = add_run,
    .in_format = 1u << 0 | 1u << 1,
    .in_place = 1u << 0 | 1u << 1,
};

/* y = x, or y += x: adds a unit's term to the gradient of an input that other units read too. */
static int accumulate_run(const struct op_call *call, struct error *err)
{
    const struct device_ops *ops = call->device->ops;
    int x = call->node->in[0];
    if (call->accumulate)
        ops->add(call->device, call->graph->values[x].dtype, call->out[0], call->out[0],
                 call->in[0], graph_elems(call->graph, x));
    else
        ops->copy(call->device, call->out[0], call->in[0], graph_bytes(call->graph, x));
    return 0;
}

const struct op op_accumulate = {
    .name = "accumulate",
    .shapes = op_shaped_as_first,
    .flops_each = 1,
    .run = accumulate_run,
};
