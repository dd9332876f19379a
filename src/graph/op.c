/* op.c - the op table; each row is in the file of op_*.c that defines its op. */
#include "graph/op.h"

static const struct op *const rows[OP_COUNT] = {
    [OP_EMBEDDING] = &op_embedding,
    [OP_EMBEDDING_BACKWARD] = &op_embedding_backward,
    [OP_RMSNORM] = &op_rmsnorm,
    [OP_RMSNORM_BACKWARD] = &op_rmsnorm_backward,
    [OP_LINEAR] = &op_linear,
    [OP_LINEAR_INPUT_GRAD] = &op_linear_input_grad,
    [OP_LINEAR_WEIGHT_GRAD] = &op_linear_weight_grad,
    [OP_ROPE] = &op_rope,
    [OP_ATTENTION] = &op_attention,
    [OP_ATTENTION_BACKWARD] = &op_attention_backward,
    [OP_SWIGLU] = &op_swiglu,
    [OP_SWIGLU_BACKWARD] = &op_swiglu_backward,
    [OP_ADD] = &op_add,
    [OP_ACCUMULATE] = &op_accumulate,
    [OP_LAYERNORM] = &op_layernorm,
    [OP_LAYERNORM_BACKWARD] = &op_layernorm_backward,
    [OP_BIAS] = &op_bias,
    [OP_BIAS_BACKWARD] = &op_bias_backward,
    [OP_GELU] = &op_gelu,
    [OP_GELU_BACKWARD] = &op_gelu_backward,
    [OP_POSITIONS] = &op_positions,
    [OP_POSITIONS_BACKWARD] = &op_positions_backward,
    [OP_HEAD_LOSS] = &op_head_loss,
    [OP_HEAD_LOSS_TRAIN] = &op_head_loss_train,
    [OP_HEAD_PART] = &op_head_part,
    [OP_HEAD_TERM] = &op_head_term,
    [OP_HEAD_PART_LOSS] = &op_head_part_loss,
    [OP_HEAD_PART_TRAIN] = &op_head_part_train,
    [OP_ALL_REDUCE] = &op_all_reduce,
    [OP_ALL_REDUCE_MAX] = &op_all_reduce_max,
    [OP_ALL_GATHER] = &op_all_gather,
    [OP_REDUCE_SCATTER] = &op_reduce_scatter,
    [OP_ALL_TO_ALL] = &op_all_to_all,
};

const struct op *op_row(enum op_id id)
{
    return rows[id];
}

static void shaped_as(struct graph *graph, struct graph_node *node, int input)
{
    struct graph_value like = graph->values[node->in[input]];
    node->out[0] = graph_value(graph, VALUE_TEMP, like.dtype, like.dims, like.dim);
}

void op_shaped_as_first(struct graph *graph, struct graph_node *node)
{
    shaped_as(graph, node, 0);
}

void op_shaped_as_second(struct graph *graph, struct graph_node *node)
{
    shaped_as(graph, node, 1);
}

double op_flops(const struct graph *graph, const struct graph_node *node)
{
    return node->op->flops ? node->op->flops(graph, node)
                           : node->op->flops_each * (double)graph_elems(graph, node->in[0]);
}

double op_bytes(const struct graph *graph, const struct graph_node *node)
{
    if (node->op->bytes)
        return node->op->bytes(graph, node);
    double bytes = 0;
    for (int i = 0; i < NODE_INS; i++)
        bytes += node->in[i] >= 0 ? (double)graph_bytes(graph, node->in[i]) : 0;
    for (int i = 0; i < NODE_OUTS; i++)
        bytes += node->out[i] >= 0 ? (double)graph_bytes(graph, node->out[i]) : 0;
    return bytes;
}
