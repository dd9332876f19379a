/* sdpa_shape.c - build attention, forward and backward, from operations of cuDNN.
 *
 * cuDNN has one kernel for a graph only if it recognises it, so the operations, their order and
 * the types between them are those it documents for attention:
 *
 *   forward:   s = scale q k^t, -inf where column > row;  m = max s;  z = sum exp(s - m);
 *              lse = m + log z;  p = exp(s - m) / z, in 16 bits;  o = p v
 *   backward:  r = sum do o;  p = exp(scale q k^t - lse), 0 where column > row;
 *              dv = p^t do;  ds = scale (do v^t - r) p;  dk = ds^t q;  dq = ds k
 *
 * Where dq is the result of the last product, cuDNN takes an engine that adds in the same order in
 * every run.  With any_order dq is first a sum in fp32 in memory instead, to which the blocks of
 * keys add their terms as they end.  Where query heads share a key head, dk and dv are products of
 * all query heads, summed over those that share.
 */
#include "device/cuda/sdpa_graph.h"

/* Of the slice; rows are the elements of a row of qkv, of o, of dq, and of dk and dv: all heads,
 * but for those that a tile writes. */
struct sizes {
    cudnnDataType_t type;
    int64_t batch, seq, heads, kv_heads, dim, row, out_row, dq_row, dkv_row;
};

static struct sizes sizes_of(const struct attention *a, struct sdpa_slice slice)
{
    int64_t heads = a->heads / a->kv_heads * slice.kv_heads, is_tile = slice.tokens < a->seq;
    int64_t row = (a->heads + 2 * a->kv_heads) * a->head_dim;
    return (struct sizes){.type = a->dt == DTYPE_F16 ? CUDNN_DATA_HALF : CUDNN_DATA_BFLOAT16,
                          .batch = slice.batch,
                          .seq = slice.tokens,
                          .heads = heads,
                          .kv_heads = slice.kv_heads,
                          .dim = a->head_dim,
                          .row = row,
                          .out_row = a->heads * a->head_dim,
                          .dq_row = is_tile ? heads * a->head_dim : row,
                          .dkv_row = is_tile ? slice.kv_heads * a->head_dim : row};
}

/* [batch, heads, seq, dim] in rows of `row` elements */
static struct sdpa_shape in_rows(const struct sizes *z, int64_t heads, int64_t row)
{
    return (struct sdpa_shape){{z->batch, heads, z->seq, z->dim}, {z->seq * row, z->dim, row, 1}};
}

static struct sdpa_shape transposed(struct sdpa_shape s)
{
    return (struct sdpa_shape){{s.dims[0], s.dims[1], s.dims[3], s.dims[2]},
                               {s.strides[0], s.strides[1], s.strides[3], s.strides[2]}};
}

/* [batch, heads, seq, cols], dense */
static struct sdpa_shape dense(const struct sizes *z, int64_t cols)
{
    return (struct sdpa_shape){{z->batch, z->heads, z->seq, cols},
                               {z->heads * z->seq * cols, z->seq * cols, cols, 1}};
}

static sdpa_node between(struct sdpa_graph *g, cudnnDataType_t type, struct sdpa_shape shape)
{
    return sdpa_tensor(g, SDPA_NONE, type, shape);
}

/* A new fp32 tensor of all scores' shape: mode(x, b). */
static sdpa_node scores(struct sdpa_graph *g, const struct sizes *z, cudnnPointwiseMode_t mode,
                        sdpa_node x, sdpa_node b)
{
    sdpa_node y = between(g, CUDNN_DATA_FLOAT, dense(z, z->seq));
    sdpa_pointwise(g, mode, y, x, b, NULL);
    return y;
}

static sdpa_node reduced(struct sdpa_graph *g, const struct sizes *z, cudnnReduceTensorOp_t op,
                         sdpa_node x)
{
    sdpa_node y = between(g, CUDNN_DATA_FLOAT, dense(z, 1));
    sdpa_reduce(g, op, y, x);
    return y;
}

static sdpa_node product_of_rows(struct sdpa_graph *g, const struct sizes *z, sdpa_node a,
                                 sdpa_node b)
{
    sdpa_node y = between(g, CUDNN_DATA_FLOAT, dense(z, z->seq));
    sdpa_matmul(g, y, a, b);
    return y;
}

static sdpa_node causal(struct sdpa_graph *g, const struct sizes *z, sdpa_node x)
{
    struct sdpa_shape shape = dense(z, z->seq);
    sdpa_node row = between(g, CUDNN_DATA_INT32, shape), col = between(g, CUDNN_DATA_INT32, shape);
    sdpa_node keep = between(g, CUDNN_DATA_BOOLEAN, shape);
    sdpa_node y = between(g, CUDNN_DATA_FLOAT, shape);
    sdpa_index(g, row, x, 2);
    sdpa_index(g, col, x, 3);
    sdpa_pointwise(g, CUDNN_POINTWISE_CMP_GE, keep, row, col, NULL);
    sdpa_pointwise(g, CUDNN_POINTWISE_BINARY_SELECT, y, x, sdpa_host_float(g, SDPA_MASKED), keep);
    return y;
}

static void forward(struct sdpa_graph *g, const struct sizes *z)
{
    struct sdpa_shape kv = in_rows(z, z->kv_heads, z->row);
    sdpa_node q = sdpa_tensor(g, SDPA_Q, z->type, in_rows(z, z->heads, z->row));
    sdpa_node kt = sdpa_tensor(g, SDPA_K, z->type, transposed(kv));
    sdpa_node v = sdpa_tensor(g, SDPA_V, z->type, kv);
    sdpa_node o = sdpa_tensor(g, SDPA_O, z->type, in_rows(z, z->heads, z->out_row));
    sdpa_node lse = sdpa_tensor(g, SDPA_LSE, CUDNN_DATA_FLOAT, dense(z, 1));
    sdpa_node p = between(g, z->type, dense(z, z->seq));

    sdpa_node s = product_of_rows(g, z, q, kt);
    s = scores(g, z, CUDNN_POINTWISE_MUL, s, sdpa_host_float(g, SDPA_SCALE));
    s = causal(g, z, s);
    sdpa_node most = reduced(g, z, CUDNN_REDUCE_TENSOR_MAX, s);
    s = scores(g, z, CUDNN_POINTWISE_SUB, s, most);
    s = scores(g, z, CUDNN_POINTWISE_EXP, s, NULL);
    sdpa_node sum = reduced(g, z, CUDNN_REDUCE_TENSOR_ADD, s);
    sdpa_node log_sum = between(g, CUDNN_DATA_FLOAT, dense(z, 1));
    sdpa_pointwise(g, CUDNN_POINTWISE_LOG, log_sum, sum, NULL, NULL);
    sdpa_pointwise(g, CUDNN_POINTWISE_ADD, lse, most, log_sum, NULL);
    sdpa_pointwise(g, CUDNN_POINTWISE_DIV, p, s, sum, NULL);
    sdpa_matmul(g, o, p, v);
}

/* d[batch, kv_heads, seq, dim] = x^t y, summed over the query heads of a key head; x fp32 of the
 * scores' shape. */
static void gradient_of_kv(struct sdpa_graph *g, const struct sizes *z, sdpa_node d, sdpa_node x,
                           sdpa_node y)
{
    sdpa_node xt = between(g, z->type, transposed(dense(z, z->seq)));
    sdpa_reshape(g, xt, x);
    if (z->heads == z->kv_heads) {
        sdpa_matmul(g, d, xt, y);
        return;
    }
    sdpa_node each = between(g, z->type, dense(z, z->dim));
    sdpa_matmul(g, each, xt, y);
    sdpa_reduce(g, CUDNN_REDUCE_TENSOR_ADD, d, each);
}

/* dq = ds k */
static void gradient_of_q(struct sdpa_graph *g, const struct sizes *z, sdpa_node ds, sdpa_node k,
                          int any_order)
{
    sdpa_node dq = sdpa_tensor(g, SDPA_DQ, z->type, in_rows(z, z->heads, z->dq_row));
    if (!any_order) {
        sdpa_matmul(g, dq, ds, k);
        return;
    }
    sdpa_node sum = sdpa_tensor(g, SDPA_DQ_SUM, CUDNN_DATA_FLOAT, dense(z, z->dim));
    sdpa_matmul(g, sum, ds, k);
    sdpa_pointwise(g, CUDNN_POINTWISE_IDENTITY, dq, sum, NULL, NULL);
}

static void backward(struct sdpa_graph *g, const struct sizes *z, enum sdpa_mask mask,
                     int any_order)
{
    struct sdpa_shape query = in_rows(z, z->heads, z->row), kv = in_rows(z, z->kv_heads, z->row);
    struct sdpa_shape dkv = in_rows(z, z->kv_heads, z->dkv_row);
    struct sdpa_shape out = in_rows(z, z->heads, z->out_row);
    sdpa_node q = sdpa_tensor(g, SDPA_Q, z->type, query);
    sdpa_node kt = sdpa_tensor(g, SDPA_K, z->type, transposed(kv));
    sdpa_node vt = sdpa_tensor(g, SDPA_V, z->type, transposed(kv));
    sdpa_node o = sdpa_tensor(g, SDPA_O, z->type, out);
    sdpa_node dout = sdpa_tensor(g, SDPA_DO, z->type, out);
    sdpa_node lse = sdpa_tensor(g, SDPA_LSE, CUDNN_DATA_FLOAT, dense(z, 1));
    sdpa_node r = sdpa_tensor(g, SDPA_ROWS, CUDNN_DATA_FLOAT, dense(z, 1));
    sdpa_node scale = sdpa_host_float(g, SDPA_SCALE);

    sdpa_node both = between(g, CUDNN_DATA_FLOAT, dense(z, z->dim));
    sdpa_pointwise(g, CUDNN_POINTWISE_MUL, both, dout, o, NULL);
    sdpa_node sum = reduced(g, z, CUDNN_REDUCE_TENSOR_ADD, both);
    sdpa_pointwise(g, CUDNN_POINTWISE_MUL, r, sum, sdpa_host_float(g, SDPA_ONE), NULL);

    sdpa_node p = product_of_rows(g, z, q, kt);
    p = scores(g, z, CUDNN_POINTWISE_MUL, p, scale);
    p = scores(g, z, CUDNN_POINTWISE_SUB, p, lse);
    if (mask == SDPA_CAUSAL)
        p = causal(g, z, p);
    p = scores(g, z, CUDNN_POINTWISE_EXP, p, NULL);
    gradient_of_kv(g, z, sdpa_tensor(g, SDPA_DV, z->type, dkv), p, dout);

    sdpa_node ds = product_of_rows(g, z, dout, vt);
    ds = scores(g, z, CUDNN_POINTWISE_SUB, ds, r);
    ds = scores(g, z, CUDNN_POINTWISE_MUL, ds, p);
    ds = scores(g, z, CUDNN_POINTWISE_MUL, ds, scale);
    gradient_of_kv(g, z, sdpa_tensor(g, SDPA_DK, z->type, dkv), ds, q);

    sdpa_node k = between(g, z->type, kv);
    sdpa_reshape(g, k, kt);
    gradient_of_q(g, z, ds, k, any_order);
}

int sdpa_plan_make(struct sdpa_plan *plan, const struct attention *a, struct sdpa_slice slice,
                   enum device_pass pass, enum sdpa_mask mask, const struct sdpa_target *target,
                   struct error *err)
{
    const struct sizes z = sizes_of(a, slice);
    struct sdpa_graph g = {.err = err};
    *plan = (struct sdpa_plan){0};
    if (pass == DEVICE_BACKWARD)
        backward(&g, &z, mask, a->any_order);
    else
        forward(&g, &z);
    int status = sdpa_finish(&g, plan, target);
    sdpa_drop(&g);
    return status;
}
