/* op_heads.c - two ops: pack_heads puts the key and value heads that a rank's query heads read
 * after them; split_heads takes packed rows apart again.
 *
 * Where ranks divide the query heads, and a key head is read by query heads of several ranks, each
 * rank makes all keys and values.  pack_heads then puts those that the rank's query heads read
 * after them, as attention takes grouped queries (struct pack_heads has an example).  Its gradient
 * of keys and values is a term: the part that the rank's own queries give.
 *
 * pack_heads: inputs q [rows, heads * head_dim] and kv [rows, 2 * model_kv_heads * head_dim];
 * output y.  Attributes: heads and head_dim; kv_heads, the key heads of a packed row; first, the
 * query heads of the ranks before; model_heads and model_kv_heads, those of the whole model.
 *
 * split_heads: input x [rows, (heads + 2 * model_kv_heads) * head_dim], packed rows with all of
 * the model's key heads; outputs q and kv.  pack_heads is its gradient.
 */
#include "graph/autodiff.h"
#include "graph/op.h"
#include "device/ops.h"

/* If the rank's query heads are cut into groups of `each`, does every group read one key head? */
static int read_one_key(const struct op_attrs *a, int64_t each)
{
    int64_t group = a->model_heads / a->model_kv_heads, end = a->first + a->heads;
    for (int64_t head = a->first; head < end; head += each)
        if (head / group != (head + each - 1) / group)
            return 0;
    return 1;
}

/* How many key heads a packed row has: as few as make each be read by equally many query heads. */
static int64_t packed_keys(const struct op_attrs *a)
{
    int64_t keys = 1;
    while (a->heads % keys || !read_one_key(a, a->heads / keys))
        keys++;
    return keys;
}

static void pack_shapes(struct graph *graph, struct graph_node *node)
{
    struct graph_value q = graph->values[node->in[0]], kv = graph->values[node->in[1]];
    struct op_attrs *a = &node->attrs;
    if (a->heads < 1 || a->model_kv_heads < 1 || a->model_heads % a->model_kv_heads ||
        a->first < 0 || a->first + a->heads > a->model_heads || q.dim[0] != kv.dim[0] ||
        q.dim[1] != a->heads * a->head_dim || kv.dim[1] != 2 * a->model_kv_heads * a->head_dim) {
        graph_fail(graph,
                   "pack_heads: %lld of %lld query heads, from %lld on, and %lld key heads, of "
                   "%lld each, are not rows of %lld and of %lld",
                   (long long)a->heads, (long long)a->model_heads, (long long)a->first,
                   (long long)a->model_kv_heads, (long long)a->head_dim, (long long)q.dim[1],
                   (long long)kv.dim[1]);
        return;
    }
    a->kv_heads = packed_keys(a);
    q.dim[1] += 2 * a->kv_heads * a->head_dim;
    node->out[0] = graph_value(graph, VALUE_TEMP, q.dtype, 2, q.dim);
}

static void pack_gradient(struct autodiff *ad, const struct graph_node *node, int dy)
{
    int back = autodiff_node(ad, &op_pack_heads_backward, &dy, 1, &node->attrs);
    autodiff_give(ad, node->in[0], ad->graph->nodes[back].out[0]);
    autodiff_give(ad, node->in[1], ad->graph->nodes[back].out[1]);
}

static struct pack_heads packing(const struct op_call *call)
{
    const struct op_attrs *a = &call->node->attrs;
    return (struct pack_heads){
        .dt = call->graph->dtype,
        .rows = call->shape[0],
        .heads = a->heads,
        .kv_heads = a->model_kv_heads,
        .head_dim = a->head_dim,
        .first = a->first,
        .group = a->model_heads / a->model_kv_heads,
        .packed = a->kv_heads,
    };
}

static int pack_run(const struct op_call *call, struct error *err)
{
    const struct pack_heads p = packing(call);
    call->device->ops->pack_heads(call->device, &p, call->out[0], call->in[0], call->in[1]);
    return 0;
}

const struct op op_pack_heads = {
    .name = "pack_heads",
    .shapes = pack_shapes,
    .gradient = pack_gradient,
    .run = pack_run,
    .in_format = 1u << 0 | 1u << 1,
};

/* input dy; outputs dq, dkv */
static void unpack_shapes(struct graph *graph, struct graph_node *node)
{
    struct graph_value dy = graph->values[node->in[0]];
    const struct op_attrs *a = &node->attrs;
    int64_t q[2] = {dy.dim[0], a->heads * a->head_dim};
    int64_t kv[2] = {dy.dim[0], 2 * a->model_kv_heads * a->head_dim};
    node->out[0] = graph_value(graph, VALUE_TEMP, dy.dtype, 2, q);
    node->out[1] = graph_value(graph, VALUE_TEMP, dy.dtype, 2, kv);
}

static int unpack_run(const struct op_call *call, struct error *err)
{
    const struct pack_heads p = packing(call);
    call->device->ops->pack_heads_backward(call->device, &p, call->out[0], call->out[1],
                                           call->in[0]);
    return 0;
}

const struct op op_pack_heads_backward = {
    .name = "pack_heads_backward",
    .shapes = unpack_shapes,
    .run = unpack_run,
    .in_format = 1u << 0,
};

static void split_shapes(struct graph *graph, struct graph_node *node)
{
    const struct op_attrs *a = &node->attrs;
    int64_t width = graph->values[node->in[0]].dim[1];
    if (width != (a->heads + 2 * a->model_kv_heads) * a->head_dim)
        graph_fail(graph, "split_heads: rows of %lld are not %lld + 2 x %lld heads of %lld",
                   (long long)width, (long long)a->heads, (long long)a->model_kv_heads,
                   (long long)a->head_dim);
    unpack_shapes(graph, node);
}

static void split_gradient(struct autodiff *ad, const struct graph_node *node, int dy)
{
    const int in[] = {dy, autodiff_take(ad, node->out[1])};
    int back = autodiff_node(ad, &op_pack_heads, in, 2, &node->attrs);
    autodiff_give(ad, node->in[0], ad->graph->nodes[back].out[0]);
}

const struct op op_split_heads = {
    .name = "split_heads",
    .shapes = split_shapes,
    .gradient = split_gradient,
    .run = unpack_run,
    .in_format = 1u << 0,
};
