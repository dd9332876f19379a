/* op_embedding.c - token embedding. */
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
