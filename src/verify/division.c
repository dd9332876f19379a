/* division.c - see division.h.  One axis at a time:
 *
 *   op                    x              parameter     result
 *   linear                whole          whole         whole
 *                         whole          own rows      own columns   (its gradient of x: a term)
 *                         own columns    own columns   a term
 *   all_reduce            a term                       whole
 *   reduce_scatter        a term                       own rows
 *   all_gather            own rows                     whole         (its gradient: terms)
 *   all_to_all            own columns                  spread, and back
 *   embedding             whole          own rows      a term
 *   norm                  whole, own rows
 *   loss                  whole
 *   place_columns         own columns                  a term
 *   pack_heads            own columns, whole           own columns   (its gradient of kv: a term)
 *   head_part             whole          own rows      part          (its gradient of x: a term)
 *   all_reduce_max        part                         whole
 *   head_term             part                         a term
 *   adapter, y and u      whole, whole   whole         whole
 *                         own columns, whole  own rows own columns   (its gradient of u: a term)
 *                         terms          whole         a term        (its gradient of the
 *                                                                    parameter: a term)
 *   row_squares, of a matrix and an adapter, which are parameters:
 *                                        rows, whole, rows             own columns
 *                                        columns, columns, whole       a term
 *   magnitude, x and norms
 *                         own rows, whole       whole         own rows
 *                         own columns, both     own columns   own columns
 *   experts, as linear    whole          own rows      own columns   (its gradient of x: a term)
 *                         own columns    own columns   a term
 *   swiglu_scaled, x and factors
 *                         own columns, whole           own columns   (its gradient of the factors:
 *                                                                    a term)
 *   others                                             as x
 *
 * Along replicate and shard ranks have their own rows from the start, those of their batches; and
 * along context, where these are parts of sequences:
 *
 *   attention, q and kv   own rows, whole               own rows      (its gradient of kv: a term)
 *   order_chunks          whole                         whole
 *
 * Where a rank has own columns, the check follows too which columns these are (columns.h).  What an
 * op drops must follow from places in the whole tensor: of own rows, own columns and own positions
 * those are said (struct graph_dropout) that the rank has.
 */
#include "verify/division.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/array.h"
#include "verify/division_private.h"

/* ---- for messages ---- */

static const char *share_text(const struct division *d, int v)
{
    static const char *const names[] = {[WHOLE] = "whole",
                                        [TERM] = "a term of a sum",
                                        [ROWS] = "own rows",
                                        [COLUMNS] = "own columns",
                                        [SPREAD] = "spread by an all_to_all",
                                        [PART] = "of own columns alone"};
    if (d->share[v] == COLUMNS && division_is_param(d, v) && division_value(d, v)->dims == 1)
        return "own elements";
    return names[d->share[v]];
}

/* "verify: layers.0: rmsnorm (norm2) reads the result of linear (mlp.down), over tensor a term of a
 * sum: WHY" */
static int __attribute__((format(printf, 4, 5)))
wrong(const struct division *d, const struct graph_node *n, int v, const char *fmt, ...)
{
    char node[DIVISION_TEXT], name[DIVISION_TEXT], why[160];
    va_list args;
    va_start(args, fmt);
    vsnprintf(why, sizeof why, fmt, args);
    va_end(args);
    return error_set(d->err, "verify: %s: %s reads %s, over %s %s: %s", d->unit,
                     division_node_name(d, n, node), division_name(d, v, name),
                     mesh_axis_name(d->axis), share_text(d, v), why);
}

static int lacks_sum(const struct division *d, const struct graph_node *n, int v)
{
    return wrong(d, n, v, "its sum over %s is missing", mesh_axis_name(d->axis));
}

/* Node n cannot read what the rank has of v: if that is a term of a sum, because the sum is
 * missing; if it is anything else, for the reason `why`. */
static int wrong_share(const struct division *d, const struct graph_node *n, int v, const char *why)
{
    return d->share[v] == TERM ? lacks_sum(d, n, v) : wrong(d, n, v, "%s", why);
}

/* ---- forward ---- */

/* What a rank has of a value that no node makes: an input, a parameter, a constant. */
static enum division_share share_given(const struct division *d, const struct graph_value *value)
{
    if (value->role == VALUE_INPUT)
        return division_is_own(d, d->graph->input[value->index].row_group) ? ROWS : WHOLE;
    if (value->role != VALUE_PARAM)
        return division_is_data(d) && value->role != VALUE_CONST ? ROWS : WHOLE;
    const struct graph_param *param = &d->graph->params[value->index];
    if (!division_is_over(d, param->division.group))
        return WHOLE;
    return param->division.dim == param->dims - 1 ? COLUMNS : ROWS;
}

/* Give the results of a node a share; where that is of columns, those of value v. */
static void put_share(const struct division *d, const struct graph_node *n,
                      enum division_share share, int v)
{
    for (int k = 0; k < NODE_OUTS; k++)
        if (n->out[k] >= 0) {
            d->share[n->out[k]] = share;
            d->columns[n->out[k]] = d->columns[v];
        }
}

static int same_columns(const struct division *d, int a, int b)
{
    return columns_equal(&d->columns[a], &d->columns[b]);
}

/* May an op with a rule read x, of which the rank has its own columns? */
static int check_columns(const struct division *d, const struct graph_node *n,
                         const struct division_rule *rule)
{
    int x = n->in[0], kv = n->in[1];
    const struct columns *more = rule->same >> 1 & 1 && kv >= 0 ? &d->columns[kv] : NULL;
    if (rule->halves && !columns_are_halves(&d->columns[x]))
        return wrong(d, n, x, "it needs two tensors, divided alike");
    if (rule->heads && !columns_are_heads(&d->columns[x], more, &n->attrs))
        return wrong(d, n, x,
                     "queries, keys and values must each be one tensor, divided by whole heads");
    return 0;
}

/* What is added to a sum's terms must be one, and to columns of value v their like. */
static int check_added(const struct division *d, const struct graph_node *n,
                       enum division_share share, int v, int added)
{
    if (d->share[added] == share)
        return share != COLUMNS || same_columns(d, v, added)
                   ? 0
                   : wrong(d, n, added, "what it is added to is of other columns");
    if (share == TERM && d->share[added] == WHOLE)
        return wrong(d, n, added, "added to a term of a sum, it counts once for each rank");
    return wrong_share(d, n, added, "what it is added to is not");
}

/* The k-th input of an op that has x in the first one: parameters, and what goes with the rows. */
static int check_beside(const struct division *d, const struct graph_node *n,
                        const struct division_rule *rule, int k)
{
    int v = n->in[k];
    enum division_share x = d->share[n->in[0]];
    enum division_share want = rule->columns >> k & 1 && x == COLUMNS ? COLUMNS : WHOLE;
    if (want == COLUMNS && d->share[v] == want && !same_columns(d, n->in[0], v))
        return wrong(d, n, v, "the columns that it belongs to are divided otherwise");
    if (d->share[v] == want || (!division_is_param(d, v) && d->share[v] == x))
        return 0;
    if (want == COLUMNS)
        return wrong(d, n, v, "the columns that it belongs to are divided");
    return wrong_share(d, n, v, "all of it is needed");
}

static int follow_rule(const struct division *d, const struct graph_node *n,
                       const struct division_rule *rule)
{
    int x = n->in[0];
    enum division_share share = d->share[x];
    if (share == TERM && (!rule->linear || rule->columns))
        return lacks_sum(d, n, x);
    if (share == SPREAD || (share == COLUMNS && rule->all_columns))
        return wrong(d, n, x, "it needs whole rows");
    int is_placed = 0;
    for (int k = 1; k < NODE_INS; k++)
        is_placed |= n->in[k] >= 0 && rule->places >> k & 1;
    if (share == ROWS && rule->in_sequence && !is_placed && !division_is_data(d))
        return wrong(d, n, x, "it needs whole sequences");
    for (int k = 1; k < NODE_INS; k++)
        if (n->in[k] >= 0 &&
            (rule->same >> k & 1 ? check_added(d, n, share, rule->heads ? n->in[k] : x, n->in[k])
                                 : check_beside(d, n, rule, k)))
            return -1;
    if (share == COLUMNS && check_columns(d, n, rule))
        return -1;
    put_share(d, n, share, x);
    if (share == COLUMNS && rule->first)
        d->columns[n->out[0]] = columns_first(&d->columns[x]);
    if (share == COLUMNS && n->op == &op_split_heads)
        d->columns[n->out[1]] = columns_others(&d->columns[x]);
    return 0;
}

/* Of op_experts too, whose matrices are divided alike. */
static int follow_linear(const struct division *d, const struct graph_node *n)
{
    int x = n->in[0], w = n->in[1], added = n->op == &op_linear ? n->in[2] : -1;
    enum division_share share = d->share[x];
    if (share == TERM || share == SPREAD)
        return wrong_share(d, n, x, "it needs whole rows");
    if ((share == COLUMNS) != (d->share[w] == COLUMNS))
        return wrong(d, n, x, "its matrix is %s", share_text(d, w));
    if (share == ROWS && d->share[w] == ROWS)
        return wrong(d, n, x, "its matrix is divided too");
    if (share == COLUMNS && !same_columns(d, x, w))
        return wrong(d, n, x, "its matrix is of other columns");
    if (share == COLUMNS)
        share = TERM;
    else if (d->share[w] == ROWS)
        share = COLUMNS;
    put_share(d, n, share, w);
    return added >= 0 ? check_added(d, n, share, w, added) : 0;
}

/* y, what is added to it, and the matrix that makes that of u. */
static int follow_adapter(const struct division *d, const struct graph_node *n)
{
    int y = n->in[0], u = n->in[1], b = n->in[2];
    enum division_share share = d->share[y];
    if (share == SPREAD || share == PART)
        return wrong_share(d, n, y, "it needs whole rows");
    if ((share == COLUMNS) != (d->share[b] == ROWS))
        return wrong(d, n, y, "its matrix is %s", share_text(d, b));
    if (share == COLUMNS && !columns_are_of(&d->columns[y], &d->columns[b], &n->attrs.adapted))
        return wrong(d, n, y, "its matrix is of other columns");
    if (d->share[u] != (share == COLUMNS ? WHOLE : share))
        return wrong_share(d, n, u, "what is added to it is not");
    put_share(d, n, share, y);
    return 0;
}

/* The norms of a matrix's rows: of own rows, or of own columns their terms. */
static int follow_squares(const struct division *d, const struct graph_node *n)
{
    int w = n->in[0], a = n->in[1], b = n->in[2];
    enum division_share share = d->share[w];
    if (d->share[a] != (share == COLUMNS ? COLUMNS : WHOLE))
        return wrong_share(d, n, a, "its matrix is divided otherwise");
    if (d->share[b] != (share == ROWS ? ROWS : WHOLE))
        return wrong_share(d, n, b, "its matrix is divided otherwise");
    if (share == COLUMNS && !same_columns(d, w, a))
        return wrong(d, n, a, "its matrix is of other columns");
    if (share == ROWS && !columns_are_of(&d->columns[w], &d->columns[b], &n->attrs.adapted))
        return wrong(d, n, b, "its matrix is of other rows");
    put_share(d, n, share == ROWS ? COLUMNS : share == COLUMNS ? TERM : WHOLE, b);
    return 0;
}

/* A product, or a sum of such terms, and the magnitudes and norms of its columns. */
static int follow_magnitude(const struct division *d, const struct graph_node *n)
{
    int x = n->in[0];
    enum division_share share = d->share[x], want = share == COLUMNS ? COLUMNS : WHOLE;
    if (share == TERM || share == SPREAD || share == PART)
        return wrong_share(d, n, x, "it needs whole rows");
    for (int k = 1; k < 3; k++) {
        if (d->share[n->in[k]] != want)
            return wrong_share(d, n, n->in[k],
                               want == COLUMNS ? "the columns that it belongs to are divided"
                                               : "all of it is needed");
        if (want == COLUMNS &&
            !columns_are_of(&d->columns[x], &d->columns[n->in[k]], &n->attrs.adapted))
            return wrong(d, n, n->in[k], "the columns that it belongs to are divided otherwise");
    }
    put_share(d, n, share, x);
    return 0;
}

/* A node that has only the rank's rows of table v, rows or logits from attrs.first on, must take
 * them for those that the rank has. */
static int check_first(const struct division *d, const struct graph_node *n, int v)
{
    int64_t start = d->share[v] == ROWS ? columns_start(&d->columns[v]) : 0;
    if (d->axis != MESH_TENSOR || n->attrs.first == start)
        return 0;
    return wrong(d, n, v, "it takes its rows for those from %lld on, and they begin at %lld",
                 (long long)n->attrs.first, (long long)start);
}

static int follow_embedding(const struct division *d, const struct graph_node *n)
{
    if (division_is_param(d, n->in[1]) && check_first(d, n, n->in[1]))
        return -1;
    enum division_share table = d->share[n->in[1]], tokens = d->share[n->in[0]];
    if (table == ROWS && tokens != WHOLE)
        return wrong_share(d, n, n->in[0], "its table is divided too");
    put_share(d, n, table == ROWS ? TERM : table == COLUMNS ? COLUMNS : tokens, n->in[1]);
    return 0;
}

/* Positions are added to a sum's terms where the table's rows are divided, as each rank adds its
 * own rows: the result is a term, too. */
static int follow_positions(const struct division *d, const struct graph_node *n)
{
    if (check_first(d, n, n->in[1]))
        return -1;
    if (d->share[n->in[0]] != TERM)
        return wrong(d, n, n->in[1], "what its rows are added to is no term of a sum");
    put_share(d, n, TERM, n->in[0]);
    return 0;
}

/* Own columns among zeros, at their place in the whole. */
static int follow_placing(const struct division *d, const struct graph_node *n)
{
    if (!columns_are_at(&d->columns[n->in[0]], n->attrs.first, n->attrs.columns))
        return wrong(d, n, n->in[0], "it puts them at the place of other columns");
    put_share(d, n, TERM, n->in[0]);
    return 0;
}

/* Own queries, and keys and values that the rank has whole. */
static int follow_packing(const struct division *d, const struct graph_node *n)
{
    int q = n->in[0], kv = n->in[1];
    if (d->share[kv] != WHOLE)
        return wrong_share(d, n, kv, "all heads of it are needed");
    if (!columns_are_packed(&d->columns[q], &n->attrs))
        return wrong(d, n, q, "it needs whole heads of one tensor, those that the op says");
    put_share(d, n, COLUMNS, q);
    d->columns[n->out[0]].packed = n->attrs.kv_heads;
    return 0;
}

static int follow_exchange(const struct division *d, const struct graph_node *n)
{
    const struct division_exchange *row = division_exchange(n->op->transfer);
    int x = n->in[0];
    enum division_share share = d->share[x];
    if (n->op->transfer == TRANSFER_SUM && share == WHOLE)
        return wrong(d, n, x, "summed again, it counts once for each rank");
    if (n->op->transfer == TRANSFER_MAXIMUM && share == TERM)
        return lacks_sum(d, n, x);
    if (share != row->takes && !(row->takes_its_result && share == row->gives))
        return wrong(d, n, x, "%s", row->why_not);
    put_share(d, n, share == SPREAD ? COLUMNS : row->gives, x);
    return 0;
}

/* Along an axis of the data every rank has its rows of a batch; else nothing may be divided. */
static int follow_unknown(const struct division *d, const struct graph_node *n)
{
    enum division_share share = WHOLE;
    for (int k = 0; k < NODE_INS; k++) {
        if (n->in[k] < 0)
            continue;
        if (d->share[n->in[k]] != WHOLE && !(division_is_data(d) && d->share[n->in[k]] == ROWS))
            return wrong(d, n, n->in[k], "no rule says what this op makes of it");
        share = d->share[n->in[k]] == ROWS ? ROWS : share;
    }
    put_share(d, n, share, n->in[0]);
    return 0;
}

/* What of a softmax stands for all columns, and what for own ones (op_loss.c). */
static int needs_all(const struct division *d, const struct graph_node *n, int v)
{
    if (d->share[v] == PART)
        return wrong(d, n, v, "its maximum over %s is missing", mesh_axis_name(d->axis));
    return d->share[v] == TERM ? lacks_sum(d, n, v) : 0;
}

/* Of an op without a rule: of a head whose vocabulary is divided, inputs h, w; sums, top, all_top;
 * all_top, all_sums. */
static int follow_head(const struct division *d, const struct graph_node *n)
{
    if (n->op == &op_head_part && d->share[n->in[1]] == ROWS) {
        if (check_first(d, n, n->in[1]))
            return -1;
        if (d->share[n->in[0]] != WHOLE)
            return wrong_share(d, n, n->in[0], "all of it is needed");
        put_share(d, n, PART, n->in[0]);
        return 0;
    }
    if (n->op == &op_head_term && d->share[n->in[0]] == PART) {
        put_share(d, n, TERM, n->in[0]);
        return needs_all(d, n, n->in[2]);
    }
    if (n->op == &op_head_part_loss && (needs_all(d, n, n->in[0]) || needs_all(d, n, n->in[1])))
        return -1;
    return follow_unknown(d, n);
}

/* Does a node look at whole sequences, of which ranks along context have their own rows? */
static int is_across_context(const struct division *d, const struct graph_node *n)
{
    return d->axis == MESH_CONTEXT &&
           (n->op == &op_attention || n->op == &op_order_chunks || n->op == &op_positions);
}

/* Attention of own queries needs all keys, and learned positions those of the own rows. */
static int follow_sequence(const struct division *d, const struct graph_node *n)
{
    enum division_share want = n->op == &op_order_chunks ? WHOLE : ROWS;
    int x = n->in[0], kv = n->in[1];
    if (d->share[x] != want)
        return wrong_share(d, n, x,
                           want == ROWS ? "it needs own rows" : "it needs all ranks' rows");
    if (n->op == &op_attention && (kv < 0 || d->share[kv] != WHOLE))
        return wrong(d, n, kv < 0 ? x : kv, "keys and values of all ranks are needed");
    if (n->op == &op_attention && n->in[2] >= 0 && d->share[n->in[2]] != ROWS)
        return wrong_share(d, n, n->in[2], "documents of own rows are needed");
    if (!division_is_own_part(d->graph, n))
        return wrong(d, n, x, "it takes its rows for those of other positions");
    put_share(d, n, want, x);
    return 0;
}

/* Does what a node drops depend on the rank? */
static int check_dropped(const struct division *d, const struct graph_node *n)
{
    const struct graph_dropout *dropped = &n->attrs.dropped;
    int x = n->in[0], is_over = division_is_over(d, dropped->row_group);
    int64_t each = n->op == &op_attention ? n->attrs.head_dim : 1, first = 0;
    if (d->axis == MESH_CONTEXT && !division_is_own_part(d->graph, n))
        return wrong(d, n, x, "it drops numbers of rows at other positions");
    if (is_over != (d->share[x] == ROWS && !division_is_data(d)))
        return wrong(d, n, x, "it drops numbers of other rows");
    if (d->share[x] == COLUMNS)
        first = columns_start(&d->columns[x]);
    if (!division_is_data(d) && dropped->first * each != first)
        return wrong(d, n, x, "it drops numbers of columns from %lld on, and these begin at %lld",
                     (long long)(dropped->first * each), (long long)first);
    return 0;
}

static int follow(const struct division *d, const struct graph_node *n)
{
    if (n->attrs.dropped.share > 0 && check_dropped(d, n))
        return -1;
    if (division_exchanges(d, n))
        return follow_exchange(d, n);
    if (n->op->transfer != TRANSFER_NONE) { /* among other ranks, of whatever it is */
        put_share(d, n, d->share[n->in[0]], n->in[0]);
        return 0;
    }
    if (is_across_context(d, n))
        return follow_sequence(d, n);
    if (n->op == &op_linear || n->op == &op_experts)
        return follow_linear(d, n);
    if (n->op == &op_adapter)
        return follow_adapter(d, n);
    if (n->op == &op_row_squares)
        return follow_squares(d, n);
    if (n->op == &op_magnitude)
        return follow_magnitude(d, n);
    if (n->op == &op_embedding)
        return follow_embedding(d, n);
    if (n->op == &op_positions && d->share[n->in[1]] == ROWS)
        return follow_positions(d, n);
    if (n->op == &op_place_columns && d->share[n->in[0]] == COLUMNS)
        return follow_placing(d, n);
    if (n->op == &op_pack_heads && d->share[n->in[0]] == COLUMNS)
        return follow_packing(d, n);
    const struct division_rule *rule = division_rule(n->op);
    return rule ? follow_rule(d, n, rule) : follow_head(d, n);
}

static int follow_all(const struct division *d)
{
    char name[DIVISION_TEXT];
    for (int v = 0; v < d->graph->value_count; v++) {
        if (division_value(d, v)->producer < 0)
            d->share[v] = share_given(d, division_value(d, v));
        if (division_is_param(d, v))
            d->columns[v] = columns_of(&d->graph->params[division_value(d, v)->index]);
    }
    for (int i = 0; i < d->graph->node_count; i++)
        if (!d->graph->nodes[i].backward && follow(d, &d->graph->nodes[i]))
            return -1;
    for (int v = 0; v < d->graph->value_count; v++)
        if (division_value(d, v)->role == VALUE_OUTPUT &&
            d->share[v] != (division_is_own(d, d->graph->output_row_group) ? ROWS : WHOLE))
            return error_set(d->err, "verify: %s: its output, %s, is over %s %s", d->unit,
                             division_name(d, v, name), mesh_axis_name(d->axis), share_text(d, v));
    return 0;
}

/* ---- all axes ---- */

int division_check(const struct graph *graph, const char *unit, unsigned mesh, int trained,
                   struct error *err)
{
    struct division d = {.graph = graph, .unit = unit, .err = err};
    unsigned axes = division_axes(graph) & mesh;
    int rc = 0;
    for (d.axis = 0; !rc && d.axis < MESH_AXES; d.axis++) {
        if (!(axes >> d.axis & 1))
            continue;
        d.share = array_make((size_t)graph->value_count, sizeof *d.share);
        d.columns = array_make((size_t)graph->value_count, sizeof *d.columns);
        d.grad = array_make((size_t)graph->value_count, sizeof *d.grad);
        d.taken = (int[OP_TRANSFERS]){0};
        rc = follow_all(&d) || (trained && division_check_gradients(&d)) ? -1 : 0;
        free(d.share);
        free(d.columns);
        free(d.grad);
    }
    return rc;
}
