/* fp8_matrices.c - see fp8_matrices.h. */
#include "segment/fp8_matrices.h"

#include <stdio.h>
#include <string.h>

#include "base/text.h"

/* Matrices of all units, and how many are multiplied in fp8; of the first that is not, what it is
 * called and its sides. */
struct counts {
    int all, in_fp8;
    char other[GRAPH_NAME + 64];
};

/* Does node n multiply by a matrix of a block, or by those of experts?  An adapter's and a router's
 * are not meant. */
static const struct graph_param *matrix_of(const struct graph *graph, int n)
{
    const struct graph_node *node = &graph->nodes[n];
    int is_product = (node->op == &op_linear && !op_is_router(graph, n)) || node->op == &op_experts;
    if (!is_product || graph->values[node->in[1]].role != VALUE_PARAM)
        return NULL;
    const struct graph_param *param = &graph->params[graph->values[node->in[1]].index];
    return param->is_low_rank ? NULL : param;
}

/* "mlp.down, 64 x 176" */
static void name(char *text, size_t bytes, const struct graph_param *param,
                 const struct graph_value *value)
{
    char sides[64] = "";
    for (int i = 0; i < value->dims; i++)
        text_join(sides, sizeof sides, " x ", "%lld", (long long)value->dim[i]);
    snprintf(text, bytes, "%s, %s", param->tensor_name[0], sides);
}

static void count_graph(struct counts *c, const struct graph *graph)
{
    for (int n = 0; n < graph->node_count; n++) {
        const struct graph_node *node = &graph->nodes[n];
        const struct graph_param *param = matrix_of(graph, n);
        if (!param)
            continue;
        c->all++;
        c->in_fp8 += node->attrs.fp8;
        if (!node->attrs.fp8 && !c->other[0])
            name(c->other, sizeof c->other, param, &graph->values[node->in[1]]);
    }
}

static struct counts count_units(const struct units *units)
{
    struct counts c = {0};
    for (int u = 0; u < units->count; u++) {
        const struct unit_kind *kind = units_kind(units, u);
        const struct graph *graph = kind->train ? kind->train : kind->evaluate;
        if (graph && graph->fp8)
            count_graph(&c, graph);
    }
    return c;
}

int fp8_matrices_check(const struct units *units, struct error *err)
{
    const struct counts c = count_units(units);
    if (c.all == 0 || c.in_fp8 > 0)
        return 0;
    return error_set(err,
                     "precision fp8 multiplies matrices whose sides are multiples of %d (with "
                     "parallel.tensor, a rank's part of the sides), and this model has none: %s; "
                     "use precision bf16",
                     GEMM_FP8_SIZES, c.other);
}

const char *fp8_matrices_note(const struct units *units, char note[FP8_NOTE])
{
    const struct counts c = count_units(units);
    note[0] = '\0';
    if (c.in_fp8 < c.all)
        snprintf(note, FP8_NOTE, " in %d of %d matrices (not %s)", c.in_fp8, c.all, c.other);
    return note;
}
