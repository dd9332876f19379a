/* op_swiglu_scaled.c - SwiGLU of rows that each count by a factor.
 *
 * inputs gate_up [rows, 2 * ffn], factors fp32 [rows];  output y [rows, ffn].  Where ranks divide
 * the columns the gradient of the factors is a term.
 */
#include "graph/autodiff.h"
#include "graph/op.h"
#include "device/ops.h"

enum { GATE_UP, FACTORS };
enum { DY, BACK }; /* inputs of backward; from BACK on those of forward */

static void shapes(struct graph *graph, struct graph_node *node)
{
    const struct graph_value x = graph->values[node->in[GATE_UP]];
    if (x.dim[1] % 2 || graph_elems(graph, node->in[FACTORS]) != x.dim[0])
        graph_fail(graph, "swiglu_scaled: %lld columns, %lld factors for %lld rows",
                   (long long)x.dim[1], (long long)graph_elems(graph, node->in[FACTORS]),
                   (long long)x.dim[0]);
    node->out[0] = graph_value(graph, VALUE_TEMP, x.dtype, 2, (int64_t[]){x.dim[0], x.dim[1] / 2});
}

static void gradient(struct autodiff *ad, const struct graph_node *node, int dy)
{
    int back = autodiff_node(ad, &op_swiglu_scaled_backward,
                             (int[]){dy, node->in[GATE_UP], node->in[FACTORS]}, 3, &node->attrs);
    autodiff_give(ad, node->in[GATE_UP], ad->graph->nodes[back].out[0]);
    autodiff_give(ad, node->in[FACTORS], ad->graph->nodes[back].out[1]);
}

static int run(const struct op_call *call, struct error *err)
{
    const struct graph_value *y = &call->graph->values[call->node->out[0]];
    call->device->ops->swiglu_scaled(call->device, call->graph->dtype, call->out[0],
                                     call->in[GATE_UP], call->in[FACTORS], y->dim[0], y->dim[1]);
    return 0;
}

const struct op op_swiglu_scaled = {
    .name = "swiglu_scaled",
    .shapes = shapes,
    .gradient = gradient,
    .flops_each = 3,
    .run = run,
    .in_format = 1u << GATE_UP,
};

static void backward_shapes(struct graph *graph, struct graph_node *node)
{
    const struct graph_value x = graph->values[node->in[BACK + GATE_UP]];
    node->out[0] = graph_value(graph, VALUE_TEMP, x.dtype, 2, x.dim);
    node->out[1] = graph_value(graph, VALUE_TEMP, DTYPE_F32, 1, x.dim);
}

static int backward_run(const struct op_call *call, struct error *err)
{
    call->device->ops->swiglu_scaled_backward(
        call->device, call->graph->dtype, call->out[0], call->out[1], call->in[DY],
        call->in[BACK + GATE_UP], call->in[BACK + FACTORS], call->shape[0], call->shape[1]);
    return 0;
}

const struct op op_swiglu_scaled_backward = {
    .name = "swiglu_scaled_backward",
    .shapes = backward_shapes,
    .flops_each = 13,
    .run = backward_run,
    .in_format = 1u << DY | 1u << (BACK + GATE_UP),
    .in_place = 1u << (BACK + GATE_UP),
};
