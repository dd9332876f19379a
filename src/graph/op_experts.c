/* op_experts.c - rows that go to their experts, the experts' matrices, and the way back.
 *
 *   dispatch   x [rows, columns], routes           -> y [slots, columns]
 *   experts    x [slots, in], w [experts, ..., in] -> y [slots, out]
 *   combine    x [slots, columns], routes, addend  -> y [rows, columns]
 *
 * Slots of one expert lie end to end; combine sums the slots of each row.
 *
 * dispatch and combine are one another's gradients.  w has for each expert a matrix of `in`
 * columns, and all dimensions between are its rows: gate and up are [experts, 2, ffn, hidden], a
 * matrix of 2 * ffn rows.  Where ranks divide the rows of each matrix the result has own columns,
 * where they divide its columns it is a term, as of op_linear.
 */
#include "base/round.h"
#include "graph/autodiff.h"
#include "graph/op.h"
#include "device/ops.h"

static const struct graph_value *value_of(const struct graph *graph, int value)
{
    return &graph->values[value];
}

/* ---- dispatch and combine ---- */

enum { X, ROUTES, ADDEND };

static int64_t slots_of(const struct graph_node *node, int64_t rows)
{
    return rows * node->attrs.experts.chosen;
}

static void check_routes(struct graph *graph, const struct graph_node *node, int64_t rows)
{
    const struct graph_experts *e = &node->attrs.experts;
    const struct graph_value *routes = value_of(graph, node->in[ROUTES]);
    if (routes->dtype != DTYPE_I32 ||
        graph_elems(graph, node->in[ROUTES]) != routes_elems(rows, e->count, e->chosen))
        graph_fail(graph, "%s: no routes of %lld rows, %lld of %lld experts each", node->op->name,
                   (long long)rows, (long long)e->chosen, (long long)e->count);
}

static void dispatch_shapes(struct graph *graph, struct graph_node *node)
{
    const struct graph_value x = *value_of(graph, node->in[X]);
    check_routes(graph, node, x.dim[0]);
    node->out[0] =
        graph_value(graph, VALUE_TEMP, x.dtype, 2, (int64_t[]){slots_of(node, x.dim[0]), x.dim[1]});
}

static void dispatch_gradient(struct autodiff *ad, const struct graph_node *node, int dy)
{
    struct op_attrs attrs = node->attrs;
    attrs.out = attrs.grad_fp32 ? DTYPE_F32 : ad->graph->dtype;
    int before = autodiff_take(ad, node->in[X]);
    int back = autodiff_node(ad, &op_combine, (int[]){dy, node->in[ROUTES], before}, 3, &attrs);
    autodiff_give(ad, node->in[X], ad->graph->nodes[back].out[0]);
}

/* The rows and columns of a node, of which `rows` is the value by rows. */
static struct experts_rows rows_of(const struct graph *graph, const struct graph_node *node,
                                   int rows)
{
    const struct graph_value *value = value_of(graph, rows);
    return (struct experts_rows){.dt = value_of(graph, node->in[X])->dtype,
                                 .dt_sum = value->dtype,
                                 .rows = value->dim[0],
                                 .columns = value->dim[1],
                                 .experts = node->attrs.experts.count,
                                 .chosen = node->attrs.experts.chosen};
}

static int dispatch_run(const struct op_call *call, struct error *err)
{
    const struct experts_rows r = rows_of(call->graph, call->node, call->node->in[X]);
    call->device->ops->dispatch(call->device, &r, call->out[0], call->in[X], call->in[ROUTES]);
    return 0;
}

const struct op op_dispatch = {
    .name = "dispatch",
    .shapes = dispatch_shapes,
    .gradient = dispatch_gradient,
    .run = dispatch_run,
    .in_format = 1u << X,
};

static void combine_shapes(struct graph *graph, struct graph_node *node)
{
    const struct graph_value x = *value_of(graph, node->in[X]);
    int64_t chosen = node->attrs.experts.chosen, rows = x.dim[0] / chosen;
    int addend = node->in[ADDEND];
    if (x.dim[0] % chosen)
        graph_fail(graph, "combine: %lld slots are not %lld for each row", (long long)x.dim[0],
                   (long long)chosen);
    check_routes(graph, node, rows);
    if (addend >= 0 && (value_of(graph, addend)->dtype != node->attrs.out ||
                        graph_elems(graph, addend) != rows * x.dim[1]))
        graph_fail(graph, "combine: the addend has another shape or format than the sum");
    node->out[0] = graph_value(graph, VALUE_TEMP, node->attrs.out, 2, (int64_t[]){rows, x.dim[1]});
}

static void combine_gradient(struct autodiff *ad, const struct graph_node *node, int dy)
{
    int back = autodiff_node(ad, &op_dispatch, (int[]){dy, node->in[ROUTES]}, 2, &node->attrs);
    autodiff_give(ad, node->in[X], ad->graph->nodes[back].out[0]);
    if (node->in[ADDEND] >= 0)
        autodiff_give(ad, node->in[ADDEND], dy);
}

static int combine_run(const struct op_call *call, struct error *err)
{
    const struct experts_rows r = rows_of(call->graph, call->node, call->node->out[0]);
    call->device->ops->combine(call->device, &r, call->out[0], call->in[X], call->in[ADDEND],
                               call->in[ROUTES]);
    return 0;
}

const struct op op_combine = {
    .name = "combine",
    .shapes = combine_shapes,
    .gradient = combine_gradient,
    .flops_each = 1,
    .run = combine_run,
    .in_format = 1u << X,
    .in_place = 1u << ADDEND,
};

/* ---- the experts' matrices ---- */

enum { A, B, ROUTES_OF_PRODUCT }; /* inputs of the three products */

/* Columns of the result of forward: all dimensions of w between the first and the last. */
static int64_t width_of(const struct graph_value *w)
{
    int64_t width = 1;
    for (int i = 1; i < w->dims - 1; i++)
        width *= w->dim[i];
    return width;
}

static enum experts_pass pass_of(const struct graph_node *node)
{
    return node->op == &op_experts              ? EXPERTS_FORWARD
           : node->op == &op_experts_input_grad ? EXPERTS_INPUT_GRAD
                                                : EXPERTS_WEIGHT_GRAD;
}

/* The products of a node of any of the three ops. */
static struct experts_gemm gemm_of(const struct graph *graph, const struct graph_node *node)
{
    enum experts_pass pass = pass_of(node);
    const struct graph_value *a = value_of(graph, node->in[A]), *b = value_of(graph, node->in[B]);
    struct experts_gemm g = {
        .pass = pass, .dt = graph->dtype, .slots = a->dim[0], .experts = node->attrs.experts.count};
    if (pass == EXPERTS_WEIGHT_GRAD) {
        g.out = a->dim[1];
        g.in = b->dim[1];
    } else {
        g.out = width_of(b);
        g.in = b->dim[b->dims - 1];
    }
    return g;
}

static void experts_shapes(struct graph *graph, struct graph_node *node)
{
    const struct graph_value x = *value_of(graph, node->in[A]), w = *value_of(graph, node->in[B]);
    if (w.dims < 3 || w.dim[0] != node->attrs.experts.count || w.dim[w.dims - 1] != x.dim[1])
        graph_fail(graph, "experts: %lld matrices of %lld columns, for %lld experts of %lld",
                   (long long)w.dim[0], (long long)w.dim[w.dims - 1],
                   (long long)node->attrs.experts.count, (long long)x.dim[1]);
    node->out[0] = graph_value(graph, VALUE_TEMP, x.dtype, 2, (int64_t[]){x.dim[0], width_of(&w)});
}

/* As op_linear's: the weight's gradient first, so that x is freed before dx is made. */
static void experts_gradient(struct autodiff *ad, const struct graph_node *node, int dy)
{
    int routes = node->in[ROUTES_OF_PRODUCT];
    int weight = autodiff_node(ad, &op_experts_weight_grad, (int[]){dy, node->in[A], routes}, 3,
                               &node->attrs);
    autodiff_param(ad, weight, 0, node->in[B]);
    int input = autodiff_node(ad, &op_experts_input_grad, (int[]){dy, node->in[B], routes}, 3,
                              &node->attrs);
    autodiff_give(ad, node->in[A], ad->graph->nodes[input].out[0]);
}

static void input_grad_shapes(struct graph *graph, struct graph_node *node)
{
    const struct graph_value dy = *value_of(graph, node->in[A]), w = *value_of(graph, node->in[B]);
    node->out[0] =
        graph_value(graph, VALUE_TEMP, dy.dtype, 2, (int64_t[]){dy.dim[0], w.dim[w.dims - 1]});
}

static double flops(const struct graph *graph, const struct graph_node *node)
{
    const struct experts_gemm g = gemm_of(graph, node);
    return 2.0 * (double)g.slots * (double)g.out * (double)g.in;
}

/* As if every expert had as many rows: so many they have on average.  A GPU makes all of them at
 * once, one after the other along m, rows in tiles, of which an expert's last one is half full. */
static int products(const struct device *d, const struct graph *graph,
                    const struct graph_node *node, struct op_product product[OP_PRODUCTS])
{
    enum { TILE_ROWS = 128 };
    const struct experts_gemm g = gemm_of(graph, node);
    int64_t used = min_i64(g.experts, g.slots), rows = ceil_div(g.slots, used);
    int is_weight = g.pass == EXPERTS_WEIGHT_GRAD, is_forward = g.pass == EXPERTS_FORWARD;
    struct gemm gemm = {.dt = g.dt,
                        .dt_c = is_weight ? DTYPE_F32 : g.dt,
                        .trans_a = is_weight,
                        .trans_b = is_forward,
                        .m = is_weight ? g.out : rows,
                        .n = is_forward ? g.out : g.in,
                        .k = is_weight    ? rows
                             : is_forward ? g.in
                                          : g.out};
    int64_t times = used;
    if (d->kind == DEVICE_CUDA) {
        gemm.m = used * (is_weight ? g.out : rows + TILE_ROWS / 2);
        times = 1;
    }
    product[0] = (struct op_product){.gemm = gemm_dense(gemm), .times = times};
    return 1;
}

static size_t scratch(struct device *d, const struct graph *graph, const struct graph_node *node)
{
    const struct experts_gemm g = gemm_of(graph, node);
    return d->ops->experts_gemm_scratch(d, &g);
}

static int run(const struct op_call *call, struct error *err)
{
    struct experts_gemm g = gemm_of(call->graph, call->node);
    const struct graph_experts *e = &call->node->attrs.experts;
    const struct routes routes =
        routes_of(call->in[ROUTES_OF_PRODUCT], g.slots / e->chosen, e->count, e->chosen);
    g.accumulate = call->accumulate;
    return call->device->ops->experts_gemm(call->device, &g, call->out[0], call->in[A], call->in[B],
                                           routes.first, call->scratch, err);
}

const struct op op_experts = {
    .name = "experts",
    .shapes = experts_shapes,
    .gradient = experts_gradient,
    .flops = flops,
    .products = products,
    .scratch = scratch,
    .run = run,
    .in_format = 1u << A | 1u << B,
    .keep = 1,
};

const struct op op_experts_input_grad = {
    .name = "experts_input_grad",
    .shapes = input_grad_shapes,
    .flops = flops,
    .products = products,
    .scratch = scratch,
    .run = run,
    .in_format = 1u << A | 1u << B,
};

const struct op op_experts_weight_grad = {
    .name = "experts_weight_grad",
    .flops = flops,
    .products = products,
    .scratch = scratch,
    .run = run,
    .in_format = 1u << A | 1u << B,
};
