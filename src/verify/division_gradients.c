/* division_gradients.c - the backward half of division.c, one axis at a time: what a rank has of
 * the gradient of each value, from the unit's output and its loss back to its inputs and
 * parameters.  A gradient is whole, a term of a sum, or of own rows or columns; all that read a
 * value must give it one of the same kind, and where that is a term the graph has to sum it.
 */
#include "verify/division_private.h"

static int wrong_grad(const struct division *d, int v, const char *why)
{
    char name[DIVISION_TEXT];
    return error_set(d->err, "verify: %s: the gradient of %s %s: over %s", d->unit,
                     division_name(d, v, name), why, mesh_axis_name(d->axis));
}

/* Why a gradient is wrong that the graph has summed and that needs no sum. */
static const char no_term[] = "is summed, as build_divided() says, but is no term of a sum";

/* A reader of v gives it a gradient. */
static int give(const struct division *d, int v, enum division_grad_share grad)
{
    if (v < 0 || division_is_param(d, v) || grad == NO_GRAD)
        return 0;
    if (d->grad[v] != NO_GRAD && d->grad[v] != grad)
        return wrong_grad(d, v,
                          "is a term of a sum from one of its readers and not from another: say "
                          "build_divided() of what the divided ones read");
    d->grad[v] = grad;
    return 0;
}

/* All readers of v have given theirs: where v says so, they are summed. */
static int sum_terms(const struct division *d, int v)
{
    if (!division_is_over(d, division_value(d, v)->divided) || d->grad[v] == NO_GRAD)
        return 0;
    if (d->grad[v] != GRAD_TERM)
        return wrong_grad(d, v, no_term);
    d->grad[v] = GRAD_WHOLE;
    d->taken[TRANSFER_SUM]++;
    return 0;
}

/* The gradient that a node's results have. */
static int grad_of(const struct division *d, const struct graph_node *n,
                   enum division_grad_share *grad)
{
    *grad = NO_GRAD;
    for (int k = 0; k < NODE_OUTS; k++) {
        int v = n->out[k];
        if (v < 0)
            continue;
        if (sum_terms(d, v))
            return -1;
        if (division_value(d, v)->role == VALUE_LOSS)
            d->grad[v] = d->share[n->in[0]] == WHOLE ? GRAD_WHOLE : GRAD_OWN;
        if (d->grad[v] == NO_GRAD)
            continue;
        if (*grad != NO_GRAD && *grad != d->grad[v])
            return wrong_grad(d, v, "is whole, and that of the op's other result is not");
        *grad = d->grad[v];
    }
    return 0;
}

/* A trained parameter that all ranks have alike needs its whole gradient on each, or terms whose
 * sum is said to be taken. */
static int check_params(const struct division *d, const struct graph_node *n,
                        enum division_grad_share grad)
{
    for (int k = 0; k < NODE_INS && !division_is_data(d); k++) {
        int v = n->in[k];
        if (v < 0 || !division_is_param(d, v) || d->share[v] != WHOLE ||
            d->graph->params[division_value(d, v)->index].frozen)
            continue;
        int is_summed = division_is_over(d, division_value(d, v)->divided);
        int is_of_term = n->op == &op_adapter && d->share[n->in[1]] == TERM;
        enum division_grad_share own = is_of_term ? GRAD_TERM : grad;
        if (is_summed && own == GRAD_WHOLE)
            return wrong_grad(d, v, no_term);
        if (!is_summed && own != GRAD_WHOLE)
            return wrong_grad(d, v,
                              own == GRAD_TERM
                                  ? "is a term of a sum, because build_divided() is not said of "
                                    "what divided ops read"
                                  : "is made of a rank's own rows, and no sum is taken of it");
    }
    return 0;
}

static int grad_linear(const struct division *d, const struct graph_node *n,
                       enum division_grad_share grad)
{
    enum division_share w = d->share[n->in[1]];
    enum division_grad_share x = w == ROWS ? GRAD_TERM : w == COLUMNS ? GRAD_OWN : grad;
    return give(d, n->in[0], x) || (n->op == &op_linear && give(d, n->in[2], grad)) ? -1 : 0;
}

static int grad_adapter(const struct division *d, const struct graph_node *n,
                        enum division_grad_share grad)
{
    enum division_grad_share u = d->share[n->in[2]] == ROWS ? GRAD_TERM : grad;
    return give(d, n->in[0], grad) || give(d, n->in[1], u) ? -1 : 0;
}

static int grad_exchange(const struct division *d, const struct graph_node *n,
                         enum division_grad_share grad)
{
    const struct division_exchange *row = division_exchange(n->op->transfer);
    if (row->grad_needed != NO_GRAD && grad != row->grad_needed)
        return wrong_grad(d, n->out[0], row->why_wrong_grad);
    if (row->back != TRANSFER_NONE)
        d->taken[row->back]++;
    return give(d, n->in[0], row->grad_given);
}

static int follow_back(const struct division *d, const struct graph_node *n)
{
    enum division_grad_share grad;
    if (grad_of(d, n, &grad))
        return -1;
    if (grad == NO_GRAD)
        return 0;
    if (division_exchanges(d, n))
        return grad_exchange(d, n, grad);
    if (d->share[n->out[0]] == TERM && grad != GRAD_WHOLE)
        return wrong_grad(d, n->out[0], "is a term of a sum");
    if (check_params(d, n, grad))
        return -1;
    if (n->op == &op_linear || n->op == &op_experts || n->op == &op_head_part)
        return grad_linear(d, n, grad);
    if (n->op == &op_adapter)
        return grad_adapter(d, n, grad);
    if (n->op == &op_magnitude) /* its norms are a constant */
        return give(d, n->in[0], grad);
    int is_of_columns = d->share[n->in[0]] == COLUMNS;
    if (n->op == &op_swiglu_scaled || (n->op == &op_pack_heads && is_of_columns))
        return give(d, n->in[0], grad) || give(d, n->in[1], is_of_columns ? GRAD_TERM : grad) ? -1
                                                                                              : 0;
    if (d->axis == MESH_CONTEXT && n->op == &op_attention)
        return give(d, n->in[0], grad) || give(d, n->in[1], GRAD_TERM) ? -1 : 0;
    const struct division_rule *rule = division_rule(n->op);
    for (int k = 0; k < NODE_INS; k++)
        if (n->in[k] >= 0 && (!rule || rule->same >> k & 1) && give(d, n->in[k], grad))
            return -1;
    return 0;
}

/* Backward nodes, once there are any, make the exchanges that gradients need, and no others. */
static int check_exchanges(const struct division *d)
{
    static const char *const names[OP_TRANSFERS] = {[TRANSFER_SUM] = "sums",
                                                    [TRANSFER_MAXIMUM] = "maxima",
                                                    [TRANSFER_GATHER] = "gathers",
                                                    [TRANSFER_SCATTER] = "reduce-scatters",
                                                    [TRANSFER_ALL_TO_ALL] = "all-to-alls"};
    int made[OP_TRANSFERS] = {0}, has_backward = 0;
    for (int i = 0; i < d->graph->node_count; i++) {
        const struct graph_node *n = &d->graph->nodes[i];
        has_backward |= n->backward;
        if (n->backward && division_exchanges(d, n))
            made[n->op->transfer]++;
    }
    for (int t = TRANSFER_SUM; has_backward && t < OP_TRANSFERS; t++)
        if (made[t] != d->taken[t])
            return error_set(d->err,
                             "verify: %s: backward makes %d %s over %s, and gradients need %d",
                             d->unit, made[t], names[t], mesh_axis_name(d->axis), d->taken[t]);
    return 0;
}

int division_check_gradients(const struct division *d)
{
    for (int v = 0; v < d->graph->value_count; v++)
        if (division_value(d, v)->role == VALUE_OUTPUT)
            d->grad[v] = division_is_own(d, d->graph->output_row_group) ? GRAD_OWN : GRAD_WHOLE;
    for (int i = d->graph->node_count - 1; i >= 0; i--)
        if (!d->graph->nodes[i].backward && follow_back(d, &d->graph->nodes[i]))
            return -1;
    for (int v = 0; v < d->graph->value_count; v++) {
        const struct graph_value *value = division_value(d, v);
        if (value->role != VALUE_INPUT || d->graph->input[value->index].frozen)
            continue;
        if (sum_terms(d, v))
            return -1;
        if (d->grad[v] == GRAD_TERM)
            return wrong_grad(d, v, division_no_sum);
    }
    return check_exchanges(d);
}
