/* op_attention_cached.c - attention of rows that continue sequences, whose keys and values are kept
 * from one run to the next.
 *
 * Inputs qkv [rows, (heads + 2 * kv_heads) * head_dim], the cache [batch * capacity, 2 * kv_heads *
 * head_dim], positions [rows]; outputs o [rows, heads * head_dim], and the same cache with the
 * rows' keys and values in it.  It has no backward rule: nobody trains through it.
 */
#include "graph/op.h"
#include "device/ops.h"

enum { QKV, CACHE, POSITIONS };
enum { O, KEPT };

static struct attention_cached problem_of(const struct graph *graph, const struct graph_node *node)
{
    const struct op_attrs *a = &node->attrs;
    const int64_t batch = graph->batch;
    return (struct attention_cached){
        .dt = graph->dtype,
        .batch = batch,
        .seq = graph->values[node->in[QKV]].dim[0] / batch,
        .capacity = graph->values[node->in[CACHE]].dim[0] / batch,
        .heads = a->heads,
        .kv_heads = a->kv_heads,
        .head_dim = a->head_dim,
        .scale = a->scale,
        .window = a->window,
    };
}

static void shapes(struct graph *graph, struct graph_node *node)
{
    struct attention_cached a = problem_of(graph, node);
    const struct graph_value qkv = graph->values[node->in[QKV]];
    struct graph_value cache = graph->values[node->in[CACHE]];
    if (a.kv_heads < 1 || a.heads % a.kv_heads)
        graph_fail(graph, "attention: %lld heads are not a multiple of %lld key-value heads",
                   (long long)a.heads, (long long)a.kv_heads);
    if (qkv.dim[0] % a.batch || qkv.dim[1] != (a.heads + 2 * a.kv_heads) * a.head_dim)
        graph_fail(graph, "attention: rows of %lld are not %lld + 2 x %lld heads of %lld",
                   (long long)qkv.dim[1], (long long)a.heads, (long long)a.kv_heads,
                   (long long)a.head_dim);
    if (cache.role != VALUE_CACHE || cache.dim[1] != 2 * a.kv_heads * a.head_dim ||
        graph_elems(graph, node->in[POSITIONS]) != qkv.dim[0])
        graph_fail(graph, "attention: a cache of %lld columns, %lld positions for %lld rows",
                   (long long)cache.dim[1], (long long)graph_elems(graph, node->in[POSITIONS]),
                   (long long)qkv.dim[0]);
    if (a.seq > a.capacity || (a.seq > 1 && a.seq % 2))
        graph_fail(graph,
                   "attention: %lld rows of a sequence, of which %lld are kept, are not 1 or an "
                   "even number up to these",
                   (long long)a.seq, (long long)a.capacity);
    int64_t out[2] = {qkv.dim[0], a.heads * a.head_dim};
    node->out[O] = graph_value(graph, VALUE_TEMP, graph->dtype, 2, out);
    node->out[KEPT] = graph_value(graph, VALUE_CACHE, graph->dtype, 2, cache.dim);
    graph->values[node->out[KEPT]].index = cache.index;
}

/* Count as if the cache were full: two products, 2 * head_dim operations each, for each pair of a
 * query and a key. */
static double flops(const struct graph *graph, const struct graph_node *node)
{
    struct attention_cached a = problem_of(graph, node);
    int64_t seen = a.window > 0 && a.window < a.capacity ? a.window : a.capacity;
    return 4.0 * (double)(a.batch * a.seq * a.heads * a.head_dim) * (double)seen;
}

static size_t scratch(struct device *d, const struct graph *graph, const struct graph_node *node)
{
    struct attention_cached a = problem_of(graph, node);
    return d->ops->attention_cached_scratch(d, &a);
}

static int run(const struct op_call *call, struct error *err)
{
    struct attention_cached a = problem_of(call->graph, call->node);
    call->device->ops->attention_cached(call->device, &a, call->out[O], call->out[KEPT],
                                        call->in[QKV], call->in[POSITIONS], call->scratch);
    return 0;
}

static int offered(struct device *d, const struct graph *graph, const struct graph_node *node,
                   struct error *err)
{
    return device_check_head_dim(d, node->attrs.head_dim, err);
}

const struct op op_attention_cached = {
    .name = "attention_cached",
    .shapes = shapes,
    .flops = flops,
    .scratch = scratch,
    .run = run,
    .offered = offered,
    .in_format = 1u << 0 | 1u << 1,
};
