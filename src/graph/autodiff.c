/* autodiff.c - backward nodes, and which of them are needed.
 *
 *   forward                   y = linear(x, w)                   o = add(y, x)
 *   backward, last node first                                    dy = do, dx = do
 *                             dx = dy w + dx, dw = dy' x
 *
 * ad->grad[v] is the value that holds the gradient of v so far.  A rule reads the one of its
 * output and gives one to each input; a second one given to the same value becomes an ADD, unless
 * the rule took the first to add to it in its own pass.  A gradient of a parameter belongs to its
 * flat: the first node that makes one writes it, later ones accumulate.  When all nodes stand, a
 * walk from the end to the start finds those unused that lead only to gradients which nobody
 * wants: of frozen parameters, and of inputs from frozen units. */
#include "graph/autodiff.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"

static int gradient_of(const struct autodiff *ad, int value)
{
    return value >= 0 ? ad->grad[value] : -1;
}

/* Values that autodiff appends have no place in ad->grad. */
static int is_forward(struct autodiff *ad, int value)
{
    if (value < ad->forward_values)
        return 1;
    graph_fail(ad->graph,
               "autodiff: a rule takes or gives the gradient of value %d, but only the first %d "
               "are forward values",
               value, ad->forward_values);
    return 0;
}

int autodiff_take(struct autodiff *ad, int value)
{
    int grad = is_forward(ad, value) ? gradient_of(ad, value) : -1;
    if (grad >= 0)
        ad->grad[value] = -1;
    return grad;
}

void autodiff_give(struct autodiff *ad, int value, int grad)
{
    if (!is_forward(ad, value) || grad < 0) /* a node that failed has no output */
        return;
    if (graph_elems(ad->graph, grad) != graph_elems(ad->graph, value))
        graph_fail(ad->graph,
                   "autodiff: a rule gives value %d, of %lld elements, a gradient of %lld", value,
                   (long long)graph_elems(ad->graph, value),
                   (long long)graph_elems(ad->graph, grad));
    int before = ad->grad[value];
    if (before >= 0) {
        struct op_attrs none = {0};
        int node = autodiff_node(ad, &op_add, (int[]){before, grad}, 2, &none);
        grad = ad->graph->nodes[node].out[0];
    }
    ad->grad[value] = grad;
}

int autodiff_node(struct autodiff *ad, const struct op *op, const int *in, int ins,
                  const struct op_attrs *attrs)
{
    int node = graph_node(ad->graph, op, in, ins, attrs);
    ad->graph->nodes[node].backward = 1;
    return node;
}

/* Set whether node writes the parameter gradients that it makes, or adds to them: one call of an op
 * does the same to all of them. */
static void set_accumulate(struct autodiff *ad, struct graph_node *node, int accumulate)
{
    for (int k = 0; k < NODE_OUTS; k++)
        if (node->out[k] >= 0 && ad->graph->values[node->out[k]].role == VALUE_PARAM_GRAD &&
            node->accumulate != accumulate)
            graph_fail(ad->graph,
                       "%s: of the parameters whose gradients it makes one is used twice, another "
                       "once",
                       node->op->name);
    node->accumulate = accumulate;
}

void autodiff_param(struct autodiff *ad, int node, int out, int param)
{
    struct graph_value from = ad->graph->values[param];
    if (from.role != VALUE_PARAM) {
        graph_fail(ad->graph, "%s: value %d, whose gradient it makes, is no parameter",
                   ad->graph->nodes[node].op->name, param);
        return;
    }
    int index = from.index, frozen = ad->graph->params[index].frozen;
    enum dtype dtype = frozen ? DTYPE_F32 : ad->graph->params[index].grad_dtype;
    int is_product = ad->graph->nodes[node].op == &op_linear_weight_grad;
    if (dtype != DTYPE_F32 && (!is_product || ad->param_written[index]))
        graph_fail(ad->graph, "%s: its gradient is not of one product, and cannot be in %s",
                   ad->graph->params[index].tensor_name[0], dtype_name(dtype));
    int value =
        graph_value(ad->graph, frozen ? VALUE_TEMP : VALUE_PARAM_GRAD, dtype, from.dims, from.dim);
    ad->graph->values[value].index = index;
    ad->graph->values[value].producer = node;
    if (!frozen) {
        set_accumulate(ad, &ad->graph->nodes[node], ad->param_written[index]);
        ad->param_written[index] = 1;
    }
    ad->graph->nodes[node].out[out] = value;
}

/* Replace the gradient of a value by its sum over ranks, where each rank has a term of it.  To be
 * called when all nodes that read the value have given their gradients. */
static void sum_terms(struct autodiff *ad, int value)
{
    int grad = gradient_of(ad, value);
    struct graph_group group =
        value < 0 ? (struct graph_group){0} : ad->graph->values[value].divided;
    if (grad < 0 || group.size < 2)
        return;
    struct op_attrs attrs = {.axes = group.axes, .members = group.size};
    int node = autodiff_node(ad, &op_all_reduce, &grad, 1, &attrs);
    ad->grad[value] = ad->graph->nodes[node].out[0];
}

static int is_read(const struct graph *graph, int value)
{
    for (int i = 0; i < graph->node_count; i++)
        for (int k = 0; k < NODE_INS; k++)
            if (graph->nodes[i].in[k] == value)
                return 1;
    return 0;
}

/* Make the gradient of input k a value VALUE_INPUT_GRAD.  An op_accumulate node adds or copies it
 * there if other units add to it too, if the value already has another role (it is the gradient of
 * the output, or of another input), or if a node of the unit reads it, which may run after it was
 * sent. */
static int finish_input(struct autodiff *ad, int k, struct error *err)
{
    struct graph *graph = ad->graph;
    const struct graph_input *input = &graph->input[k];
    if (input->frozen)
        return 0;
    sum_terms(ad, input->value);
    int grad = gradient_of(ad, input->value);
    if (grad < 0)
        return error_set(err, "a unit's input \"%s\" has no gradient", input->name);
    if (input->has_more_readers || graph->values[grad].role != VALUE_TEMP || is_read(graph, grad)) {
        struct op_attrs none = {0};
        int node = autodiff_node(ad, &op_accumulate, &grad, 1, &none);
        grad = graph->nodes[node].out[0];
    }
    graph->values[grad].role = VALUE_INPUT_GRAD;
    graph->values[grad].index = k;
    return 0;
}

/* Drop optional outputs of a node that are not wanted, set the node to unused if none is, else set
 * the values that it reads to wanted.  A node that makes the loss is always used. */
static void keep_wanted(struct graph *graph, struct graph_node *node, char *wanted)
{
    int used = 0;
    for (int k = 0; k < NODE_OUTS; k++) {
        int v = node->out[k];
        if (v < 0)
            continue;
        enum graph_value_role role = graph->values[v].role;
        if (wanted[v] || role == VALUE_PARAM_GRAD || role == VALUE_INPUT_GRAD || role == VALUE_LOSS)
            used = 1;
        else if (node->op->optional >> k & 1)
            node->out[k] = -1;
    }
    node->unused = !used;
    for (int k = 0; used && k < NODE_INS; k++)
        if (node->in[k] >= 0)
            wanted[node->in[k]] = 1;
}

/* Find unused backward nodes, from the last to the first: a node is used if it makes a gradient
 * that leaves the unit, or a value that a used node reads. */
static void find_unused(struct graph *graph)
{
    char *wanted = array_make((size_t)graph->value_count, 1);
    for (int i = graph->node_count - 1; i >= 0; i--)
        if (graph->nodes[i].backward)
            keep_wanted(graph, &graph->nodes[i], wanted);
    free(wanted);
}

/* Call the rule of a forward node, if its output 0 has a gradient or is the loss. */
static void differentiate(struct autodiff *ad, const struct graph_node *node)
{
    for (int k = 0; k < NODE_OUTS; k++)
        sum_terms(ad, node->out[k]);
    int dy = gradient_of(ad, node->out[0]);
    if (!node->op->gradient) {
        graph_fail(ad->graph, "op %s has no backward rule", node->op->name);
        return;
    }
    if (dy >= 0 || (node->out[0] >= 0 && ad->graph->values[node->out[0]].role == VALUE_LOSS)) {
        node->op->gradient(ad, node, dy);
        return;
    }
    for (int k = 1; k < NODE_OUTS; k++)
        if (gradient_of(ad, node->out[k]) >= 0)
            graph_fail(ad->graph,
                       "%s: output %d has a gradient, which is lost, as output 0 has none: nothing "
                       "reads it",
                       node->op->name, k);
}

int autodiff(struct graph *graph, struct error *err)
{
    struct autodiff ad = {.graph = graph, .forward_values = graph->value_count};
    ad.param_written = array_make((size_t)graph->param_count, 1);
    ad.grad = array_make((size_t)graph->value_count, sizeof *ad.grad);
    memset(ad.grad, -1, (size_t)graph->value_count * sizeof *ad.grad);
    int output = graph_find(graph, VALUE_OUTPUT);
    if (output >= 0) {
        struct graph_value like = graph->values[output];
        ad.grad[output] = graph_value(graph, VALUE_OUTPUT_GRAD, like.dtype, like.dims, like.dim);
    }
    for (int i = graph->node_count - 1; i >= 0 && !graph->err.text[0]; i--) {
        const struct graph_node node = graph->nodes[i];
        differentiate(&ad, &node);
    }
    int rc = graph->err.text[0] ? error_set(err, "%s", graph->err.text) : 0;
    for (int k = 0; !rc && k < graph->inputs; k++)
        rc = finish_input(&ad, k, err);
    if (!rc)
        find_unused(graph);
    free(ad.grad);
    free(ad.param_written);
    return rc;
}
