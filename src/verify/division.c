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
 *   norm                  whole, own rows
 *   loss                  whole
 *   head_part             whole          own rows      part          (its gradient of x: a term)
 *   all_reduce_max        part                         whole
 *   head_term             part                         a term
 *   others                                             as x
 *
 * Along replicate and shard ranks have their own rows from the start, those of their batches.
 */
#include "verify/division.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/array.h"
#include "comm/mesh.h"
#include "graph/op.h"

/* What a rank has of a value.  SPREAD: what an all_to_all made of own columns.  PART: what a row of
 * logits comes to, of own columns alone. */
enum share { WHOLE, TERM, ROWS, COLUMNS, SPREAD, PART };

/* What it has of the gradient.  OWN: of its own rows or columns. */
enum pull { NO_PULL, PULL_WHOLE, PULL_TERM, PULL_OWN };

struct division {
    const struct graph *graph;
    const char *unit;
    int axis;
    enum share *share; /* per value */
    enum pull *pull;   /* per value, so far */
    struct error *err;
};

/* Ops that do the same to every element, row or head.  Inputs by bits. */
struct rule {
    const struct op *op;
    unsigned same;    /* those that must be like the first one, which get the same gradient */
    unsigned columns; /* parameters with an element for each column */
    int linear;       /* a sum of results is the result of the sum */
    int all_columns;  /* needs all of a row */
    int in_sequence;  /* depends on the place of a row in its sequence, */
    unsigned places;  /* unless this input says it */
};

static const struct rule rules[] = {
    {.op = &op_rmsnorm, .same = 1 << 0 | 1 << 1, .columns = 1 << 2, .all_columns = 1},
    {.op = &op_layernorm, .same = 1 << 0, .columns = 1 << 1 | 1 << 2, .all_columns = 1},
    {.op = &op_rope, .same = 1 << 0, .linear = 1, .in_sequence = 1, .places = 1 << 2},
    {.op = &op_attention, .same = 1 << 0 | 1 << 1, .in_sequence = 1},
    {.op = &op_swiglu, .same = 1 << 0},
    {.op = &op_add, .same = 1 << 0 | 1 << 1, .linear = 1},
    {.op = &op_bias, .same = 1 << 0, .columns = 1 << 1},
    {.op = &op_gelu, .same = 1 << 0, .columns = 1 << 1},
    {.op = &op_positions, .same = 1 << 0, .columns = 1 << 1, .in_sequence = 1},
    {.op = &op_head_loss, .same = 1 << 0, .all_columns = 1, .in_sequence = 1},
};

static int is_data(const struct division *d)
{
    return d->axis == MESH_REPLICATE || d->axis == MESH_SHARD;
}

static const struct graph_value *value_of(const struct division *d, int v)
{
    return &d->graph->values[v];
}

static int is_param(const struct division *d, int v)
{
    return value_of(d, v)->role == VALUE_PARAM;
}

static int is_over(const struct division *d, struct graph_group group)
{
    return group.size > 1 && group.axes >> d->axis & 1;
}

static int exchanges(const struct division *d, const struct graph_node *n)
{
    return n->op->transfer != TRANSFER_NONE && n->attrs.axes >> d->axis & 1;
}

/* ---- for messages ---- */

enum { TEXT = 96 };

/* "linear (mlp.down)" */
static const char *node_text(const struct division *d, const struct graph_node *n, char text[TEXT])
{
    const char *param = NULL;
    for (int k = 0; k < NODE_INS && !param; k++)
        if (n->in[k] >= 0 && is_param(d, n->in[k]))
            param = d->graph->params[value_of(d, n->in[k])->index].part[0];
    snprintf(text, TEXT, param ? "%s (%s)" : "%s", n->op->name, param);
    return text;
}

static const char *name_text(const struct division *d, int v, char text[TEXT])
{
    char node[TEXT];
    const struct graph_value *value = value_of(d, v);
    if (value->role == VALUE_PARAM)
        snprintf(text, TEXT, "parameter %.60s", d->graph->params[value->index].part[0]);
    else if (value->producer >= 0)
        snprintf(text, TEXT, "the result of %.80s",
                 node_text(d, &d->graph->nodes[value->producer], node));
    else
        snprintf(text, TEXT, value->role == VALUE_INPUT ? "the unit's input" : "a constant");
    return text;
}

static const char *share_text(const struct division *d, int v)
{
    static const char *const names[] = {[WHOLE] = "whole",
                                        [TERM] = "a term of a sum",
                                        [ROWS] = "own rows",
                                        [COLUMNS] = "own columns",
                                        [SPREAD] = "spread by an all_to_all",
                                        [PART] = "of own columns alone"};
    if (d->share[v] == COLUMNS && is_param(d, v) && value_of(d, v)->dims == 1)
        return "own elements";
    return names[d->share[v]];
}

/* "verify: layers.0: rmsnorm (norm2) reads the result of linear (mlp.down), over tensor a term of a
 * sum: WHY" */
static int wrong(const struct division *d, const struct graph_node *n, int v, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
static int wrong(const struct division *d, const struct graph_node *n, int v, const char *fmt, ...)
{
    char node[TEXT], name[TEXT], why[160];
    va_list args;
    va_start(args, fmt);
    vsnprintf(why, sizeof why, fmt, args);
    va_end(args);
    return error_set(d->err, "verify: %s: %s reads %s, over %s %s: %s", d->unit,
                     node_text(d, n, node), name_text(d, v, name), mesh_axis_name(d->axis),
                     share_text(d, v), why);
}

static int lacks_sum(const struct division *d, const struct graph_node *n, int v)
{
    return wrong(d, n, v, "its sum over %s is missing", mesh_axis_name(d->axis));
}

/* ---- forward ---- */

static enum share share_of_param(const struct division *d, const struct graph_param *param)
{
    if (!is_over(d, param->division.group))
        return WHOLE;
    return param->dims == 1 || param->division.dim == 1 ? COLUMNS : ROWS;
}

/* What no node makes. */
static enum share share_given(const struct division *d, const struct graph_value *value)
{
    switch (value->role) {
    case VALUE_PARAM: return share_of_param(d, &d->graph->params[value->index]);
    case VALUE_INPUT:
    case VALUE_TOKENS:
    case VALUE_POSITIONS:
    case VALUE_DOCUMENTS:
    case VALUE_TARGETS: return is_data(d) ? ROWS : WHOLE;
    default: return WHOLE;
    }
}

static void put_share(const struct division *d, const struct graph_node *n, enum share share)
{
    for (int k = 0; k < NODE_OUTS; k++)
        if (n->out[k] >= 0)
            d->share[n->out[k]] = share;
}

/* What is added to a sum's terms must be one. */
static int check_added(const struct division *d, const struct graph_node *n, enum share share,
                       int added)
{
    if (d->share[added] == share)
        return 0;
    if (share == TERM && d->share[added] == WHOLE)
        return wrong(d, n, added, "added to a term of a sum, it counts once for each rank");
    if (d->share[added] == TERM)
        return lacks_sum(d, n, added);
    return wrong(d, n, added, "what it is added to is not");
}

/* The k-th input of an op that has x in the first one: parameters, and what goes with the rows. */
static int check_beside(const struct division *d, const struct graph_node *n,
                        const struct rule *rule, int k)
{
    int v = n->in[k];
    enum share x = d->share[n->in[0]];
    enum share want = rule->columns >> k & 1 && x == COLUMNS ? COLUMNS : WHOLE;
    if (d->share[v] == want || (!is_param(d, v) && d->share[v] == x))
        return 0;
    if (want == COLUMNS)
        return wrong(d, n, v, "the columns that it belongs to are divided");
    return d->share[v] == TERM ? lacks_sum(d, n, v) : wrong(d, n, v, "all of it is needed");
}

static int follow_rule(const struct division *d, const struct graph_node *n,
                       const struct rule *rule)
{
    int x = n->in[0];
    enum share share = d->share[x];
    if (share == TERM && (!rule->linear || rule->columns))
        return lacks_sum(d, n, x);
    if (share == SPREAD || (share == COLUMNS && rule->all_columns))
        return wrong(d, n, x, "it needs whole rows");
    int placed = 0;
    for (int k = 1; k < NODE_INS; k++)
        placed |= n->in[k] >= 0 && rule->places >> k & 1;
    if (share == ROWS && rule->in_sequence && !placed && !is_data(d))
        return wrong(d, n, x, "it needs whole sequences");
    for (int k = 1; k < NODE_INS; k++)
        if (n->in[k] >= 0 && (rule->same >> k & 1 ? check_added(d, n, share, n->in[k])
                                                  : check_beside(d, n, rule, k)))
            return -1;
    put_share(d, n, share);
    return 0;
}

static int follow_linear(const struct division *d, const struct graph_node *n)
{
    int x = n->in[0], w = n->in[1];
    enum share share = d->share[x];
    if (share == TERM)
        return lacks_sum(d, n, x);
    if (share == SPREAD)
        return wrong(d, n, x, "it needs whole rows");
    if (share == COLUMNS ? d->share[w] != COLUMNS : d->share[w] == COLUMNS)
        return wrong(d, n, x, "its matrix is %s", share_text(d, w));
    if (share == ROWS && d->share[w] == ROWS)
        return wrong(d, n, x, "its matrix is divided too");
    if (share == COLUMNS)
        share = TERM;
    else if (d->share[w] == ROWS)
        share = COLUMNS;
    put_share(d, n, share);
    return n->in[2] >= 0 ? check_added(d, n, share, n->in[2]) : 0;
}

static int follow_embedding(const struct division *d, const struct graph_node *n)
{
    if (d->share[n->in[1]] == ROWS)
        return wrong(d, n, n->in[1], "tokens of other ranks' rows are not in it");
    put_share(d, n, d->share[n->in[1]] == COLUMNS ? COLUMNS : d->share[n->in[0]]);
    return 0;
}

static int follow_exchange(const struct division *d, const struct graph_node *n)
{
    int x = n->in[0];
    enum share share = d->share[x];
    switch (n->op->transfer) {
    case TRANSFER_SUM:
        if (share == WHOLE)
            return wrong(d, n, x, "summed again, it counts once for each rank");
        if (share != TERM)
            return wrong(d, n, x, "those of different ranks have no sum");
        put_share(d, n, WHOLE);
        return 0;
    case TRANSFER_SCATTER:
        if (share != TERM)
            return wrong(d, n, x, "it is no term of the sum that is taken");
        put_share(d, n, ROWS);
        return 0;
    case TRANSFER_MAXIMUM:
        if (share != WHOLE && share != PART)
            return share == TERM ? lacks_sum(d, n, x)
                                 : wrong(d, n, x, "those of different ranks have no maximum");
        put_share(d, n, WHOLE);
        return 0;
    case TRANSFER_GATHER:
        if (share != ROWS)
            return wrong(d, n, x, "it gathers own rows");
        put_share(d, n, WHOLE);
        return 0;
    default:
        if (share != COLUMNS && share != SPREAD)
            return wrong(d, n, x, "it exchanges rows of own columns");
        put_share(d, n, share == COLUMNS ? SPREAD : COLUMNS);
        return 0;
    }
}

/* Along an axis of the data every rank has its rows of a batch; else nothing may be divided. */
static int follow_unknown(const struct division *d, const struct graph_node *n)
{
    enum share share = WHOLE;
    for (int k = 0; k < NODE_INS; k++) {
        if (n->in[k] < 0)
            continue;
        if (d->share[n->in[k]] != WHOLE && !(is_data(d) && d->share[n->in[k]] == ROWS))
            return wrong(d, n, n->in[k], "no rule says what this op makes of it");
        share = d->share[n->in[k]] == ROWS ? ROWS : share;
    }
    put_share(d, n, share);
    return 0;
}

/* What of a softmax stands for all columns, and what for own ones (op_loss.c). */
static int needs_all(const struct division *d, const struct graph_node *n, int v)
{
    if (d->share[v] == PART)
        return wrong(d, n, v, "its maximum over %s is missing", mesh_axis_name(d->axis));
    return d->share[v] == TERM ? lacks_sum(d, n, v) : 0;
}

/* A head whose vocabulary is divided: inputs h, w; sums, top, all_top; all_top, all_sums. */
static int follow_head(const struct division *d, const struct graph_node *n)
{
    if (n->op == &op_head_part && d->share[n->in[1]] == ROWS) {
        if (d->share[n->in[0]] != WHOLE)
            return d->share[n->in[0]] == TERM ? lacks_sum(d, n, n->in[0])
                                              : wrong(d, n, n->in[0], "all of it is needed");
        put_share(d, n, PART);
        return 0;
    }
    if (n->op == &op_head_term && d->share[n->in[0]] == PART) {
        put_share(d, n, TERM);
        return needs_all(d, n, n->in[2]);
    }
    if (n->op == &op_head_part_loss && (needs_all(d, n, n->in[0]) || needs_all(d, n, n->in[1])))
        return -1;
    return follow_unknown(d, n);
}

static int is_head(const struct graph_node *n)
{
    return n->op == &op_head_part || n->op == &op_head_term || n->op == &op_head_part_loss;
}

static const struct rule *rule_of(const struct graph_node *n)
{
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++)
        if (rules[i].op == n->op)
            return &rules[i];
    return NULL;
}

static int follow(const struct division *d, const struct graph_node *n)
{
    if (exchanges(d, n))
        return follow_exchange(d, n);
    if (n->op->transfer != TRANSFER_NONE) { /* among other ranks, of whatever it is */
        put_share(d, n, d->share[n->in[0]]);
        return 0;
    }
    if (n->op == &op_linear)
        return follow_linear(d, n);
    if (n->op == &op_embedding)
        return follow_embedding(d, n);
    if (is_head(n))
        return follow_head(d, n);
    const struct rule *rule = rule_of(n);
    return rule ? follow_rule(d, n, rule) : follow_unknown(d, n);
}

static int check_output(const struct division *d, int v)
{
    char name[TEXT];
    if (value_of(d, v)->role != VALUE_OUTPUT || d->share[v] == (is_data(d) ? ROWS : WHOLE))
        return 0;
    return error_set(d->err, "verify: %s: its output, %s, is over %s %s", d->unit,
                     name_text(d, v, name), mesh_axis_name(d->axis), share_text(d, v));
}

static int follow_all(const struct division *d)
{
    for (int v = 0; v < d->graph->value_count; v++)
        if (value_of(d, v)->producer < 0)
            d->share[v] = share_given(d, value_of(d, v));
    for (int i = 0; i < d->graph->node_count; i++)
        if (!d->graph->nodes[i].backward && follow(d, &d->graph->nodes[i]))
            return -1;
    for (int v = 0; v < d->graph->value_count; v++)
        if (check_output(d, v))
            return -1;
    return 0;
}

/* ---- backward ---- */

static int wrong_pull(const struct division *d, int v, const char *why)
{
    char name[TEXT];
    return error_set(d->err, "verify: %s: the gradient of %s %s: over %s", d->unit,
                     name_text(d, v, name), why, mesh_axis_name(d->axis));
}

/* A reader of v gives it a gradient. */
static int give(const struct division *d, int v, enum pull pull)
{
    if (v < 0 || is_param(d, v) || pull == NO_PULL)
        return 0;
    if (d->pull[v] != NO_PULL && d->pull[v] != pull)
        return wrong_pull(d, v,
                          "is a term of a sum from one of its readers and not from another: say "
                          "build_divided() of what the divided ones read");
    d->pull[v] = pull;
    return 0;
}

/* All readers of v have given theirs: where v says so, they are summed. */
static int settle(const struct division *d, int v)
{
    if (!is_over(d, value_of(d, v)->divided) || d->pull[v] == NO_PULL)
        return 0;
    if (d->pull[v] != PULL_TERM)
        return wrong_pull(d, v, "is summed, as build_divided() says, but is no term of a sum");
    d->pull[v] = PULL_WHOLE;
    return 0;
}

/* The gradient that a node's results have. */
static int pull_of(const struct division *d, const struct graph_node *n, enum pull *pull)
{
    *pull = NO_PULL;
    for (int k = 0; k < NODE_OUTS; k++) {
        int v = n->out[k];
        if (v < 0)
            continue;
        if (settle(d, v))
            return -1;
        if (value_of(d, v)->role == VALUE_LOSS)
            d->pull[v] = d->share[n->in[0]] == WHOLE ? PULL_WHOLE : PULL_OWN;
        if (d->pull[v] == NO_PULL)
            continue;
        if (*pull != NO_PULL && *pull != d->pull[v])
            return wrong_pull(d, v, "is whole, and that of the op's other result is not");
        *pull = d->pull[v];
    }
    return 0;
}

/* A trained parameter that all ranks have alike needs its whole gradient on each, or terms whose
 * sum is said to be taken. */
static int check_params(const struct division *d, const struct graph_node *n, enum pull pull)
{
    for (int k = 0; k < NODE_INS && !is_data(d); k++) {
        int v = n->in[k];
        if (v < 0 || !is_param(d, v) || d->share[v] != WHOLE)
            continue;
        if (d->graph->params[value_of(d, v)->index].frozen)
            continue;
        if (is_over(d, value_of(d, v)->divided)) {
            if (pull == PULL_WHOLE)
                return wrong_pull(d, v,
                                  "is summed, as build_divided() says, but is no term of a sum");
            continue;
        }
        if (pull != PULL_WHOLE)
            return wrong_pull(d, v,
                              pull == PULL_TERM
                                  ? "is a term of a sum, because build_divided() is not said of "
                                    "what divided ops read"
                                  : "is made of a rank's own rows, and no sum is taken of it");
    }
    return 0;
}

static int pull_linear(const struct division *d, const struct graph_node *n, enum pull pull)
{
    enum share w = d->share[n->in[1]];
    enum pull x = w == ROWS ? PULL_TERM : w == COLUMNS ? PULL_OWN : pull;
    return give(d, n->in[0], x) || give(d, n->in[2], pull) ? -1 : 0;
}

static int pull_exchange(const struct division *d, const struct graph_node *n, enum pull pull)
{
    int y = n->out[0];
    switch (n->op->transfer) {
    case TRANSFER_SUM:
        if (pull != PULL_WHOLE)
            return wrong_pull(d, y,
                              "is a term of a sum, because build_divided() is not said of it");
        return give(d, n->in[0], PULL_WHOLE);
    case TRANSFER_SCATTER: return give(d, n->in[0], PULL_WHOLE);
    case TRANSFER_MAXIMUM: return 0;
    case TRANSFER_GATHER:
        if (pull != PULL_TERM)
            return wrong_pull(d, y, "is summed to each rank's rows, but is no term of a sum");
        return give(d, n->in[0], PULL_OWN);
    default: return give(d, n->in[0], PULL_OWN);
    }
}

static int follow_back(const struct division *d, const struct graph_node *n)
{
    enum pull pull;
    if (pull_of(d, n, &pull))
        return -1;
    if (pull == NO_PULL)
        return 0;
    if (exchanges(d, n))
        return pull_exchange(d, n, pull);
    if (d->share[n->out[0]] == TERM && pull != PULL_WHOLE)
        return wrong_pull(d, n->out[0], "is a term of a sum");
    if (check_params(d, n, pull))
        return -1;
    if (n->op == &op_linear || n->op == &op_head_part)
        return pull_linear(d, n, pull);
    const struct rule *rule = rule_of(n);
    for (int k = 0; k < NODE_INS; k++)
        if (n->in[k] >= 0 && (!rule || rule->same >> k & 1) && give(d, n->in[k], pull))
            return -1;
    return 0;
}

static int follow_all_back(const struct division *d)
{
    for (int v = 0; v < d->graph->value_count; v++)
        if (value_of(d, v)->role == VALUE_OUTPUT)
            d->pull[v] = is_data(d) ? PULL_OWN : PULL_WHOLE;
    for (int i = d->graph->node_count - 1; i >= 0; i--)
        if (!d->graph->nodes[i].backward && follow_back(d, &d->graph->nodes[i]))
            return -1;
    for (int v = 0; v < d->graph->value_count; v++) {
        const struct graph_value *value = value_of(d, v);
        if (value->role != VALUE_INPUT || d->graph->input[value->index].frozen)
            continue;
        if (settle(d, v))
            return -1;
        if (d->pull[v] == PULL_TERM)
            return wrong_pull(d, v,
                              "is a term of a sum, because build_divided() is not said of it");
    }
    return 0;
}

/* ---- all axes ---- */

/* Those that something in the graph is divided over. */
static unsigned axes_of(const struct graph *graph)
{
    unsigned axes = 0;
    for (int i = 0; i < graph->node_count; i++)
        if (graph->nodes[i].op->transfer != TRANSFER_NONE)
            axes |= graph->nodes[i].attrs.axes;
    for (int i = 0; i < graph->param_count; i++)
        if (graph->params[i].division.group.size > 1)
            axes |= graph->params[i].division.group.axes;
    for (int v = 0; v < graph->value_count; v++)
        if (graph->values[v].divided.size > 1)
            axes |= graph->values[v].divided.axes;
    return axes;
}

int division_check(const struct graph *graph, const char *unit, unsigned mesh, int trained,
                   struct error *err)
{
    struct division d = {.graph = graph, .unit = unit, .err = err};
    unsigned axes = axes_of(graph) & mesh;
    int rc = 0;
    for (d.axis = 0; !rc && d.axis < MESH_AXES; d.axis++) {
        if (!(axes >> d.axis & 1))
            continue;
        d.share = array_make((size_t)graph->value_count, sizeof *d.share);
        d.pull = array_make((size_t)graph->value_count, sizeof *d.pull);
        rc = follow_all(&d) || (trained && follow_all_back(&d)) ? -1 : 0;
        free(d.share);
        free(d.pull);
    }
    return rc;
}
