/* autodiff.c - see autodiff.h. */
#include "graph/autodiff.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"

/* Values appear while rules run: the table of gradients follows. */
static void widen(struct autodiff *ad, int value)
{
    if (value < ad->grads)
        return;
    int wider = value * 2 + 16;
    int *grad = array_make((size_t)wider, sizeof *grad);
    memset(grad, -1, (size_t)wider * sizeof *grad);
    if (ad->grads)
        memcpy(grad, ad->grad, (size_t)ad->grads * sizeof *grad);
    free(ad->grad);
    ad->grad = grad;
    ad->grads = wider;
}

int autodiff_grad(const struct autodiff *ad, int value)
{
    return value >= 0 && value < ad->grads ? ad->grad[value] : -1;
}

int autodiff_take(struct autodiff *ad, int value)
{
    int grad = autodiff_grad(ad, value);
    if (grad >= 0)
        ad->grad[value] = -1;
    return grad;
}

void autodiff_give(struct autodiff *ad, int value, int grad)
{
    widen(ad, value);
    int before = ad->grad[value];
    if (before >= 0) {
        struct op_attrs none = {0};
        int node = autodiff_node(ad, OP_ADD, (int[]){before, grad}, 2, &none);
        grad = ad->graph->nodes[node].out[0];
    }
    ad->grad[value] = grad;
}

int autodiff_node(struct autodiff *ad, enum op_id op, const int *in, int ins,
                  const struct op_attrs *attrs)
{
    int node = graph_node(ad->graph, op_row(op), in, ins, attrs);
    ad->graph->nodes[node].backward = 1;
    return node;
}

void autodiff_param(struct autodiff *ad, int node, int out, int param)
{
    struct graph_value *from = &ad->graph->values[param];
    int value = graph_value(ad->graph, VALUE_PARAM_GRAD, DTYPE_F32, from->dims,
                            ad->graph->values[param].dim);
    int index = ad->graph->values[param].index;
    ad->graph->values[value].index = index;
    ad->graph->values[value].producer = node;
    ad->graph->nodes[node].out[out] = value;
    ad->graph->nodes[node].accumulate = ad->param_written[index];
    ad->param_written[index] = 1;
}

static int find_role(const struct graph *graph, enum value_role role)
{
    for (int i = 0; i < graph->value_count; i++)
        if (graph->values[i].role == role)
            return i;
    return -1;
}

/* The gradient that leaves the unit must be made by a node here: a unit that only hands
 * on what it got would need a copy, and no model has one. */
static int finish_input(struct autodiff *ad, struct error *err)
{
    int input = find_role(ad->graph, VALUE_INPUT);
    if (input < 0)
        return 0;
    int grad = autodiff_grad(ad, input);
    if (grad < 0 || ad->graph->values[grad].role != VALUE_TEMP)
        return error_set(err, "a unit's input has no gradient of its own");
    ad->graph->values[grad].role = VALUE_INPUT_GRAD;
    return 0;
}

int autodiff(struct graph *graph, struct error *err)
{
    struct autodiff ad = {.graph = graph};
    ad.param_written = array_make((size_t)graph->param_count, 1);
    widen(&ad, graph->value_count);
    int output = find_role(graph, VALUE_OUTPUT);
    if (output >= 0) {
        struct graph_value like = graph->values[output];
        ad.grad[output] = graph_value(graph, VALUE_OUTPUT_GRAD, like.dtype, like.dims, like.dim);
    }
    for (int node = graph->node_count - 1; node >= 0; node--) {
        if (graph->nodes[node].op->gradient)
            graph->nodes[node].op->gradient(&ad, node);
        else
            graph_fail(graph, "op %s has no backward rule", graph->nodes[node].op->name);
    }
    int rc = graph->err.text[0] ? error_set(err, "%s", graph->err.text) : finish_input(&ad, err);
    free(ad.grad);
    free(ad.param_written);
    return rc;
}
