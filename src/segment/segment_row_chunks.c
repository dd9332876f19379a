/* segment_row_chunks.c - exchanges of rows in chunks, and beside them the products of these rows.
 *
 * A gather or a reduce-scatter whose node says `row_chunks` becomes as many steps, of the rows of a
 * chunk each (op_collective.c).  The product that reads what is gathered becomes as many, so that
 * each waits for its rows alone; so does the product that makes what is scattered, and each chunk
 * is sent as soon as it is made.  In 2 chunks, above on the compute stream, below on that of the
 * exchange:
 *
 *   norm              linear 0 | linear 1    attention   linear 0 | linear 1             add
 *        gather 0 | gather 1                                       scatter 0 | scatter 1
 *
 * All chunks of a gather stand in front of the product, as what they gather is there; a product in
 * chunks has a piece for each (segment.c).  Nothing else changes: each chunk of a value lies where
 * it would in the whole, and a row of a product does not depend on the others.
 */
#include <stdlib.h>

#include "base/array.h"
#include "segment/segment_private.h"

struct divider {
    struct segment_draft *c;
    const struct segment_step *from; /* the steps as they were, */
    int count;
    struct segment_step *to; /* and in chunks */
    int steps;
    enum { NOT_YET, THERE, READ_IN_CHUNKS } * state; /* per node */
};

static const struct graph_node *node_of(const struct divider *d, int node)
{
    return &d->c->graph->nodes[node];
}

/* In how many chunks a node exchanges rows. */
static int exchange_chunks(const struct divider *d, int node)
{
    const struct graph_node *n = node_of(d, node);
    int has_rows = n->op->transfer == TRANSFER_GATHER || n->op->transfer == TRANSFER_SCATTER;
    return has_rows && n->attrs.row_chunks > 1 ? n->attrs.row_chunks : 1;
}

/* The reduce-scatter in chunks of this segment that reads the result of a product, or -1. */
static int scatter_of(const struct divider *d, const struct graph_node *product)
{
    for (int i = 0; product->op->by_rows && i < d->count; i++) {
        const struct graph_node *n = node_of(d, d->from[i].node);
        if (n->op->transfer == TRANSFER_SCATTER && n->in[0] == product->out[0] &&
            exchange_chunks(d, d->from[i].node) > 1)
            return d->from[i].node;
    }
    return -1;
}

/* The gather in chunks of this segment whose result a product is the first to read, or -1. */
static int gather_of(const struct divider *d, const struct graph_node *product)
{
    int from = product->op->by_rows ? d->c->graph->values[product->in[0]].producer : -1;
    return from >= 0 && d->state[from] == THERE && exchange_chunks(d, from) > 1 ? from : -1;
}

static void put(struct divider *d, int node, int chunk, int chunks)
{
    d->to[d->steps++] =
        (struct segment_step){.node = node, .row_chunk = chunk, .row_chunks = chunks};
    d->state[node] = THERE;
}

static void put_chunks(struct divider *d, int node)
{
    const struct graph_node *n = node_of(d, node);
    int scatter = scatter_of(d, n), gather = gather_of(d, n);
    int chunks = exchange_chunks(d, scatter >= 0 ? scatter : gather >= 0 ? gather : node);
    for (int chunk = 0; chunk < chunks; chunk++) {
        put(d, node, chunk, chunks);
        if (scatter >= 0)
            put(d, scatter, chunk, chunks);
    }
    if (gather >= 0)
        d->state[gather] = READ_IN_CHUNKS;
    d->c->segment->has_row_chunks |= chunks > 1;
}

void segment_divide(struct segment_draft *c)
{
    struct segment *segment = c->segment;
    int most = 1;
    for (int i = 0; i < c->graph->node_count; i++)
        most =
            c->graph->nodes[i].attrs.row_chunks > most ? c->graph->nodes[i].attrs.row_chunks : most;
    struct divider d = {.c = c, .from = segment->step, .count = segment->steps};
    d.to = array_make((size_t)(segment->steps * most), sizeof *d.to);
    d.state = array_make((size_t)c->graph->node_count, sizeof *d.state);
    for (int i = 0; i < d.count; i++)
        if (d.state[d.from[i].node] == NOT_YET)
            put_chunks(&d, d.from[i].node);
    free(segment->step);
    free(d.state);
    segment->step = d.to;
    segment->steps = d.steps;
}
