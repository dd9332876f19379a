/* build_param.c - build_param(): declares a parameter, and finds the box that this rank has of each
 * tensor stacked in it.
 *
 *   q [8, in], k [4, in] and v [4, in] stacked, each divided by rows in 4 chunks among 3 ranks:
 *
 *   rank 0   q 0-3 | k 0-1 | v 0-1     [8, in]
 *   rank 1   q 4-5 | k 2   | v 2       [4, in]
 *   rank 2   q 6-7 | k 3   | v 3       [4, in]
 */
#include "base/array.h"
#include "base/round.h"
#include "graph/build.h"

/* Cut the whole box of a tensor down to the rank's part.  Where parts differ, the first ranks have
 * the larger ones: rank 0 then needs the most memory and time, and plans measure it for all. */
static void divide(struct graph *graph, const struct graph_param *param, int tensor)
{
    const struct graph_division *d = &param->division;
    struct box *box = &graph->params[graph->param_count].box[tensor];
    int64_t whole = box->whole[d->dim], chunks = d->chunks ? d->chunks : whole;
    int64_t size = d->group.size, rank = d->group.rank;
    if (chunks < size || whole % chunks) {
        graph_fail(graph, "%s: %lld %s, in %lld chunks, cannot be divided among %lld ranks",
                   param->tensor_name[tensor], (long long)whole, d->dim ? "columns" : "rows",
                   (long long)chunks, (long long)size);
        return;
    }
    int64_t each = chunks / size, longer = chunks % size; /* ranks with one chunk more */
    box->start[d->dim] = whole / chunks * (each * rank + min_i64(rank, longer));
    box->count[d->dim] = whole / chunks * (each + (rank < longer));
}

/* Fill in the boxes of the stacked tensors, and the sizes of the rank's parts in dim and
 * tensor_rows.
 */
static void find_boxes(struct graph *graph, const struct graph_param *param)
{
    struct graph_param *own = &graph->params[graph->param_count];
    int64_t rows = 0;
    for (int t = 0; t < param->tensors; t++) {
        int64_t whole[GRAPH_DIMS];
        for (int i = 0; i < param->dims; i++)
            whole[i] = i == 0 ? param->tensor_rows[t] : param->dim[i];
        own->box[t] = box_whole(param->dims, whole);
        if (param->division.group.size > 1)
            divide(graph, param, t);
        rows += param->tensor_rows[t];
        own->dim[0] += own->box[t].count[0] - param->tensor_rows[t];
        own->tensor_rows[t] = own->box[t].count[0];
    }
    for (int i = 1; i < param->dims; i++)
        own->dim[i] = own->box[0].count[i];
    if (rows != param->dim[0])
        graph_fail(graph, "%s: its tensors have %lld rows, and it has %lld", param->tensor_name[0],
                   (long long)rows, (long long)param->dim[0]);
}

int build_param(struct graph *graph, const struct graph_param *param)
{
    graph->params =
        array_grow(graph->params, graph->param_count, &graph->param_capacity, sizeof *param);
    struct graph_param *own = &graph->params[graph->param_count];
    *own = *param;
    own->block = graph->block;
    find_boxes(graph, param);
    int value = graph_value(graph, VALUE_PARAM, graph->dtype, own->dims, own->dim);
    graph->values[value].index = graph->param_count++;
    return value;
}
