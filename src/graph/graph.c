/* graph.c - a graph's tables of values and nodes, and its first mistake; see graph.h. */
#include "graph/graph.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "graph/op.h"

struct graph *graph_create(int64_t batch, int64_t seq, enum dtype dtype)
{
    struct graph *graph = array_make(1, sizeof *graph);
    graph->dtype = dtype;
    graph->batch = batch;
    graph->rows = batch * seq;
    graph->seq = seq;
    for (int s = 0; s < SEQUENCES; s++)
        graph->length[s] = seq;
    return graph;
}

void graph_destroy(struct graph *graph)
{
    if (!graph)
        return;
    free(graph->values);
    free(graph->nodes);
    free(graph->params);
    free(graph);
}

int graph_value(struct graph *graph, enum graph_value_role role, enum dtype dtype, int dims,
                const int64_t *dim)
{
    struct graph_value value = {.role = role, .dtype = dtype, .dims = dims, .producer = -1};
    for (int i = 0; i < dims; i++) /* before the table moves: dim may point into it */
        value.dim[i] = dim[i];
    graph->values = array_grow(graph->values, graph->value_count, &graph->value_capacity,
                               sizeof *graph->values);
    graph->values[graph->value_count] = value;
    return graph->value_count++;
}

/* Check the inputs that the op reads in the graph's format, as its kernel does not look at theirs.
 */
static int check_formats(struct graph *graph, const struct graph_node *node)
{
    for (int k = 0; k < NODE_INS; k++) {
        int v = node->op->in_format >> k & 1 ? node->in[k] : -1;
        if (v >= 0 && graph->values[v].dtype != graph->dtype)
            return graph_fail(graph, "%s: input %d is in %s, where %s is read", node->op->name, k,
                              dtype_name(graph->values[v].dtype), dtype_name(graph->dtype));
    }
    return 0;
}

int graph_node(struct graph *graph, const struct op *op, const int *in, int ins,
               const struct op_attrs *attrs)
{
    graph->nodes =
        array_grow(graph->nodes, graph->node_count, &graph->node_capacity, sizeof *graph->nodes);
    int index = graph->node_count++;
    struct graph_node node = {.op = op, .attrs = *attrs};
    for (int i = 0; i < NODE_INS; i++)
        node.in[i] = i < ins ? in[i] : -1;
    for (int i = 0; i < NODE_OUTS; i++)
        node.out[i] = -1;
    graph->nodes[index] = node;
    if (!graph->err.text[0] && !check_formats(graph, &node) && op->shapes)
        op->shapes(graph, &graph->nodes[index]);
    for (int i = 0; i < NODE_OUTS; i++)
        if (graph->nodes[index].out[i] >= 0)
            graph->values[graph->nodes[index].out[i]].producer = index;
    return index;
}

struct sequence_part graph_sequence_part(int64_t own, struct graph_group context)
{
    int64_t chunk = own / 2, rank = context.rank, size = context.size;
    if (size < 2)
        return (struct sequence_part){0};
    return (struct sequence_part){.chunk = chunk,
                                  .first = {rank * chunk, (2 * size - 1 - rank) * chunk}};
}

int graph_find(const struct graph *graph, enum graph_value_role role)
{
    for (int v = 0; v < graph->value_count; v++)
        if (graph->values[v].role == role)
            return v;
    return -1;
}

int64_t graph_elems(const struct graph *graph, int value)
{
    int64_t elems = 1;
    for (int i = 0; i < graph->values[value].dims; i++)
        elems *= graph->values[value].dim[i];
    return elems;
}

size_t graph_bytes(const struct graph *graph, int value)
{
    return (size_t)graph_elems(graph, value) * dtype_bytes(graph->values[value].dtype);
}

int graph_fail(struct graph *graph, const char *fmt, ...)
{
    if (graph->err.text[0])
        return -1;
    char text[256];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return error_set(&graph->err, "%s", text);
}
