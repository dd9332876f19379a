/* op_linear.c - linear layers y = x w^T (+ addend) and their two gradients.
 *
 * x [rows, in], w [out, in], y [rows, out], addend [rows, out].  The epilogue of the product adds
 * the residual stream as addend; the epilogue of the product for dx adds the gradient that x has
 * from its other readers.
 *
 * In fp8 (attrs.fp8) all three products round their operands in blocks.  Blocks of w are squares,
 * so that y and dx see the same numbers of w.  Blocks of x and dy lie along the dimension that is
 * summed over: columns in y and dx, rows in dw.  The rows of a block are tokens of one sequence, as
 * its length is a multiple of a block's; so what is rounded does not depend on how sequences are
 * divided among ranks and micro-batches.
 */
#include "graph/autodiff.h"
#include "graph/op.h"
#include "device/ops.h"

static int64_t dim(const struct graph *graph, int value, int i)
{
    return graph->values[value].dim[i];
}

/* Check that the addend is in the product's format, in which gemm reads it. */
static void check_addend(struct graph *graph, const struct graph_node *node, enum dtype dtype)
{
    if (node->in[2] >= 0 && graph->values[node->in[2]].dtype != dtype)
        graph_fail(graph, "%s: addend is in %s, the product in %s", node->op->name,
                   dtype_name(graph->values[node->in[2]].dtype), dtype_name(dtype));
}

static void linear_shapes(struct graph *graph, struct graph_node *node)
{
    int x = node->in[0], w = node->in[1];
    if (dim(graph, x, 1) != dim(graph, w, 1))
        graph_fail(graph, "linear: input has %lld columns, weight %lld",
                   (long long)dim(graph, x, 1), (long long)dim(graph, w, 1));
    int64_t shape[2] = {dim(graph, x, 0), dim(graph, w, 0)};
    if (node->in[2] >= 0 && graph_elems(graph, node->in[2]) != shape[0] * shape[1])
        graph_fail(graph, "linear: addend has another shape than the product");
    check_addend(graph, node, node->attrs.out);
    node->out[0] = graph_value(graph, VALUE_TEMP, node->attrs.out, 2, shape);
}

static void weight_gradient(struct autodiff *ad, const struct graph_node *node, int dy)
{
    int weight =
        autodiff_node(ad, &op_linear_weight_grad, (int[]){dy, node->in[0]}, 2, &node->attrs);
    autodiff_param(ad, weight, 0, node->in[1]);
}

/* The weight's gradient comes first, so that x, which is kept for it alone, is freed before dx is
 * made.  Where ranks exchange rows in chunks it comes last: meanwhile they exchange dx. */
static void linear_gradient(struct autodiff *ad, const struct graph_node *node, int dy)
{
    int is_last = ad->graph->tensor.row_chunks > 1;
    if (!is_last)
        weight_gradient(ad, node, dy);
    int before = autodiff_take(ad, node->in[0]);
    int input =
        autodiff_node(ad, &op_linear_input_grad, (int[]){dy, node->in[1], before}, 3, &node->attrs);
    autodiff_give(ad, node->in[0], ad->graph->nodes[input].out[0]);
    if (node->in[2] >= 0)
        autodiff_give(ad, node->in[2], dy);
    if (is_last)
        weight_gradient(ad, node, dy);
}

/* dx [rows, in] = dy [rows, out] w [out, in] + before */
static void input_grad_shapes(struct graph *graph, struct graph_node *node)
{
    int64_t shape[2] = {dim(graph, node->in[0], 0), dim(graph, node->in[1], 1)};
    enum dtype dtype = node->attrs.grad_fp32 ? DTYPE_F32 : graph->dtype;
    check_addend(graph, node, dtype);
    node->out[0] = graph_value(graph, VALUE_TEMP, dtype, 2, shape);
}

static enum gemm_fp8 fp8_of(const struct graph_node *node)
{
    if (!node->attrs.fp8)
        return GEMM_FP8_NONE;
    return node->op == &op_linear_weight_grad ? GEMM_FP8_VECTORS : GEMM_FP8_SQUARES_OF_B;
}

/* The product of a node, from inputs 0 and 1, without pointers; of y and dx one chunk of the rows,
 * where the node runs in chunks.
 *   y  [rows, out] = x [rows, in] w^T [in, out] + addend
 *   dx [rows, in]  = dy [rows, out] w [out, in] + the gradient that x already has
 *   dw [out, in]   = dy^T [out, rows] x [rows, in] */
static struct gemm gemm_of(const struct graph *graph, const struct graph_node *node)
{
    const int64_t *a = graph->values[node->in[0]].dim, *b = graph->values[node->in[1]].dim;
    int trans_a = node->op == &op_linear_weight_grad, trans_b = node->op == &op_linear;
    int chunks = node->attrs.row_chunks > 1 ? node->attrs.row_chunks : 1;
    return gemm_dense((struct gemm){.dt = graph->dtype,
                                    .dt_c = graph->values[node->out[0]].dtype,
                                    .trans_a = trans_a,
                                    .trans_b = trans_b,
                                    .m = a[trans_a] / chunks,
                                    .n = b[!trans_b],
                                    .k = a[!trans_a],
                                    .fp8 = fp8_of(node)});
}

static double flops(const struct graph *graph, const struct graph_node *node)
{
    struct gemm g = gemm_of(graph, node);
    return 2.0 * (double)g.m * (double)g.n * (double)g.k;
}

static int products(const struct device *d, const struct graph *graph,
                    const struct graph_node *node, struct op_product product[OP_PRODUCTS])
{
    product[0] = (struct op_product){.gemm = gemm_of(graph, node), .times = 1};
    return 1;
}

static size_t scratch(struct device *d, const struct graph *graph, const struct graph_node *node)
{
    struct gemm g = gemm_of(graph, node);
    return d->ops->gemm_scratch(d, &g);
}

static int run(const struct op_call *call, struct error *err)
{
    struct gemm g = gemm_of(call->graph, call->node);
    g.a = call->in[0];
    g.b = call->in[1];
    g.c = call->out[0];
    g.addend = call->accumulate ? g.c : call->in[2];
    return call->device->ops->gemm(call->device, &g, call->scratch, err);
}

const struct op op_linear = {
    .name = "linear",
    .shapes = linear_shapes,
    .gradient = linear_gradient,
    .flops = flops,
    .products = products,
    .scratch = scratch,
    .run = run,
    .in_format = 1u << 0 | 1u << 1,
    .by_rows = 1u << 0 | 1u << 2,
    .keep = 1,
};

const struct op op_linear_input_grad = {
    .name = "linear_input_grad",
    .shapes = input_grad_shapes,
    .flops = flops,
    .products = products,
    .scratch = scratch,
    .run = run,
    .in_format = 1u << 0 | 1u << 1,
    .by_rows = 1u << 0 | 1u << 2,
};

const struct op op_linear_weight_grad = {
    .name = "linear_weight_grad",
    .flops = flops,
    .products = products,
    .scratch = scratch,
    .run = run,
    .in_format = 1u << 0 | 1u << 1,
};
