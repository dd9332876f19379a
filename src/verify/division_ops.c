/* division_ops.c - see division_ops.h: a row for each op, and for each kind of exchange. */
#include "verify/division_ops.h"

#include <stddef.h>

static const struct division_rule rules[] = {
    {.op = &op_rmsnorm, .same = 1 << 0 | 1 << 1, .columns = 1 << 2, .all_columns = 1},
    {.op = &op_layernorm, .same = 1 << 0, .columns = 1 << 1 | 1 << 2, .all_columns = 1},
    {.op = &op_qk_norm, .same = 1 << 0, .heads = 1},
    {.op = &op_rope, .same = 1 << 0, .linear = 1, .in_sequence = 1, .places = 1 << 2, .heads = 1},
    {.op = &op_attention, .same = 1 << 0 | 1 << 1, .in_sequence = 1, .heads = 1, .first = 1},
    {.op = &op_attention_cached,
     .same = 1 << 0,
     .in_sequence = 1,
     .places = 1 << 2,
     .heads = 1,
     .first = 1},
    {.op = &op_dropout, .same = 1 << 0 | 1 << 2},
    {.op = &op_swiglu, .same = 1 << 0, .halves = 1, .first = 1},
    {.op = &op_swiglu_scaled, .same = 1 << 0, .halves = 1, .first = 1},
    {.op = &op_route, .same = 1 << 0, .all_columns = 1},
    {.op = &op_dispatch, .same = 1 << 0, .linear = 1},
    {.op = &op_combine, .same = 1 << 0 | 1 << 2, .linear = 1},
    {.op = &op_add, .same = 1 << 0 | 1 << 1, .linear = 1},
    {.op = &op_round, .same = 1 << 0},
    {.op = &op_scale, .same = 1 << 0, .linear = 1},
    {.op = &op_fit_rows, .same = 1 << 0, .linear = 1},
    {.op = &op_split_heads, .same = 1 << 0, .linear = 1, .heads = 1, .first = 1},
    {.op = &op_order_chunks, .same = 1 << 0, .linear = 1},
    {.op = &op_bias, .same = 1 << 0, .columns = 1 << 1},
    {.op = &op_gelu, .same = 1 << 0, .columns = 1 << 1},
    {.op = &op_positions, .same = 1 << 0, .columns = 1 << 1, .in_sequence = 1},
    {.op = &op_head_loss, .same = 1 << 0, .all_columns = 1, .in_sequence = 1},
};

const struct division_rule *division_rule(const struct op *op)
{
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++)
        if (rules[i].op == op)
            return &rules[i];
    return NULL;
}

const char division_no_sum[] = "is a term of a sum, because build_divided() is not said of it";

static const struct division_exchange exchanges[] = {
    [TRANSFER_SUM] = {.takes = TERM,
                      .gives = WHOLE,
                      .why_not = "those of different ranks have no sum",
                      .grad_needed = GRAD_WHOLE,
                      .why_wrong_grad = division_no_sum,
                      .grad_given = GRAD_WHOLE},
    [TRANSFER_SCATTER] = {.takes = TERM,
                          .gives = ROWS,
                          .why_not = "it is no term of the sum that is taken",
                          .grad_given = GRAD_WHOLE,
                          .back = TRANSFER_GATHER},
    [TRANSFER_MAXIMUM] = {.takes = PART,
                          .gives = WHOLE,
                          .takes_its_result = 1,
                          .why_not = "those of different ranks have no maximum"},
    [TRANSFER_GATHER] = {.takes = ROWS,
                         .gives = WHOLE,
                         .why_not = "it gathers own rows",
                         .grad_needed = GRAD_TERM,
                         .why_wrong_grad = "is summed to each rank's rows, but is no term of a sum",
                         .grad_given = GRAD_OWN,
                         .back = TRANSFER_SCATTER},
    [TRANSFER_ALL_TO_ALL] = {.takes = COLUMNS,
                             .gives = SPREAD,
                             .takes_its_result = 1,
                             .why_not = "it exchanges rows of own columns",
                             .grad_given = GRAD_OWN,
                             .back = TRANSFER_ALL_TO_ALL},
};

const struct division_exchange *division_exchange(enum op_transfer transfer)
{
    return &exchanges[transfer];
}

int division_is_own_part(const struct graph *graph, const struct graph_node *node)
{
    struct sequence_part own = graph_sequence_part(graph->seq, graph->context);
    const struct sequence_part *part = &node->attrs.part;
    return own.chunk && part->chunk == own.chunk && part->first[0] == own.first[0] &&
           part->first[1] == own.first[1];
}

unsigned division_axes(const struct graph *graph)
{
    unsigned axes = graph_axes(graph->output_row_group) | graph_axes(graph->context);
    for (int k = 0; k < graph->inputs; k++)
        axes |= graph_axes(graph->input[k].row_group);
    for (int i = 0; i < graph->node_count; i++)
        if (graph->nodes[i].op->transfer != TRANSFER_NONE)
            axes |= graph->nodes[i].attrs.axes;
    for (int i = 0; i < graph->param_count; i++)
        axes |= graph_axes(graph->params[i].division.group);
    for (int v = 0; v < graph->value_count; v++)
        axes |= graph_axes(graph->values[v].divided);
    return axes;
}
