/* op.c - what the rows of ops share; each row is in the file of op_*.c that defines its op. */
#include "graph/op.h"

static void shaped_as(struct graph *graph, struct graph_node *node, int input)
{
    struct graph_value like = graph->values[node->in[input]];
    node->out[0] = graph_value(graph, VALUE_TEMP, like.dtype, like.dims, like.dim);
}

void op_shaped_as_first(struct graph *graph, struct graph_node *node)
{
    shaped_as(graph, node, 0);
}

void op_shaped_as_second(struct graph *graph, struct graph_node *node)
{
    shaped_as(graph, node, 1);
}

void op_check_sequences(struct graph *graph, const struct graph_node *node)
{
    int64_t rows = graph->values[node->in[0]].dim[0];
    if (rows != graph->batch * node->attrs.seq)
        graph_fail(graph, "%s: %lld rows are not %lld sequences of %lld", node->op->name,
                   (long long)rows, (long long)graph->batch, (long long)node->attrs.seq);
}

double op_flops(const struct graph *graph, const struct graph_node *node)
{
    return node->op->flops ? node->op->flops(graph, node)
                           : node->op->flops_each * (double)graph_elems(graph, node->in[0]);
}

int op_products(const struct device *device, const struct graph *graph,
                const struct graph_node *node, struct op_product product[OP_PRODUCTS])
{
    return node->op->products ? node->op->products(device, graph, node, product) : 0;
}

double op_bytes(const struct graph *graph, const struct graph_node *node)
{
    double bytes = 0;
    if (node->op->bytes)
        return node->op->bytes(graph, node);
    if (node->op->products)
        return 0;
    for (int k = 0; k < NODE_INS; k++)
        bytes += node->in[k] < 0 ? 0 : (double)graph_bytes(graph, node->in[k]);
    for (int k = 0; k < NODE_OUTS; k++)
        bytes += node->out[k] < 0 ? 0 : (double)graph_bytes(graph, node->out[k]);
    return node->attrs.row_chunks > 1 ? bytes / (double)node->attrs.row_chunks : bytes;
}
