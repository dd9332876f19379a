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

int64_t op_adapter_columns_before(const struct graph_adapter *adapted, int t)
{
    int64_t columns = 0;
    for (int i = 0; i < t; i++)
        columns += adapted->tensor[i].columns;
    return columns;
}

/* Is the slice that of a tensor before t? */
static int has_slice(const struct graph_adapter *adapted, int t, int slice)
{
    for (int i = 0; i < t; i++)
        if (adapted->tensor[i].slice == slice)
            return 1;
    return 0;
}

void op_check_adapter(struct graph *graph, const struct graph_node *node, int64_t columns)
{
    const struct graph_adapter *adapted = &node->attrs.adapted;
    int64_t end = 0;
    for (int t = 0; t < adapted->tensors; t++) {
        if (adapted->tensor[t].first < end ||
            adapted->tensor[t].first + adapted->tensor[t].columns > columns)
            graph_fail(graph, "%s: tensor %d lies outside of %lld columns, or before others",
                       node->op->name, t, (long long)columns);
        end = adapted->tensor[t].first + adapted->tensor[t].columns;
        if (adapted->tensor[t].slice < 0 || adapted->tensor[t].slice >= adapted->slices)
            graph_fail(graph, "%s: tensor %d is of slice %d, of %d", node->op->name, t,
                       adapted->tensor[t].slice, adapted->slices);
    }
    for (int s = 0; s < adapted->slices; s++)
        if (!has_slice(adapted, adapted->tensors, s))
            graph_fail(graph, "%s: no tensor is of slice %d", node->op->name, s);
}

static void adapter_shapes(struct graph *graph, struct graph_node *node)
{
    const int64_t *y = graph->values[node->in[0]].dim, *u = graph->values[node->in[1]].dim;
    const int64_t *b = graph->values[node->in[2]].dim;
    const struct graph_adapter *adapted = &node->attrs.adapted;
    int64_t columns = op_adapter_columns_before(adapted, adapted->tensors);
    op_check_adapter(graph, node, y[1]);
    if (y[0] != u[0])
        graph_fail(graph, "adapter: %lld rows are added to %lld", (long long)u[0], (long long)y[0]);
    if (columns != b[0])
        graph_fail(graph, "adapter: its matrix has %lld rows, and its tensors %lld columns",
                   (long long)b[0], (long long)columns);
    if (adapted->rank != b[1] || adapted->rank * adapted->slices != u[1])
        graph_fail(graph, "adapter: %d slices of rank %lld are not %lld columns", adapted->slices,
                   (long long)adapted->rank, (long long)u[1]);
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

/* The product of a tensor, without its pointers:
 *   y  [rows, columns] += u [rows, r] b^T [r, columns]
 *   du [rows, r]        = dy [rows, columns] b [columns, r]
 *   db [columns, r]     = dy^T [columns, rows] u [rows, r]
 * Input 0, y or dy, has all columns, u and du all slices, b and db all tensors. */
static struct gemm product_of(const struct graph *graph, const struct graph_node *node, int t)
{
    const struct graph_adapter *adapted = &node->attrs.adapted;
    const struct graph_value *y = &graph->values[node->in[0]];
    int64_t rows = y->dim[0], all = y->dim[1], columns = adapted->tensor[t].columns;
    int64_t rank = adapted->rank, width = rank * adapted->slices;
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
    for (int t = 0; t < node->attrs.adapted.tensors; t++) {
        struct gemm g = product_of(graph, node, t);
        sum += 2.0 * (double)g.m * (double)g.n * (double)g.k;
    }
    return sum;
}

static int products(const struct device *d, const struct graph *graph,
                    const struct graph_node *node, struct op_product product[OP_PRODUCTS])
{
    _Static_assert((int)PARAM_TENSORS <= (int)OP_PRODUCTS, "one for each tensor");
    for (int t = 0; t < node->attrs.adapted.tensors; t++)
        product[t] = (struct op_product){.gemm = product_of(graph, node, t), .times = 1};
    return node->attrs.adapted.tensors;
}

static size_t scratch(struct device *d, const struct graph *graph, const struct graph_node *node)
{
    size_t most = 0;
    for (int t = 0; t < node->attrs.adapted.tensors; t++) {
        struct gemm g = product_of(graph, node, t);
        size_t bytes = d->ops->gemm_scratch(d, &g);
        most = bytes > most ? bytes : most;
    }
    return most;
}

static int run_tensor(const struct op_call *call, int t, struct error *err)
{
    const struct graph_adapter *adapted = &call->node->attrs.adapted;
    struct gemm g = product_of(call->graph, call->node, t);
    size_t from_y = (size_t)adapted->tensor[t].first * dtype_bytes(g.dt);
    size_t from_u = (size_t)(adapted->tensor[t].slice * adapted->rank) * dtype_bytes(g.dt);
    int64_t before = op_adapter_columns_before(adapted, t) * adapted->rank; /* of b, or db */
    size_t from_b = (size_t)before * dtype_bytes(g.dt);
    int adds = 1;
    if (call->node->op == &op_adapter) {
        g.a = (const char *)call->in[1] + from_u;
        g.b = (const char *)call->in[2] + from_b;
        g.c = (char *)call->out[0] + (size_t)adapted->tensor[t].first * dtype_bytes(g.dt_c);
    } else if (call->node->op == &op_adapter_input_grad) {
        g.a = (const char *)call->in[0] + from_y;
        g.b = (const char *)call->in[1] + from_b;
        g.c = (char *)call->out[0] + from_u;
        adds = has_slice(adapted, t, adapted->tensor[t].slice);
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
    for (int t = 0; t < call->node->attrs.adapted.tensors; t++)
        if (run_tensor(call, t, err))
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
    const struct graph_adapter *adapted = &node->attrs.adapted;
    int64_t shape[2] = {graph->values[node->in[0]].dim[0], adapted->rank * adapted->slices};
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
