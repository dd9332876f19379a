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

double op_flops(const struct graph *graph, const struct graph_node *node)
{
    return node->op->flops ? node->op->flops(graph, node)
                           : node->op->flops_each * (double)graph_elems(graph, node->in[0]);
}
