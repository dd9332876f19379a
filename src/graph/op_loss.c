/* op_loss.c - the output head and softmax cross-entropy together, rows in chunks.
 *
 * Logits are never whole: a chunk of rows is multiplied by the head's weight into scratch,
 * turned into losses and (in training) into its own gradient in place, and multiplied back
 * at once.  In training one node stands for forward and backward of both, so the
 * head is used once and nothing is kept.
 *
 * The logits are fp32, or as attrs.out says in the 16-bit format of the activations: then the
 * product rounds each once, and its gradient, which has that format in any case, takes its place.
 * A chunk is of attrs.rows rows, or about the device's logits_bytes; dw is written by the first and
 * read and written by every other, an fp32 sum in the order of the chunks.  So a chunk moves some
 * 12 bytes an element of w, and 14 an element of the logits where these leave the caches: with as
 * many rows as the hidden size the two are about equal, and products of a thousand rows are faster
 * than those of fewer.  Where logits_bytes hold fewer rows than either, as they do of the 50257
 * words of GPT-2, a chunk has as many as logits_most bytes allow, up to the larger of the two.
 *
 * Rows of logits lie at multiples of 64 elements, whatever the vocabulary: the 50257 columns of
 * GPT-2 end to end would begin at addresses for which matrix libraries have slow kernels alone.
 *
 * head_loss:        h [rows, hidden], w [vocab, hidden], targets -> loss
 * head_loss_train:  the same, loss scale -> loss, dh [rows, hidden], dw
 *
 * Where the vocabulary is divided among ranks, each has some columns of the logits, and a row's
 * loss log(sum of e^x) - x[target] needs the largest and the sum of all.  Ranks exchange these for
 * all rows at once, three numbers each, between two sweeps over the chunks:
 *
 *   head_part        h, w, targets                 sweep: top, sums (of e^(x - top); x[target])
 *   all_reduce_max   top                           all_top
 *   head_term        sums, top, all_top            sums e^(top - all_top)
 *   all_reduce       of these                      all_sums
 *   head_part_loss   all_top, all_sums, targets    loss, which all ranks compute alike
 *   head_part_train  the same, and h, w            loss; sweep: dw, and dh, a term of a sum
 *
 * The second sweep makes the logits again: 4 products of a rank's part in place of 3 in training,
 * while evaluation has its 1.  The alternatives: an exchange between the product of each chunk and
 * what follows stops the device that often, twice; logits or weights e^(x - top) kept for all rows
 * are the memory that chunks save (4 or 2 bytes a row and column; 250 MB for 8192 rows and a
 * sixteenth of 128256 columns in fp32).  dh alone could do with one sweep, its rows scaled
 * afterwards, but dw sums over rows.  Columns of padding are left out of products, so they are in
 * no maximum and no sum.
 */
#include "base/round.h"
#include "graph/autodiff.h"
#include "graph/op.h"
#include "device/ops.h"

enum { H, W, TARGETS, SCALE };
enum { LOSS, DH, DW };
enum { PART_TOP = 4, PART_SUMS }; /* of head_part_train, after those above */
enum { CHUNK_ROWS = 64, ENOUGH_ROWS = 1024, ALIGN = 64, LD_ELEMS = 64 };

struct sizes {
    int64_t rows, hidden, vocab;
    int64_t columns; /* of the vocabulary, without padding */
    int64_t ld;      /* elements from one row of logits to the next */
    int64_t chunk;   /* rows at once */
    enum dtype dt, logits;
};

/* Does the node work on a rank's columns of the logits? */
static int is_part(const struct graph_node *node)
{
    return node->op == &op_head_part || node->op == &op_head_part_train;
}

/* The columns of the logits that it works on: a rank's own without padding, or all. */
static int64_t columns_of(const struct graph *graph, const struct graph_node *node)
{
    return is_part(node) ? node->attrs.columns : graph->values[node->in[W]].dim[0];
}

/* Does it make the gradients too? */
static int is_train(const struct graph_node *node)
{
    return node->op == &op_head_loss_train || node->op == &op_head_part_train;
}

/* The rows of a chunk of at most `bytes` bytes, a multiple of CHUNK_ROWS. */
static int64_t rows_within(const struct sizes *s, size_t bytes)
{
    int64_t row_bytes = s->ld * (int64_t)dtype_bytes(s->logits);
    return (int64_t)bytes / row_bytes / CHUNK_ROWS * CHUNK_ROWS;
}

/* The rows of a chunk on this device: what logits_bytes hold or, if logits_most bytes hold more, up
 * to ENOUGH_ROWS or the hidden size, whichever is larger. */
static int64_t chunk_rows(const struct device *d, const struct sizes *s)
{
    int64_t cached = rows_within(s, d->logits_bytes), most = rows_within(s, d->logits_most);
    int64_t wanted = min_i64(max_i64(round_up(s->hidden, CHUNK_ROWS), ENOUGH_ROWS), most);
    return max_i64(max_i64(cached, wanted), CHUNK_ROWS);
}

static struct sizes sizes_of(const struct device *d, const struct graph *graph,
                             const struct graph_node *node)
{
    struct sizes s = {
        .rows = graph->values[node->in[H]].dim[0],
        .hidden = graph->values[node->in[H]].dim[1],
        .vocab = graph->values[node->in[W]].dim[0],
        .columns = columns_of(graph, node),
        .dt = graph->dtype,
        .logits = node->attrs.out,
    };
    s.ld = round_up(s.vocab, LD_ELEMS);
    s.chunk = min_i64(node->attrs.rows > 0 ? node->attrs.rows : chunk_rows(d, &s), s.rows);
    return s;
}

static size_t logits_bytes(const struct sizes *s)
{
    return round_up_bytes((size_t)(s->chunk * s->ld) * dtype_bytes(s->logits), ALIGN);
}

static size_t row_loss_bytes(const struct sizes *s)
{
    return round_up_bytes((size_t)s->rows * sizeof(float), ALIGN);
}

static void check_shapes(struct graph *graph, const struct graph_node *node)
{
    struct graph_value h = graph->values[node->in[H]], w = graph->values[node->in[W]];
    int64_t targets = graph->values[node->in[TARGETS]].dim[0];
    if (h.dim[1] != w.dim[1])
        graph_fail(graph, "head: hidden sizes differ");
    if (targets != h.dim[0])
        graph_fail(graph, "head: %lld targets for %lld rows", (long long)targets,
                   (long long)h.dim[0]);
    if (node->attrs.out != DTYPE_F32 && node->attrs.out != graph->dtype)
        graph_fail(graph, "head: logits are fp32 or of the activations' format, not %s",
                   dtype_name(node->attrs.out));
}

static void make_loss(struct graph *graph, struct graph_node *node)
{
    node->out[LOSS] = graph_value(graph, VALUE_LOSS, DTYPE_F64, 1, (int64_t[]){2});
}

static void loss_shapes(struct graph *graph, struct graph_node *node)
{
    check_shapes(graph, node);
    make_loss(graph, node);
}

static void train_shapes(struct graph *graph, struct graph_node *node)
{
    struct graph_value h = graph->values[node->in[H]];
    loss_shapes(graph, node);
    node->out[DH] = graph_value(graph, VALUE_TEMP, h.dtype, 2, h.dim);
}

/* The node that made a value, which ranks may have exchanged since. */
static const struct graph_node *maker_of(const struct graph *graph, int value)
{
    const struct graph_node *node = &graph->nodes[graph->values[value].producer];
    return node->op->transfer == TRANSFER_NONE ? node : maker_of(graph, node->in[0]);
}

/* The rule of both losses: append one node that makes the loss and its gradients, and set the
 * forward node to replaced. */
static void loss_gradient(struct autodiff *ad, const struct graph_node *node, int dy)
{
    int whole = node->op == &op_head_loss;
    const struct graph_node head = whole ? *node : *maker_of(ad->graph, node->in[0]);
    int scale = graph_value(ad->graph, VALUE_LOSS_SCALE, DTYPE_F64, 1, (int64_t[]){1});
    const int in[] = {head.in[H], head.in[W], head.in[TARGETS], scale, node->in[0], node->in[1]};
    int both = autodiff_node(ad, whole ? &op_head_loss_train : &op_head_part_train, in,
                             whole ? PART_TOP : PART_SUMS + 1, &head.attrs);
    ad->graph->nodes[ad->graph->values[node->out[LOSS]].producer].replaced = 1;
    autodiff_param(ad, both, DW, head.in[W]);
    autodiff_give(ad, head.in[H], ad->graph->nodes[both].out[DH]);
}

static double loss_flops(const struct graph *graph, const struct graph_node *node)
{
    const struct graph_value *h = &graph->values[node->in[H]];
    return 2.0 * (double)h->dim[0] * (double)h->dim[1] * (double)columns_of(graph, node);
}

static double train_flops(const struct graph *graph, const struct graph_node *node)
{
    int products = 1 + (node->out[DH] >= 0) + (node->out[DW] >= 0);
    return products * loss_flops(graph, node);
}

/* logits = h w^T */
static struct gemm logits_gemm(const struct sizes *s, int64_t rows)
{
    return gemm_dense((struct gemm){
        .dt = s->dt,
        .dt_c = s->logits,
        .trans_b = 1,
        .m = rows,
        .n = s->columns,
        .k = s->hidden,
        .ldc = s->ld,
    });
}

/* Row stride of the gradient of the logits, packed in place in its type. */
static int64_t packed(const struct sizes *s)
{
    return s->ld * (int64_t)(dtype_bytes(s->logits) / dtype_bytes(s->dt));
}

/* The product that makes output `of`: of DH dh = dlogits w, of DW dw = dlogits^T h. */
static struct gemm gradient_gemm(const struct sizes *s, int64_t rows, int of)
{
    return gemm_dense((struct gemm){
        .dt = s->dt,
        .dt_c = of == DW ? DTYPE_F32 : s->dt,
        .trans_a = of == DW,
        .m = of == DW ? s->columns : rows,
        .n = s->hidden,
        .k = of == DW ? rows : s->columns,
        .lda = packed(s),
    });
}

/* List the products of whole chunks, and those of a last chunk with fewer rows. */
static int products(const struct device *d, const struct graph *graph,
                    const struct graph_node *node, struct op_product product[OP_PRODUCTS])
{
    struct sizes s = sizes_of(d, graph, node);
    const int64_t rows[] = {s.chunk, s.rows % s.chunk}, times[] = {s.rows / s.chunk, 1};
    int count = 0;
    for (int i = 0; i < 2 && s.columns; i++) {
        const struct gemm all[] = {logits_gemm(&s, rows[i]), gradient_gemm(&s, rows[i], DH),
                                   gradient_gemm(&s, rows[i], DW)};
        const int runs[] = {1, is_train(node) && node->out[DH] >= 0,
                            is_train(node) && node->out[DW] >= 0};
        for (int k = 0; rows[i] && k < 3; k++)
            if (runs[k])
                product[count++] = (struct op_product){.gemm = all[k], .times = times[i]};
    }
    return count;
}

/* The bytes of the passes over the logits: they are read, and in training their gradients written
 * in their place. */
static double logits_passes(const struct graph *graph, const struct graph_node *node)
{
    int64_t rows = graph->values[node->in[H]].dim[0];
    size_t each = dtype_bytes(node->attrs.out) + (is_train(node) ? dtype_bytes(graph->dtype) : 0);
    return (double)rows * (double)columns_of(graph, node) * (double)each;
}

/* The scratch of the products of a chunk of so many rows. */
static size_t gemm_scratch(struct device *d, const struct sizes *s, int64_t rows, int train)
{
    const struct gemm all[] = {logits_gemm(s, rows), gradient_gemm(s, rows, DH),
                               gradient_gemm(s, rows, DW)};
    size_t bytes = 0;
    for (int i = 0; s->columns && i < (train ? 3 : 1); i++)
        bytes = max_bytes(bytes, d->ops->gemm_scratch(d, &all[i]));
    return bytes;
}

/* The parts of the node's scratch. */
struct parts {
    void *logits;    /* of a chunk, and then their gradients: [chunk rows, ld] */
    float *row_loss; /* [rows] */
    void *gemm;      /* the products' scratch */
};

static struct parts split(const struct sizes *s, void *scratch)
{
    char *at = scratch;
    struct parts parts = {.logits = at};
    at += logits_bytes(s);
    parts.row_loss = (float *)at;
    parts.gemm = at + row_loss_bytes(s);
    return parts;
}

static size_t scratch(struct device *d, const struct graph *graph, const struct graph_node *node)
{
    struct sizes s = sizes_of(d, graph, node);
    size_t bytes = gemm_scratch(d, &s, s.chunk, is_train(node));
    /* a last chunk with fewer rows is another product to the library */
    if (s.rows % s.chunk)
        bytes = max_bytes(bytes, gemm_scratch(d, &s, s.rows % s.chunk, is_train(node)));
    return logits_bytes(&s) + row_loss_bytes(&s) + bytes;
}

static const char *row(const void *base, const struct sizes *s, int64_t first)
{
    return (const char *)base + (size_t)(first * s->hidden) * dtype_bytes(s->dt);
}

/* Make dh and add to dw for one chunk, each if it is an output; dlogits are in parts->logits. */
static int chunk_backward(const struct op_call *call, const struct sizes *s,
                          const struct parts *parts, int64_t first, int64_t rows, struct error *err)
{
    struct device *d = call->device;
    struct gemm dh = gradient_gemm(s, rows, DH), dw = gradient_gemm(s, rows, DW);
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

/* What is done with the logits of a chunk of rows, from row `first` on. */
typedef void chunk_action(const struct op_call *call, const struct sizes *s,
                          const struct parts *parts, int64_t first, int64_t rows);

/* For each chunk: make the logits, call action on them and, in training, where action has replaced
 * them by their gradients, make dh and dw. */
static int for_each_chunk(const struct op_call *call, chunk_action *action, struct error *err)
{
    struct sizes s = sizes_of(call->device, call->graph, call->node);
    struct parts parts = split(&s, call->scratch);
    for (int64_t first = 0; first < s.rows; first += s.chunk) {
        int64_t rows = s.rows - first < s.chunk ? s.rows - first : s.chunk;
        struct gemm logits = logits_gemm(&s, rows);
        logits.a = row(call->in[H], &s, first);
        logits.b = call->in[W];
        logits.c = parts.logits;
        if (s.columns && call->device->ops->gemm(call->device, &logits, parts.gemm, err))
            return -1;
        action(call, &s, &parts, first, rows);
        if (is_train(call->node) && s.columns && chunk_backward(call, &s, &parts, first, rows, err))
            return -1;
    }
    return 0;
}

/* A chunk_action: compute the losses of rows and, in training, the gradients of the logits. */
static void take_losses(const struct op_call *call, const struct sizes *s,
                        const struct parts *parts, int64_t first, int64_t rows)
{
    struct device *d = call->device;
    const int32_t *targets = call->in[TARGETS];
    int train = is_train(call->node);
    d->ops->cross_entropy(d, s->dt, parts->row_loss + first, train ? parts->logits : NULL,
                          packed(s), s->logits, parts->logits, s->ld, targets + first, rows,
                          s->vocab, call->node->attrs.scale, train ? call->in[SCALE] : NULL);
}

static int run(const struct op_call *call, struct error *err)
{
    struct sizes s = sizes_of(call->device, call->graph, call->node);
    if (for_each_chunk(call, take_losses, err))
        return -1;
    call->device->ops->loss_sum(call->device, call->out[LOSS], split(&s, call->scratch).row_loss,
                                call->in[TARGETS], s.rows);
    return 0;
}

const struct op op_head_loss = {
    .name = "head_loss",
    .shapes = loss_shapes,
    .gradient = loss_gradient,
    .flops = loss_flops,
    .products = products,
    .bytes = logits_passes,
    .scratch = scratch,
    .run = run,
    .in_format = 1u << 0 | 1u << 1,
};

const struct op op_head_loss_train = {
    .name = "head_loss_train",
    .shapes = train_shapes,
    .optional = 1 << DH | 1 << DW,
    .flops = train_flops,
    .products = products,
    .bytes = logits_passes,
    .scratch = scratch,
    .run = run,
    .in_format = 1u << 0 | 1u << 1,
};

/* ---- a vocabulary divided among ranks ---- */

/* head_part and head_term: the rule of head_part_loss differentiates all three. */
static void no_gradient(struct autodiff *ad, const struct graph_node *node, int dy)
{
}

static void part_shapes(struct graph *graph, struct graph_node *node)
{
    struct graph_value h = graph->values[node->in[H]];
    check_shapes(graph, node);
    node->out[0] = graph_value(graph, VALUE_TEMP, DTYPE_F32, 1, h.dim);
    node->out[1] = graph_value(graph, VALUE_TEMP, DTYPE_F32, 2, (int64_t[]){h.dim[0], 2});
}

/* A chunk_action: find each row's largest logit and sums, of this rank's columns. */
static void take_part(const struct op_call *call, const struct sizes *s, const struct parts *parts,
                      int64_t first, int64_t rows)
{
    struct device *d = call->device;
    const int32_t *targets = call->in[TARGETS];
    float *top = call->out[0], *sums = call->out[1];
    d->ops->softmax_part(d, top + first, sums + 2 * first, s->logits, parts->logits, s->ld,
                         targets + first, rows, s->columns, call->node->attrs.first);
}

static int part_run(const struct op_call *call, struct error *err)
{
    return for_each_chunk(call, take_part, err);
}

const struct op op_head_part = {
    .name = "head_part",
    .shapes = part_shapes,
    .gradient = no_gradient,
    .flops = loss_flops,
    .products = products,
    .bytes = logits_passes,
    .scratch = scratch,
    .run = part_run,
    .in_format = 1u << 0 | 1u << 1,
};

/* inputs sums, top, all_top */
static int term_run(const struct op_call *call, struct error *err)
{
    struct device *d = call->device;
    d->ops->softmax_term(d, call->out[0], call->in[0], call->in[1], call->in[2],
                         call->graph->values[call->node->in[1]].dim[0]);
    return 0;
}

const struct op op_head_term = {
    .name = "head_term",
    .shapes = op_shaped_as_first,
    .gradient = no_gradient,
    .flops_each = 2,
    .run = term_run,
    .in_place = 1u << 0,
};

static size_t row_losses_bytes(struct device *d, const struct graph *graph,
                               const struct graph_node *node)
{
    return (size_t)graph->values[node->in[0]].dim[0] * sizeof(float);
}

/* Add the loss of all rows to the output, from the maxima and sums that ranks have exchanged. */
static void sum_losses(const struct op_call *call, const float *all_top, const float *all_sums,
                       const int32_t *targets, float *row_loss, int64_t rows)
{
    struct device *d = call->device;
    d->ops->softmax_loss(d, row_loss, all_top, all_sums, targets, rows);
    d->ops->loss_sum(d, call->out[LOSS], row_loss, targets, rows);
}

static int part_loss_run(const struct op_call *call, struct error *err)
{
    sum_losses(call, call->in[0], call->in[1], call->in[2], call->scratch,
               call->graph->values[call->node->in[0]].dim[0]);
    return 0;
}

const struct op op_head_part_loss = {
    .name = "head_part_loss",
    .shapes = make_loss,
    .gradient = loss_gradient,
    .flops_each = 4,
    .scratch = row_losses_bytes,
    .run = part_loss_run,
};

/* A chunk_action: compute the gradients of the logits from what ranks have exchanged. */
static void take_gradients(const struct op_call *call, const struct sizes *s,
                           const struct parts *parts, int64_t first, int64_t rows)
{
    struct device *d = call->device;
    const struct op_attrs *attrs = &call->node->attrs;
    const float *top = call->in[PART_TOP], *sums = call->in[PART_SUMS];
    const int32_t *targets = call->in[TARGETS];
    d->ops->softmax_gradient(d, s->dt, parts->logits, packed(s), s->logits, parts->logits, s->ld,
                             targets + first, top + first, sums + 2 * first, rows, s->columns,
                             attrs->first, attrs->scale, call->in[SCALE]);
}

/* Set gradients to 0 that no product writes: those of padding rows of w, and dh where the rank has
 * no column of the vocabulary. */
static void clear_rest(const struct op_call *call, const struct sizes *s)
{
    const struct device_ops *ops = call->device->ops;
    float *dw = call->out[DW];
    size_t rest = (size_t)((s->vocab - s->columns) * s->hidden) * sizeof *dw;
    if (dw && rest && !call->accumulate)
        ops->fill_zero(call->device, dw + s->columns * s->hidden, rest);
    if (call->out[DH] && !s->columns)
        ops->fill_zero(call->device, call->out[DH], graph_bytes(call->graph, call->node->out[DH]));
}

static int part_train_run(const struct op_call *call, struct error *err)
{
    struct sizes s = sizes_of(call->device, call->graph, call->node);
    clear_rest(call, &s);
    sum_losses(call, call->in[PART_TOP], call->in[PART_SUMS], call->in[TARGETS],
               split(&s, call->scratch).row_loss, s.rows);
    return call->out[DH] || call->out[DW] ? for_each_chunk(call, take_gradients, err) : 0;
}

const struct op op_head_part_train = {
    .name = "head_part_train",
    .shapes = train_shapes,
    .optional = 1 << DH | 1 << DW,
    .flops = train_flops,
    .products = products,
    .bytes = logits_passes,
    .scratch = scratch,
    .run = part_train_run,
    .in_format = 1u << 0 | 1u << 1,
};
