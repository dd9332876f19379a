/* op_rows.c - values made longer or wider, so that ranks can exchange what they have of them.
 *
 * fit_rows: rows put after the last, or left away, so that ranks can share a number of rows that
 * they do not divide:
 *
 *   7 rows of terms  --fit 8-->  | 0 1 2 3 | 4 5 6 0 |  --reduce-scatter-->  own rows, 4 each
 *   own rows, 4 each --gather--> | 0 1 2 3 | 4 5 6 . |  --fit 7-->           7 rows
 *
 * Rows put after the last are zeros.  The gradient is fitted back: that of rows left away is zero,
 * and that of rows put after the last is dropped, so padding neither has nor makes a gradient.
 *
 * place_columns: a rank's own columns among zeros, a term of the sum that has all ranks' columns.
 */
#include "graph/autodiff.h"
#include "graph/op.h"
#include "device/ops.h"

/* input x [rows, width]; output y [attrs.rows, width] */
static void fit_shapes(struct graph *graph, struct graph_node *node)
{
    struct graph_value x = graph->values[node->in[0]];
    x.dim[0] = node->attrs.rows;
    node->out[0] = graph_value(graph, VALUE_TEMP, x.dtype, x.dims, x.dim);
}

static void fit_gradient(struct autodiff *ad, const struct graph_node *node, int dy)
{
    const struct op_attrs attrs = {.rows = ad->graph->values[node->in[0]].dim[0]};
    int back = autodiff_node(ad, &op_fit_rows, &dy, 1, &attrs);
    autodiff_give(ad, node->in[0], ad->graph->nodes[back].out[0]);
}

static int fit_run(const struct op_call *call, struct error *err)
{
    const struct device_ops *ops = call->device->ops;
    size_t from = graph_bytes(call->graph, call->node->in[0]);
    size_t to = graph_bytes(call->graph, call->node->out[0]), copied = from < to ? from : to;
    ops->copy(call->device, call->out[0], call->in[0], copied);
    if (to > copied)
        ops->fill_zero(call->device, (char *)call->out[0] + copied, to - copied);
    return 0;
}

const struct op op_fit_rows = {
    .name = "fit_rows",
    .shapes = fit_shapes,
    .gradient = fit_gradient,
    .run = fit_run,
};

/* input x [rows, width]; output y [rows, attrs.columns], x from column attrs.first on */
static void place_shapes(struct graph *graph, struct graph_node *node)
{
    struct graph_value x = graph->values[node->in[0]];
    x.dim[1] = node->attrs.columns;
    node->out[0] = graph_value(graph, VALUE_TEMP, x.dtype, x.dims, x.dim);
}

static void place_gradient(struct autodiff *ad, const struct graph_node *node, int dy)
{
    graph_fail(ad->graph, "place_columns: it is for results alone, and has no gradient");
}

static int place_run(const struct op_call *call, struct error *err)
{
    const struct device_ops *ops = call->device->ops;
    const struct graph_value *y = &call->graph->values[call->node->out[0]];
    size_t elem = dtype_bytes(y->dtype), width = (size_t)call->shape[1] * elem;
    size_t row = (size_t)y->dim[1] * elem, first = (size_t)call->node->attrs.first * elem;
    ops->fill_zero(call->device, call->out[0], (size_t)y->dim[0] * row);
    for (int64_t r = 0; r < y->dim[0]; r++)
        ops->copy(call->device, (char *)call->out[0] + (size_t)r * row + first,
                  (const char *)call->in[0] + (size_t)r * width, width);
    return 0;
}

const struct op op_place_columns = {
    .name = "place_columns",
    .shapes = place_shapes,
    .gradient = place_gradient,
    .run = place_run,
};
