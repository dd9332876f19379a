/* op_adapter.c - what matrices of low rank add to a product, and its gradients.
 *
 * Source: Hu et al. 2021, "LoRA" (arXiv 2106.09685).  A frozen matrix W [out, in] has beside it two
 * trained ones, A [r, in] and B [out, r]: y = x W^T + factor * (x A^T) B^T.  u = factor * x A^T is
 * a linear layer and a scale (op_linear.c, op_elementwise.c); the rest is here, because tensors
 * that are stacked into one W have matrices of their own, or none:
 *
 *   W  q | k | v stacked, q and v adapted     A  of q, of v stacked   u [rows, 2 r]
 *
 *   row of y   q q q q | k k | v v            u  . . | . .
 *              + u[0:r] Bq^T   + u[r:2r] Bv^T    slice 0, slice 1
 *
 * attrs.adapted says which columns these are.  Several tensors may have one slice: those that are
 * one tensor in the files that adapters come from.
 */
#include "graph/autodiff.h"
#include "graph/op.h"
#include "device/ops.h"

int64_t op_adapter_columns_before(const struct graph_adapter *parts, int p)
{
    int64_t columns = 0;
    for (int i = 0; i < p; i++)
        columns += parts->part[i].columns;
    return columns;
}

/* Is the slice that of a part before p? */
static int has_slice(const struct graph_adapter *parts, int p, int slice)
{
    for (int i = 0; i < p; i++)
        if (parts->part[i].slice == slice)
            return 1;
    return 0;
}

void op_check_adapter(struct graph *graph, const struct graph_node *node, int64_t columns)
{
    const struct graph_adapter *parts = &node->attrs.adapted;
    int64_t end = 0;
    for (int p = 0; p < parts->parts; p++) {
        if (parts->part[p].first < end || parts->part[p].first + parts->part[p].columns > columns)
            graph_fail(graph, "%s: part %d lies outside of %lld columns, or before others",
                       node->op->name, p, (long long)columns);
        end = parts->part[p].first + parts->part[p].columns;
        if (parts->part[p].slice < 0 || parts->part[p].slice >= parts->slices)
            graph_fail(graph, "%s: part %d is of slice %d, of %d", node->op->name, p,
                       parts->part[p].slice, parts->slices);
    }
    for (int s = 0; s < parts->slices; s++)
        if (!has_slice(parts, parts->parts, s))
            graph_fail(graph, "%s: no part is of slice %d", node->op->name, s);
}

static void adapter_shapes(struct graph *graph, struct graph_node *node)
{
    const int64_t *y = graph->values[node->in[0]].dim, *u = graph->values[node->in[1]].dim;
    const int64_t *b = graph->values[node->in[2]].dim;
    const struct graph_adapter *parts = &node->attrs.adapted;
    int64_t columns = op_adapter_columns_before(parts, parts->parts);
    op_check_adapter(graph, node, y[1]);
    if (y[0] != u[0])
        graph_fail(graph, "adapter: %lld rows are added to %lld", (long long)u[0], (long long)y[0]);
    if (columns != b[0])
        graph_fail(graph, "adapter: its matrix has %lld rows, and its parts %lld columns",
                   (long long)b[0], (long long)columns);
    if (parts->rank != b[1] || parts->rank * parts->slices != u[1])
        graph_fail(graph, "adapter: %d slices of rank %lld are not %lld columns", parts->slices,
                   (long long)parts->rank, (long long)u[1]);
    op_shaped_as_first(graph, node);
}

static void adapter_gradient(struct autodiff *ad, const struct graph_node *node, int dy)
{
    int y = node->in[0], u = node->in[1], b = node->in[2];
    int weight = autodiff_node(ad, &op_adapter_weight_grad, (int[]){dy, u}, 2, &node->attrs);
    autodiff_param(ad, weight, 0, b);
    int input = autodiff_node(ad, &op_adapter_input_grad, (int[]){dy, b}, 2, &node->attrs);
    autodiff_give(ad, u, ad->graph->nodes[input].out[0]);
    autodiff_give(ad, y, dy);
}

/* The product of a part, without its pointers:
 *   y  [rows, columns] += u [rows, r] b^T [r, columns]
 *   du [rows, r]        = dy [rows, columns] b [columns, r]
 *   db [columns, r]     = dy^T [columns, rows] u [rows, r]
 * Input 0, y or dy, has all columns, u and du all slices, b and db all parts. */
static struct gemm product_of(const struct graph *graph, const struct graph_node *node, int p)
{
    const struct graph_adapter *parts = &node->attrs.adapted;
    const struct graph_value *y = &graph->values[node->in[0]];
    int64_t rows = y->dim[0], all = y->dim[1], columns = parts->part[p].columns;
    int64_t rank = parts->rank, width = rank * parts->slices;
    struct gemm g = {.dt = graph->dtype, .dt_c = graph->values[node->out[0]].dtype};
    if (node->op == &op_adapter) {
        g.trans_b = 1;
        g.m = rows, g.n = columns, g.k = rank;
        g.lda = width, g.ldb = rank, g.ldc = all;
    } else if (node->op == &op_adapter_input_grad) {
        g.m = rows, g.n = rank, g.k = columns;
        g.lda = all, g.ldb = rank, g.ldc = width;
    } else {
        g.trans_a = 1;
        g.m = columns, g.n = rank, g.k = rows;
        g.lda = all, g.ldb = width, g.ldc = rank;
    }
    return g;
}

static double flops(const struct graph *graph, const struct graph_node *node)
{
    double sum = 0;
    for (int p = 0; p < node->attrs.adapted.parts; p++) {
        struct gemm g = product_of(graph, node, p);
        sum += 2.0 * (double)g.m * (double)g.n * (double)g.k;
    }
    return sum;
}

static int products(const struct device *d, const struct graph *graph,
                    const struct graph_node *node, struct op_product product[OP_PRODUCTS])
{
    _Static_assert((int)PARAM_PARTS <= (int)OP_PRODUCTS, "one for each part");
    for (int p = 0; p < node->attrs.adapted.parts; p++)
        product[p] = (struct op_product){.gemm = product_of(graph, node, p), .times = 1};
    return node->attrs.adapted.parts;
}

static size_t scratch(struct device *d, const struct graph *graph, const struct graph_node *node)
{
    size_t most = 0;
    for (int p = 0; p < node->attrs.adapted.parts; p++) {
        struct gemm g = product_of(graph, node, p);
        size_t bytes = d->ops->gemm_scratch(d, &g);
        most = bytes > most ? bytes : most;
    }
    return most;
}

static int run_part(const struct op_call *call, int p, struct error *err)
{
    const struct graph_adapter *parts = &call->node->attrs.adapted;
    struct gemm g = product_of(call->graph, call->node, p);
    size_t from_y = (size_t)parts->part[p].first * dtype_bytes(g.dt);
    size_t from_u = (size_t)(parts->part[p].slice * parts->rank) * dtype_bytes(g.dt);
    int64_t before = op_adapter_columns_before(parts, p) * parts->rank; /* elements of b, or db */
    size_t from_b = (size_t)before * dtype_bytes(g.dt);
    int adds = 1;
    if (call->node->op == &op_adapter) {
        g.a = (const char *)call->in[1] + from_u;
        g.b = (const char *)call->in[2] + from_b;
        g.c = (char *)call->out[0] + (size_t)parts->part[p].first * dtype_bytes(g.dt_c);
    } else if (call->node->op == &op_adapter_input_grad) {
        g.a = (const char *)call->in[0] + from_y;
        g.b = (const char *)call->in[1] + from_b;
        g.c = (char *)call->out[0] + from_u;
        adds = has_slice(parts, p, parts->part[p].slice);
    } else {
        g.a = (const char *)call->in[0] + from_y;
        g.b = (const char *)call->in[1] + from_u;
        g.c = (float *)call->out[0] + before;
        adds = call->accumulate;
    }
    g.addend = adds ? g.c : NULL;
    return call->device->ops->gemm(call->device, &g, call->scratch, err);
}

static int run(const struct op_call *call, struct error *err)
{
    if (call->node->op == &op_adapter && call->out[0] != call->in[0])
        call->device->ops->copy(call->device, call->out[0], call->in[0],
                                graph_bytes(call->graph, call->node->out[0]));
    for (int p = 0; p < call->node->attrs.adapted.parts; p++)
        if (run_part(call, p, err))
            return -1;
    return 0;
}

const struct op op_adapter = {
    .name = "adapter",
    .shapes = adapter_shapes,
    .gradient = adapter_gradient,
    .flops = flops,
    .products = products,
    .scratch = scratch,
    .run = run,
    .in_format = 1u << 1 | 1u << 2,
    .in_place = 1u << 0,
    .keep = 1,
};

/* inputs dy, b; output du */
static void input_grad_shapes(struct graph *graph, struct graph_node *node)
{
    const struct graph_adapter *parts = &node->attrs.adapted;
    int64_t shape[2] = {graph->values[node->in[0]].dim[0], parts->rank * parts->slices};
    node->out[0] = graph_value(graph, VALUE_TEMP, graph->dtype, 2, shape);
}

const struct op op_adapter_input_grad = {
    .name = "adapter_input_grad",
    .shapes = input_grad_shapes,
    .flops = flops,
    .products = products,
    .scratch = scratch,
    .run = run,
    .in_format = 1u << 0 | 1u << 1,
};

/* inputs dy, u; output db */
const struct op op_adapter_weight_grad = {
    .name = "adapter_weight_grad",
    .flops = flops,
    .products = products,
    .scratch = scratch,
    .run = run,
    .in_format = 1u << 0 | 1u << 1,
};
