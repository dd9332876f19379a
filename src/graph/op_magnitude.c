/* op_magnitude.c - DoRA: adapted products, their columns scaled to trained magnitudes.
 *
 * Source: Liu et al. 2024, "DoRA: Weight-Decomposed Low-Rank Adaptation" (arXiv 2402.09353). Beside
 * a frozen matrix W and its A and B (op_adapter.c) stands a vector m, an element for each row of W:
 *
 *   x = h W^T + factor (h A^T) B^T            op_adapter
 *   squares_i = |(W + factor B A)_i|^2        op_row_squares, over all columns of row i
 *   y_i = x_i m_i / sqrt(squares_i)           op_magnitude
 *
 * The squares are a constant to backward, as section 4.3 of the paper says: no gradient passes
 * through them.  Their sum over columns is |W_i|^2 + 2 factor (W A^T)_i . B_i + factor^2 B_i (A
 * A^T) B_i^T, so that W + factor B A is never made: the scratch is [rows, r] and [r, r] in fp32,
 * and W is read twice, where making it block by block would write and read fp32 of W's size beside.
 * Ranks that have own columns of W and A have a term of it.  Every micro-batch's forward finds them
 * anew, though only a step changes them: of n tokens that is about r / n of the product with W.
 *
 * attrs.adapted says which rows of W, and columns of x, these are; m, squares and the rows of B are
 * of the adapted ones alone, one tensor after the other.
 */
#include "base/round.h"
#include "device/ops.h"
#include "graph/autodiff.h"
#include "graph/op.h"

static const int64_t *dims(const struct graph *graph, int value)
{
    return graph->values[value].dim;
}

/* ---- squares of rows ---- */

enum { W, A, B };

/* inputs w [rows, columns], a [slices * r, columns], b [adapted rows, r]; output squares, fp32
 * [adapted rows] */
static void squares_shapes(struct graph *graph, struct graph_node *node)
{
    const struct graph_adapter *adapted = &node->attrs.adapted;
    const int64_t *w = dims(graph, node->in[W]), *a = dims(graph, node->in[A]);
    const int64_t *b = dims(graph, node->in[B]);
    int64_t rows = op_adapter_columns_before(adapted, adapted->tensors);
    op_check_adapter(graph, node, w[0]);
    if (a[1] != w[1] || a[0] != adapted->rank * adapted->slices || b[1] != adapted->rank ||
        b[0] != rows)
        graph_fail(graph,
                   "row_squares: %lld x %lld and %lld x %lld are no adapter of %lld rows of %lld "
                   "columns",
                   (long long)a[0], (long long)a[1], (long long)b[0], (long long)b[1],
                   (long long)rows, (long long)w[1]);
    node->out[0] = graph_value(graph, VALUE_TEMP, DTYPE_F32, 1, &rows);
}

/* The squares are a constant. */
static void no_gradient(struct autodiff *ad, const struct graph_node *node, int dy)
{
    graph_fail(ad->graph, "row_squares: no gradient passes through a norm of rows, but one of it "
                          "arrived");
}

/* The product W A^T of tensor t or, with t -1, A A^T of a slice, without pointers. */
static struct gemm product_of(const struct graph *graph, const struct graph_node *node, int t)
{
    const struct graph_adapter *adapted = &node->attrs.adapted;
    return gemm_dense((struct gemm){.dt = graph->dtype,
                                    .dt_c = DTYPE_F32,
                                    .trans_b = 1,
                                    .m = t < 0 ? adapted->rank : adapted->tensor[t].columns,
                                    .n = adapted->rank,
                                    .k = dims(graph, node->in[W])[1]});
}

static double squares_flops(const struct graph *graph, const struct graph_node *node)
{
    double columns = (double)dims(graph, node->in[W])[1], sum = 0;
    double rank = (double)node->attrs.adapted.rank;
    for (int t = 0; t < node->attrs.adapted.tensors; t++) {
        double rows = (double)node->attrs.adapted.tensor[t].columns;
        sum += 2 * (rows * columns * (rank + 1) + rank * rank * (columns + rows));
    }
    return sum;
}

static int squares_products(const struct device *d, const struct graph *graph,
                            const struct graph_node *node, struct op_product product[OP_PRODUCTS])
{
    _Static_assert(2 * (int)PARAM_TENSORS <= (int)OP_PRODUCTS, "two for each tensor");
    int count = 0;
    for (int t = 0; t < node->attrs.adapted.tensors; t++) {
        product[count++] = (struct op_product){.gemm = product_of(graph, node, t), .times = 1};
        product[count++] = (struct op_product){.gemm = product_of(graph, node, -1), .times = 1};
    }
    return count;
}

/* W once more, W A^T, B and the squares. */
static double squares_bytes(const struct graph *graph, const struct graph_node *node)
{
    const struct graph_adapter *adapted = &node->attrs.adapted;
    double columns = (double)dims(graph, node->in[W])[1], rank = (double)adapted->rank;
    double rows = (double)op_adapter_columns_before(adapted, adapted->tensors);
    return rows * ((columns + rank) * (double)dtype_bytes(graph->dtype) +
                   (rank + 1) * (double)sizeof(float));
}

/* Scratch: W A^T of the tensor with most rows, A A^T, and what the products need. */
struct squares_scratch {
    size_t wa, aa, gemm;
};

static struct squares_scratch scratch_of(struct device *d, const struct graph *graph,
                                         const struct graph_node *node)
{
    const struct graph_adapter *adapted = &node->attrs.adapted;
    struct gemm g = product_of(graph, node, -1);
    struct squares_scratch s = {.gemm = d->ops->gemm_scratch(d, &g)};
    enum { ALIGN = 64 };
    s.aa = round_up_bytes((size_t)(adapted->rank * adapted->rank) * sizeof(float), ALIGN);
    for (int t = 0; t < adapted->tensors; t++) {
        g = product_of(graph, node, t);
        s.wa = max_bytes(s.wa, round_up_bytes((size_t)(g.m * g.n) * sizeof(float), ALIGN));
        s.gemm = max_bytes(s.gemm, d->ops->gemm_scratch(d, &g));
    }
    return s;
}

static size_t squares_scratch(struct device *d, const struct graph *graph,
                              const struct graph_node *node)
{
    struct squares_scratch s = scratch_of(d, graph, node);
    return s.wa + s.aa + s.gemm;
}

static int run_tensor(const struct op_call *call, int t, struct error *err)
{
    const struct graph_node *node = call->node;
    const struct graph_adapter *adapted = &node->attrs.adapted;
    struct device *d = call->device;
    struct squares_scratch size = scratch_of(d, call->graph, node);
    struct gemm wa = product_of(call->graph, node, t), aa = product_of(call->graph, node, -1);
    char *scratch = call->scratch;
    size_t bytes = dtype_bytes(call->graph->dtype);
    const char *a =
        (const char *)call->in[A] + (size_t)(adapted->tensor[t].slice * aa.m * aa.k) * bytes;
    wa.a = (const char *)call->in[W] + (size_t)(adapted->tensor[t].first * wa.k) * bytes;
    aa.a = wa.b = aa.b = a;
    wa.c = scratch;
    aa.c = scratch + size.wa;
    void *work = size.gemm ? scratch + size.wa + size.aa : NULL;
    if (d->ops->gemm(d, &wa, work, err) || d->ops->gemm(d, &aa, work, err))
        return -1;
    const struct row_squares s = {.dt = call->graph->dtype,
                                  .rows = wa.m,
                                  .cols = wa.k,
                                  .rank = wa.n,
                                  .factor = node->attrs.scale};
    int64_t before = op_adapter_columns_before(adapted, t);
    d->ops->row_squares(d, &s, (float *)call->out[0] + before, wa.a,
                        (const char *)call->in[B] + (size_t)(before * s.rank) * bytes, wa.c, aa.c);
    return 0;
}

static int squares_run(const struct op_call *call, struct error *err)
{
    for (int t = 0; t < call->node->attrs.adapted.tensors; t++)
        if (run_tensor(call, t, err))
            return -1;
    return 0;
}

/* keep: the result is one number a row, and to make it W is read twice. */
const struct op op_row_squares = {
    .name = "row_squares",
    .shapes = squares_shapes,
    .gradient = no_gradient,
    .flops = squares_flops,
    .products = squares_products,
    .bytes = squares_bytes,
    .scratch = squares_scratch,
    .run = squares_run,
    .in_format = 1u << 0 | 1u << 1 | 1u << 2,
    .keep = 1,
};

/* ---- scaling ---- */

/* inputs x [rows, columns], m and squares [adapted columns]; output y */
static void shapes(struct graph *graph, struct graph_node *node)
{
    const struct graph_value *x = &graph->values[node->in[0]];
    const struct graph_adapter *adapted = &node->attrs.adapted;
    int64_t columns = op_adapter_columns_before(adapted, adapted->tensors);
    op_check_adapter(graph, node, x->dim[1]);
    for (int k = 1; k < 3; k++)
        if (graph_elems(graph, node->in[k]) != columns)
            graph_fail(graph, "magnitude: %lld numbers for %lld adapted columns",
                       (long long)graph_elems(graph, node->in[k]), (long long)columns);
    op_shaped_as_first(graph, node);
}

/* Of dy: dx, its columns scaled as those of x were, and dm.  The squares get nothing. */
static void gradient(struct autodiff *ad, const struct graph_node *node, int dy)
{
    int x = node->in[0], m = node->in[1], squares = node->in[2];
    int weight =
        autodiff_node(ad, &op_magnitude_weight_grad, (int[]){dy, x, squares}, 3, &node->attrs);
    autodiff_param(ad, weight, 0, m);
    int input =
        autodiff_node(ad, &op_magnitude_input_grad, (int[]){dy, m, squares}, 3, &node->attrs);
    autodiff_give(ad, x, ad->graph->nodes[input].out[0]);
}

/* The address of element `first` of a tensor in the graph's format. */
static const void *column(const struct op_call *call, const void *base, int64_t first)
{
    return (const char *)base + (size_t)first * dtype_bytes(call->graph->dtype);
}

/* Scale `columns` columns from `first` on, those of tensor t; with t -1 they are of no tensor, and
 * are copied. */
static void scale_range(const struct op_call *call, int64_t first, int64_t columns, int t)
{
    const struct op_attrs *attrs = &call->node->attrs;
    const struct column_scale s = {
        .dt = call->graph->dtype, .rows = call->shape[0], .cols = columns, .ld = call->shape[1]};
    int64_t before = t < 0 ? 0 : op_adapter_columns_before(&attrs->adapted, t);
    const void *m = t < 0 ? NULL : column(call, call->in[1], before);
    const float *squares = t < 0 ? NULL : (const float *)call->in[2] + before;
    if (columns == 0 || (t < 0 && call->out[0] == call->in[0]))
        return;
    call->device->ops->scale_columns(call->device, &s, (void *)column(call, call->out[0], first),
                                     column(call, call->in[0], first), m, squares);
}

static int run(const struct op_call *call, struct error *err)
{
    const struct graph_adapter *adapted = &call->node->attrs.adapted;
    int64_t at = 0;
    for (int t = 0; t < adapted->tensors; t++) {
        scale_range(call, at, adapted->tensor[t].first - at, -1);
        scale_range(call, adapted->tensor[t].first, adapted->tensor[t].columns, t);
        at = adapted->tensor[t].first + adapted->tensor[t].columns;
    }
    scale_range(call, at, call->shape[1] - at, -1);
    return 0;
}

const struct op op_magnitude = {
    .name = "magnitude",
    .shapes = shapes,
    .gradient = gradient,
    .flops_each = 1,
    .run = run,
    .in_format = 1u << 0 | 1u << 1,
    .in_place = 1u << 0,
};

const struct op op_magnitude_input_grad = {
    .name = "magnitude_input_grad",
    .shapes = op_shaped_as_first,
    .flops_each = 1,
    .run = run,
    .in_format = 1u << 0 | 1u << 1,
    .in_place = 1u << 0,
};

static size_t weight_scratch(struct device *d, const struct graph *graph,
                             const struct graph_node *node)
{
    const struct graph_adapter *adapted = &node->attrs.adapted;
    size_t bytes = 0;
    for (int t = 0; t < adapted->tensors; t++)
        bytes = max_bytes(bytes, d->ops->bias_backward_scratch(d, dims(graph, node->in[0])[0],
                                                               adapted->tensor[t].columns));
    return bytes;
}

static int weight_run(const struct op_call *call, struct error *err)
{
    const struct graph_adapter *adapted = &call->node->attrs.adapted;
    for (int t = 0; t < adapted->tensors; t++) {
        const struct column_scale s = {.dt = call->graph->dtype,
                                       .rows = call->shape[0],
                                       .cols = adapted->tensor[t].columns,
                                       .ld = call->shape[1]};
        int64_t first = adapted->tensor[t].first, before = op_adapter_columns_before(adapted, t);
        if (s.cols)
            call->device->ops->scale_columns_backward(
                call->device, &s, (float *)call->out[0] + before, column(call, call->in[0], first),
                column(call, call->in[1], first), (const float *)call->in[2] + before,
                call->accumulate, call->scratch);
    }
    return 0;
}

/* inputs dy, x, squares; output dm */
const struct op op_magnitude_weight_grad = {
    .name = "magnitude_weight_grad",
    .flops_each = 2,
    .scratch = weight_scratch,
    .run = weight_run,
    .in_format = 1u << 0 | 1u << 1,
};
