/* build_experts.c - build_experts(): a mixture of experts.
 *
 *   h ---- router ---- logits fp32 ---- route -----+---- routes, for the three below and back
 *   |                                              |
 *   |                                       weights of slots
 *   |                                              |
 *   +---- dispatch ---- gate_up ---- swiglu_scaled +---- down ---- combine (+ addend) ---- y
 *
 * The weights multiply what the experts' second matrices read, not what they make: the sum is the
 * same, and backward needs nothing that these make.
 *
 * Where ranks divide the experts, each has its own rows of every expert's gate_up and its columns
 * of down.  All of them have the same h, choose alike, and make a term of y; the first one evens
 * the load out and counts it.
 */
#include "graph/build.h"
#include "graph/build_private.h"
#include "graph/op.h"

/* The logits, in fp32 whatever the graph's format, and not multiplied in fp8. */
static int route(struct graph *graph, const struct build_experts *form, struct op_attrs attrs,
                 int *routes)
{
    const struct op_attrs product = {.out = DTYPE_F32, .grad_fp32 = attrs.grad_fp32};
    int logits = append(graph, &op_linear, (int[]){form->h, form->router}, 2, product);
    int targets = graph->trains && graph->tensor.rank == 0 ? build_targets(graph) : -1;
    int weights = append(graph, &op_route, (int[]){logits, targets}, 2, attrs);
    int out = graph->nodes[graph->node_count - 1].out[1];
    *routes = out < 0 ? 0 : out;
    return weights;
}

int build_experts(struct graph *graph, const struct build_experts *form)
{
    const struct graph_group *tensor = &graph->tensor;
    int is_divided = tensor->size > 1, is_fp32 = is_divided && tensor->fp32, routes;
    struct op_attrs attrs = {
        .seq = graph->seq,
        .experts = {.count = graph->values[form->router].dim[0],
                    .chosen = form->chosen,
                    .normed = form->normed,
                    .balance = graph->trains && tensor->rank == 0 ? form->balance : 0},
        .grad_fp32 = is_fp32 && build_is_gathered(graph, form->h, *tensor)};
    build_divided(graph, form->router, *tensor);
    int weights = route(graph, form, attrs, &routes);
    int x = append(graph, &op_dispatch, (int[]){form->h, routes}, 2, attrs);
    int gate_up = append(graph, &op_experts, (int[]){x, form->gate_up, routes}, 3, attrs);
    int s = append(graph, &op_swiglu_scaled, (int[]){gate_up, weights}, 2, (struct op_attrs){0});
    int o = append(graph, &op_experts, (int[]){s, form->down, routes}, 3, attrs);
    attrs.out = is_fp32 ? DTYPE_F32 : graph->dtype;
    return append(graph, &op_combine, (int[]){o, routes, form->addend}, 3, attrs);
}
