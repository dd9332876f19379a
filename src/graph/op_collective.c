/* op_collective.c - ops that exchange values within a group: sum, maximum, gather, reduce-scatter,
 * all-to-all.
 *
 * What is exchanged is an instruction of the program's between two pieces of a segment (segment.h);
 * run() is what a rank does before it, which for a sum or a maximum is to bring its term to where
 * that will be.  In a group of one, for which build.h makes no node, that is all there is to do.
 *
 * Gradients follow one convention: the loss is one number, which all members compute alike.  So
 *
 *   value                        its gradient on each member
 *   whole, the same on all       whole, the same on all; or, where the value feeds parts of a
 *                                computation that are divided among the members
 *                                (build_divided()), a term of it, which autodiff sums
 *   a term of a sum              that of the sum: the same on all
 *   a member's own rows          that of these rows
 *
 * All-reduce hands the gradient of the sum to its terms as it is.  Gather is followed by divided
 * computations, so the gradients of what it made are terms: reduce-scatter adds them up and gives
 * each member its rows; and the other way round.  All-to-all is its own transpose.  A maximum has
 * no backward rule: it stands where results do not depend on it but for their rounding, as that of
 * the logits in a softmax does, and a graph in which a gradient arrives at one is refused.
 *
 * Rows may be gathered and scattered in chunks (attrs.row_chunks), so that products go on beside
 * them (segment_row_chunks.c).  A rank's own rows then are its share of each chunk, one after the
 * other:
 *
 *   8 rows, 2 ranks, in 1 chunk   | 0 1 2 3 | 4 5 6 7 |     rank 0 has 0 1 2 3
 *                    in 2 chunks  | 0 1 | 2 3 | 4 5 | 6 7 |  rank 0 has 0 1 4 5, rank 1 2 3 6 7
 *
 * Each chunk is an exchange by itself, of rows that lie together on every rank.  What is computed
 * from own rows does not depend on which these are.
 */
#include "graph/autodiff.h"
#include "graph/op.h"
#include "device/ops.h"

/* run() of the ops that read their input where it lies: a rank has nothing to do before them. */
static int give_nothing(const struct op_call *call, struct error *err)
{
    return 0;
}

static void sum_gradient(struct autodiff *ad, const struct graph_node *node, int dy)
{
    autodiff_give(ad, node->in[0], dy);
}

static void max_gradient(struct autodiff *ad, const struct graph_node *node, int dy)
{
    graph_fail(ad->graph, "all_reduce_max: no gradient passes through a maximum over ranks, but "
                          "one of its result arrived");
}

static int sum_run(const struct op_call *call, struct error *err)
{
    if (call->out[0] != call->in[0])
        call->device->ops->copy(call->device, call->out[0], call->in[0],
                                graph_bytes(call->graph, call->node->in[0]));
    return 0;
}

const struct op op_all_reduce = {
    .name = "all_reduce",
    .transfer = TRANSFER_SUM,
    .shapes = op_shaped_as_first,
    .gradient = sum_gradient,
    .run = sum_run,
    .in_place = 1u << 0,
    .keep = 1,
};

const struct op op_all_reduce_max = {
    .name = "all_reduce_max",
    .transfer = TRANSFER_MAXIMUM,
    .shapes = op_shaped_as_first,
    .gradient = max_gradient,
    .run = sum_run,
    .in_place = 1u << 0,
    .keep = 1,
};

/* The rule of gather, reduce-scatter and all-to-all: append the op that takes the rows back.  If dy
 * is in fp32, terms are summed in fp32, and the sum is rounded once to the graph's format. */
static void transposed(struct autodiff *ad, const struct graph_node *node, int dy)
{
    const struct op *op = node->op == &op_all_gather       ? &op_reduce_scatter
                          : node->op == &op_reduce_scatter ? &op_all_gather
                                                           : &op_all_to_all;
    enum dtype dtype = ad->graph->values[dy].dtype;
    struct op_attrs attrs = node->attrs;
    attrs.out = dtype;
    int back = autodiff_node(ad, op, &dy, 1, &attrs);
    int sum = ad->graph->nodes[back].out[0];
    if (dtype != ad->graph->dtype) {
        int rounded = autodiff_node(ad, &op_round, &sum, 1, &(struct op_attrs){0});
        sum = ad->graph->nodes[rounded].out[0];
    }
    autodiff_give(ad, node->in[0], sum);
}

/* Check that the own rows of a rank can be exchanged in attrs.row_chunks chunks. */
static void check_row_chunks(struct graph *graph, const struct graph_node *node, int64_t own_rows)
{
    if (node->attrs.row_chunks > 1 && own_rows % node->attrs.row_chunks)
        graph_fail(graph, "%s: %lld rows of a rank cannot be exchanged in %d chunks",
                   node->op->name, (long long)own_rows, node->attrs.row_chunks);
}

/* input x [rows, width] of each member; output y [members * rows, width] */
static void gather_shapes(struct graph *graph, struct graph_node *node)
{
    struct graph_value x = graph->values[node->in[0]];
    check_row_chunks(graph, node, x.dim[0]);
    x.dim[0] *= node->attrs.members;
    node->out[0] = graph_value(graph, VALUE_TEMP, x.dtype, x.dims, x.dim);
}

const struct op op_all_gather = {
    .name = "all_gather",
    .transfer = TRANSFER_GATHER,
    .shapes = gather_shapes,
    .gradient = transposed,
    .run = give_nothing,
    .keep = 1,
};

static int check_rows(struct graph *graph, const struct graph_node *node)
{
    int64_t rows = graph->values[node->in[0]].dim[0];
    if (rows % node->attrs.members == 0)
        return 0;
    return graph_fail(graph, "%s: %lld rows cannot be divided among %d ranks", node->op->name,
                      (long long)rows, node->attrs.members);
}

/* input x [members * rows, width], terms; output y [rows, width], the sum of the own rows, taken in
 * fp32 */
static void scatter_shapes(struct graph *graph, struct graph_node *node)
{
    struct graph_value x = graph->values[node->in[0]];
    if (check_rows(graph, node))
        return;
    x.dim[0] /= node->attrs.members;
    check_row_chunks(graph, node, x.dim[0]);
    node->out[0] = graph_value(graph, VALUE_TEMP, node->attrs.out, x.dims, x.dim);
}

const struct op op_reduce_scatter = {
    .name = "reduce_scatter",
    .transfer = TRANSFER_SCATTER,
    .shapes = scatter_shapes,
    .gradient = transposed,
    .run = give_nothing,
    .keep = 1,
};

/* input x [members * rows, width]: rows for each member; output y of that shape: rows from each */
static void swap_shapes(struct graph *graph, struct graph_node *node)
{
    if (!check_rows(graph, node))
        op_shaped_as_first(graph, node);
}

const struct op op_all_to_all = {
    .name = "all_to_all",
    .transfer = TRANSFER_ALL_TO_ALL,
    .shapes = swap_shapes,
    .gradient = transposed,
    .run = give_nothing,
    .keep = 1,
};
