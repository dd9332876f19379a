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
    int forward_values;  /* number of values before autodiff appends any */
    int *grad;           /* [forward_values]: the value that is its gradient so far, or -1 */
    char *param_written; /* per parameter: 1 when a node that writes its gradient was appended */
};

/* Append the backward nodes to graph.  A graph with an output gets a value VALUE_OUTPUT_GRAD to
 * start from; one that ends in a loss starts there.  Each input that is not frozen gets a value
 * VALUE_INPUT_GRAD.  Frozen parameters get no gradient, and nodes that nothing needs then are
 * marked unused.  Returns 0, or -1 with err set, to the first mistake of the model or of a rule. */
int autodiff(struct graph *graph, struct error *err);

/* ---- for the backward rules (op.h) ----
 *
 * Only forward values have gradients.  A rule that takes or gives the gradient of another value
 * makes a mistake, which is recorded by graph_fail(). */

/* Take the gradient of a forward value so far out of the table: the rule's node adds it to its own
 * result, which the rule then gives.  Returns the gradient, or -1 where there is none yet. */
int autodiff_take(struct autodiff *ad, int value);
/* Add grad, of as many elements as the value, to the gradient of a forward value, by an op_add node
 * where it has one already. */
void autodiff_give(struct autodiff *ad, int value, int grad);
/* Append a backward node; arguments and result as of graph_node(). */
int autodiff_node(struct autodiff *ad, const struct op *op, const int *in, int ins,
                  const struct op_attrs *attrs);
/* Make output number `out` of node the gradient of the parameter that value param is; for a frozen
 * parameter it becomes a temporary value that nothing reads.  Mistakes: param is no parameter, or
 * the node would write one gradient and add to another. */
void autodiff_param(struct autodiff *ad, int node, int out, int param);

#endif
