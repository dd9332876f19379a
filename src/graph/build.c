/* build.c - functions that append forward nodes to a graph.
 *
 * Nearly all are one call of append(): an op, its input values and its attributes; the op's row
 * finds the shapes, the first mistake is kept in the graph, and a failed call returns value 0, so
 * that a model needs no check between its lines.  build_param() is in build_param.c.  Longer are
 * three:
 *   build_boundary()           a boundary read: inside a unit of several blocks what the block
 *                              before puts out, else an input of the unit;
 *   build_head_loss_divided()  a loss over a vocabulary that ranks share (op_loss.c): local
 *                              maxima and their maximum over ranks, then sums and their sum;
 *   build_exchange()           a collective node; over a group of one it is the value itself.
 */
#include "graph/build.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/philox.h"
#include "base/round.h"
#include "device/ops.h"
#include "graph/build_private.h"
#include "graph/op.h"

/* Set gathered of the last node, whose result has the rows of all ranks, so that backward gathers
 * them again (op_attrs.gathered). */
static void set_gathered(struct graph *graph)
{
    graph->nodes[graph->node_count - 1].attrs.gathered = 1;
}

/* The parameter that a value is, or NULL after recording the mistake that `what` is none. */
static const struct graph_param *param_of(struct graph *graph, int value, const char *what)
{
    if (graph->values[value].role == VALUE_PARAM)
        return &graph->params[graph->values[value].index];
    graph_fail(graph, "%s must be a parameter", what);
    return NULL;
}

void build_sequence(struct graph *graph, int sequence)
{
    if (graph->length[sequence] < 1)
        graph_fail(graph, "it reads %d sequences of tokens, and no length is given for the last",
                   sequence + 1);
    graph->sequence = sequence;
    graph->seq = graph->length[sequence];
    graph->rows = graph->batch * graph->seq;
}

int build_tokens(struct graph *graph)
{
    int value = graph_value(graph, VALUE_TOKENS, DTYPE_I32, 1, &graph->rows);
    graph->values[value].index = graph->sequence;
    return value;
}

/* Append a value of rows.  A unit has it of one sequence only: a segment has one space for each
 * role. */
static int row_value(struct graph *graph, enum graph_value_role role, const char *what)
{
    int before = graph_find(graph, role);
    if (before >= 0 && graph->values[before].index != graph->sequence)
        graph_fail(graph, "a unit reads %s of two sequences", what);
    int value = graph_value(graph, role, DTYPE_I32, 1, &graph->rows);
    graph->values[value].index = graph->sequence;
    return value;
}

int build_targets(struct graph *graph)
{
    return row_value(graph, VALUE_TARGETS, "targets");
}

int build_row_positions(struct graph *graph)
{
    return row_value(graph, VALUE_POSITIONS, "positions");
}

int build_row_documents(struct graph *graph)
{
    return row_value(graph, VALUE_DOCUMENTS, "documents");
}

int build_samples(struct graph *graph)
{
    int before = graph_find(graph, VALUE_SAMPLES);
    if (before >= 0 && graph->values[before].index == graph->sequence)
        return before;
    if (before >= 0)
        graph_fail(graph, "a unit reads samples of two sequences");
    int value = graph_value(graph, VALUE_SAMPLES, DTYPE_I32, 2, (int64_t[]){graph->batch, 2});
    graph->values[value].index = graph->sequence;
    return value;
}

/* Make the attributes of dropout at a place of the block; its name gives it a key of its own. */
static struct graph_dropout dropped(const struct graph *graph, double share, const char *site,
                                    int64_t first)
{
    return (struct graph_dropout){
        .share = share, .site = philox_key(0, site), .block = graph->block, .first = first};
}

static int add_input(struct graph *graph, const char *name, int64_t rows, int64_t width)
{
    if (graph->inputs == BOUNDARY_USES) {
        graph_fail(graph, "a unit reads more than %d boundaries", BOUNDARY_USES);
        return 0;
    }
    struct graph_input *input = &graph->input[graph->inputs];
    snprintf(input->name, sizeof input->name, "%s", name);
    input->row_group = graph->row_group;
    input->value = graph_value(graph, VALUE_INPUT, graph->dtype, 2, (int64_t[]){rows, width});
    graph->values[input->value].index = graph->inputs++;
    return input->value;
}

void build_divide_boundaries(struct graph *graph, struct graph_group group)
{
    graph->row_group = group;
}

/* How many of so many rows each rank of a group has, padding included. */
static int64_t own_rows(int64_t rows, struct graph_group group)
{
    return group.size > 1 ? ceil_div(rows, group.size) : rows;
}

int build_boundary(struct graph *graph, const char *name, int sequence, int64_t width)
{
    int64_t rows = own_rows(graph->batch * graph->length[sequence], graph->row_group);
    int value = -1;
    if (graph->block && !strcmp(graph->output_name, name))
        value = graph->block_output;
    for (int k = 0; value < 0 && k < graph->inputs; k++)
        if (!strcmp(graph->input[k].name, name))
            value = graph->input[k].value;
    if (value < 0)
        return add_input(graph, name, rows, width);
    if (graph->values[value].dim[0] != rows || graph->values[value].dim[1] != width)
        graph_fail(graph, "boundary \"%s\" is [%lld, %lld] and is read as [%lld, %lld]", name,
                   (long long)graph->values[value].dim[0], (long long)graph->values[value].dim[1],
                   (long long)rows, (long long)width);
    return value;
}

int build_input(struct graph *graph, int64_t width)
{
    return build_boundary(graph, "hidden", graph->sequence, width);
}

int build_rope_table(struct graph *graph, int64_t head_dim)
{
    int64_t ranks = graph->packed && graph->context.size > 1 ? graph->context.size : 1;
    int64_t rows = graph->cache ? graph->cache : graph->seq * ranks;
    return graph_value(graph, VALUE_CONST, DTYPE_F32, 2, (int64_t[]){rows, head_dim});
}

void build_output(struct graph *graph, int value)
{
    build_output_named(graph, "hidden", value);
}

void build_output_named(struct graph *graph, const char *name, int value)
{
    if (graph->values[value].role != VALUE_TEMP)
        graph_fail(graph, "a unit's output must be the result of an op");
    if (graph_find(graph, VALUE_OUTPUT) >= 0)
        graph_fail(graph, "a unit puts out one boundary, not \"%s\" too", name);
    snprintf(graph->output_name, sizeof graph->output_name, "%s", name);
    graph->block_output = value;
    graph->output_row_group = graph->row_group;
    if (graph->block + 1 >= graph->blocks)
        graph->values[value].role = VALUE_OUTPUT;
}

int build_embedding(struct graph *graph, int tokens, int table)
{
    const struct graph_value *t = &graph->values[table];
    int64_t first = t->role == VALUE_PARAM ? graph->params[t->index].box[0].start[0] : 0;
    return append(graph, &op_embedding, (int[]){tokens, table}, 2,
                  (struct op_attrs){.first = first});
}

int build_rmsnorm(struct graph *graph, int x, int w, float eps)
{
    return append(graph, &op_rmsnorm, (int[]){x, -1, w}, 3, (struct op_attrs){.eps = eps});
}

int build_rmsnorm_residual(struct graph *graph, int x, int delta, int w, float eps, int *sum)
{
    int y = append(graph, &op_rmsnorm, (int[]){x, delta, w}, 3, (struct op_attrs){.eps = eps});
    int out = graph->nodes[graph->node_count - 1].out[1];
    *sum = out < 0 ? 0 : out;
    return y;
}

int build_layernorm(struct graph *graph, int x, int w, int b, float eps)
{
    return append(graph, &op_layernorm, (int[]){x, w, b}, 3, (struct op_attrs){.eps = eps});
}

int build_is_gathered(const struct graph *graph, int x, struct graph_group group)
{
    int from = graph->values[x].producer;
    if (from >= 0 && graph->nodes[from].op == &op_dropout)
        from = graph->values[graph->nodes[from].in[0]].producer;
    if (from >= 0 && graph->nodes[from].op == &op_fit_rows)
        from = graph->values[graph->nodes[from].in[0]].producer;
    return from >= 0 && graph->nodes[from].op == &op_all_gather &&
           graph->nodes[from].attrs.axes == group.axes;
}

/* Is x w^T to be multiplied in fp8?  It is where the graph asks for it, w is a parameter but not an
 * adapter's small matrix, and a GPU takes the sizes, also of one of the chunks of x's rows. */
static int is_fp8(const struct graph *graph, int x, int w)
{
    const struct graph_value *value = &graph->values[w];
    int64_t rows = graph->values[x].dim[0], chunks = max_i64(graph->tensor.row_chunks, 1);
    return graph->fp8 && value->role == VALUE_PARAM && !graph->params[value->index].is_low_rank &&
           rows % (GEMM_FP8_SIZES * chunks) == 0 && value->dim[0] % GEMM_FP8_SIZES == 0 &&
           value->dim[1] % GEMM_FP8_SIZES == 0;
}

int build_linear(struct graph *graph, int x, int w, int addend)
{
    int grad_fp32 = graph->tensor.fp32 && build_is_gathered(graph, x, graph->tensor);
    return append(
        graph, &op_linear, (int[]){x, w, addend}, 3,
        (struct op_attrs){.out = graph->dtype, .grad_fp32 = grad_fp32, .fp8 = is_fp8(graph, x, w)});
}

int build_linear_fp32(struct graph *graph, int x, int w)
{
    return append(graph, &op_linear, (int[]){x, w}, 2,
                  (struct op_attrs){.out = DTYPE_F32, .fp8 = is_fp8(graph, x, w)});
}

/* Note that positions from data index this table, so that they have to be below its rows (of the
 * whole table, where the rank has a part). */
static void limit_positions(struct graph *graph, int table)
{
    const struct graph_value *value = &graph->values[table];
    int64_t rows =
        value->role == VALUE_PARAM ? graph->params[value->index].box[0].whole[0] : value->dim[0];
    if (!graph->positions || rows < graph->positions)
        graph->positions = rows;
}

int build_qk_norm(struct graph *graph, int qkv, int wq, int wk, int64_t heads, int64_t kv_heads,
                  int64_t head_dim, float eps)
{
    return append(
        graph, &op_qk_norm, (int[]){qkv, wq, wk}, 3,
        (struct op_attrs){.heads = heads, .kv_heads = kv_heads, .head_dim = head_dim, .eps = eps});
}

int build_rope(struct graph *graph, int qkv, int table, int positions, int64_t heads,
               int64_t kv_heads, int64_t head_dim)
{
    if (positions >= 0)
        limit_positions(graph, table);
    return append(
        graph, &op_rope, (int[]){qkv, table, positions}, 3,
        (struct op_attrs){
            .seq = graph->seq, .heads = heads, .kv_heads = kv_heads, .head_dim = head_dim});
}

int build_pack_heads(struct graph *graph, int q, int kv, int64_t first, int64_t heads,
                     int64_t kv_heads, int64_t head_dim, int64_t *packed)
{
    int y = append(graph, &op_pack_heads, (int[]){q, kv}, 2,
                   (struct op_attrs){.heads = graph->values[q].dim[1] / head_dim,
                                     .head_dim = head_dim,
                                     .first = first,
                                     .model_heads = heads,
                                     .model_kv_heads = kv_heads});
    *packed = graph->nodes[graph->node_count - 1].attrs.kv_heads;
    return y;
}

/* Append attention with these attributes, and with dropout if form asks for it. */
static int append_attention(struct graph *graph, const struct build_attention *form, int q, int kv,
                            struct op_attrs attrs)
{
    int drops = graph->trains && form->dropout > 0;
    if (drops) {
        attrs.forms |= ATTENTION_DROPOUT;
        attrs.dropped = dropped(graph, form->dropout, form->site, form->first_head);
    }
    return append(graph, &op_attention,
                  (int[]){q, kv, form->documents, drops ? build_samples(graph) : -1}, 4, attrs);
}

/* Append attention of the rank's own queries over the keys and values of all ranks that share the
 * sequences (op_sequence.c). */
static int build_shared_attention(struct graph *graph, const struct build_attention *form)
{
    const struct op_attrs packed = {.heads = form->heads,
                                    .kv_heads = form->kv_heads,
                                    .head_dim = form->head_dim,
                                    .model_heads = form->heads,
                                    .model_kv_heads = form->kv_heads};
    struct op_attrs attrs = packed;
    int q = append(graph, &op_split_heads, &form->q, 1, packed);
    int own = graph->nodes[graph->node_count - 1].out[1];
    int kv = build_exchange(graph, &op_all_gather, own < 0 ? 0 : own, graph->context);
    set_gathered(graph);
    attrs.part = graph_sequence_part(graph->seq, graph->context);
    attrs.members = graph->context.size;
    kv = append(graph, &op_order_chunks, &kv, 1, attrs);
    set_gathered(graph);
    attrs.forms = ATTENTION_SEPARATE | ATTENTION_PART |
                  (form->documents >= 0 ? ATTENTION_DOCUMENTS : 0) |
                  (form->window > 0 ? ATTENTION_WINDOW : 0);
    attrs.window = form->window;
    attrs.scale = 1.0f / sqrtf((float)form->head_dim);
    return append_attention(graph, form, q, kv, attrs);
}

int build_attention(struct graph *graph, int qkv, int64_t heads, int64_t kv_heads, int64_t head_dim)
{
    return build_attention_of(graph, &(struct build_attention){.q = qkv,
                                                               .kv = -1,
                                                               .documents = -1,
                                                               .heads = heads,
                                                               .kv_heads = kv_heads,
                                                               .head_dim = head_dim});
}

int build_attention_of(struct graph *graph, const struct build_attention *form)
{
    int is_shared = graph->context.size > 1;
    if (is_shared && (form->mask == BUILD_FULL || form->kv >= 0))
        graph_fail(graph, "attention other than causal and of one input needs whole sequences; set "
                          "parallel.context to 1");
    else if (is_shared)
        return build_shared_attention(graph, form);
    unsigned forms = (form->mask == BUILD_FULL ? ATTENTION_FULL : 0) |
                     (form->kv >= 0 ? ATTENTION_SEPARATE : 0) |
                     (form->documents >= 0 ? ATTENTION_DOCUMENTS : 0) |
                     (form->window > 0 ? ATTENTION_WINDOW : 0);
    return append_attention(graph, form, form->q, form->kv,
                            (struct op_attrs){.heads = form->heads,
                                              .kv_heads = form->kv_heads,
                                              .head_dim = form->head_dim,
                                              .forms = forms,
                                              .window = form->window,
                                              .scale = 1.0f / sqrtf((float)form->head_dim)});
}

int build_dropout(struct graph *graph, int x, int addend, double share, const char *site,
                  int64_t first, struct graph_group row_group)
{
    if (!share || !graph->trains)
        return addend < 0 ? x : build_add(graph, x, addend);
    struct op_attrs attrs = {.seq = graph->seq,
                             .part = graph_sequence_part(graph->seq, graph->context),
                             .dropped = dropped(graph, share, site, first)};
    attrs.dropped.row_group = row_group;
    return append(graph, &op_dropout, (int[]){x, build_samples(graph), addend}, 3, attrs);
}

int build_attention_cached(struct graph *graph, int qkv, int64_t heads, int64_t kv_heads,
                           int64_t head_dim, int64_t window)
{
    int64_t kept[2] = {graph->batch * graph->cache, 2 * kv_heads * head_dim};
    int cache = graph_value(graph, VALUE_CACHE, graph->dtype, 2, kept);
    graph->values[cache].index = graph->block;
    return append(graph, &op_attention_cached, (int[]){qkv, cache, build_row_positions(graph)}, 3,
                  (struct op_attrs){.heads = heads,
                                    .kv_heads = kv_heads,
                                    .head_dim = head_dim,
                                    .window = window,
                                    .scale = 1.0f / sqrtf((float)head_dim)});
}

int build_swiglu(struct graph *graph, int gate_up)
{
    return append(graph, &op_swiglu, (int[]){gate_up}, 1, (struct op_attrs){0});
}

int build_bias(struct graph *graph, int x, int b)
{
    return append(graph, &op_bias, (int[]){x, b}, 2, (struct op_attrs){0});
}

int build_gelu(struct graph *graph, int x, int b)
{
    return append(graph, &op_gelu, (int[]){x, b}, 2, (struct op_attrs){0});
}

/* Positions from data look up rows of the table as tokens do, so that these are added as
 * embeddings.
 */
int build_positions(struct graph *graph, int x, int table, int positions)
{
    if (positions >= 0) {
        limit_positions(graph, table);
        if (graph->values[table].dim[1] != graph->values[x].dim[1])
            graph_fail(graph, "positions: a table of %lld columns for rows of %lld",
                       (long long)graph->values[table].dim[1], (long long)graph->values[x].dim[1]);
        int rows = build_embedding(graph, positions, table);
        return build_add(graph, x, rows);
    }
    const struct graph_param *param = param_of(graph, table, "positions: the table");
    if (!param)
        return 0;
    const struct box *own = &param->box[0];
    return append(graph, &op_positions, (int[]){x, table}, 2,
                  (struct op_attrs){.seq = graph->seq,
                                    .first = own->start[0],
                                    .rows = own->whole[0],
                                    .part = graph_sequence_part(graph->seq, graph->context)});
}

int build_add(struct graph *graph, int x, int y)
{
    return append(graph, &op_add, (int[]){x, y}, 2, (struct op_attrs){0});
}

int build_scale(struct graph *graph, int x, float factor)
{
    return append(graph, &op_scale, &x, 1, (struct op_attrs){.scale = factor});
}

int build_adapter(struct graph *graph, int y, int u, int b, const struct graph_adapter *adapted)
{
    return append(graph, &op_adapter, (int[]){y, u, b}, 3, (struct op_attrs){.adapted = *adapted});
}

int build_row_squares(struct graph *graph, int w, int a, int b, float factor,
                      const struct graph_adapter *adapted)
{
    return append(graph, &op_row_squares, (int[]){w, a, b}, 3,
                  (struct op_attrs){.scale = factor, .adapted = *adapted});
}

int build_magnitude(struct graph *graph, int y, int m, int squares,
                    const struct graph_adapter *adapted)
{
    return append(graph, &op_magnitude, (int[]){y, m, squares}, 3,
                  (struct op_attrs){.adapted = *adapted});
}

void build_head_loss(struct graph *graph, int h, int w, int targets, float scale)
{
    append(graph, &op_head_loss, (int[]){h, w, targets}, 3,
           (struct op_attrs){.scale = scale, .out = graph->logits, .rows = graph->logits_rows});
}

/* See op_loss.c. */
void build_head_loss_divided(struct graph *graph, int h, int w, int targets, int64_t vocab,
                             float scale)
{
    const struct graph_param *param = param_of(graph, w, "head: what is divided by vocabulary");
    if (!param)
        return;
    const struct graph_group group = param->division.group;
    int64_t first = param->box[0].start[0], rows = graph->values[w].dim[0], left = vocab - first;
    int64_t columns = left < 0 ? 0 : left < rows ? left : rows;
    if (group.size < 2 && columns == rows) {
        build_head_loss(graph, h, w, targets, scale);
        return;
    }
    if (param->tensors > 1 || (group.size > 1 && param->division.dim != 0)) {
        graph_fail(graph, "head: w is one tensor, divided by rows or whole");
        return;
    }
    const struct op_attrs attrs = {.scale = scale,
                                   .first = first,
                                   .columns = columns,
                                   .out = graph->logits,
                                   .rows = graph->logits_rows};
    int top = append(graph, &op_head_part, (int[]){h, w, targets}, 3, attrs);
    int sums = graph->nodes[graph->node_count - 1].out[1];
    int all_top = build_exchange(graph, &op_all_reduce_max, top, group);
    int term = append(graph, &op_head_term, (int[]){sums, top, all_top}, 3, attrs);
    int all_sums = build_exchange(graph, &op_all_reduce, term, group);
    append(graph, &op_head_part_loss, (int[]){all_top, all_sums, targets}, 3, attrs);
    if (!build_is_gathered(graph, h, group))
        build_divided(graph, h, group);
}

int build_exchange(struct graph *graph, const struct op *op, int x, struct graph_group group)
{
    if (op->transfer == TRANSFER_NONE) {
        graph_fail(graph, "%s exchanges nothing between ranks", op->name);
        return 0;
    }
    if (group.size < 2)
        return x;
    return append(graph, op, &x, 1,
                  (struct op_attrs){.axes = group.axes,
                                    .members = group.size,
                                    .out = graph->values[x].dtype,
                                    .row_chunks = group.row_chunks});
}

int build_round(struct graph *graph, int x)
{
    return graph->values[x].dtype == graph->dtype
               ? x
               : append(graph, &op_round, &x, 1, (struct op_attrs){0});
}

static int fit_rows(struct graph *graph, int x, int64_t rows)
{
    if (graph->values[x].dim[0] == rows)
        return x;
    return append(graph, &op_fit_rows, &x, 1, (struct op_attrs){.rows = rows});
}

int build_scatter_rows(struct graph *graph, int term, struct graph_group group)
{
    int64_t rows = own_rows(graph->values[term].dim[0], group) * (group.size > 1 ? group.size : 1);
    return build_exchange(graph, &op_reduce_scatter, fit_rows(graph, term, rows), group);
}

int build_gather_rows(struct graph *graph, int own, struct graph_group group)
{
    int64_t has = graph->values[own].dim[0], each = own_rows(graph->rows, group);
    if (has != each)
        graph_fail(graph, "gather_rows: %lld own rows, not %lld of the sequence worked on",
                   (long long)has, (long long)each);
    int all = build_exchange(graph, &op_all_gather, own, group);
    if (all != own)
        set_gathered(graph);
    int fitted = fit_rows(graph, all, graph->rows);
    if (fitted != all)
        set_gathered(graph);
    return fitted;
}

int build_gather_columns(struct graph *graph, int y, int w)
{
    const struct graph_param *param = param_of(graph, w, "gather_columns: w");
    if (!param)
        return 0;
    const struct graph_group group = param->division.group;
    if (group.size < 2)
        return y;
    int placed = append(
        graph, &op_place_columns, &y, 1,
        (struct op_attrs){.first = param->box[0].start[0], .columns = param->box[0].whole[0]});
    return build_exchange(graph, &op_all_reduce, placed, group);
}

void build_divided(struct graph *graph, int x, struct graph_group group)
{
    graph->values[x].divided = group;
}
