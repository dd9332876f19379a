/* op_bias.c - what is added to every row: biases, alone or in front of GELU, and learned
 * positions, which are a bias of whole sequences.
 *
 * The gradient passes through to what was added to; that of the bias is the sum over rows.
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

/* positions: inputs x [rows, hidden], table [positions, hidden]; y[r,:] = x[r,:] +
 * table[r % seq,:], which is the first seq rows of the table added to every sequence.  Where a rank
 * has the rows of the table from attrs.first on, it adds these alone. */
static void positions_shapes(struct graph *graph, struct graph_node *node)
{
    struct graph_value x = graph->values[node->in[0]], table = graph->values[node->in[1]];
    if (node->attrs.seq < 1 || table.dim[1] != x.dim[1] || node->attrs.rows < node->attrs.seq)
        graph_fail(graph, "positions: a table of %lld x %lld for sequences of %lld x %lld",
                   (long long)node->attrs.rows, (long long)table.dim[1], (long long)node->attrs.seq,
                   (long long)x.dim[1]);
    op_shaped_as_first(graph, node);
}

/* dx: the gradient of what the bias was added to, and of the sum. */
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

/* What one bias is added to, of x or of dy: a row, or a whole sequence if it is of positions.  Of
 * divided positions each sequence is a call of its own, from an offset of elements on. */
struct sums {
    int64_t count, elems;
    int64_t calls, offset, step;
};

static struct sums sums_of(const struct graph *graph, const struct graph_node *node, int bias)
{
    const struct graph_value *x = &graph->values[node->in[0]];
    const struct op_attrs *a = &node->attrs;
    int positions = node->op == &op_positions || node->op == &op_positions_backward;
    int64_t rows = positions ? a->seq : 1, width = x->dim[1], own = graph->values[bias].dim[0];
    struct sums s = {.count = x->dim[0] / rows, .elems = rows * width, .calls = 1};
    if (!positions || own == a->rows)
        return s;
    return (struct sums){.count = 1,
                         .elems = max_i64(min_i64(own, rows - a->first), 0) * width,
                         .calls = s.count,
                         .offset = a->first * width,
                         .step = s.elems};
}

/* Where call number k begins in x or dy. */
static void *part_of(const struct op_call *call, const void *x, const struct sums *s, int64_t k)
{
    return (char *)x + (size_t)(s->offset + k * s->step) * dtype_bytes(call->graph->dtype);
}

static int run(const struct op_call *call, struct error *err)
{
    const struct device_ops *ops = call->device->ops;
    struct sums s = sums_of(call->graph, call->node, call->node->in[1]);
    DEVICE_FUNCTION(device_ops, bias) *add = call->node->op == &op_gelu ? ops->gelu : ops->bias;
    const void *x = call->in[0];
    if (s.step && call->out[0] != x) {
        ops->copy(call->device, call->out[0], x, graph_bytes(call->graph, call->node->in[0]));
        x = call->out[0];
    }
    for (int64_t k = 0; k < s.calls && s.elems; k++)
        add(call->device, call->graph->dtype, part_of(call, call->out[0], &s, k),
            part_of(call, x, &s, k), call->in[1], s.count, s.elems);
    return 0;
}

/* The sum is kept in place of the product to which the bias is added. */
const struct op op_bias = {
    .name = "bias",
    .shapes = shapes,
    .gradient = sum_gradient,
    .flops_each = 1,
    .run = run,
    .in_place = 1u << 0,
    .keep = 1,
};

const struct op op_positions = {
    .name = "positions",
    .shapes = positions_shapes,
    .gradient = sum_gradient,
    .flops_each = 1,
    .run = run,
    .in_place = 1u << 0,
};

const struct op op_gelu = {
    .name = "gelu",
    .shapes = shapes,
    .gradient = gelu_gradient,
    .flops_each = 10,
    .run = run,
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
    .in_place = 1u << 0 | 1u << 1,
};

static size_t backward_scratch(struct device *d, const struct graph *graph,
                               const struct graph_node *node)
{
    struct sums s = sums_of(graph, node, node->out[0]);
    return d->ops->bias_backward_scratch(d, s.count, s.elems);
}

/* Positions that no sequence reaches have the gradient 0. */
static int backward_run(const struct op_call *call, struct error *err)
{
    struct sums s = sums_of(call->graph, call->node, call->node->out[0]);
    float *db = call->out[0];
    int64_t rest = graph_elems(call->graph, call->node->out[0]) - s.elems;
    for (int64_t k = 0; k < s.calls && s.elems; k++)
        call->device->ops->bias_backward(call->device, call->graph->dtype, db,
                                         part_of(call, call->in[0], &s, k), s.count, s.elems,
                                         call->accumulate || k > 0, call->scratch);
    if (rest && !call->accumulate)
        call->device->ops->fill_zero(call->device, db + s.elems, (size_t)rest * sizeof *db);
    return 0;
}

const struct op op_bias_backward = {
    .name = "bias_backward",
    .flops_each = 1,
    .scratch = backward_scratch,
    .run = backward_run,
};

const struct op op_positions_backward = {
    .name = "positions_backward",
    .flops_each = 1,
    .scratch = backward_scratch,
    .run = backward_run,
};
