/* op_attention.c - rotary positions and grouped-query attention.
 *
 * rope: inputs x, cos_sin [positions, head_dim], and positions [rows] or none; output y.
 *
 * attention: inputs qkv, or q and kv, documents [rows] or none, and samples [batch, 2] where
 * weights are dropped; outputs o, lse.  attrs.forms are bits of enum attention_form (device/ops.h).
 * q and kv each have graph->batch sequences, whose lengths follow from the rows of q and of kv, and
 * may differ.
 */
#include "graph/autodiff.h"
#include "graph/op.h"
#include "device/ops.h"

static void rope_shapes(struct graph *graph, struct graph_node *node)
{
    struct graph_value x = graph->values[node->in[0]];
    const struct op_attrs *a = &node->attrs;
    const struct graph_value *table = &graph->values[node->in[1]];
    if (node->in[2] < 0 && table->dim[0] < a->seq)
        graph_fail(graph, "rope: a table of %lld positions for sequences of %lld",
                   (long long)table->dim[0], (long long)a->seq);
    if (node->in[2] < 0)
        op_check_sequences(graph, node);
    if (node->in[2] >= 0 && graph_elems(graph, node->in[2]) != x.dim[0])
        graph_fail(graph, "rope: %lld positions for %lld rows",
                   (long long)graph_elems(graph, node->in[2]), (long long)x.dim[0]);
    if (x.dim[1] != (a->heads + 2 * a->kv_heads) * a->head_dim || a->head_dim % 2)
        graph_fail(graph, "rope: rows of %lld are not %lld + 2 x %lld heads of %lld (even)",
                   (long long)x.dim[1], (long long)a->heads, (long long)a->kv_heads,
                   (long long)a->head_dim);
    node->out[0] = graph_value(graph, VALUE_TEMP, x.dtype, 2, x.dim);
}

static void rope_gradient(struct autodiff *ad, const struct graph_node *node, int dy)
{
    struct op_attrs attrs = node->attrs;
    attrs.inverse = !attrs.inverse;
    int back = autodiff_node(ad, &op_rope, (int[]){dy, node->in[1], node->in[2]}, 3, &attrs);
    autodiff_give(ad, node->in[0], ad->graph->nodes[back].out[0]);
}

static double rope_flops(const struct graph *graph, const struct graph_node *node)
{
    const struct op_attrs *a = &node->attrs;
    return 3.0 * (double)graph->values[node->in[0]].dim[0] *
           (double)((a->heads + a->kv_heads) * a->head_dim);
}

static int rope_run(const struct op_call *call, struct error *err)
{
    const struct op_attrs *a = &call->node->attrs;
    const struct rope rope = {
        .dt = call->graph->dtype,
        .rows = call->shape[0],
        .seq = a->seq,
        .row_heads = a->heads + 2 * a->kv_heads,
        .rotated = a->heads + a->kv_heads,
        .head_dim = a->head_dim,
        .inverse = a->inverse,
    };
    call->device->ops->rope(call->device, &rope, call->out[0], call->in[0], call->in[1],
                            call->in[2]);
    return 0;
}

const struct op op_rope = {
    .name = "rope",
    .shapes = rope_shapes,
    .gradient = rope_gradient,
    .flops = rope_flops,
    .run = rope_run,
    .in_format = 1u << 0,
    .in_place = 1u << 0,
};

enum { Q, KV, DOCUMENTS, SAMPLES }; /* inputs of attention; without KV Q is packed projections */
enum { DOUT, O, LSE, BACK };        /* inputs of attention_backward; from BACK on attention's */
enum { Q_GRAD, KV_GRAD };

static int is_backward(const struct graph_node *node)
{
    return node->op == &op_attention_backward;
}

/* The problem of a node of either op. */
static struct attention attention_of(const struct graph *graph, const struct graph_node *node)
{
    const struct op_attrs *a = &node->attrs;
    const int first = is_backward(node) ? BACK : 0;
    const int64_t batch = graph->batch;
    int kv = node->in[first + KV];
    return (struct attention){
        .dt = graph->dtype,
        .batch = batch,
        .seq = graph->values[node->in[first + Q]].dim[0] / batch,
        .heads = a->heads,
        .kv_heads = a->kv_heads,
        .head_dim = a->head_dim,
        .scale = a->scale,
        .forms = a->forms,
        .part = a->part,
        .window = a->window,
        .first_head = a->dropped.first,
        .kv_seq = kv < 0 ? 0 : graph->values[kv].dim[0] / batch,
    };
}

/* Check the inputs by what the node's forms ask of them. */
static void check_forms(struct graph *graph, const struct graph_node *node,
                        const struct attention *a)
{
    int is_full = !!(a->forms & ATTENTION_FULL);
    int64_t documents = node->in[DOCUMENTS] < 0 ? -1 : graph_elems(graph, node->in[DOCUMENTS]);
    if (documents >= 0 && is_full)
        graph_fail(graph, "attention: documents need the causal mask");
    if (documents >= 0 && documents != a->batch * a->seq)
        graph_fail(graph, "attention: documents of %lld rows, not of %lld", (long long)documents,
                   (long long)(a->batch * a->seq));
    int is_part = !!(a->forms & ATTENTION_PART);
    if (is_part && (is_full || a->seq != 2 * a->part.chunk ||
                    a->part.first[0] + a->part.chunk > a->part.first[1] ||
                    a->part.first[1] + a->part.chunk > a->kv_seq))
        graph_fail(graph,
                   "attention: %lld queries at positions %lld and %lld of %lld keys are no two "
                   "chunks of a sequence, with a causal mask",
                   (long long)a->seq, (long long)a->part.first[0], (long long)a->part.first[1],
                   (long long)a->kv_seq);
    if (is_full && a->forms & ATTENTION_WINDOW)
        graph_fail(graph, "attention: a sliding window needs the causal mask");
    if (!is_full && !is_part && attention_keys(a) != a->seq)
        graph_fail(graph,
                   "attention: a causal mask needs as many keys as queries, not %lld and %lld",
                   (long long)attention_keys(a), (long long)a->seq);
}

/* Check that a value has whole sequences of rows, as wide as so many heads. */
static void check_rows(struct graph *graph, int value, int64_t batch, int64_t heads,
                       int64_t head_dim)
{
    const struct graph_value *v = &graph->values[value];
    if (v->dims != 2 || !v->dim[0] || v->dim[0] % batch || v->dim[1] != heads * head_dim)
        graph_fail(graph,
                   "attention: an input of %lld x %lld for %lld sequences, %lld heads of %lld",
                   (long long)v->dim[0], (long long)v->dim[1], (long long)batch, (long long)heads,
                   (long long)head_dim);
}

static void attention_shapes(struct graph *graph, struct graph_node *node)
{
    struct attention a = attention_of(graph, node);
    int separate = !!(a.forms & ATTENTION_SEPARATE);
    if (a.kv_heads < 1 || a.heads % a.kv_heads)
        graph_fail(graph, "attention: %lld heads are not a multiple of %lld key-value heads",
                   (long long)a.heads, (long long)a.kv_heads);
    check_rows(graph, node->in[Q], a.batch, a.heads + (separate ? 0 : 2 * a.kv_heads), a.head_dim);
    if (separate)
        check_rows(graph, node->in[KV], a.batch, 2 * a.kv_heads, a.head_dim);
    check_forms(graph, node, &a);
    int64_t out[2] = {a.batch * a.seq, a.heads * a.head_dim};
    int64_t lse[3] = {a.batch, a.heads, a.seq};
    node->out[0] = graph_value(graph, VALUE_TEMP, graph->dtype, 2, out);
    node->out[1] = graph_value(graph, VALUE_TEMP, DTYPE_F32, 3, lse);
}

static void attention_gradient(struct autodiff *ad, const struct graph_node *node, int dy)
{
    int back = autodiff_node(ad, &op_attention_backward,
                             (int[]){dy, node->out[0], node->out[1], node->in[Q], node->in[KV],
                                     node->in[DOCUMENTS], node->in[SAMPLES]},
                             7, &node->attrs);
    autodiff_give(ad, node->in[Q], ad->graph->nodes[back].out[Q_GRAD]);
    if (node->in[KV] >= 0)
        autodiff_give(ad, node->in[KV], ad->graph->nodes[back].out[KV_GRAD]);
}

/* Forward multiplies twice, backward five times, 2 * head_dim operations for each pair of a query
 * and a key that it sees; packed documents count as one document a sequence. */
static double attention_flops(const struct graph *graph, const struct graph_node *node)
{
    struct attention a = attention_of(graph, node);
    double products = is_backward(node) ? 5 : 2;
    double pairs = a.forms & ATTENTION_FULL ? (double)a.seq * (double)attention_keys(&a)
                                            : attention_causal_pairs(&a);
    return products * 2.0 * (double)(a.batch * a.heads * a.head_dim) * pairs;
}

static int64_t key_count(const struct graph *graph, const struct graph_node *node)
{
    struct attention a = attention_of(graph, node);
    return attention_keys(&a);
}

/* The problem of a node on a device, which decides in which order backward adds up. */
static struct attention attention_on(const struct device *d, const struct graph *graph,
                                     const struct graph_node *node)
{
    struct attention a = attention_of(graph, node);
    if (is_backward(node)) {
        a.any_order = d->any_order;
        a.scratch_bytes = d->attention_bytes;
    }
    return a;
}

static enum device_pass pass_of(const struct graph_node *node)
{
    return is_backward(node) ? DEVICE_BACKWARD : DEVICE_FORWARD;
}

static size_t attention_scratch(struct device *d, const struct graph *graph,
                                const struct graph_node *node)
{
    struct attention a = attention_on(d, graph, node);
    return d->ops->attention_scratch(d, &a, pass_of(node));
}

static void attention_prepare(struct device *d, const struct graph *graph,
                              const struct graph_node *node)
{
    struct attention a = attention_on(d, graph, node);
    device_attention_prepare(d, &a, pass_of(node));
}

static int attention_run(const struct op_call *call, struct error *err)
{
    struct attention a = attention_of(call->graph, call->node);
    a.kv = call->in[KV];
    a.documents = call->in[DOCUMENTS];
    a.dropout = op_dropout_mask(call, SAMPLES);
    call->device->ops->attention(call->device, &a, call->out[0], call->out[1], call->in[Q],
                                 call->scratch);
    return 0;
}

/* Refuse a form of attention that the device does not offer, by its name. */
static int attention_offered(struct device *d, const struct graph *graph,
                             const struct graph_node *node, struct error *err)
{
    static const struct {
        enum attention_form form;
        const char *name;
    } forms[] = {
        {.form = ATTENTION_FULL, .name = "without a causal mask"},
        {.form = ATTENTION_SEPARATE, .name = "with queries apart from keys and values"},
        {.form = ATTENTION_DOCUMENTS, .name = "over packed documents"},
        {.form = ATTENTION_WINDOW, .name = "with a sliding window"},
        {.form = ATTENTION_DROPOUT, .name = "with dropout"},
        {.form = ATTENTION_PART, .name = "of a part of each sequence (parallel.context)"},
    };
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++)
        if (node->attrs.forms & forms[i].form & ~d->ops->attention_forms)
            return error_set(err, "attention %s is not offered on %s", forms[i].name,
                             d->kind == DEVICE_CPU ? "the CPU" : "a GPU");
    return device_check_head_dim(d, node->attrs.head_dim, err);
}

const struct op op_attention = {
    .name = "attention",
    .shapes = attention_shapes,
    .gradient = attention_gradient,
    .flops = attention_flops,
    .keys = key_count,
    .scratch = attention_scratch,
    .run = attention_run,
    .prepare = attention_prepare,
    .offered = attention_offered,
    .in_format = 1u << Q | 1u << KV,
    .keep = 1,
};

static void backward_shapes(struct graph *graph, struct graph_node *node)
{
    struct graph_value q = graph->values[node->in[BACK + Q]];
    node->out[Q_GRAD] = graph_value(graph, VALUE_TEMP, q.dtype, 2, q.dim);
    if (node->in[BACK + KV] < 0)
        return;
    struct graph_value kv = graph->values[node->in[BACK + KV]];
    node->out[KV_GRAD] = graph_value(graph, VALUE_TEMP, kv.dtype, 2, kv.dim);
}

static int backward_run(const struct op_call *call, struct error *err)
{
    struct attention a = attention_on(call->device, call->graph, call->node);
    a.kv = call->in[BACK + KV];
    a.dkv = call->out[KV_GRAD];
    a.documents = call->in[BACK + DOCUMENTS];
    a.dropout = op_dropout_mask(call, BACK + SAMPLES);
    call->device->ops->attention_backward(call->device, &a, call->out[Q_GRAD], call->in[DOUT],
                                          call->in[O], call->in[LSE], call->in[BACK + Q],
                                          call->scratch);
    return 0;
}

const struct op op_attention_backward = {
    .name = "attention_backward",
    .shapes = backward_shapes,
    .flops = attention_flops,
    .keys = key_count,
    .scratch = attention_scratch,
    .run = backward_run,
    .prepare = attention_prepare,
    .offered = attention_offered,
    .in_format = 1u << DOUT | 1u << O | 1u << (BACK + Q) | 1u << (BACK + KV),
};
