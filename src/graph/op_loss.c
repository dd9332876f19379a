/* op_loss.c - the output head and softmax cross-entropy together, rows in chunks.
 *
 * Logits are never whole: a chunk of rows is multiplied by the head's weight into scratch,
 * turned into losses and (in training) into its own gradient in place, and multiplied back
 * at once.  In training one node stands for forward and backward of both, so the
 * head is used once and nothing is kept.
 *
 * Rows of logits lie at multiples of 64 elements, whatever the vocabulary: the 50257 columns of
 * GPT-2 end to end would begin at addresses for which matrix libraries have slow kernels alone.
 *
 * head_loss:        h [rows, hidden], w [vocab, hidden], targets -> loss
 * head_loss_train:  the same, loss scale -> loss, dh [rows, hidden], dw
 */
#include "base/round.h"
#include "graph/autodiff.h"
#include "graph/op.h"
#include "device/ops.h"

enum { H, W, TARGETS, SCALE };
enum { LOSS, DH, DW };
enum { CHUNK_ROWS = 64, ALIGN = 64, LD_ELEMS = 64 };

struct sizes {
    int64_t rows, hidden, vocab;
    int64_t ld;    /* elements from one row of logits to the next */
    int64_t chunk; /* rows at once: about the device's logits_bytes of logits */
    enum dtype dt;
};

static struct sizes sizes_of(const struct device *d, const struct graph *graph,
                             const struct graph_node *node)
{
    struct sizes s = {
        .rows = graph->values[node->in[H]].dim[0],
        .hidden = graph->values[node->in[H]].dim[1],
        .vocab = graph->values[node->in[W]].dim[0],
        .dt = graph->dtype,
    };
    s.ld = round_up(s.vocab, LD_ELEMS);
    s.chunk = (int64_t)d->logits_bytes / (s.ld * 4) / CHUNK_ROWS * CHUNK_ROWS;
    s.chunk = s.chunk < CHUNK_ROWS ? CHUNK_ROWS : s.chunk;
    s.chunk = s.chunk > s.rows ? s.rows : s.chunk;
    return s;
}

static size_t logits_bytes(const struct sizes *s)
{
    return round_up_bytes((size_t)(s->chunk * s->ld) * sizeof(float), ALIGN);
}

static void loss_shapes(struct graph *graph, struct graph_node *node)
{
    if (graph->values[node->in[H]].dim[1] != graph->values[node->in[W]].dim[1]) {
        graph_fail(graph, "head: hidden sizes differ");
        return;
    }
    int64_t two = 2;
    node->out[LOSS] = graph_value(graph, VALUE_LOSS, DTYPE_F64, 1, &two);
}

static void train_shapes(struct graph *graph, struct graph_node *node)
{
    struct graph_value h = graph->values[node->in[H]];
    loss_shapes(graph, node);
    node->out[DH] = graph_value(graph, VALUE_TEMP, h.dtype, 2, h.dim);
}

static void loss_gradient(struct autodiff *ad, int index)
{
    struct graph_node node = ad->graph->nodes[index];
    int64_t one = 1;
    int scale = graph_value(ad->graph, VALUE_LOSS_SCALE, DTYPE_F64, 1, &one);
    const int in[] = {node.in[H], node.in[W], node.in[TARGETS], scale};
    int both = autodiff_node(ad, OP_HEAD_LOSS_TRAIN, in, 4, &node.attrs);
    ad->graph->nodes[index].replaced = 1;
    autodiff_param(ad, both, DW, node.in[W]);
    autodiff_give(ad, node.in[H], ad->graph->nodes[both].out[DH]);
}

static double loss_flops(const struct graph *graph, const struct graph_node *node)
{
    const struct graph_value *h = &graph->values[node->in[H]];
    return 2.0 * (double)h->dim[0] * (double)h->dim[1] * (double)graph->values[node->in[W]].dim[0];
}

static double train_flops(const struct graph *graph, const struct graph_node *node)
{
    int products = 1 + (node->out[DH] >= 0) + (node->out[DW] >= 0);
    return products * loss_flops(graph, node);
}

/* logits = h w^T */
static struct gemm logits_gemm(const struct sizes *s, int64_t rows)
{
    return (struct gemm){
        .dt = s->dt,
        .dt_c = DTYPE_F32,
        .trans_b = 1,
        .m = rows,
        .n = s->vocab,
        .k = s->hidden,
        .lda = s->hidden,
        .ldb = s->hidden,
        .ldc = s->ld,
    };
}

/* Row stride of the gradient of the logits, packed in place in its type. */
static int64_t packed(const struct sizes *s)
{
    return s->ld * (int64_t)(sizeof(float) / dtype_bytes(s->dt));
}

/* dh = dlogits w */
static struct gemm dh_gemm(const struct sizes *s, int64_t rows)
{
    return (struct gemm){
        .dt = s->dt,
        .dt_c = s->dt,
        .m = rows,
        .n = s->hidden,
        .k = s->vocab,
        .lda = packed(s),
        .ldb = s->hidden,
        .ldc = s->hidden,
    };
}

/* dw = dlogits^T h */
static struct gemm dw_gemm(const struct sizes *s, int64_t rows)
{
    return (struct gemm){
        .dt = s->dt,
        .dt_c = DTYPE_F32,
        .trans_a = 1,
        .m = s->vocab,
        .n = s->hidden,
        .k = rows,
        .lda = packed(s),
        .ldb = s->hidden,
        .ldc = s->hidden,
    };
}

/* The last chunk may have fewer rows, which is another product to the library. */
static size_t gemm_scratch(struct device *d, const struct sizes *s, int64_t rows, int train)
{
    struct gemm logits = logits_gemm(s, rows);
    size_t bytes = d->ops->gemm_scratch(d, &logits);
    if (train) {
        struct gemm dh = dh_gemm(s, rows), dw = dw_gemm(s, rows);
        bytes = max_bytes(bytes, d->ops->gemm_scratch(d, &dh));
        bytes = max_bytes(bytes, d->ops->gemm_scratch(d, &dw));
    }
    return bytes;
}

static size_t scratch(struct device *d, const struct sizes *s, int train)
{
    size_t bytes = gemm_scratch(d, s, s->chunk, train);
    if (s->rows % s->chunk)
        bytes = max_bytes(bytes, gemm_scratch(d, s, s->rows % s->chunk, train));
    return logits_bytes(s) + round_up_bytes((size_t)s->rows * sizeof(float), ALIGN) + bytes;
}

static size_t loss_scratch(struct device *d, const struct graph *graph,
                           const struct graph_node *node)
{
    struct sizes s = sizes_of(d, graph, node);
    return scratch(d, &s, 0);
}

static size_t train_scratch(struct device *d, const struct graph *graph,
                            const struct graph_node *node)
{
    struct sizes s = sizes_of(d, graph, node);
    return scratch(d, &s, 1);
}

struct parts {
    float *logits, *row_loss;
    void *gemm;
};

static struct parts split(const struct sizes *s, void *scratch)
{
    char *at = scratch;
    struct parts parts = {.logits = (float *)at};
    at += logits_bytes(s);
    parts.row_loss = (float *)at;
    parts.gemm = at + round_up_bytes((size_t)s->rows * sizeof(float), ALIGN);
    return parts;
}

static const char *row(const void *base, const struct sizes *s, int64_t first)
{
    return (const char *)base + (size_t)(first * s->hidden) * dtype_bytes(s->dt);
}

/* dh and dw of one chunk, those that are wanted; its dlogits are in parts->logits. */
static int chunk_backward(const struct op_call *call, const struct sizes *s,
                          const struct parts *parts, int64_t first, int64_t rows, struct error *err)
{
    struct device *d = call->device;
    struct gemm dh = dh_gemm(s, rows), dw = dw_gemm(s, rows);
    dh.a = dw.a = parts->logits;
    dh.b = call->in[W];
    dw.b = row(call->in[H], s, first);
    dw.c = call->out[DW];
    dw.addend = first > 0 || call->accumulate ? dw.c : NULL;
    if (call->out[DH]) {
        dh.c = (char *)row(call->out[DH], s, first);
        if (d->ops->gemm(d, &dh, parts->gemm, err))
            return -1;
    }
    return call->out[DW] ? d->ops->gemm(d, &dw, parts->gemm, err) : 0;
}

static int run(const struct op_call *call, int train, struct error *err)
{
    struct device *d = call->device;
    struct sizes s = sizes_of(d, call->graph, call->node);
    struct parts parts = split(&s, call->scratch);
    const int32_t *targets = call->in[TARGETS];
    for (int64_t first = 0; first < s.rows; first += s.chunk) {
        int64_t rows = s.rows - first < s.chunk ? s.rows - first : s.chunk;
        struct gemm logits = logits_gemm(&s, rows);
        logits.a = row(call->in[H], &s, first);
        logits.b = call->in[W];
        logits.c = parts.logits;
        if (d->ops->gemm(d, &logits, parts.gemm, err))
            return -1;
        d->ops->cross_entropy(d, s.dt, parts.row_loss + first, train ? parts.logits : NULL,
                              packed(&s), parts.logits, s.ld, targets + first, rows, s.vocab,
                              call->node->attrs.scale, train ? call->in[SCALE] : NULL);
        if (train && chunk_backward(call, &s, &parts, first, rows, err))
            return -1;
    }
    d->ops->loss_sum(d, call->out[LOSS], parts.row_loss, targets, s.rows);
    return 0;
}

static int loss_run(const struct op_call *call, struct error *err)
{
    return run(call, 0, err);
}

static int train_run(const struct op_call *call, struct error *err)
{
    return run(call, 1, err);
}

const struct op op_head_loss = {
    .name = "head_loss",
    .shapes = loss_shapes,
    .gradient = loss_gradient,
    .flops = loss_flops,
    .scratch = loss_scratch,
    .run = loss_run,
};

const struct op op_head_loss_train = {
    .name = "head_loss_train",
    .shapes = train_shapes,
    .optional = 1 << DH | 1 << DW,
    .flops = train_flops,
    .scratch = train_scratch,
    .run = train_run,
};
