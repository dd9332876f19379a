/* op_route.c - which experts a router chooses for each row, and how much each of them counts.
 *
 * route: inputs logits fp32 [rows, experts], and targets [rows] or none; outputs the weights of the
 * slots, fp32 [slots], and routes, int32 (struct routes).  The choice has no gradient, the weights
 * have one.  In backward the loss that evens the load out (attrs.experts.balance) joins it, of
 * which nothing is made in forward.  Where ranks divide the experts' matrices, the gradient of the
 * weights is a term, and so is that of the logits; build_experts() leaves balance to one of
 * the ranks.
 *
 * Where route has targets, backward also counts the rows that each expert has of those with a
 * target: not forward, which may run twice.
 */
#include "graph/autodiff.h"
#include "graph/op.h"
#include "device/ops.h"

enum { OF_LOGITS, TARGETS };                            /* inputs of route */
enum { WEIGHTS, ROUTES };                               /* its outputs */
enum { DWEIGHTS, LOGITS, COUNTED, CHOICE, LOSS_SCALE }; /* inputs of route_backward */
enum { DLOGITS, EXPERT_TOKENS };                        /* its outputs */

int op_is_router(const struct graph *graph, int n)
{
    if (graph->nodes[n].op != &op_linear)
        return 0;
    int logits = graph->nodes[n].out[0];
    for (int i = n + 1; i < graph->node_count; i++) {
        const struct graph_node *node = &graph->nodes[i];
        if (node->in[0] == logits && node->op == &op_route)
            return 1;
        if (node->in[0] == logits && node->op == &op_bias)
            logits = node->out[0];
    }
    return 0;
}

int64_t op_experts_before(const struct graph *graph, int n)
{
    int64_t experts = 0;
    for (int i = 0; i < n; i++)
        if (graph->nodes[i].op == &op_route)
            experts += graph->nodes[i].attrs.experts.count;
    return experts;
}

static void shapes(struct graph *graph, struct graph_node *node)
{
    const struct graph_value logits = graph->values[node->in[OF_LOGITS]];
    const struct graph_experts *e = &node->attrs.experts;
    int64_t rows = logits.dim[0], slots = rows * e->chosen;
    int64_t elems = routes_elems(rows, e->count, e->chosen);
    if (logits.dtype != DTYPE_F32 || logits.dim[1] != e->count || e->chosen < 1 ||
        e->chosen > e->count)
        graph_fail(graph, "route: %lld logits, in %s, for %lld of %lld experts",
                   (long long)logits.dim[1], dtype_name(logits.dtype), (long long)e->chosen,
                   (long long)e->count);
    if (elems > INT32_MAX)
        graph_fail(graph, "route: %lld rows at %lld experts each are too many", (long long)rows,
                   (long long)e->chosen);
    if (e->balance != 0)
        op_check_sequences(graph, node);
    if (node->in[TARGETS] >= 0 && graph_elems(graph, node->in[TARGETS]) != rows)
        graph_fail(graph, "route: %lld targets for %lld rows",
                   (long long)graph_elems(graph, node->in[TARGETS]), (long long)rows);
    node->out[WEIGHTS] = graph_value(graph, VALUE_TEMP, DTYPE_F32, 1, &slots);
    node->out[ROUTES] = graph_value(graph, VALUE_TEMP, DTYPE_I32, 1, &elems);
}

static void gradient(struct autodiff *ad, const struct graph_node *node, int dy)
{
    struct graph *graph = ad->graph;
    int scale = node->attrs.experts.balance != 0
                    ? graph_value(graph, VALUE_LOSS_SCALE, DTYPE_F64, 1, (int64_t[]){1})
                    : -1;
    int back =
        autodiff_node(ad, &op_route_backward,
                      (int[]){dy, node->in[OF_LOGITS], node->in[TARGETS], node->out[ROUTES], scale},
                      5, &node->attrs);
    int tokens = graph->nodes[back].out[EXPERT_TOKENS];
    if (tokens >= 0)
        graph->values[tokens].index =
            (int)op_experts_before(graph, graph->values[node->out[WEIGHTS]].producer);
    autodiff_give(ad, node->in[OF_LOGITS], graph->nodes[back].out[DLOGITS]);
}

/* The problem of a node of either op, whose logits are this value. */
static struct route route_of(const struct op_call *call, int logits)
{
    const struct graph_value *value = &call->graph->values[call->node->in[logits]];
    const struct graph_experts *e = &call->node->attrs.experts;
    return (struct route){.dt = call->graph->dtype,
                          .rows = value->dim[0],
                          .experts = e->count,
                          .chosen = e->chosen,
                          .normed = e->normed,
                          .seq = call->node->attrs.seq,
                          .balance = e->balance};
}

static int run(const struct op_call *call, struct error *err)
{
    const struct route r = route_of(call, OF_LOGITS);
    call->device->ops->route(call->device, &r, call->out[WEIGHTS], call->out[ROUTES], call->in[0]);
    return 0;
}

const struct op op_route = {
    .name = "route",
    .shapes = shapes,
    .gradient = gradient,
    .flops_each = 8,
    .run = run,
};

static void backward_shapes(struct graph *graph, struct graph_node *node)
{
    node->out[DLOGITS] =
        graph_value(graph, VALUE_TEMP, graph->dtype, 2, graph->values[node->in[LOGITS]].dim);
    if (node->in[COUNTED] >= 0)
        node->out[EXPERT_TOKENS] =
            graph_value(graph, VALUE_EXPERT_TOKENS, DTYPE_F64, 1, &node->attrs.experts.count);
}

/* Of each logit, not of input 0, which has the slots. */
static double backward_flops(const struct graph *graph, const struct graph_node *node)
{
    return 12.0 * (double)graph_elems(graph, node->in[LOGITS]);
}

static int backward_run(const struct op_call *call, struct error *err)
{
    struct route r = route_of(call, LOGITS);
    r.targets = call->in[COUNTED];
    call->device->ops->route_backward(call->device, &r, call->out[DLOGITS], call->in[DWEIGHTS],
                                      call->in[LOGITS], call->in[CHOICE], call->in[LOSS_SCALE]);
    if (call->out[EXPERT_TOKENS])
        call->device->ops->route_load(call->device, &r, call->out[EXPERT_TOKENS], call->in[CHOICE]);
    return 0;
}

const struct op op_route_backward = {
    .name = "route_backward",
    .shapes = backward_shapes,
    .flops = backward_flops,
    .run = backward_run,
};
