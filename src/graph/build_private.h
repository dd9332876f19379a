/* build_private.h - what build.c and build_experts.c share. */
#ifndef TRIREME_GRAPH_BUILD_PRIVATE_H
#define TRIREME_GRAPH_BUILD_PRIVATE_H

#include "graph/graph.h"

/* Append a node; returns its output 0, or value 0 after a mistake. */
static inline int append(struct graph *graph, const struct op *op, const int *in, int ins,
                         struct op_attrs attrs)
{
    int node = graph_node(graph, op, in, ins, &attrs);
    int out = graph->nodes[node].out[0];
    return out < 0 ? 0 : out;
}

/* Was x gathered from the ranks' own rows?  Then the backward of the gather, a reduce-scatter, sums
 * the terms of its gradient. */
int build_is_gathered(const struct graph *graph, int x, struct graph_group group);

#endif
