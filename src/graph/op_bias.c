/* op_bias.c - what is added to every row: biases, alone or in front of GELU, and learned
 * positions, which are a bias of whole sequences.
 *
 * The gradient passes through to what was added to; that of the bias is the sum over rows.
 */
#include "graph/autodiff.h"
#include "graph/op.h"
#include "device/ops.h"

/* bias and gelu: inputs x [rows, cols], b [cols]; output y */
static void shapes(struct graph *graph, struct graph_node *node)
{
    struct graph_value x = graph->values[node->in[0]];
    int64_t elems = graph_elems(graph, node->in[1]);
    if (elems != x.dim[1]) {
        graph_fail(graph, "%s: bias has %lld elements, rows have %lld", node->op->name,
                   (long long)elems, (long long)x.dim[1]);
        return;
    }
    node->out[0] = graph_value(graph, VALUE_TEMP, x.dtype, 2, x.dim);
}

static void give_bias(struct autodiff *ad, int bias, int dy)
{
    struct op_attrs none = {0};
    autodiff_param(ad, autodiff_node(ad, &op_bias_backward, (int[]){dy}, 1, &none), 0, bias);
}

static void bias_gradient(struct autodiff *ad, const struct graph_node *node, int dy)
{
    give_bias(ad, node->in[1], dy);
    autodiff_give(ad, node->in[0], dy);
}

static int bias_run(const struct op_call *call, struct error *err)
{
    const struct graph_value *x = &call->graph->values[call->node->in[0]];
    call->device->ops->bias(call->device, call->graph->dtype, call->out[0], call->in[0],
                            call->in[1], x->dim[0], x->dim[1]);
    return 0;
}

/* The sum is kept in place of the product to which the bias is added. */
const struct op op_bias = {
    .name = "bias",
    .shapes = shapes,
    .gradient = bias_gradient,
    .flops_each = 1,
    .run = bias_run,
    .in_place = 1u << 0,
    .keep = 1,
};

static size_t bias_backward_scratch(struct device *d, const struct graph *graph,
                                    const struct graph_node *node)
{
    const struct graph_value *dy = &graph->values[node->in[0]];
    return d->ops->bias_backward_scratch(d, dy->dim[0], dy->dim[1]);
}

static int bias_backward_run(const struct op_call *call, struct error *err)
{
    const struct graph_value *dy = &call->graph->values[call->node->in[0]];
    call->device->ops->bias_backward(call->device, call->graph->dtype, call->out[0], call->in[0],
                                     dy->dim[0], dy->dim[1], call->accumulate, call->scratch);
    return 0;
}

const struct op op_bias_backward = {
    .name = "bias_backward",
    .flops_each = 1,
    .scratch = bias_backward_scratch,
    .run = bias_backward_run,
};

static void gelu_gradient(struct autodiff *ad, const struct graph_node *node, int dy)
{
    int back = autodiff_node(ad, &op_gelu_backward, (int[]){dy, node->in[0], node->in[1]}, 3,
                             &node->attrs);
    int dx = ad->graph->nodes[back].out[0];
    give_bias(ad, node->in[1], dx);
    autodiff_give(ad, node->in[0], dx);
}

static int gelu_run(const struct op_call *call, struct error *err)
{
    const struct graph_value *x = &call->graph->values[call->node->in[0]];
    call->device->ops->gelu(call->device, call->graph->dtype, call->out[0], call->in[0],
                            call->in[1], x->dim[0], x->dim[1]);
    return 0;
}

const struct op op_gelu = {
    .name = "gelu",
    .shapes = shapes,
    .gradient = gelu_gradient,
    .flops_each = 10,
    .run = gelu_run,
};

static int gelu_backward_run(const struct op_call *call, struct error *err)
{
    const struct graph_value *x = &call->graph->values[call->node->in[1]];
    call->device->ops->gelu_backward(call->device, call->graph->dtype, call->out[0], call->in[0],
                                     call->in[1], call->in[2], x->dim[0], x->dim[1]);
    return 0;
}

const struct op op_gelu_backward = {
    .name = "gelu_backward",
    .shapes = op_shaped_as_second,
    .flops_each = 18,
    .run = gelu_backward_run,
    .in_place = 1u << 0 | 1u << 1,
};

/* positions: inputs x [rows, hidden], table [positions, hidden]; y[r,:] = x[r,:] +
 * table[r % seq,:], which is the first seq rows of the table added to every sequence. */
static void positions_shapes(struct graph *graph, struct graph_node *node)
{
    struct graph_value x = graph->values[node->in[0]], table = graph->values[node->in[1]];
    if (table.dim[1] != x.dim[1] || table.dim[0] < node->attrs.seq) {
        graph_fail(graph, "positions: a table of %lld x %lld for sequences of %lld x %lld",
                   (long long)table.dim[0], (long long)table.dim[1], (long long)node->attrs.seq,
                   (long long)x.dim[1]);
        return;
    }
    node->out[0] = graph_value(graph, VALUE_TEMP, x.dtype, 2, x.dim);
}

static void positions_gradient(struct autodiff *ad, const struct graph_node *node, int dy)
{
    int back = autodiff_node(ad, &op_positions_backward, (int[]){dy}, 1, &node->attrs);
    autodiff_param(ad, back, 0, node->in[1]);
    autodiff_give(ad, node->in[0], dy);
}

/* The batch and the elements of a sequence, of x or of dy. */
struct sequences {
    int64_t batch, elems;
};

static struct sequences sequences_of(const struct graph *graph, const struct graph_node *node)
{
    const struct graph_value *x = &graph->values[node->in[0]];
    return (struct sequences){x->dim[0] / node->attrs.seq, node->attrs.seq * x->dim[1]};
}

static int positions_run(const struct op_call *call, struct error *err)
{
    struct sequences s = sequences_of(call->graph, call->node);
    call->device->ops->bias(call->device, call->graph->dtype, call->out[0], call->in[0],
                            call->in[1], s.batch, s.elems);
    return 0;
}

const struct op op_positions = {
    .name = "positions",
    .shapes = positions_shapes,
    .gradient = positions_gradient,
    .flops_each = 1,
    .run = positions_run,
    .in_place = 1u << 0,
};

static size_t positions_backward_scratch(struct device *d, const struct graph *graph,
                                         const struct graph_node *node)
{
    struct sequences s = sequences_of(graph, node);
    return d->ops->bias_backward_scratch(d, s.batch, s.elems);
}

/* Positions that no sequence reaches have the gradient 0. */
static int positions_backward_run(const struct op_call *call, struct error *err)
{
    struct sequences s = sequences_of(call->graph, call->node);
    float *table = call->out[0];
    int64_t rest = graph_elems(call->graph, call->node->out[0]) - s.elems;
    call->device->ops->bias_backward(call->device, call->graph->dtype, table, call->in[0], s.batch,
                                     s.elems, call->accumulate, call->scratch);
    if (rest && !call->accumulate)
        call->device->ops->fill_zero(call->device, table + s.elems, (size_t)rest * sizeof *table);
    return 0;
}

const struct op op_positions_backward = {
    .name = "positions_backward",
    .flops_each = 1,
    .scratch = positions_backward_scratch,
    .run = positions_backward_run,
};
