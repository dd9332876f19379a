/* op_bias.c - biases, alone or in front of GELU, and learned positions.
 *
 * A bias is added to every row, and the table of positions to every sequence, as if a sequence were
 * one long row.  The gradient of the sum is also that of x, and summed over rows (over sequences)
 * it is that of the bias (of the table).
 */
#include "base/round.h"
#include "graph/autodiff.h"
#include "graph/op.h"
#include "device/ops.h"

/* bias and gelu: inputs x [rows, cols], b [cols]; output y */
static void shapes(struct graph *graph, struct graph_node *node)
{
    struct graph_value x = graph->values[node->in[0]];
    int64_t elems = graph_elems(graph, node->in[1]);
    if (elems != x.dim[1])
        graph_fail(graph, "%s: bias has %lld elements, rows have %lld", node->op->name,
                   (long long)elems, (long long)x.dim[1]);
    op_shaped_as_first(graph, node);
}

/* positions: inputs x [rows, hidden], table [positions, hidden]; output
 *   y[r,:] = x[r,:] + table[position of r,:]
 * where the position is r % seq or, where the rank has a part of each sequence (attrs.part), that
 * of the row in the whole sequence.  Where the rank has only some rows of the table, from
 * attrs.first on, it adds only those: y is then the rank's term of a sum. */
static void positions_shapes(struct graph *graph, struct graph_node *node)
{
    struct graph_value x = graph->values[node->in[0]], table = graph->values[node->in[1]];
    int64_t seq = node->attrs.seq;
    int64_t most = seq < 1 ? 0 : sequence_position(&node->attrs.part, seq - 1) + 1;
    if (seq < 1 || table.dim[1] != x.dim[1] || node->attrs.rows < most)
        graph_fail(graph, "positions: a table of %lld x %lld for sequences of %lld x %lld",
                   (long long)node->attrs.rows, (long long)table.dim[1], (long long)most,
                   (long long)x.dim[1]);
    op_check_sequences(graph, node);
    op_shaped_as_first(graph, node);
}

/* Give dx, the gradient of x + bias, to x, and append the node that sums it for the bias. */
static void give(struct autodiff *ad, const struct graph_node *node, const struct op *backward,
                 int dx)
{
    autodiff_param(ad, autodiff_node(ad, backward, &dx, 1, &node->attrs), 0, node->in[1]);
    autodiff_give(ad, node->in[0], dx);
}

static void sum_gradient(struct autodiff *ad, const struct graph_node *node, int dy)
{
    give(ad, node, node->op == &op_bias ? &op_bias_backward : &op_positions_backward, dy);
}

static void gelu_gradient(struct autodiff *ad, const struct graph_node *node, int dy)
{
    const int in[] = {dy, node->in[0], node->in[1]};
    int back = autodiff_node(ad, &op_gelu_backward, in, 3, &node->attrs);
    give(ad, node, &op_bias_backward, ad->graph->nodes[back].out[0]);
}

/* What one call of the device's bias or bias_backward works on.  Usually one call does all: a bias
 * is added to `count` rows, or the table of positions to `count` sequences.  Where a rank has only
 * some rows of the table or of each sequence, there is a call for each chunk of each sequence, for
 * the positions of which the rank has both. */
struct sums {
    int64_t count; /* rows or sequences, one after the other in x or dy */
    int64_t elems; /* elements of each, and of the bias, that are added */
    int64_t x;     /* element of x or dy with which they begin */
    int64_t bias;  /* element of the bias with which they begin */
};

static int is_of_positions(const struct graph_node *node)
{
    return node->op == &op_positions || node->op == &op_positions_backward;
}

/* Has the rank all rows of the table and of each sequence? */
static int is_whole(const struct graph *graph, const struct graph_node *node, int bias)
{
    return !is_of_positions(node) ||
           (graph->values[bias].dim[0] == node->attrs.rows && !node->attrs.part.chunk);
}

static int64_t calls_of(const struct graph *graph, const struct graph_node *node, int bias)
{
    const struct op_attrs *a = &node->attrs;
    if (is_whole(graph, node, bias))
        return 1;
    return graph->values[node->in[0]].dim[0] / a->seq * (a->part.chunk ? 2 : 1);
}

/* Call number k, where `bias` is what is added, or its gradient. */
static struct sums sums_of(const struct graph *graph, const struct graph_node *node, int bias,
                           int64_t k)
{
    const struct graph_value *x = &graph->values[node->in[0]];
    const struct op_attrs *a = &node->attrs;
    int64_t width = x->dim[1], rows = is_of_positions(node) ? a->seq : 1;
    if (is_whole(graph, node, bias))
        return (struct sums){.count = x->dim[0] / rows, .elems = rows * width};
    int64_t chunk = a->part.chunk ? a->part.chunk : rows;
    int64_t position = sequence_position(&a->part, k * chunk % rows);
    int64_t first = max_i64(position, a->first);
    int64_t end = min_i64(position + chunk, a->first + graph->values[bias].dim[0]);
    return (struct sums){.count = 1,
                         .elems = max_i64(end - first, 0) * width,
                         .x = (k * chunk + first - position) * width,
                         .bias = (first - a->first) * width};
}

/* The address of an element of x, y, dy or a bias. */
static void *element(const struct op_call *call, const void *base, int64_t i)
{
    return (char *)base + (size_t)i * dtype_bytes(call->graph->dtype);
}

static int run(const struct op_call *call, struct error *err)
{
    const struct device_ops *ops = call->device->ops;
    int bias = call->node->in[1];
    int64_t calls = calls_of(call->graph, call->node, bias);
    DEVICE_FUNCTION(device_ops, bias) *add = call->node->op == &op_gelu ? ops->gelu : ops->bias;
    const void *x = call->in[0];
    if (!is_whole(call->graph, call->node, bias) && call->out[0] != x) {
        ops->copy(call->device, call->out[0], x, graph_bytes(call->graph, call->node->in[0]));
        x = call->out[0];
    }
    for (int64_t k = 0; k < calls; k++) {
        struct sums s = sums_of(call->graph, call->node, bias, k);
        if (s.elems)
            add(call->device, call->graph->dtype, element(call, call->out[0], s.x),
                element(call, x, s.x), element(call, call->in[1], s.bias), s.count, s.elems);
    }
    return 0;
}

/* The sum is kept in place of the product to which the bias is added. */
const struct op op_bias = {
    .name = "bias",
    .shapes = shapes,
    .gradient = sum_gradient,
    .flops_each = 1,
    .run = run,
    .in_format = 1u << 0 | 1u << 1,
    .in_place = 1u << 0,
    .keep = 1,
};

const struct op op_positions = {
    .name = "positions",
    .shapes = positions_shapes,
    .gradient = sum_gradient,
    .flops_each = 1,
    .run = run,
    .in_format = 1u << 0 | 1u << 1,
    .in_place = 1u << 0,
};

const struct op op_gelu = {
    .name = "gelu",
    .shapes = shapes,
    .gradient = gelu_gradient,
    .flops_each = 10,
    .run = run,
    .in_format = 1u << 0 | 1u << 1,
};

static int gelu_backward_run(const struct op_call *call, struct error *err)
{
    call->device->ops->gelu_backward(call->device, call->graph->dtype, call->out[0], call->in[0],
                                     call->in[1], call->in[2], call->shape[0], call->shape[1]);
    return 0;
}

const struct op op_gelu_backward = {
    .name = "gelu_backward",
    .shapes = op_shaped_as_second,
    .flops_each = 18,
    .run = gelu_backward_run,
    .in_format = 1u << 0 | 1u << 1 | 1u << 2,
    .in_place = 1u << 0 | 1u << 1,
};

/* The scratch of the largest call, which is one of the first two: of each sequence the calls are
 * the same. */
static size_t backward_scratch(struct device *d, const struct graph *graph,
                               const struct graph_node *node)
{
    size_t bytes = 0;
    for (int64_t k = 0; k < min_i64(calls_of(graph, node, node->out[0]), 2); k++) {
        struct sums s = sums_of(graph, node, node->out[0], k);
        bytes = max_bytes(bytes, d->ops->bias_backward_scratch(d, s.count, s.elems));
    }
    return bytes;
}

/* Positions that no sequence reaches have the gradient 0. */
static int backward_run(const struct op_call *call, struct error *err)
{
    const struct device_ops *ops = call->device->ops;
    int bias = call->node->out[0], is_in_one = is_whole(call->graph, call->node, bias);
    float *db = call->out[0];
    int64_t elems = graph_elems(call->graph, bias), calls = calls_of(call->graph, call->node, bias);
    int64_t done = is_in_one ? sums_of(call->graph, call->node, bias, 0).elems : 0;
    if (elems > done && !call->accumulate)
        ops->fill_zero(call->device, db + done, (size_t)(elems - done) * sizeof *db);
    for (int64_t k = 0; k < calls; k++) {
        struct sums s = sums_of(call->graph, call->node, bias, k);
        if (s.elems)
            ops->bias_backward(call->device, call->graph->dtype, db + s.bias,
                               element(call, call->in[0], s.x), s.count, s.elems,
                               call->accumulate || !is_in_one, call->scratch);
    }
    return 0;
}

const struct op op_bias_backward = {
    .name = "bias_backward",
    .flops_each = 1,
    .scratch = backward_scratch,
    .run = backward_run,
    .in_format = 1u << 0,
};

const struct op op_positions_backward = {
    .name = "positions_backward",
    .flops_each = 1,
    .scratch = backward_scratch,
    .run = backward_run,
    .in_format = 1u << 0,
};
