/* experts.c - see experts.h. */
#include "model/experts.h"

#include <stdio.h>

#include "graph/build.h"
#include "model/transformer.h"

/* A matrix for each expert, its columns the last of `dims` dimensions, which tensor ranks divide
 * along dimension 2: of gate and up that is their rows, of down its columns. */
static int declare(struct graph *graph, const char *name, int dims, const int64_t *dim, double std)
{
    struct graph_param param = {.tensors = 1,
                                .tensor_rows = {dim[0]},
                                .dims = dims,
                                .division = {.group = graph->tensor, .dim = 2},
                                .init = INIT_NORMAL,
                                .std = (float)std};
    for (int i = 0; i < dims; i++)
        param.dim[i] = dim[i];
    snprintf(param.tensor_name[0], GRAPH_NAME, "%s", name);
    return build_param(graph, &param);
}

struct experts experts_declare(struct graph *graph, const struct config_model *c)
{
    const int64_t count = c->experts.count;
    struct transformer_tensor router = {"mlp.router", count};
    return (struct experts){
        .router = transformer_matrix(graph, &router, 1, c->hidden, c->init_std),
        .gate_up = declare(graph, "mlp.experts.gate_up", 4,
                           (int64_t[]){count, 2, c->ffn, c->hidden}, c->init_std),
        .down = declare(graph, "mlp.experts.down", 3, (int64_t[]){count, c->hidden, c->ffn},
                        transformer_back_std(c)),
    };
}

int experts_forward(struct graph *graph, const struct config_model *c,
                    const struct experts *experts, int h, int addend, float loss_factor)
{
    int is_divided = graph->tensor.size > 1;
    const struct build_experts form = {.h = h,
                                       .router = experts->router,
                                       .gate_up = experts->gate_up,
                                       .down = experts->down,
                                       .addend = is_divided ? -1 : addend,
                                       .chosen = c->experts.per_token,
                                       .normed = c->experts.norm_topk_prob,
                                       .balance = (float)(c->experts.aux_loss / (double)c->layers) *
                                                  loss_factor};
    int y = build_experts(graph, &form);
    if (!is_divided)
        return y;
    return build_add(graph, build_round(graph, build_scatter_rows(graph, y, graph->tensor)),
                     addend);
}
