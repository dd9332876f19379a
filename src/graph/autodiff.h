/* autodiff.h - backward nodes from forward nodes, by the rules of the ops' rows.
 *
 * Reverse mode: nodes are visited last to first; each node's rule reads the gradients of its
 * outputs and adds to those of its inputs.  When a node is visited, every later user of its
 * inputs has already contributed, so a rule may also fold what is there into its own result
 * (autodiff_take), which saves a pass over memory.  Where the users of a value are divided among
 * ranks (build_divided()), the gradient is summed over these before the value's node is visited.
 */
#ifndef TRIREME_GRAPH_AUTODIFF_H
#define TRIREME_GRAPH_AUTODIFF_H

#include "graph/graph.h"
#include "graph/op.h"

struct autodiff {
    struct graph *graph;
    int forward_values;  /* how many: those before the first that autodiff appends */
    int *grad;           /* per forward value, the value that is its gradient so far, or -1 */
    char *param_written; /* per parameter: a gradient was written already */
};

/* Append the backward of graph.  A graph with an output gets a value OUTPUT_GRAD to start
 * from; one that ends in a loss starts there.  It ends in an INPUT_GRAD for each input that it does
 * not say is frozen.  Frozen parameters have no gradient, and nodes that only led to one are marked
 * unused. Returns 0, or -1 with err set. */
int autodiff(struct graph *graph, struct error *err);

/* For the rules.  Only forward values have gradients: to take or give that of another is a mistake
 * of the rule, recorded by graph_fail(). */

/* The gradient of a forward value so far, or -1; it is removed from the table: the caller's node
 * adds it to its own contribution. */
int autodiff_take(struct autodiff *ad, int value);
/* Add a contribution to the gradient of a forward value (an ADD node if there is one already). */
void autodiff_give(struct autodiff *ad, int value, int grad);
/* Append a backward node. */
int autodiff_node(struct autodiff *ad, const struct op *op, const int *in, int ins,
                  const struct op_attrs *attrs);
/* Make the out-th output of node the gradient of the parameter held by value param; of a frozen
 * one, a temporary value that nothing reads.  Another value than a parameter is a mistake, and so
 * is a node that would write one gradient and add to another. */
void autodiff_param(struct autodiff *ad, int node, int out, int param);

#endif
