/* op_norm.c - RMSNorm (Zhang and Sennrich 2019), with the residual sum in front of it.
 *
 * inputs x, delta (absent: none), w;  outputs y, x' = x + delta (absent without delta: x' is x),
 * rstd.  The gradient that has reached x' by its other uses is folded into the backward pass.
 */
#include "graph/autodiff.h"
#include "graph/op.h"
#include "device/ops.h"

enum { X, DELTA, W };
enum { Y, SUM, RSTD };

static void shapes(struct graph *graph, struct graph_node *node)
{
    struct graph_value x = graph->values[node->in[X]];
    if (graph->values[node->in[W]].dim[0] != x.dim[1])
        graph_fail(graph, "rmsnorm: weight has %lld elements, rows have %lld",
                   (long long)graph->values[node->in[W]].dim[0], (long long)x.dim[1]);
    if (node->in[DELTA] >= 0 && graph_elems(graph, node->in[DELTA]) != x.dim[0] * x.dim[1])
        graph_fail(graph, "rmsnorm: what is added has another shape than what it is added to");
    node->out[Y] = graph_value(graph, VALUE_TEMP, x.dtype, 2, x.dim);
    if (node->in[DELTA] >= 0)
        node->out[SUM] = graph_value(graph, VALUE_TEMP, x.dtype, 2, x.dim);
    node->out[RSTD] = graph_value(graph, VALUE_TEMP, DTYPE_F32, 1, x.dim);
}

static void gradient(struct autodiff *ad, const struct graph_node *node, int dy)
{
    int stream = node->out[SUM] >= 0 ? node->out[SUM] : node->in[X];
    int dsum = autodiff_take(ad, stream);
    int backward =
        autodiff_node(ad, &op_rmsnorm_backward,
                      (int[]){dy, dsum, stream, node->in[W], node->out[RSTD]}, 5, &node->attrs);
    autodiff_param(ad, backward, 1, node->in[W]);
    int dx = ad->graph->nodes[backward].out[0];
    autodiff_give(ad, node->in[X], dx);
    if (node->in[DELTA] >= 0)
        autodiff_give(ad, node->in[DELTA], dx);
}

static int run(const struct op_call *call, struct error *err)
{
    call->device->ops->rmsnorm(call->device, call->graph->dtype, call->out[Y], call->out[SUM],
                               call->out[RSTD], call->in[X], call->in[DELTA], call->in[W],
                               call->shape[0], call->shape[1], call->node->attrs.eps);
    return 0;
}

const struct op op_rmsnorm = {
    .name = "rmsnorm",
    .shapes = shapes,
    .gradient = gradient,
    .flops_each = 5,
    .run = run,
    .in_format = 1u << 0 | 1u << 1 | 1u << 2,
};

static size_t backward_scratch(struct device *d, const struct graph *graph,
                               const struct graph_node *node)
{
    const struct graph_value *dy = &graph->values[node->in[0]];
    return d->ops->norm_backward_scratch(d, dy->dim[0], dy->dim[1], 1);
}

static int backward_run(const struct op_call *call, struct error *err)
{
    call->device->ops->rmsnorm_backward(call->device, call->graph->dtype, call->out[0],
                                        call->out[1], call->in[0], call->in[1], call->in[2],
                                        call->in[3], call->in[4], call->shape[0], call->shape[1],
                                        call->accumulate, call->scratch);
    return 0;
}

const struct op op_rmsnorm_backward = {
    .name = "rmsnorm_backward",
    .shapes = op_shaped_as_first,
    .flops_each = 9,
    .scratch = backward_scratch,
    .run = backward_run,
    .in_format = 1u << 0 | 1u << 1 | 1u << 2 | 1u << 3,
    .in_place = 1u << 0 | 1u << 1,
};
