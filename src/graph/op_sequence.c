/* op_sequence.c - sequences that ranks divide among them (parallel.context).
 *
 * Each sequence is cut into 2 c equal chunks for c ranks, and a rank has two of them, one of the
 * first half and one of the second: as a query sees all keys before it, all ranks then have as many
 * pairs to look at.
 *
 *   4 chunks, 2 ranks:   | 0 | 1 | 2 | 3 |     rank 0 has 0 and 3, rank 1 has 1 and 2
 *
 * Queries stay where they are.  Keys and values of own rows are gathered, put in the order of the
 * sequences, and read by attention, whose queries have the positions of their rows:
 *
 *   own q k v -> split_heads -> q ----------------------------------> attention -> own rows
 *                            -> k v -> all_gather -> order_chunks -->
 *
 * Backward every rank has a term of the gradient of all keys and values, from its own queries: of
 * those that these see, and zeros.  They are put in the order of the ranks, and reduce_scatter
 * gives each rank the sum for its rows.
 *
 * order_chunks: input x, the gathered rows of all ranks [batch * 2 * members * chunk, width];
 * output y, the same rows in order, or with `inverse` the other way (struct order_chunks).
 */
#include "graph/autodiff.h"
#include "graph/op.h"

static void order_shapes(struct graph *graph, struct graph_node *node)
{
    int64_t rows = graph->values[node->in[0]].dim[0], chunk = node->attrs.part.chunk;
    if (chunk < 1 || rows != graph->batch * 2 * node->attrs.members * chunk)
        graph_fail(graph, "order_chunks: %lld rows are not %lld sequences of 2 x %d chunks of %lld",
                   (long long)rows, (long long)graph->batch, node->attrs.members, (long long)chunk);
    op_shaped_as_first(graph, node);
}

static void order_gradient(struct autodiff *ad, const struct graph_node *node, int dy)
{
    struct op_attrs attrs = node->attrs;
    attrs.inverse = !attrs.inverse;
    int back = autodiff_node(ad, &op_order_chunks, &dy, 1, &attrs);
    autodiff_give(ad, node->in[0], ad->graph->nodes[back].out[0]);
}

static int order_run(const struct op_call *call, struct error *err)
{
    const struct op_attrs *a = &call->node->attrs;
    const struct order_chunks order = {
        .batch = call->graph->batch,
        .ranks = a->members,
        .chunk_bytes = graph_bytes(call->graph, call->node->in[0]) /
                       (size_t)(call->graph->batch * 2 * a->members),
        .inverse = a->inverse,
    };
    call->device->ops->order_chunks(call->device, &order, call->out[0], call->in[0]);
    return 0;
}

const struct op op_order_chunks = {
    .name = "order_chunks",
    .shapes = order_shapes,
    .gradient = order_gradient,
    .run = order_run,
};
