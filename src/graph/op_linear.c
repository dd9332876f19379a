/* op_linear.c - y = x w^T (+ addend), its two gradients, and the sum of two tensors.
 *
 * x [rows, in], w [out, in], y [rows, out], addend [rows, out].  The residual stream is added
 * in the product's epilogue, and a gradient that is already there in that of the backward one.
 */
#include "graph/autodiff.h"
#include "graph/op.h"
#include "device/ops.h"

static int64_t dim(const struct graph *graph, int value, int i)
{
    return graph->values[value].dim[i];
}

static void linear_shapes(struct graph *graph, struct graph_node *node)
{
    int x = node->in[0], w = node->in[1];
    if (dim(graph, x, 1) != dim(graph, w, 1)) {
        graph_fail(graph, "linear: input has %lld columns, weight %lld",
                   (long long)dim(graph, x, 1), (long long)dim(graph, w, 1));
        return;
    }
    int64_t shape[2] = {dim(graph, x, 0), dim(graph, w, 0)};
    if (node->in[2] >= 0 && graph_elems(graph, node->in[2]) != shape[0] * shape[1]) {
        graph_fail(graph, "linear: addend has another shape than the product");
        return;
    }
    node->out[0] = graph_value(graph, VALUE_TEMP, node->attrs.out, 2, shape);
}

static void linear_gradient(struct autodiff *ad, int index)
{
    struct graph_node node = ad->graph->nodes[index];
    int dy = autodiff_grad(ad, node.out[0]);
    if (dy < 0)
        return;
    int weight = autodiff_node(ad, OP_LINEAR_WEIGHT_GRAD, (int[]){dy, node.in[0]}, 2, &node.attrs);
    autodiff_param(ad, weight, 0, node.in[1]);
    int before = autodiff_take(ad, node.in[0]);
    int input =
        autodiff_node(ad, OP_LINEAR_INPUT_GRAD, (int[]){dy, node.in[1], before}, 3, &node.attrs);
    autodiff_give(ad, node.in[0], ad->graph->nodes[input].out[0]);
    if (node.in[2] >= 0)
        autodiff_give(ad, node.in[2], dy);
}

static struct gemm linear_gemm(const struct graph *graph, const struct graph_node *node)
{
    int64_t rows = dim(graph, node->in[0], 0), in = dim(graph, node->in[0], 1);
    int64_t out = dim(graph, node->in[1], 0);
    return (struct gemm){
        .dt = graph->dtype,
        .dt_c = node->attrs.out,
        .trans_b = 1,
        .m = rows,
        .n = out,
        .k = in,
        .lda = in,
        .ldb = in,
        .ldc = out,
    };
}

static double gemm_flops(const struct gemm *g)
{
    return 2.0 * (double)g->m * (double)g->n * (double)g->k;
}

static double linear_flops(const struct graph *graph, const struct graph_node *node)
{
    struct gemm g = linear_gemm(graph, node);
    return gemm_flops(&g);
}

static size_t linear_scratch(struct device *d, const struct graph *graph,
                             const struct graph_node *node)
{
    struct gemm g = linear_gemm(graph, node);
    return d->ops->gemm_scratch(d, &g);
}

static int gemm_run(struct gemm *g, const struct op_call *call, struct error *err)
{
    return call->device->ops->gemm(call->device, g, call->scratch, err);
}

static int linear_run(const struct op_call *call, struct error *err)
{
    struct gemm g = linear_gemm(call->graph, call->node);
    g.a = call->in[0];
    g.b = call->in[1];
    g.addend = call->in[2];
    g.c = call->out[0];
    return gemm_run(&g, call, err);
}

const struct op op_linear = {
    .name = "linear",
    .shapes = linear_shapes,
    .gradient = linear_gradient,
    .flops = linear_flops,
    .scratch = linear_scratch,
    .run = linear_run,
};

/* dx [rows, in] = dy [rows, out] w [out, in] + before */
static void input_grad_shapes(struct graph *graph, struct graph_node *node)
{
    int64_t shape[2] = {dim(graph, node->in[0], 0), dim(graph, node->in[1], 1)};
    node->out[0] = graph_value(graph, VALUE_TEMP, graph->dtype, 2, shape);
}

static struct gemm input_grad_gemm(const struct graph *graph, const struct graph_node *node)
{
    int64_t rows = dim(graph, node->in[0], 0), out = dim(graph, node->in[0], 1);
    int64_t in = dim(graph, node->in[1], 1);
    return (struct gemm){
        .dt = graph->dtype,
        .dt_c = graph->dtype,
        .m = rows,
        .n = in,
        .k = out,
        .lda = out,
        .ldb = in,
        .ldc = in,
    };
}

static double input_grad_flops(const struct graph *graph, const struct graph_node *node)
{
    struct gemm g = input_grad_gemm(graph, node);
    return gemm_flops(&g);
}

static size_t input_grad_scratch(struct device *d, const struct graph *graph,
                                 const struct graph_node *node)
{
    struct gemm g = input_grad_gemm(graph, node);
    return d->ops->gemm_scratch(d, &g);
}

static int input_grad_run(const struct op_call *call, struct error *err)
{
    struct gemm g = input_grad_gemm(call->graph, call->node);
    g.a = call->in[0];
    g.b = call->in[1];
    g.addend = call->in[2];
    g.c = call->out[0];
    return gemm_run(&g, call, err);
}

const struct op op_linear_input_grad = {
    .name = "linear_input_grad",
    .shapes = input_grad_shapes,
    .flops = input_grad_flops,
    .scratch = input_grad_scratch,
    .run = input_grad_run,
};

/* dw [out, in] (+)= dy^T [out, rows] x [rows, in] */
static struct gemm weight_grad_gemm(const struct graph *graph, const struct graph_node *node)
{
    int64_t rows = dim(graph, node->in[0], 0), out = dim(graph, node->in[0], 1);
    int64_t in = dim(graph, node->in[1], 1);
    return (struct gemm){
        .dt = graph->dtype,
        .dt_c = DTYPE_F32,
        .trans_a = 1,
        .m = out,
        .n = in,
        .k = rows,
        .lda = out,
        .ldb = in,
        .ldc = in,
    };
}

static double weight_grad_flops(const struct graph *graph, const struct graph_node *node)
{
    struct gemm g = weight_grad_gemm(graph, node);
    return gemm_flops(&g);
}

static size_t weight_grad_scratch(struct device *d, const struct graph *graph,
                                  const struct graph_node *node)
{
    struct gemm g = weight_grad_gemm(graph, node);
    return d->ops->gemm_scratch(d, &g);
}

static int weight_grad_run(const struct op_call *call, struct error *err)
{
    struct gemm g = weight_grad_gemm(call->graph, call->node);
    g.a = call->in[0];
    g.b = call->in[1];
    g.c = call->out[0];
    g.addend = call->accumulate ? g.c : NULL;
    return gemm_run(&g, call, err);
}

const struct op op_linear_weight_grad = {
    .name = "linear_weight_grad",
    .flops = weight_grad_flops,
    .scratch = weight_grad_scratch,
    .run = weight_grad_run,
};

static void add_shapes(struct graph *graph, struct graph_node *node)
{
    struct graph_value like = graph->values[node->in[0]];
    node->out[0] = graph_value(graph, VALUE_TEMP, like.dtype, like.dims, like.dim);
}

static void add_gradient(struct autodiff *ad, int index)
{
    struct graph_node node = ad->graph->nodes[index];
    int dy = autodiff_grad(ad, node.out[0]);
    if (dy < 0)
        return;
    autodiff_give(ad, node.in[0], dy);
    autodiff_give(ad, node.in[1], dy);
}

static double add_flops(const struct graph *graph, const struct graph_node *node)
{
    return (double)graph_elems(graph, node->out[0]);
}

static int add_run(const struct op_call *call, struct error *err)
{
    call->device->ops->add(call->device, call->graph->dtype, call->out[0], call->in[0], call->in[1],
                           graph_elems(call->graph, call->node->out[0]));
    return 0;
}

const struct op op_add = {
    .name = "add",
    .shapes = add_shapes,
    .gradient = add_gradient,
    .flops = add_flops,
    .run = add_run,
    .in_place = 1u << 0 | 1u << 1,
};
