/* op_layernorm.c - LayerNorm (Ba, Kiros and Hinton 2016, arXiv 1607.06450).
 *
 * inputs x, w, b;  outputs y, and mean and rstd of each row.  The gradient that has reached x by
 * its other uses is folded into the backward pass.
 */
#include "graph/autodiff.h"
#include "graph/op.h"
#include "device/ops.h"

enum { X, W, B };
enum { Y, STATS };

static void shapes(struct graph *graph, struct graph_node *node)
{
    struct graph_value x = graph->values[node->in[X]];
    for (int i = W; i <= B; i++)
        if (graph_elems(graph, node->in[i]) != x.dim[1])
            graph_fail(graph, "layernorm: %s has %lld elements, rows have %lld",
                       i == W ? "weight" : "bias", (long long)graph_elems(graph, node->in[i]),
                       (long long)x.dim[1]);
    node->out[Y] = graph_value(graph, VALUE_TEMP, x.dtype, 2, x.dim);
    node->out[STATS] = graph_value(graph, VALUE_TEMP, DTYPE_F32, 2, (int64_t[]){x.dim[0], 2});
}

static void gradient(struct autodiff *ad, const struct graph_node *node, int dy)
{
    int dsum = autodiff_take(ad, node->in[X]);
    int backward = autodiff_node(ad, &op_layernorm_backward,
                                 (int[]){dy, dsum, node->in[X], node->in[W], node->out[STATS]}, 5,
                                 &node->attrs);
    autodiff_param(ad, backward, 1, node->in[W]);
    autodiff_param(ad, backward, 2, node->in[B]);
    autodiff_give(ad, node->in[X], ad->graph->nodes[backward].out[0]);
}

static int run(const struct op_call *call, struct error *err)
{
    call->device->ops->layernorm(call->device, call->graph->dtype, call->out[Y], call->out[STATS],
                                 call->in[X], call->in[W], call->in[B], call->shape[0],
                                 call->shape[1], call->node->attrs.eps);
    return 0;
}

const struct op op_layernorm = {
    .name = "layernorm",
    .shapes = shapes,
    .gradient = gradient,
    .flops_each = 7,
    .run = run,
    .in_format = 1u << 0 | 1u << 1 | 1u << 2,
};

static size_t backward_scratch(struct device *d, const struct graph *graph,
                               const struct graph_node *node)
{
    const struct graph_value *dy = &graph->values[node->in[0]];
    return d->ops->norm_backward_scratch(d, dy->dim[0], dy->dim[1], 2);
}

static int backward_run(const struct op_call *call, struct error *err)
{
    call->device->ops->layernorm_backward(call->device, call->graph->dtype, call->out[0],
                                          call->out[1], call->out[2], call->in[0], call->in[1],
                                          call->in[2], call->in[3], call->in[4], call->shape[0],
                                          call->shape[1], call->accumulate, call->scratch);
    return 0;
}

const struct op op_layernorm_backward = {
    .name = "layernorm_backward",
    .shapes = op_shaped_as_first,
    .flops_each = 12,
    .scratch = backward_scratch,
    .run = backward_run,
    .in_format = 1u << 0 | 1u << 1 | 1u << 2 | 1u << 3,
    .in_place = 1u << 0 | 1u << 1,
};
