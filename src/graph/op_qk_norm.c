/* op_qk_norm.c - RMSNorm over each head of queries and of keys, in packed projections.
 *
 * inputs x, wq, wk;  outputs y, which has x's values as they are, and rstd of each head.  Ranks
 * that divide the heads have wq and wk whole, and their gradients are terms.
 */
#include "graph/autodiff.h"
#include "graph/op.h"
#include "device/ops.h"

enum { X, WQ, WK };
enum { Y, RSTD };

static void shapes(struct graph *graph, struct graph_node *node)
{
    struct graph_value x = graph->values[node->in[X]];
    const struct op_attrs *a = &node->attrs;
    for (int i = WQ; i <= WK; i++)
        if (graph_elems(graph, node->in[i]) != a->head_dim)
            graph_fail(graph, "qk_norm: a weight has %lld elements, heads have %lld",
                       (long long)graph_elems(graph, node->in[i]), (long long)a->head_dim);
    if (x.dim[1] != (a->heads + 2 * a->kv_heads) * a->head_dim)
        graph_fail(graph, "qk_norm: rows of %lld are not %lld + 2 x %lld heads of %lld",
                   (long long)x.dim[1], (long long)a->heads, (long long)a->kv_heads,
                   (long long)a->head_dim);
    node->out[Y] = graph_value(graph, VALUE_TEMP, x.dtype, 2, x.dim);
    node->out[RSTD] =
        graph_value(graph, VALUE_TEMP, DTYPE_F32, 2, (int64_t[]){x.dim[0], a->heads + a->kv_heads});
}

static void gradient(struct autodiff *ad, const struct graph_node *node, int dy)
{
    int backward = autodiff_node(
        ad, &op_qk_norm_backward,
        (int[]){dy, node->in[X], node->in[WQ], node->in[WK], node->out[RSTD]}, 5, &node->attrs);
    autodiff_param(ad, backward, 1, node->in[WQ]);
    autodiff_param(ad, backward, 2, node->in[WK]);
    autodiff_give(ad, node->in[X], ad->graph->nodes[backward].out[0]);
}

/* The problem of a node of either op. */
static struct qk_norm norm_of(const struct graph *graph, const struct graph_node *node)
{
    const struct op_attrs *a = &node->attrs;
    return (struct qk_norm){
        .dt = graph->dtype,
        .rows = graph->values[node->in[0]].dim[0],
        .heads = a->heads,
        .kv_heads = a->kv_heads,
        .head_dim = a->head_dim,
        .eps = a->eps,
    };
}

static int run(const struct op_call *call, struct error *err)
{
    const struct qk_norm n = norm_of(call->graph, call->node);
    call->device->ops->qk_norm(call->device, &n, call->out[Y], call->out[RSTD], call->in[X],
                               call->in[WQ], call->in[WK]);
    return 0;
}

const struct op op_qk_norm = {
    .name = "qk_norm",
    .shapes = shapes,
    .gradient = gradient,
    .flops_each = 5,
    .run = run,
    .in_format = 1u << 0 | 1u << 1 | 1u << 2,
};

static size_t backward_scratch(struct device *d, const struct graph *graph,
                               const struct graph_node *node)
{
    const struct qk_norm n = norm_of(graph, node);
    return d->ops->norm_backward_scratch(d, n.rows, n.head_dim, 2);
}

static int backward_run(const struct op_call *call, struct error *err)
{
    const struct qk_norm n = norm_of(call->graph, call->node);
    call->device->ops->qk_norm_backward(call->device, &n, call->out[0], call->out[1], call->out[2],
                                        call->in[0], call->in[1], call->in[2], call->in[3],
                                        call->in[4], call->accumulate, call->scratch);
    return 0;
}

const struct op op_qk_norm_backward = {
    .name = "qk_norm_backward",
    .shapes = op_shaped_as_first,
    .flops_each = 9,
    .scratch = backward_scratch,
    .run = backward_run,
    .in_format = 1u << 0 | 1u << 1 | 1u << 2 | 1u << 3,
    .in_place = 1u << 0,
};
