/* graphs.c - see graphs.h. */
#include "verify/graphs.h"

#include <stdio.h>

#include "base/round.h"
#include "graph/op.h"

/* ---- flats ---- */

/* One of the tensors that are stacked in a parameter of a unit's graph. */
struct stacked_tensor {
    const struct graph *graph;
    int param, tensor;
    char name[FLAT_NAME];
};

static const struct graph_param *param_of(const struct stacked_tensor *stacked)
{
    return &stacked->graph->params[stacked->param];
}

/* Its logical name: with the prefix of its block, unless it is another unit's. */
static void name_tensor(const struct units *units, int unit, struct stacked_tensor *stacked)
{
    const struct model *model = units->model;
    const struct graph_param *param = param_of(stacked);
    const struct model_unit *block = &model->block[model->unit[unit].first + param->block];
    snprintf(stacked->name, sizeof stacked->name, "%s%s", param->is_borrowed ? "" : block->prefix,
             param->tensor_name[stacked->tensor]);
}

/* The axes over which the gradient of a parameter is to be summed: each rank's data give a term of
 * it, and so may its part of what ranks compute together. */
static unsigned sum_axes(const struct program *program, const struct stacked_tensor *stacked)
{
    unsigned axes = mesh_wide_axes(&program->layout->shape, MESH_DATA);
    const struct graph *graph = stacked->graph;
    for (int v = 0; v < graph->value_count; v++)
        if (graph->values[v].role == VALUE_PARAM && graph->values[v].index == stacked->param)
            axes |= graph_axes(graph->values[v].divided);
    return axes;
}

/* Set err: over these axes a tensor is `what` ("divided", "summed"), and its flat says other ones.
 */
static int wrong_axes(const struct flat *flat, const struct stacked_tensor *stacked,
                      const char *what, unsigned has, unsigned want, struct error *err)
{
    char one[MESH_AXES_TEXT] = "none", other[MESH_AXES_TEXT] = "none";
    if (has)
        mesh_axes_name(has, one);
    if (want)
        mesh_axes_name(want, other);
    return error_set(err,
                     "verify: wrong flat: the axes over which %s is %s are: %s; of its tensor "
                     "%s they have to be: %s",
                     flat->name, what, one, stacked->name, other);
}

/* The graph makes the gradient of a parameter in the format of its flat; one in 16 bits by one
 * node, so that nothing is added to it. */
static int check_format(const struct flat *flat, const struct stacked_tensor *stacked,
                        struct error *err)
{
    const struct graph *graph = stacked->graph;
    int makers = 0;
    for (int v = 0; flat->trained && v < graph->value_count; v++) {
        const struct graph_value *value = &graph->values[v];
        if (value->role != VALUE_PARAM_GRAD || value->index != stacked->param)
            continue;
        if (value->dtype != flat->grad_dtype)
            return error_set(err,
                             "verify: wrong flat: gradients of %s are %s, that of its tensor "
                             "%s is made in %s",
                             flat->name, dtype_name(flat->grad_dtype), stacked->name,
                             dtype_name(value->dtype));
        makers++;
    }
    if (makers <= 1 || flat->grad_dtype == DTYPE_F32)
        return 0;
    return error_set(err, "verify: wrong flat: %d ops make the gradient of %s, which is in %s",
                     makers, stacked->name, dtype_name(flat->grad_dtype));
}

/* Has the rank the part of a tensor that follows those of the ranks before it?  Parts are whole
 * chunks, as many for each rank, and one more for the first ranks where the number is not divided.
 */
static int is_own_box(const struct program *program, const struct graph_param *param,
                      const struct box *box)
{
    const struct graph_division *d = &param->division;
    struct box own = box_whole(box->dims, box->whole);
    int64_t chunks = d->chunks ? d->chunks : own.whole[d->dim];
    int is_divided = graph_axes(d->group) != 0;
    int rank = mesh_member(&program->layout->shape, program->state->coord, d->group.axes);
    if (is_divided && (d->group.rank != rank ||
                       d->group.size != mesh_members(&program->layout->shape, d->group.axes)))
        return 0;
    for (int k = 0; is_divided && k <= rank; k++) {
        own.start[d->dim] += k ? own.count[d->dim] : 0;
        own.count[d->dim] =
            own.whole[d->dim] / chunks * (chunks / d->group.size + (k < chunks % d->group.size));
    }
    return box_equal(box, &own);
}

/* Has the value that a parameter is as many elements as the parts of its tensors? */
static int has_all_elems(const struct graph *graph, int param)
{
    int64_t elems = 0;
    for (int p = 0; p < graph->params[param].tensors; p++)
        elems += box_elems(&graph->params[param].box[p]);
    for (int v = 0; v < graph->value_count; v++)
        if (graph->values[v].role == VALUE_PARAM && graph->values[v].index == param &&
            graph_elems(graph, v) != elems)
            return 0;
    return 1;
}

static int check_fate(const struct program *program, const struct flat *flat, int tensor,
                      const struct stacked_tensor *stacked, struct error *err)
{
    const struct graph_param *param = param_of(stacked);
    unsigned sums = sum_axes(program, stacked), divided = graph_axes(param->division.group);
    unsigned shards =
        flat_is_sharded(flat) ? mesh_wide_axes(&program->layout->shape, MESH_SHARDS) : 0;
    if (flat->trained == param->frozen)
        return error_set(err, "verify: wrong flat: %s is %s, and its tensor %s is not", flat->name,
                         flat->trained ? "trained" : "frozen", stacked->name);
    if (flat->trained && flat->sum_axes != sums)
        return wrong_axes(flat, stacked, "summed", flat->sum_axes, sums, err);
    if (flat->divided_axes != divided)
        return wrong_axes(flat, stacked, "divided", flat->divided_axes, divided, err);
    if (flat->shard_axes != shards)
        return wrong_axes(flat, stacked, "sharded", flat->shard_axes, shards, err);
    if (!box_equal(&flat->tensor[tensor].box, &param->box[stacked->tensor]))
        return error_set(err, "verify: wrong flat: %s has another part of %s than its unit's graph",
                         flat->name, stacked->name);
    if (!is_own_box(program, param, &param->box[stacked->tensor]) ||
        !has_all_elems(stacked->graph, stacked->param))
        return error_set(err, "verify: wrong flat: what the rank has of %s is not its part of it",
                         stacked->name);
    return check_format(flat, stacked, err);
}

static int check_tensor(const struct program *program, int unit, struct stacked_tensor *stacked,
                        struct error *err)
{
    const struct units *units = program->units;
    const struct unit_flats *use = &units->use[unit];
    int holders = 0;
    name_tensor(units, unit, stacked);
    for (int k = 0; k < use->count; k++) {
        const struct flat *flat = &units->flat[use->flat[k]];
        int tensor = flat_find(flat, stacked->name);
        if (tensor < 0)
            continue;
        if (check_fate(program, flat, tensor, stacked, err))
            return -1;
        holders++;
    }
    if (holders == 1)
        return 0;
    return error_set(err, "verify: wrong flat: %d of those that unit %d uses have %s, not 1",
                     holders, unit, stacked->name);
}

/* Tensors and padding lie end to end: padding is what is zeroed where it is read.  Shards are as
 * long as one another, and with each of them, and each tensor, a block begins. */
static int check_ranges(const struct program *program, const struct flat *flat, struct error *err)
{
    int64_t at = 0, apart = flat->shard_elems % max_i64(flat->block, FLAT_ALIGN);
    int t = 0, pad = 0, found = 1;
    while (found) {
        found = 0;
        if (t < flat->tensors && flat->tensor[t].offset == at) {
            apart |= at % flat->block;
            at += box_elems(&flat->tensor[t++].box);
            found = 1;
        } else if (pad < flat->pads && flat->pad[pad].start == at) {
            at += flat->pad[pad++].count;
            found = 1;
        }
    }
    int shards = flat_is_sharded(flat) ? mesh_members(&program->layout->shape, MESH_SHARDS) : 1;
    if (t == flat->tensors && pad == flat->pads && at == flat->padded &&
        flat->shard_elems * shards == flat->padded && !apart)
        return 0;
    return error_set(err, "verify: wrong flat: tensors and padding of %s are not its %lld elements",
                     flat->name, (long long)flat->padded);
}

int graphs_check_flats(const struct program *program, struct error *err)
{
    for (int f = 0; f < program->units->flats; f++)
        if (program->state->has[f] && check_ranges(program, &program->units->flat[f], err))
            return -1;
    for (int u = 0; u < program->units->count; u++) {
        if (!program_owns(program, u))
            continue;
        struct stacked_tensor stacked = {.graph = units_kind(program->units, u)->train};
        for (stacked.param = 0; stacked.param < stacked.graph->param_count; stacked.param++)
            for (stacked.tensor = 0; stacked.tensor < param_of(&stacked)->tensors; stacked.tensor++)
                if (check_tensor(program, u, &stacked, err))
                    return -1;
    }
    return 0;
}

/* ---- own rows ---- */

/* Note the chunks in which rows are divided over tensor ranks; 1: others have been noted. */
static int note_row_chunks(unsigned axes, int chunks, int *noted)
{
    int has = chunks > 1 ? chunks : 1;
    if (!(axes >> MESH_TENSOR & 1))
        return 0;
    if (!*noted)
        *noted = has;
    return *noted != has;
}

int graphs_check_rows(const struct program *program, struct error *err)
{
    int chunks = 0, wrong = 0;
    char name[MODEL_PREFIX];
    for (int u = 0; u < program->units->count; u++) {
        const struct graph *graph = program_graph(program, u);
        for (int k = 0; k < graph->inputs; k++)
            wrong |= note_row_chunks(graph_axes(graph->input[k].row_group),
                                     graph->input[k].row_group.row_chunks, &chunks);
        wrong |= note_row_chunks(graph_axes(graph->output_row_group),
                                 graph->output_row_group.row_chunks, &chunks);
        for (int n = 0; n < graph->node_count; n++) {
            const struct graph_node *node = &graph->nodes[n];
            if (node->op->transfer == TRANSFER_GATHER || node->op->transfer == TRANSFER_SCATTER)
                wrong |= note_row_chunks(node->attrs.axes, node->attrs.row_chunks, &chunks);
        }
        if (wrong)
            return error_set(
                err,
                "verify: wrong rows: %s has rows of its ranks in other chunks than the "
                "units before it, or one of its ops than the others",
                model_unit_name(program->units->model, u, name));
    }
    return 0;
}

/* ---- rows of tables ---- */

/* The value whose rows, or rows of whose gradient, are those from attrs.first on of a whole table
 * to a node; -1: the node has no such value. */
static int table_of(const struct graph_node *node)
{
    const struct op *op = node->op;
    if (op == &op_embedding || op == &op_positions || op == &op_head_part ||
        op == &op_head_part_train)
        return node->in[1];
    return op == &op_embedding_backward || op == &op_positions_backward ? node->out[0] : -1;
}

/* What is wrong with the rows that a node takes the rank to have of a table; NULL: nothing.  Those
 * of a value that is no parameter are all rows of it. */
static const char *find_wrong_table(const struct graph *graph, const struct graph_node *node,
                                    int64_t vocab)
{
    const struct op_attrs *attrs = &node->attrs;
    const struct graph_value *table = &graph->values[table_of(node)];
    int is_param = table->role == VALUE_PARAM || table->role == VALUE_PARAM_GRAD;
    const struct box *box = is_param ? &graph->params[table->index].box[0] : NULL;
    int64_t first = box ? box->start[0] : 0, rows = table->dim[0];
    int is_head = node->op == &op_head_part || node->op == &op_head_part_train;
    int is_positions = node->op == &op_positions || node->op == &op_positions_backward;
    if (attrs->first != first)
        return "takes the rank's rows for others";
    if (is_positions && attrs->rows != (box ? box->whole[0] : rows))
        return "takes the whole table for one of other rows";
    if (is_head && attrs->columns != max_i64(min_i64(vocab - first, rows), 0))
        return "takes padding for words, or words for padding";
    return NULL;
}

int graphs_check_tables(const struct program *program, struct error *err)
{
    char name[MODEL_PREFIX];
    for (int u = 0; u < program->units->count; u++) {
        const struct graph *graph = program_graph(program, u);
        for (int n = 0; n < graph->node_count; n++) {
            const struct graph_node *node = &graph->nodes[n];
            const char *why =
                table_of(node) < 0 || node->unused
                    ? NULL
                    : find_wrong_table(graph, node, program->units->model->config.vocab);
            if (why)
                return error_set(err, "verify: wrong rows: %s of %s %s", node->op->name,
                                 model_unit_name(program->units->model, u, name), why);
        }
    }
    return 0;
}

/* ---- the loss ---- */

/* The micro-batches of all ranks are the fewest that hold the global batch. */
static int check_count(const struct program *program, struct error *err)
{
    const struct layout *layout = program->layout;
    const struct units_request *r = &program->units->request;
    int64_t ranks = mesh_members(&layout->shape, 1u << MESH_REPLICATE | 1u << MESH_SHARD);
    int64_t each = ceil_div(ceil_div(layout->global_batch, ranks), r->batch);
    if (program->micros == each)
        return 0;
    return error_set(err,
                     "verify: wrong count: %d micro-batches of %lld sequences on %lld data ranks; "
                     "a global batch of %lld takes %lld",
                     program->micros, (long long)r->batch, (long long)ranks,
                     (long long)layout->global_batch, (long long)each);
}

static int makes_loss(const struct graph *graph, const struct graph_node *node)
{
    for (int k = 0; k < NODE_OUTS; k++)
        if (node->out[k] >= 0 && graph->values[node->out[k]].role == VALUE_LOSS)
            return 1;
    return 0;
}

static int check_factor(const struct program *program, int unit, struct error *err)
{
    const struct units *units = program->units;
    const struct graph *graph = units_kind(units, unit)->train;
    int targets = graph_find(graph, VALUE_TARGETS);
    char name[MODEL_PREFIX];
    for (int n = 0; n < graph->node_count; n++) {
        const struct graph_node *node = &graph->nodes[n];
        if (!makes_loss(graph, node))
            continue;
        int64_t tokens = units->request.seq[targets < 0 ? 0 : graph->values[targets].index] *
                         program->layout->shape.degree[MESH_CONTEXT] *
                         program->layout->global_batch;
        if (node->attrs.scale != 1.0f / (float)tokens)
            return error_set(err,
                             "verify: wrong factor: %s of %s multiplies gradients by %g; the "
                             "%lld tokens of the global batch make that 1/%lld",
                             node->op->name, model_unit_name(units->model, unit, name),
                             (double)node->attrs.scale, (long long)tokens, (long long)tokens);
    }
    return 0;
}

int graphs_check_loss(const struct program *program, struct error *err)
{
    if (program->kind != PROGRAM_TRAIN)
        return 0;
    if (check_count(program, err))
        return -1;
    for (int u = 0; u < program->units->count; u++)
        if (program_owns(program, u) && check_factor(program, u, err))
            return -1;
    return 0;
}

/* ---- dropout ---- */

static const char *find_wrong_dropout(const struct program *program, const struct graph *graph,
                                      int n)
{
    const struct graph_node *node = &graph->nodes[n];
    const struct graph_dropout *own = &node->attrs.dropped;
    struct sequence_part part = graph_sequence_part(graph->seq, graph->context);
    int is_part = node->op == &op_dropout || node->attrs.forms & ATTENTION_PART;
    if (program->kind != PROGRAM_TRAIN)
        return "drops numbers outside of training";
    if (graph->tensor.size < 2 && (own->first || own->row_group.size > 1))
        return "drops by a part of a tensor that the rank has as a whole";
    if (own->row_group.size > 1 &&
        (own->row_group.size != graph->tensor.size || own->row_group.rank != graph->tensor.rank ||
         own->row_group.row_chunks != graph->tensor.row_chunks))
        return "drops by rows of another rank";
    if (is_part &&
        (node->attrs.part.chunk != part.chunk || node->attrs.part.first[0] != part.first[0] ||
         node->attrs.part.first[1] != part.first[1]))
        return "drops by positions of another rank";
    for (int k = 0; k < n; k++) {
        const struct graph_dropout *other = &graph->nodes[k].attrs.dropped;
        if (!graph->nodes[k].backward && other->share > 0 && other->block == own->block &&
            other->site == own->site)
            return "drops the same numbers as another op of its block";
    }
    return NULL;
}

int graphs_check_dropout(const struct program *program, struct error *err)
{
    char name[MODEL_PREFIX];
    for (int u = 0; u < program->units->count; u++) {
        const struct graph *graph = program_graph(program, u);
        for (int n = 0; n < graph->node_count; n++) {
            const struct graph_node *node = &graph->nodes[n];
            int drops = node->attrs.dropped.share > 0 && !node->backward;
            const char *why = drops ? find_wrong_dropout(program, graph, n) : NULL;
            if (why)
                return error_set(err, "verify: wrong dropout: %s of %s %s", node->op->name,
                                 model_unit_name(program->units->model, u, name), why);
        }
    }
    return 0;
}
