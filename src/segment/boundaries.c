/* boundaries.c - see boundaries.h.
 *
 *   unit   0 embed   1 encode   2 end     3 embed   4 decode         5 decode         6 head
 *   reads            hidden     hidden              hidden, encoded  hidden, encoded  hidden
 *   of               0          1                   3, 2             4, 2             5
 *   puts   hidden    hidden     encoded   hidden    hidden           hidden
 */
#include "segment/boundaries.h"

#include <string.h>

/* The graph of a unit of each kind of block: however many it has, it reads and puts out what one
 * does. */
struct block_graphs {
    struct graph *graph[MODEL_KINDS];
};

static int build_graphs(const struct units *units, struct block_graphs *blocks, struct error *err)
{
    const struct units_request *r = &units->request;
    for (int u = 0; u < units->count; u++) {
        int kind = units->model->unit[u].kind;
        if (blocks->graph[kind])
            continue;
        blocks->graph[kind] = model_unit_graph(units->model, u, MODEL_LOSS, r->batch, r->seq,
                                               r->dtype, r->tensor, r->loss_factor, err);
        if (!blocks->graph[kind])
            return -1;
    }
    return 0;
}

static const struct graph *graph_of(const struct units *units, const struct block_graphs *blocks,
                                    int unit)
{
    return blocks->graph[units->model->unit[unit].kind];
}

static int find_producer(const struct units *units, const struct block_graphs *blocks, int unit,
                         const char *name)
{
    while (--unit >= 0)
        if (!strcmp(graph_of(units, blocks, unit)->output_name, name))
            return unit;
    return -1;
}

static int is_shape_equal(const struct graph_value *a, const struct graph_value *b)
{
    return a->dims == b->dims && a->dtype == b->dtype && !memcmp(a->dim, b->dim, sizeof a->dim);
}

static int find_inputs(struct units *units, const struct block_graphs *blocks, int unit,
                       struct error *err)
{
    const struct graph *graph = graph_of(units, blocks, unit);
    struct unit_boundaries *own = &units->boundary[unit];
    for (int k = 0; k < graph->inputs; k++) {
        const char *name = graph->input[k].name;
        int from = find_producer(units, blocks, unit, name);
        if (from < 0)
            return error_set(err, "model: unit %d reads \"%s\", which no unit before it puts out",
                             unit, name);
        const struct graph *other = graph_of(units, blocks, from);
        const struct graph_value *in = &graph->values[graph->input[k].value],
                                 *out = &other->values[graph_find(other, VALUE_OUTPUT)];
        if (!is_shape_equal(in, out))
            return error_set(err,
                             "model: unit %d reads \"%s\" as [%lld, %lld], and unit %d puts out "
                             "[%lld, %lld]",
                             unit, name, (long long)in->dim[0], (long long)in->dim[1], from,
                             (long long)out->dim[0], (long long)out->dim[1]);
        own->producer[own->inputs++] = from;
        units->boundary[from].readers++;
    }
    int output = graph_find(graph, VALUE_OUTPUT);
    own->bytes = output < 0 ? 0 : graph_bytes(graph, output);
    return 0;
}

/* An output that nobody reads has no gradient: backward of its unit could not begin. */
static int check_readers(const struct units *units, const struct block_graphs *blocks,
                         struct error *err)
{
    for (int u = 0; u < units->count; u++)
        if (units->boundary[u].bytes && !units->boundary[u].readers)
            return error_set(err, "model: unit %d puts out \"%s\", which no unit reads", u,
                             graph_of(units, blocks, u)->output_name);
    return 0;
}

int boundaries_find(struct units *units, struct error *err)
{
    struct block_graphs blocks = {{NULL}};
    int rc = build_graphs(units, &blocks, err);
    for (int u = 0; !rc && u < units->count; u++)
        rc = find_inputs(units, &blocks, u, err);
    if (!rc)
        rc = check_readers(units, &blocks, err);
    for (int kind = 0; kind < MODEL_KINDS; kind++)
        graph_destroy(blocks.graph[kind]);
    return rc;
}
